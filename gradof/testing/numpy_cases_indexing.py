"""The numpy table: indexing in all its forms, assignment, methods and attributes of arrays."""

from __future__ import annotations

from gradof.testing.numpy_samples import R, case, exactly, matrix

_INDICES = {
    "indexing: basic": (
        "1", "-1", "1:", "::-1", "1:3, ::2", "..., 0", "None", "1, None, 2", "0, 0", "()", "...",
        "::-2, 1:1",
    ),
    "indexing: integer arrays": (
        "[0, 2]", "[0, 2], [1, 3]", "[[0], [2]], [1, 3]", "np.array([0, 0, -1])", "1, [0, 2]",
        "[0, 1], ::2", "np.arange(2)[:, None], [0, 1]", "[], 0", "(0, 1), (1, 2)", "::2, [0, 0]",
        "[True, False, True]", "np.intp(1)",
    ),
    "indexing: masks": (
        "np.array([True, False, True])", "np.eye(3, 4) > 0", "[0, 2], np.arange(4) > 1",
        "np.array([True, False, True]), 1", "np.True_",
    ),
}  # fmt: skip
GETTING = tuple(
    case(name, f"x[{index}] * 2", R(3, 4)) for name, many in _INDICES.items() for index in many
)
TRACED = (
    case("indexing: traced integers", "x[y]", R(3, 4), exactly([0, 2, -1, 0])),
    case("indexing: traced integers", "x[y, 1:]", R(3, 4), exactly([[0, 2], [1, 1]])),
    case("indexing: traced integers", "x[y, y]", R(3, 4), exactly([0, 2])),
    case("indexing: traced integers", "x[y, None, 1]", R(3, 4), exactly([0, 2])),
    case("indexing: traced integers", "x[np.argmax(x[:, 0])]", R(3, 4)),
)
SETTING = tuple(
    case(name, f"z = np.copy(x)\nz[{index}] = {value}\nreturn z * z", R(3, 4), R(4))
    for name, index, value in (
        ("assignment: A[i] = x", "1", "y"),
        ("assignment: A[i] = x", "1:", "y * 2"),
        ("assignment: A[i] = x", "::2, ::-1", "y"),
        ("assignment: A[i] = x", "0, 0", "y[0]"),
        ("assignment: A[i] = x", "...", "y"),
        ("assignment: A[i] = x", "[0, 2]", "y"),
        ("assignment: A[i] = x", "[0, 2], [1, 3]", "y[:2]"),
        ("assignment: A[i] = x", ":, 1", "3.0"),
        ("assignment: A[i] = x", "1, [0, 1]", "y[2:]"),
        ("assignment: A[mask] = x", "x > 0", "1.5"),
        ("assignment: A[mask] = x", "x > 0", "y[0]"),
        ("assignment: A[mask] = x", "np.array([True, False, True])", "y"),
        ("assignment: A[mask] = x", "np.eye(3, 4) > 0", "y[:3]"),
    )
)
CHANGING = (
    case("assignment: A[i] = x", "z = np.copy(x)\nz[y] = u[:2]\nreturn z * z", R(3, 4),
         exactly([0, 2]), R(1), R(4, 4)),
    case("assignment: A[i] += x", "z = np.copy(x)\nz[1:] += y\nz[0, 0] += 2\nreturn z * z", R(3, 4),
         R(4)),
    case("assignment: A[i] += x", "z = np.copy(x)\nz[[0, 0, 2]] += y\nreturn z * z", R(3, 4), R(4)),
    case("assignment: A[i] *= x", "z = np.copy(x)\nz[:, 1] *= z[:, 2]\nz[x > 1] *= 2\nreturn z",
         R(3, 4)),
    case("assignment: A[i] /= x", "z = np.copy(x)\nz[1] /= 2 + y ** 2\nreturn z", R(3, 4), R(4)),
    case("assignment: A[i] **= x", "z = np.copy(x)\nz[1] **= 2\nreturn z", R(3, 4)),
    case("assignment: view", "z = np.copy(x)\nrow = z[1]\nrow[:] = y * y\nreturn z * z", R(3, 4),
         R(4)),
    case("assignment: view", "z = np.copy(x)\nz.T[0] += 1\nz.reshape(-1)[5] = y[0]\nreturn z * z",
         R(3, 4), R(4)),
    case("assignment: loop", """
        z = np.zeros(4)
        for i in range(1, 4):
            z[i] = x[i] * z[i - 1] + x[i] ** 2
        return z""", R(4)),
    case("assignment: swap", "z = np.copy(x)\nz[0], z[1] = z[1] * 2, z[0] * 3\nreturn z * z", R(3)),
    case("assignment: argument", "x[1:] = x[:-1] * y\nreturn x * x", R(4), R(3)),
)  # fmt: skip
_METHODS = (
    ("sum", "axis=0"), ("prod", ""), ("mean", "axis=1, keepdims=True"), ("var", "ddof=1"),
    ("std", "axis=0"), ("max", ""), ("min", "axis=1"), ("cumsum", "axis=0"), ("cumprod", ""),
    ("dot", "x.T"), ("reshape", "2, 6"), ("reshape", "(4, -1), order='F'"),
    ("ravel", ""), ("flatten", ""), ("flatten", "'F'"), ("transpose", ""), ("transpose", "1, 0"),
    ("transpose", "(1, 0)"), ("swapaxes", "0, 1"), ("squeeze", ""), ("clip", "-1, 1"),
    ("clip", "min=0.1"), ("take", "[0, 5]"), ("repeat", "2, axis=1"), ("trace", ""),
    ("diagonal", "1"), ("round", "1"), ("compress", "[True, False, True], axis=0"),
    ("astype", "np.float64"), ("copy", ""), ("conj", ""), ("conjugate", ""), ("view", ""),
)  # fmt: skip
METHODS = tuple(
    case(f"ndarray.{name}", f"(x * x).{name}({call})", R(3, 4)) for name, call in _METHODS
)
MEMBERS = (
    case("ndarray.searchsorted", "x * np.sort(x).searchsorted(x)", R(4)),
    case("ndarray.argsort", "x[x.argsort()] * y", R(4), R(4)),
    case("ndarray.argmax", "x[x.argmax()] * x", R(4)),
    case("ndarray.argmin", "x[x.argmin()] * x", R(4)),
    case("ndarray.argpartition", "x[x.argpartition(2)] * y", R(4), R(4)),
    case("ndarray.any", "np.where((x > 0).any(), x, 2 * x)", R(4)),
    case("ndarray.all", "np.where((x > 0).all(), x, 2 * x)", R(4)),
    case("ndarray.nonzero", "x[np.array([1, 0, 1]).nonzero()]", R(3)),
    case("ndarray.sort", "z = np.copy(x)\nz.sort(axis=0)\nreturn z * y", R(3, 2), R(3, 2)),
    case("ndarray.partition", "z = np.copy(x)\nz.partition(2)\nreturn z * y", R(5), R(5)),
    case("ndarray.fill", "z = np.copy(x)\nz[1:].fill(y)\nreturn z * z", R(3), R()),
    case("ndarray.put", "z = np.copy(x)\nz.put([0, 2], y)\nreturn z * z", R(3), R(2)),
    case("ndarray.choose", "y.choose([x, x * 2])", R(3), exactly([0, 1, 1])),
    case("ndarray.T", "x.T @ x", R(3, 2)),
    case("ndarray.mT", "x.mT @ x", R(2, 3, 2)),
    case("ndarray.real", "x.real * x", R(3)),
    case("ndarray.imag", "x.imag + x", R(3)),
    case("ndarray.flat", "x.flat[2] * x", R(2, 3)),
    case("ndarray.__iter__", "sum(row * row for row in x)", R(3, 2)),
    case("ndarray.__setitem__", "z = np.copy(x)\nz.__setitem__(0, y)\nreturn z * z", R(3), R()),
    case("ndarray.__matmul__", "x.__matmul__(y)", matrix(3), R(3)),
)  # fmt: skip
EMPTY = tuple(
    case("zero-size and 0-d", source, *samples)
    for source, samples in (
        ("np.sin(x) * y", (R(0, 3), R(3))), ("x @ y", (R(0, 3), R(3, 2))),
        ("x @ y", (R(2, 0), R(0, 2))), ("np.concatenate([x, y])", (R(0, 3), R(2, 3))),
        ("x[:0] + y", (R(3, 2), R(2))), ("np.exp(x) * y", (R(), R())),
        ("x[()] * x", (R(),)), ("np.mean(x.reshape(1))", (R(),)), ("np.cumsum(x)", (R(0),)),
        ("np.sort(x)", (R(0),)), ("x[[]]", (R(3, 2),)),
    )
)  # fmt: skip
CASES = GETTING + TRACED + SETTING + CHANGING + METHODS + MEMBERS + EMPTY
