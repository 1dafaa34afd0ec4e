"""The numpy table: products and numpy.linalg."""

from __future__ import annotations

from gradof.testing.numpy_samples import R, case, definite, matrix

PRODUCTS = (
    case("numpy.dot", "np.dot(x, y)", R(3, 4), R(4, 2)),
    case("numpy.dot", "np.dot(x, y)", R(3), R(3)),
    case("numpy.dot", "np.dot(x, y)", R(2, 3, 4), R(2, 4, 2)),
    case("numpy.dot", "np.dot(x, 2.0)", R(3)),
    case("numpy.vdot", "np.vdot(x, y)", R(3, 2), R(3, 2)),
    case("numpy.inner", "np.inner(x, y)", R(3, 4), R(2, 4)),
    case("numpy.outer", "np.outer(x, y)", R(3), R(2, 2)),
    case("numpy.matmul", "np.matmul(x, y)", R(2, 3, 4), R(4, 2)),
    case("numpy.matmul", "np.matmul(x, y, out=np.zeros((3, 2)))", R(3, 4), R(4, 2)),
    case("numpy.vecdot", "np.vecdot(x, y)", R(3, 4), R(4)),
    case("numpy.vecdot", "np.vecdot(x, y, axis=0)", R(3, 4), R(3, 4)),
    case("numpy.matvec", "np.matvec(x, y)", R(2, 3, 4), R(4)),
    case("numpy.vecmat", "np.vecmat(x, y)", R(3), R(2, 3, 4)),
    case("numpy.tensordot", "np.tensordot(x, y, 1)", R(2, 3), R(3, 2)),
    case("numpy.tensordot", "np.tensordot(x, y, axes=([0, 1], [1, 0]))", R(3, 4, 2), R(4, 3)),
    case("numpy.tensordot", "np.tensordot(x, y, 0)", R(2), R(3)),
    case("numpy.cross", "np.cross(x, y)", R(4, 3), R(3)),
    case("numpy.cross", "np.cross(x, y, axis=0)", R(3, 2), R(3, 2)),
    case("numpy.cross", "np.cross(x, y, axisa=0, axisc=0)", R(3, 2), R(2, 3)),
    *(
        case("numpy.einsum", f"np.einsum('{text}', x, y)", R(*a), R(*b))
        for text, a, b in (
            ("ij,jk", (2, 3), (3, 4)), ("ij,jk->ki", (2, 3), (3, 4)), ("i,j->ij", (3,), (2,)),
            ("bij,bjk->bik", (2, 3, 4), (2, 4, 2)), ("ij,ij->", (2, 3), (2, 3)),
            ("...ij,...j", (2, 3, 4), (4,)), ("ii,i->i", (3, 3), (3,)), ("ij,k->ik", (2, 3), (2,)),
        )
    ),
    case("numpy.einsum", "np.einsum('ii', x)", R(3, 3)),
    case("numpy.einsum_path", "np.einsum('ij,jk', x, x, optimize=np.einsum_path('ij,jk', x, x)[0])",
         R(3, 3)),
    case("numpy.einsum", "np.einsum('ii->i', x)", R(3, 3)),
    case("numpy.einsum", "np.einsum('ij->j', x)", R(2, 3)),
    case("numpy.einsum", "np.einsum('ij,jk,kl->il', x, y, z, optimize=True)", R(2, 3), R(3, 2),
         R(2, 2)),
    case("numpy.einsum", "np.einsum(x, [0, 1], y, [1, 2], [2, 0])", R(2, 3), R(3, 2)),
    case("numpy.einsum", "np.einsum(x, [0, 1], y, [1, 2])", R(2, 3), R(3, 2)),
)  # fmt: skip

_SQUARE = (
    ("inv", "x"), ("det", "x"), ("slogdet", "x"), ("matrix_power", "x, 3"),
    ("matrix_power", "x, -2"), ("matrix_power", "x, 0"), ("cond", "x"), ("cond", "x, 1"),
    ("cond", "x, 'fro'"), ("cond", "x, -2"),
    ("pinv", "x"), ("svdvals", "x"), ("trace", "x"), ("diagonal", "x"), ("matrix_transpose", "x"),
    ("tensorinv", "x, ind=1"),
)  # fmt: skip
_NORMS = (
    ("norm", "x"),
    ("norm", "x, axis=0"),
    ("norm", "x, 1"),
    ("norm", "x, np.inf"),
    ("norm", "x, 'fro'"),
    ("norm", "x, 2"),
    ("norm", "x, -2"),
    ("norm", "x, 'nuc'"),
    ("norm", "x, 3, axis=1"),
    ("norm", "x, -1, axis=1, keepdims=True"),
    ("norm", "x, 0, axis=0"),
    ("norm", "x, -np.inf, axis=1"),
    ("norm", "x[0], 1.5"),
    ("norm", "x, axis=(0, 1)"),
    ("norm", "x, 2, axis=(1, 0), keepdims=True"),
    ("matrix_norm", "x"),
    ("matrix_norm", "x, ord=2"),
    ("matrix_norm", "x, ord='nuc'"),
    ("matrix_norm", "x, ord=1, keepdims=True"),
    ("matrix_norm", "x, ord=-2"),
    ("vector_norm", "x"),
    ("vector_norm", "x, ord=1, axis=0"),
    ("vector_norm", "x, axis=(0, 1)"),
    ("vector_norm", "x, ord=np.inf, axis=1"),
    ("vector_norm", "x, ord=3.5, keepdims=True"),
)
DECOMPOSITIONS = (
    case("numpy.linalg.solve", "np.linalg.solve(x, y)", matrix(3), R(3)),
    case("numpy.linalg.solve", "np.linalg.solve(x, y)", matrix(3, 2), R(3, 2)),
    case("numpy.linalg.tensorsolve", "np.linalg.tensorsolve(x.reshape(2, 2, 4), y)", matrix(4),
         R(2, 2)),
    case("numpy.linalg.lstsq", "np.linalg.lstsq(x, y)[0]", R(5, 3), R(5)),
    case("numpy.linalg.lstsq", "np.linalg.lstsq(x, y, rcond=None)[:2]", R(5, 3), R(5, 2)),
    case("numpy.linalg.lstsq", "np.linalg.lstsq(x, y)[0]", R(3, 5), R(3)),
    case("numpy.linalg.lstsq", "np.linalg.lstsq(x, y)[3]", R(5, 3), R(5)),
    case("numpy.linalg.pinv", "np.linalg.pinv(x)", R(5, 3)),
    case("numpy.linalg.pinv", "np.linalg.pinv(x)", R(3, 5)),
    case("numpy.linalg.pinv", "np.linalg.pinv(x @ x.T, hermitian=True)", R(3, 4)),
    case("numpy.linalg.cholesky", "np.linalg.cholesky(x @ x.T + np.eye(3))", R(3, 3)),
    case("numpy.linalg.cholesky", "np.linalg.cholesky(x + x.mT, upper=True)", definite(3, 2)),
    case("numpy.linalg.eigh", "w, v = np.linalg.eigh(x + x.T)\nreturn w, v * v", matrix(3)),
    case("numpy.linalg.eigh", "np.linalg.eigh(x + x.mT, 'U')[0]", matrix(3, 2)),
    case("numpy.linalg.eigvalsh", "np.linalg.eigvalsh(x + x.T)", matrix(3)),
    case("numpy.linalg.svd", "np.linalg.svd(x, compute_uv=False)", R(4, 3)),
    case("numpy.linalg.svd", """
        u, s, vt = np.linalg.svd(x, full_matrices=False)
        return (u * s ** 2) @ vt, u * u, vt * vt""", R(4, 3)),
    case("numpy.linalg.svd", """
        u, s, vt = np.linalg.svd(x, full_matrices=False)
        return (u / s[:, None]) @ vt, u * u, vt * vt""", R(2, 3, 4)),
    case("numpy.linalg.svd", "u, s, vt = np.linalg.svd(x)\nreturn s, vt * vt", R(4, 3)),
    case("numpy.linalg.svd", "u, s, vt = np.linalg.svd(x)\nreturn u * u, s, vt * vt", matrix(3)),
    case("numpy.linalg.svd", "np.linalg.svd(x + x.T, hermitian=True)[1]", matrix(3)),
    case("numpy.linalg.qr", "np.linalg.qr(x)", R(4, 3)),
    case("numpy.linalg.qr", "q, r = np.linalg.qr(x)\nreturn q @ r, q * q", matrix(3, 2)),
    case("numpy.linalg.qr", "np.linalg.qr(x, mode='r')", R(4, 3)),
    case("numpy.linalg.qr", "np.linalg.qr(x)", R(3, 5)),
    case("numpy.linalg.qr", "np.linalg.qr(x, mode='complete')", matrix(3)),
    case("numpy.linalg.multi_dot", "np.linalg.multi_dot([x, y, z])", R(2, 3), R(3, 4), R(4, 2)),
    case("numpy.linalg.multi_dot", "np.linalg.multi_dot([x, y, z])", R(3), R(3, 4), R(4)),
    case("numpy.linalg.matmul", "np.linalg.matmul(x, y)", R(2, 3), R(3, 2)),
    case("numpy.linalg.outer", "np.linalg.outer(x, y)", R(2), R(3)),
    case("numpy.linalg.cross", "np.linalg.cross(x, y)", R(2, 3), R(2, 3)),
    case("numpy.linalg.tensordot", "np.linalg.tensordot(x, y, axes=1)", R(2, 3), R(3, 2)),
    case("numpy.linalg.vecdot", "np.linalg.vecdot(x, y)", R(2, 3), R(2, 3)),
    case("numpy.linalg.vecdot", "np.linalg.vecdot(x, y, axis=0)", R(2, 3), R(2, 3)),
    case("numpy.linalg.matrix_rank", "np.linalg.matrix_rank(x) * x", matrix(3)),
    case("numpy.linalg.matrix_rank", "np.linalg.matrix_rank(x[0]) * x", matrix(3)),
)  # fmt: skip

CASES = (
    *PRODUCTS,
    *(case(f"numpy.linalg.{name}", f"np.linalg.{name}({call})", matrix(3))
      for name, call in _SQUARE),
    *(case(f"numpy.linalg.{name}", f"np.linalg.{name}({call})", R(4, 3))
      for name, call in _NORMS),
    *DECOMPOSITIONS,
)  # fmt: skip
