"""The numpy table: ufuncs, their methods and arguments, and operators."""

from __future__ import annotations

from gradof.testing.numpy_samples import R, case, exactly, holes, positive

# name: the operand's interval
_UNARY = {
    "negative": (-2, 2), "positive": (-2, 2), "absolute": (-2, 2), "fabs": (-2, 2),
    "square": (-2, 2), "reciprocal": (0.4, 3), "exp": (-2, 2), "exp2": (-2, 2), "expm1": (-2, 2),
    "log": (0.3, 3), "log2": (0.3, 3), "log10": (0.3, 3), "log1p": (-0.6, 3), "sqrt": (0.3, 3),
    "cbrt": (0.3, 3), "sin": (-2, 2), "cos": (-2, 2), "tan": (-1.2, 1.2), "arcsin": (-0.9, 0.9),
    "arccos": (-0.9, 0.9), "arctan": (-2, 2), "sinh": (-2, 2), "cosh": (-2, 2), "tanh": (-2, 2),
    "arcsinh": (-2, 2), "arccosh": (1.2, 3), "arctanh": (-0.9, 0.9), "deg2rad": (-90, 90),
    "radians": (-90, 90), "rad2deg": (-2, 2), "degrees": (-2, 2), "conjugate": (-2, 2),
    "floor": (-2, 2), "ceil": (-2, 2), "trunc": (-2, 2), "rint": (-2, 2), "sign": (-2, 2),
    "spacing": (0.55, 0.95),
}  # fmt: skip
_BINARY = {
    "add": ((-2, 2), (-2, 2)), "subtract": ((-2, 2), (-2, 2)), "multiply": ((-2, 2), (-2, 2)),
    "divide": ((-2, 2), (0.4, 2)), "true_divide": ((-2, 2), (0.4, 2)),
    "power": ((0.3, 2), (-2, 2)), "float_power": ((0.3, 2), (-2, 2)),
    "maximum": ((-2, 2), (-1.9, 2.1)), "minimum": ((-2, 2), (-1.9, 2.1)),
    "fmax": ((-2, 2), (-1.9, 2.1)), "fmin": ((-2, 2), (-1.9, 2.1)),
    "arctan2": ((-2, 2), (0.3, 2)), "hypot": ((-2, 2), (0.3, 2)),
    "logaddexp": ((-2, 2), (-2, 2)), "logaddexp2": ((-2, 2), (-2, 2)),
    "fmod": ((-7, 7), (1.6, 2.9)), "remainder": ((-7, 7), (1.6, 2.9)), "mod": ((-7, 7), (1.6, 2.9)),
    "floor_divide": ((-7, 7), (1.6, 2.9)), "copysign": ((-2, 2), (-1.9, 2.1)),
    "heaviside": ((-2, 2), (-2, 2)), "nextafter": ((-2, 2), (3, 4)),
}  # fmt: skip

UNARY = tuple(
    case(f"numpy.{name}", f"np.{name}(x)", R(3, 4, low=low, high=high))
    for name, (low, high) in _UNARY.items()
)
BINARY = tuple(
    case(f"numpy.{name}", f"np.{name}(x, y)", R(3, 1, low=a, high=b), R(4, low=c, high=d))
    for name, ((a, b), (c, d)) in _BINARY.items()
)
ALIASES = tuple(
    case(f"numpy.{name}", f"np.{name}(x)", R(5, low=low, high=high))
    for name, low, high in (
        ("abs", -2, 2), ("acos", -0.9, 0.9), ("acosh", 1.2, 3), ("asin", -0.9, 0.9),
        ("asinh", -2, 2), ("atan", -2, 2), ("atanh", -0.9, 0.9), ("conj", -2, 2),
    )
)  # fmt: skip
OTHERS = (
    case("numpy.atan2", "np.atan2(x, y)", R(4), positive(4)),
    case("numpy.pow", "np.pow(x, y)", positive(4), R(4)),
    case("numpy.divmod", "np.divmod(x, y)", R(6, low=-7, high=7), R(6, low=1.6, high=2.9)),
    case("numpy.modf", "np.modf(x)", R(6, low=-4, high=4)),
    case("numpy.frexp", "np.frexp(x)[0]", positive(5, low=0.3, high=0.45)),
    case("numpy.frexp", "np.frexp(x)", positive(5, low=0.55, high=7.7)),
    case("numpy.ldexp", "np.ldexp(x, y)", R(4), exactly([1, -2, 0, 3])),
    case("numpy.clip", "np.clip(x, -0.7, 1.1)", R(3, 4)),
    case("numpy.clip", "np.clip(x, y, z)", R(3, 4), R(4, low=-1.5, high=-0.2), R(3, 1, low=0.2)),
    case("numpy.clip", "np.clip(x, None, y)", R(3, 4), R(4, low=-1.9, high=2.1)),
    case("numpy.sinc", "np.sinc(x)", R(3, 4)),
    case("numpy.i0", "np.i0(x)", R(3, 4)),
    case("numpy.i0", "np.i0(x)", R(4, low=7, high=12)),
    case("numpy.angle", "np.angle(x)", R(4)),
    case("numpy.real", "np.real(x * 2)", R(4)),
    case("numpy.imag", "np.imag(x) + x", R(4)),
    case("numpy.real_if_close", "np.real_if_close(x) * x", R(4)),
    case("numpy.fix", "np.fix(x)", R(5)),
    case("numpy.round", "np.round(x, 1)", R(5, low=0.41, high=2.33)),
    case("numpy.around", "np.around(x)", R(5)),
    case("numpy.nan_to_num", "np.nan_to_num(x, nan=1.5) * y", holes(1, 4), R(4)),
    case("numpy.unwrap", "np.unwrap(x)", R(8, low=-9, high=9)),
    case("numpy.unwrap", "np.unwrap(x, discont=1.2, period=2.5, axis=0)", R(4, 3, low=-9, high=9)),
    case("numpy.float_power", "np.float_power(x, 3)", R(5)),
    case("numpy.power", "x ** 2 + x ** 3 + 2.0 ** x", R(5)),
    case("numpy.square", "np.square(np.int64(3) * x)", R(5)),
)
ARGUMENTS = (
    case("numpy.exp", "np.exp(x, out=np.zeros_like(x))", R(4)),
    case("numpy.log", "np.log(x, out=np.ones_like(x), where=x > 0)", R(5)),
    case("numpy.add", "np.add(x, y, dtype=np.float64)", R(3), exactly([1, 2, 3])),
    case("numpy.multiply", "np.multiply(x, y, out=np.ones_like(x), where=y > 0)", R(5), R(5)),
    case("numpy.add", "x + np.True_ + np.float32(2) + 3", R(3)),
    case("numpy.sin", "np.sin(x.T, order='C')", R(3, 2)),
    case("numpy.exp", "np.exp(x, casting='same_kind', subok=False)", R(4)),
    case("numpy.exp", "np.exp(x, dtype=np.float64)", R(4)),
)
REDUCE = (
    case("ufunc.reduce", "np.add.reduce(x)", R(3, 4)),
    case("ufunc.reduce", "np.multiply.reduce(x, axis=1, keepdims=True)", R(3, 4)),
    case("ufunc.reduce", "np.maximum.reduce(x, axis=None)", R(3, 4)),
    case("ufunc.reduce", "np.minimum.reduce(x, axis=(0, 1))", R(3, 4)),
    case("ufunc.reduce", "np.add.reduce(x, initial=2.0, where=x > 0)", R(3, 4)),
    case("ufunc.reduce", "np.logaddexp.reduce(x, axis=0)", R(3, 4)),
    case("ufunc.reduce", "np.logaddexp2.reduce(x, axis=1)", R(3, 4)),
    case("ufunc.reduce", "np.hypot.reduce(x, axis=0)", R(3, 4)),
    case("ufunc.reduce", "np.subtract.reduce(x, axis=1)", R(3, 4)),
    case("ufunc.reduce", "np.divide.reduce(x, axis=1)", positive(3, 3)),
    case("ufunc.reduce", "np.fmax.reduce(x, axis=1)", R(3, 4)),
    case("ufunc.reduce", "np.fmin.reduce(x, axis=1)", R(3, 4)),
    case("ufunc.accumulate", "np.add.accumulate(x)", R(4, 2)),
    case("ufunc.accumulate", "np.multiply.accumulate(x, axis=1)", R(3, 4)),
    case("ufunc.accumulate", "np.maximum.accumulate(x, axis=1)", R(3, 4)),
    case("ufunc.accumulate", "np.minimum.accumulate(x)", R(3, 4)),
    case("ufunc.accumulate", "np.logaddexp.accumulate(x, axis=1)", R(3, 4)),
    case("ufunc.accumulate", "np.subtract.accumulate(x, axis=1)", R(3, 4)),
    case("ufunc.accumulate", "np.fmax.accumulate(x, axis=1)", R(3, 4)),
    case("ufunc.outer", "np.multiply.outer(x, y)", R(3), R(2, 2)),
    case("ufunc.outer", "np.arctan2.outer(x, y)", R(3), positive(4)),
    case("ufunc.outer", "np.power.outer(x, y)", positive(3), R(2)),
    case("ufunc.reduceat", "np.add.reduceat(x, [0, 3, 1])", R(5, 2)),
    case("ufunc.reduceat", "np.multiply.reduceat(x, [0, 2, 2, 4], axis=1)", R(2, 6)),
    case("ufunc.reduceat", "np.maximum.reduceat(x, [0, 4, 1])", R(6)),
    case("ufunc.at", """
        y = np.copy(x)
        np.add.at(y, [0, 0, 2], x[1:4] ** 2)
        return y""", R(5)),
    case("ufunc.at", """
        y = x * 1
        np.subtract.at(y, ([0, 1], [1, 1]), 2 * x[0, 0])
        return y""", R(2, 2)),
    case("ufunc.at", """
        z = np.copy(x)
        np.multiply.at(z, [0, 2, 2], y)
        return z""", R(4), R(3)),
    case("ufunc.at", """
        z = np.copy(x)
        np.negative.at(z, [0, 2])
        return z * z""", R(4)),
    case("ufunc.at", """
        z = np.copy(x)
        np.divide.at(z, [3, 2], y)
        return z""", R(4), positive(2)),
    case("ufunc.at", """
        z = np.copy(x)
        np.maximum.at(z, [0, 2, 2], y)
        return z""", R(4), R(3, low=-1.9, high=2.1)),
)  # fmt: skip
OPERATORS = (
    case("operator +", "x + y + 1 + (2 + x)", R(3, 1), R(4)),
    case("operator -", "x - y - 1 - (2 - x)", R(3, 1), R(4)),
    case("operator *", "x * y * (2 * x)", R(3, 1), R(4)),
    case("operator /", "x / y + 1 / y + y / 3", R(3, 1), positive(4)),
    case("operator //", "x // y + x", R(5, low=-7, high=7), R(5, low=1.6, high=2.9)),
    case("operator %", "x % y + 7.3 % y", R(5, low=-7, high=7), R(5, low=1.6, high=2.9)),
    case("operator **", "x ** y + 2 ** y + x ** 0.5 + x ** -1", positive(3, 1), R(4)),
    case("operator @", "x @ y", R(3, 4), R(4, 2)),
    case("operator @", "(x @ y) * (y @ x[0])", R(2, 3), R(3)),
    case("operator @", "x @ y", R(2, 1, 2, 3), R(4, 3, 2)),
    case("operator unary -", "-x * x", R(4)),
    case("operator unary +", "+x * x", R(4)),
    case("operator abs()", "abs(x) * x", R(4)),
    case("operator divmod()", "divmod(x, y)[1]", R(5, low=-7, high=7), R(5, low=1.6, high=2.9)),
    case("operator pow()", "pow(x, y)", positive(4), R(4)),
    case("operator round()", "round(x[0] * 3, 1) + x", R(3)),
    case("operator <", "np.where(x < y, x * y, x)", R(4), R(4, low=-1.9, high=2.1)),
    case("operator +=", "z = np.copy(x)\nz += y\nz += 2\nreturn z * z", R(3, 4), R(4)),
    case("operator -=", "z = np.copy(x)\nz -= y\nreturn z * z", R(3, 4), R(4)),
    case("operator *=", "z = np.copy(x)\nz *= y\nz *= z\nreturn z", R(3, 4), R(4)),
    case("operator /=", "z = np.copy(x)\nz /= y\nreturn z * z", R(3, 4), positive(4)),
    case("operator **=", "z = np.copy(x)\nz **= y\nreturn z", positive(3, 4), R(4)),
    case(
        "operator %=",
        "z = np.copy(x)\nz %= y\nreturn z * z",
        R(5, low=-7, high=7),
        R(5, low=1.6, high=2.9),
    ),
    case(
        "operator //=",
        "z = x * 1\nz //= y\nreturn z + x",
        R(5, low=-7, high=7),
        R(5, low=1.6, high=2.9),
    ),
    case("operator @=", "z = np.copy(x)\nz @= y\nreturn z", R(3, 3), R(3, 3)),
)
# No gradient flows through these; what depends on them has its own.
CHOICES = tuple(
    case(f"numpy.{name}", f"np.where(np.{name}(x, y), x * y, x)", R(4), R(4, low=-1.9, high=2.1))
    for name in ("greater", "greater_equal", "less", "less_equal", "equal", "not_equal",
                 "logical_and", "logical_or", "logical_xor")
) + tuple(
    case(f"numpy.{name}", f"np.where(np.{name}(x), x * x, x)", R(5))
    for name in ("isfinite", "isinf", "isnan", "signbit", "logical_not", "isposinf", "isneginf",
                 "isreal", "iscomplex")
)  # fmt: skip

CASES = UNARY + BINARY + ALIASES + OTHERS + ARGUMENTS + REDUCE + OPERATORS + CHOICES
