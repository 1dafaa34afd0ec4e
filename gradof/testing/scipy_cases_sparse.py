"""The scipy table: scipy.sparse, matrices constant and with traced elements."""

from __future__ import annotations

from gradof.testing.numpy_samples import Case, R, Sample, case, positive

_S, _L = "scipy.sparse", "scipy.sparse.linalg"
_CONSTANT = "np.array([[4.0, 0.0, 1.0], [0.0, 3.0, 0.0], [1.0, 0.0, 5.0]])"
_PLACES = "(np.array([0, 2, 1, 0, 2]), np.array([0, 2, 1, 2, 0]))"
_TWICE = "(np.array([0, 2, 1, 0, 0]), np.array([0, 2, 1, 2, 0]))"
_TRACED = f"scipy.sparse.csc_array((x + 4.0, {_PLACES}), shape=(3, 3))"
_FORMATS = ("csr_array", "csc_array", "coo_array", "csr_matrix", "csc_matrix", "coo_matrix")


def _case(name: str, source: str, *on: Sample) -> Case:
    return case(name, source, *on)


_DATA, _VECTOR = R(5), R(3)
CASES = (
    *(_case(f"{_S}.{f} @ x", f"{_S}.{f}({_CONSTANT}) @ x", _VECTOR) for f in _FORMATS),
    *(_case(f"{_S}.{f} @ x", f"{_S}.{f}({_CONSTANT}) @ x", R(3, 2)) for f in _FORMATS),
    *(_case(f"x @ {_S}.{f}", f"x @ {_S}.{f}({_CONSTANT})", _VECTOR) for f in _FORMATS),
    _case(f"x @ {_S}.csr_array", f"x @ {_S}.csr_array({_CONSTANT})", R(2, 3)),
    _case(f"{_S}.csr_matrix * x", f"{_S}.csr_matrix({_CONSTANT}) * x", _VECTOR),
    _case(f"{_S}.csr_array.dot", f"{_S}.csr_array({_CONSTANT}).dot(x)", _VECTOR),
    _case(f"{_S}.csr_array.T", f"{_S}.csr_array({_CONSTANT}).T @ x", _VECTOR),
    _case(f"{_S}.csr_array * scalar", f"(x[0] * {_S}.csr_array({_CONSTANT})) @ x", _VECTOR),
    *(_case(f"{_S}.{f} of traced elements",
            f"{_S}.{f}((x, {_PLACES}), shape=(3, 3)) @ y", _DATA, _VECTOR) for f in _FORMATS),
    _case(f"{_S}.csr_array of traced elements",
          f"{_S}.csr_array((x, {_TWICE}), shape=(3, 3)) @ y", _DATA, _VECTOR),
    _case(f"{_S}.csr_array of traced elements",
          f"{_S}.csr_array((x, np.array([0, 2, 1, 0, 2]), np.array([0, 2, 3, 5]))) @ y",
          _DATA, _VECTOR),
    _case(f"{_S}.csc_array of traced elements",
          f"{_S}.csc_array((x, np.array([0, 2, 1, 0, 2]), np.array([0, 2, 3, 5]))) @ y",
          _DATA, _VECTOR),
    _case(f"{_S}.csr_array.toarray", f"{_TRACED}.toarray()", _DATA),
    _case(f"{_S}.csr_array.T", f"{_TRACED}.T @ y", _DATA, _VECTOR),
    _case(f"{_S}.csr_array.sum", f"{_TRACED}.sum(), {_TRACED}.sum(axis=0)", _DATA),
    _case(f"{_S}.csr_array.diagonal", f"{_TRACED}.diagonal()", _DATA),
    _case(f"{_S}.csr_array + S", f"({_TRACED} + {_S}.eye_array(3) * 2.0) @ y", _DATA, _VECTOR),
    _case(f"{_S}.csr_array - S", f"({_S}.csr_array({_CONSTANT}) - {_TRACED}) @ y", _DATA, _VECTOR),
    _case(f"{_S}.diags", f"{_S}.diags([x, y, z], [0, 1, -1]) @ x", R(4), R(3), R(3)),
    _case(f"{_S}.diags_array", f"{_S}.diags_array(x) @ (2 * x)", R(4)),
    _case(f"{_S}.kron", f"{_S}.kron({_TRACED}, {_S}.eye_array(2)) @ y", _DATA, R(6)),
    _case(f"{_S}.vstack", f"{_S}.vstack([{_TRACED}, {_S}.eye_array(3)]) @ y", _DATA, _VECTOR),
    _case(f"{_S}.hstack", f"{_S}.hstack([{_TRACED}, {_S}.eye_array(3)]) @ y", _DATA, R(6)),
    _case(f"{_L}.spsolve", f"{_L}.spsolve({_S}.csc_array({_CONSTANT}), x)", _VECTOR),
    _case(f"{_L}.spsolve", f"{_L}.spsolve({_TRACED}, y)", positive(5), _VECTOR),
    _case(f"{_L}.spsolve", f"{_L}.spsolve({_TRACED}, y)", positive(5), R(3, 2)),
    _case(f"{_L}.splu.solve", f"{_L}.splu({_S}.csc_array({_CONSTANT})).solve(x)", _VECTOR),
    _case(f"{_L}.splu.solve", f"{_L}.splu({_TRACED}).solve(y, trans='T')", positive(5), _VECTOR),
    # matrices, not arrays: `*` is their product, `**` their power, and sums have two dims
    *(_case(f"{_S}.{name}", f"m = {_S}.csr_matrix({_CONSTANT})\nd = {_S}.diags(x)\nreturn {source}",
            _VECTOR, _VECTOR) for name, source in (
        ("diags * x", "d * y, (d @ m) * y, (m + d) * y, d.T * y"),
        ("csr_matrix * S", "((d @ m) * d).toarray(), (d * m).toarray()"),
        ("csr_matrix ** 2", "((d @ m) ** 2).toarray(), (m @ d - m).power(2).toarray()"),
        ("csr_matrix.sum", "np.asarray((d @ m).sum(axis=0)), np.asarray((m - d).mean(axis=1))"),
        ("csr_matrix[i]", "(d @ m).tocsr()[1].toarray()"),
        ("vstack", f"{_S}.vstack([d, m]) * y, {_S}.kron(d, m) * np.ones(9)"),
        ("diags_array", f"({_S}.diags_array(x) * y).toarray(), {_S}.diags_array(x).sum(axis=0)"),
    )),
    _case(f"{_L}.factorized", f"{_L}.factorized({_TRACED})(y)", positive(5), _VECTOR),
    _case(f"{_S}.csr_array.multiply", f"{_TRACED}.multiply(y) @ y", _DATA, _VECTOR),
    _case(f"{_L}.spilu.solve",
          f"{_L}.spilu({_S}.csc_array({_CONSTANT}), drop_tol=0.0).solve(x)", _VECTOR),
    _case(f"{_L}.LinearOperator",
          f"{_L}.LinearOperator((3, 3), matvec=lambda v: np.sin(y) * v, dtype=float) @ x",
          _VECTOR, _VECTOR),
    _case(f"{_L}.aslinearoperator",
          f"{_L}.aslinearoperator({_S}.csc_array({_CONSTANT})) @ x", _VECTOR),
    *(_case(f"{_L}.{name}", f"{_L}.{name}({_S}.csc_array({_CONSTANT}), x, rtol=1e-13)[0]", _VECTOR)
      for name in ("cg", "minres", "gmres", "lgmres", "gcrotmk", "bicg", "bicgstab", "cgs", "qmr",
                   "tfqmr")),
    _case(f"{_L}.spsolve_triangular",
          f"{_L}.spsolve_triangular({_S}.csr_array(np.tril({_CONSTANT})), x)", _VECTOR),
)  # fmt: skip
