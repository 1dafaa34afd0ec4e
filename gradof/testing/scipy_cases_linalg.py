"""The scipy table: scipy.linalg."""

from __future__ import annotations

from gradof.testing.numpy_samples import Of, R, case, definite, matrix, positive

_L = "scipy.linalg"
_of = Of(_L, matrix(3))


_SYSTEM = (matrix(3), R(3, 2))
_VECTOR = (matrix(3), R(3))
_SPD = "x @ x.T"

CASES = (
    case(f"{_L}.eigvals", f"np.abs({_L}.eigvals(x)) ** 2", matrix(3)),
    case(f"{_L}.eig", f"w, v = {_L}.eig(x)\nreturn (w * w).real, np.abs(v)", matrix(3)),
    *_of("inv", "x"), *_of("det", "x"),
    *_of("solve", "x, y", "x, y, assume_a='gen'", "x, y, transposed=True",
         f"{_SPD}, y, assume_a='pos'", on=_SYSTEM),
    *_of("solve", "x, y", "x + x.T, y, assume_a='sym'", on=_VECTOR),
    *_of("solve_triangular", "x, y", "x, y, lower=True", "x, y, trans='T'",
         "x, y, trans=1, lower=True", "x, y, unit_diagonal=True", on=_SYSTEM),
    *_of("solve_triangular", "x, y, lower=True", on=_VECTOR),
    *_of("cholesky", _SPD, f"{_SPD}, lower=True"),
    case(f"{_L}.cho_factor", f"np.tril({_L}.cho_factor({_SPD}, lower=True)[0])", matrix(3)),
    *_of("cho_solve", f"{_L}.cho_factor({_SPD}), y", f"({_L}.cholesky({_SPD}, True), True), y",
         on=_SYSTEM),
    *_of("cho_solve", f"{_L}.cho_factor({_SPD}, True), y", on=_VECTOR),
    case(f"{_L}.lu_factor", f"{_L}.lu_factor(x)[0]", matrix(3)),
    *_of("lu_solve", f"{_L}.lu_factor(x), y", f"{_L}.lu_factor(x), y, trans=1", on=_SYSTEM),
    *_of("lu_solve", f"{_L}.lu_factor(x[::-1]), y", on=_VECTOR),
    case(f"{_L}.lu", f"{_L}.lu(x[::-1])[1:]", matrix(3)),
    *_of("lu", "x, permute_l=True"),
    case(f"{_L}.lstsq", f"{_L}.lstsq(x, y)[0]", R(5, 3), R(5)),
    case(f"{_L}.lstsq", f"{_L}.lstsq(x, y)[0]", R(3, 5), R(3, 2)),
    case(f"{_L}.lstsq", f"{_L}.lstsq(x, y, lapack_driver='gelsy')[0]", R(5, 3), R(5, 2)),
    case(f"{_L}.lstsq", f"{_L}.lstsq(x, y)[1]", R(5, 3), R(5, 2)),
    *(case(f"{_L}.{name}", f"x * {_L}.{name}(x + x.T) + {_L}.{name}(x)", matrix(3))
      for name in ("issymmetric", "ishermitian")),
    case(f"{_L}.bandwidth", f"x * {_L}.bandwidth(np.triu(x, -1))[0]", matrix(4)),
    *_of("solve_banded", "(1, 1), x + np.array([[0.0], [6.0], [0.0]]), y", on=(R(3, 5), R(5))),
    *_of("solve_banded", "(2, 1), x + np.array([[0.0], [9.0], [0.0], [0.0]]), y",
         on=(R(4, 6), R(6, 2))),
    *_of("solveh_banded", "x + np.array([[0.0], [6.0]]), y", on=(R(2, 5), R(5))),
    *_of("solveh_banded", "x + np.array([[7.0], [0.0], [0.0]]), y, lower=True",
         on=(R(3, 5), R(5, 2))),
    *_of("cholesky_banded", "x + np.array([[0.0], [6.0]])", on=(R(2, 5),)),
    *_of("cholesky_banded", "x + np.array([[9.0], [0.0], [0.0]]), lower=True", on=(R(3, 5),)),
    *_of("cho_solve_banded", "(x, False), y", "(x[::-1], True), y", on=(positive(2, 5), R(5))),
    *_of("toeplitz", "x", "x, y", on=(R(3), R(4))),
    *_of("hankel", "x", "x, y", on=(R(3), R(4))), *_of("hankel", "x, y", on=(R(2, 3), R(4))),
    *_of("circulant", "x", on=(R(4),)), *_of("companion", "x", on=(positive(4),)),
    *_of("fiedler", "x", on=(R(4),)), *_of("leslie", "x, y", on=(R(4), R(3))),
    *_of("block_diag", "x, y, x[0]", on=(R(2, 3), R(2, 2))),
    *_of("khatri_rao", "x, y", on=(R(2, 3), R(4, 3))),
    *_of("convolution_matrix", "x, 4", "x, 4, mode='same'", "x, 4, mode='valid'", on=(R(3),)),
    *_of("solve_toeplitz", "x + np.array([7.0, 0, 0]), y", "(x + np.array([7.0, 0, 0]), y), x",
         on=(R(3), R(3))),
    *_of("matmul_toeplitz", "x, y", on=(R(3), R(3))),
    *_of("solve_circulant", "x + np.array([7.0, 0, 0]), y", on=(R(3), R(3))),
    # the sign of a vector is LAPACK's, and may be another beside it
    case(f"{_L}.eigh", f"(lambda w, v: (w, v * v))(*{_L}.eigh(x + x.T))", matrix(3)),
    *_of("eigh", f"{_SPD}, eigvals_only=True", f"{_SPD}, lower=False, eigvals_only=True"),
    *_of("eigh", "x + x.T, y, eigvals_only=True", on=(matrix(3), definite(3))),
    *_of("eigvalsh", "x + x.T", "x + x.T, subset_by_index=[0, 1]"),
    *_of("eigh_tridiagonal", "x, y", on=(R(4), positive(3))),
    *_of("eigvalsh_tridiagonal", "x, y", on=(R(4), positive(3))),
    *_of("eigvals_banded", "x, lower=True", on=(R(2, 4),)),
    case(f"{_L}.svd", f"{_L}.svd(x, full_matrices=False)", R(4, 3)),
    *_of("svdvals", "x", on=(R(3, 4),)), *_of("diagsvd", "x, 4, 3", on=(R(3),)),
    *_of("qr", "x", "x, mode='economic'"), *_of("qr", "x, mode='economic'", on=(R(4, 3),)),
    *_of("polar", "x", "x, side='left'"),
    *_of("orthogonal_procrustes", "x, y", on=(matrix(3), matrix(3))),
    *_of("subspace_angles", "x, y", on=(R(5, 2), R(5, 2))),
    *_of("pinv", "x", on=(R(4, 3),)), *_of("pinvh", "x + x.T"),
    *_of("norm", "x, 2", "x, axis=1"),
    *(case(f"{_L}.norm", f"1.0 * x[0, 0] * {_L}.norm(x, {o})", matrix(3))
      for o in (None, 1, "'nuc'")),
    *_of("expm", "x"), *_of("logm", _SPD), *_of("sqrtm", _SPD),
    *(case(f"{_L}.{name}", f"y = {_L}.{call}\nreturn y.real, y.imag", matrix(3))
      for name, call in (("logm", f"logm(-{_SPD})"), ("sqrtm", f"sqrtm(-{_SPD})"),
                         ("logm", "logm(x - 3j * np.eye(3))"))),
    *_of("fractional_matrix_power", f"{_SPD}, 0.3"),
    *_of("cosm", "x"), *_of("sinm", "x"), *_of("tanm", "x * 0.2"), *_of("coshm", "x"),
    *_of("sinhm", "x"), *_of("tanhm", "x"),
    *_of("signm", "x - np.diag([5.0, 0.0, 5.0])"),
    *_of("expm_frechet", "x, y", on=(matrix(3), R(3, 3))),
    *_of("solve_sylvester", "x, y, z", on=(matrix(3), matrix(2), R(3, 2))),
    *_of("solve_continuous_lyapunov", "x, y", on=(matrix(3), R(3, 3))),
    *_of("solve_discrete_lyapunov", "x * 0.2, y", on=(matrix(3), R(3, 3))),
    *_of("solve_continuous_are", "-x, y * 0.3, z @ z.T * 0.2, u @ u.T",
         on=(matrix(3), R(3, 2), matrix(3), matrix(2))),
    *_of("solve_discrete_are", "x * 0.3, y, z @ z.T * 0.2, u @ u.T",
         on=(matrix(3), R(3, 2), matrix(3), matrix(2))),
)  # fmt: skip
