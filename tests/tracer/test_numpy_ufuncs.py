"""Ufuncs: every one that maps to an op, dtype promotion, methods, out=, where=, edge values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

from gradof.errors import DtypeError, ShapeError, UnsupportedOpError
from gradof.ops.registry import find_by_api_name
from gradof.testing import numpy_cases_elementwise
from gradof.tracer.numpy.ufuncs import COMPOSED
from tests.tracer.numpy_eager import check, kinds, trace

RNG = np.random.default_rng(0)
SMALL = RNG.uniform(-0.9, 0.9, (2, 3))
LARGE = RNG.uniform(1.2, 3.0, (2, 3))
OTHER = RNG.uniform(0.5, 2.0, (3,))

UNARY = [
    "negative", "absolute", "fabs", "square", "sqrt", "cbrt", "exp", "exp2", "expm1", "log", "log2",
    "log10", "log1p", "sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh", "cosh", "tanh",
    "arcsinh", "arccosh", "arctanh", "reciprocal", "positive", "conjugate", "deg2rad", "radians",
    "rad2deg", "degrees", "modf",
]  # fmt: skip
BINARY = [
    "add", "subtract", "multiply", "divide", "power", "float_power", "maximum", "minimum", "fmax",
    "fmin", "arctan2", "hypot", "logaddexp", "logaddexp2", "fmod", "remainder", "copysign",
    "heaviside", "vecdot",
]  # fmt: skip
WHOLE = ["floor", "ceil", "trunc", "rint", "sign"]
TESTS = ["isnan", "isinf", "isfinite", "signbit", "logical_not"]
COMPARE = [
    "greater", "greater_equal", "less", "less_equal", "equal", "not_equal", "logical_and",
    "logical_or", "logical_xor", "floor_divide", "divmod",
]  # fmt: skip
SCIPY = ["expit", "erf", "erfc", "gammaln", "psi", "ndtr", "log_ndtr", "i0", "i1", "i0e", "i1e",
         "entr", "erfcx", "exp10", "log_expit"]  # fmt: skip
SCIPY_INSIDE = ["erfinv", "ndtri", "logit"]


def domain(name: str) -> Any:
    return LARGE if name in ("arccosh", "sqrt", "log", "log2", "log10", "cbrt") else SMALL


@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str) -> None:
    check(getattr(np, name), domain(name))


@pytest.mark.parametrize("name", BINARY)
def test_binary(name: str) -> None:
    # copysign and heaviside are constant between the jumps; differences see that too
    check(getattr(np, name), LARGE, OTHER)


@pytest.mark.parametrize("name", ["add", "multiply", "divide", "power", "maximum", "arctan2"])
def test_binary_with_a_weak_scalar(name: str) -> None:
    ufunc = getattr(np, name)
    check(lambda x: ufunc(x, 1.5), LARGE)
    check(lambda x: ufunc(3, x), LARGE)


@pytest.mark.parametrize("name", [*WHOLE, *TESTS])
def test_stepwise(name: str) -> None:
    check(getattr(np, name), LARGE * 3 - 5, gradient=False)


@pytest.mark.parametrize("name", COMPARE)
def test_comparisons(name: str) -> None:
    check(getattr(np, name), np.round(LARGE * 3), np.round(OTHER * 3), gradient=False)


@pytest.mark.parametrize("name", SCIPY)
def test_scipy(name: str) -> None:
    check(getattr(scipy.special, name), LARGE, gradient_rtol=1e-5)


@pytest.mark.parametrize("name", SCIPY_INSIDE)
def test_scipy_on_the_unit_interval(name: str) -> None:
    check(getattr(scipy.special, name), SMALL / 2 + 0.5, gradient_rtol=1e-5)


@pytest.mark.parametrize("name", ["xlogy", "xlog1py", "rel_entr"])
def test_scipy_binary(name: str) -> None:
    check(getattr(scipy.special, name), LARGE, OTHER)


def test_matvec_and_vecmat() -> None:
    a, v = RNG.standard_normal((2, 3, 4)), RNG.standard_normal(4)
    check(np.matvec, a, v)
    check(np.vecmat, RNG.standard_normal(3), a)


def test_every_numpy_ufunc_with_an_op_is_tested() -> None:
    names = {n for n in dir(np) if isinstance(getattr(np, n), np.ufunc)}
    names = {getattr(np, n).__name__ for n in names}
    composed = COMPOSED["numpy"]
    mapped = {n for n in names if n in composed or find_by_api_name(f"numpy.{n}") is not None}
    bits = {"bitwise_and", "bitwise_or", "bitwise_xor", "invert", "left_shift", "right_shift"}
    elsewhere = bits | {"matvec", "vecmat", "ldexp"}
    elsewhere |= {case.name.removeprefix("numpy.") for case in numpy_cases_elementwise.CASES}
    assert mapped <= {*UNARY, *BINARY, *WHOLE, *TESTS, *COMPARE} | elsewhere


# --- dtypes ---------------------------------------------------------------------------------------

DTYPES = ["bool", "int8", "uint8", "int32", "int64", "float16", "float32", "float64"]


def of(dtype: str) -> Any:
    return (RNG.uniform(1, 4, 3)).astype(dtype)


@pytest.mark.parametrize("name", ["add", "multiply", "divide", "maximum", "less", "logical_and"])
@pytest.mark.parametrize("left", DTYPES)
@pytest.mark.parametrize("right", DTYPES)
def test_promotion_is_numpys(name: str, left: str, right: str) -> None:
    check(getattr(np, name), of(left), of(right), rtol=1e-3, gradient=False)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("number", [2, 2.5, True])
def test_python_numbers_are_weak(dtype: str, number: Any) -> None:
    check(lambda x: x * number + number, of(dtype), rtol=1e-3, gradient=False)
    check(lambda x: number / x, of(dtype), rtol=1e-3, gradient=False)
    check(lambda x: x > number, of(dtype), gradient=False)


@pytest.mark.parametrize("scalar", [np.float32(1.5), np.float64(1.5), np.int64(3), np.array(2.5)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_numpy_scalars_are_strong(scalar: Any, dtype: str) -> None:
    check(lambda x: x * scalar, of(dtype), rtol=1e-6, gradient=False)


@pytest.mark.parametrize("name", ["exp", "sqrt", "tanh", "fabs", "isnan", "sign", "square"])
@pytest.mark.parametrize("dtype", ["int8", "int16", "int64", "float16", "float32"])
def test_unary_promotion(name: str, dtype: str) -> None:
    check(getattr(np, name), of(dtype), rtol=2e-3, gradient=False)


def test_bits() -> None:
    a, b = np.array([1, 6, 7]), np.array([3, 2, 1])
    for ufunc in (np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.left_shift, np.right_shift):
        check(ufunc, a, b, gradient=False)
    check(lambda x: ~x, a, gradient=False)
    check(lambda x: ~(x > 2) & (x < 7) | (x == 6), a, gradient=False)
    check(lambda x: np.ldexp(1.5, x), a, gradient=False)


def test_requested_dtype() -> None:
    check(lambda x: np.add(x, 1, dtype=np.float32), LARGE, rtol=1e-6, gradient=False)
    check(lambda x: np.exp(x, dtype=np.float64), LARGE.astype("f4"), gradient=False)


# --- edge values ----------------------------------------------------------------------------------

EDGES = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e300])


@pytest.mark.parametrize(
    "name", ["fmax", "fmin", "copysign", "heaviside", "logaddexp", "hypot", "maximum", "arctan2"]
)
def test_binary_at_the_edges(name: str) -> None:
    ufunc = getattr(np, name)
    a, b = np.repeat(EDGES, 8), np.tile(EDGES, 8)
    traced = check(ufunc, a, b, gradient=False)
    assert len(kinds(traced.graph)) > 0


@pytest.mark.parametrize("name", ["modf", "sign", "square", "cbrt", "trunc", "expm1", "log1p"])
def test_unary_at_the_edges(name: str) -> None:
    check(getattr(np, name), EDGES, gradient=False)


@pytest.mark.parametrize("power", [2, 0.5, -1, 1, 3, 0, 2.0, -0.5])
def test_powers(power: float) -> None:
    check(lambda x: x**power, EDGES, gradient=False)
    check(lambda x: x**power, LARGE)


# --- methods, out=, where= ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: np.add.reduce(x),
        lambda x: np.add.reduce(x, axis=1, keepdims=True),
        lambda x: np.multiply.reduce(x, axis=(0, 1)),
        lambda x: np.maximum.reduce(x, axis=None),
        lambda x: np.minimum.reduce(x, 1),
        lambda x: np.logaddexp.reduce(x, axis=1),
        lambda x: np.logaddexp.reduce(x, axis=0, keepdims=True),
        lambda x: np.add.accumulate(x, axis=1),
        lambda x: np.multiply.accumulate(x),
        lambda x: np.maximum.accumulate(x, axis=1),
        lambda x: np.minimum.accumulate(x),
        lambda x: np.multiply.outer(x, x[0]),
        lambda x: np.subtract.outer(x[0], np.arange(2.0)),
        lambda x: np.add.reduce(x, axis=0, where=x > 0, initial=1.0),
    ],
)
def test_methods(fn: Callable[..., Any]) -> None:
    check(fn, SMALL)


def test_boolean_reductions() -> None:
    check(lambda x: np.logical_and.reduce(x > 0, axis=1), SMALL, gradient=False)
    check(lambda x: np.logical_or.reduce(x > 0), SMALL, gradient=False)


def test_out_and_where() -> None:
    def into(x: Any) -> Any:
        y = np.zeros_like(x)
        z = np.multiply(x, 2.0, out=y)
        np.add(x, 1.0, out=y, where=x > 0)
        assert z is y
        return y * x

    def pair(x: Any) -> Any:
        whole = np.zeros_like(x)
        part = np.zeros_like(x)
        np.modf(x, out=(part, whole))
        return part * 3 + whole

    def function_out(x: Any) -> Any:
        y = np.zeros_like(x[0])
        np.sum(x, axis=0, out=y)
        return y * y

    for fn in (into, pair, function_out):
        check(fn, SMALL)


def test_log_of_zero_is_silent() -> None:
    check(lambda x: np.log(x) / x, np.array([0.0, 1.0]), gradient=False)


# --- operators ------------------------------------------------------------------------------------


def test_operators() -> None:
    check(lambda x, y: (x + y) * (x - 2) / (1 + y) ** 2 - (-x), LARGE, OTHER)
    check(lambda x, y: abs(x) + (+y) + 2**x + 3 / y - 1 % y, LARGE, OTHER)
    check(lambda x, y: x @ y, LARGE, OTHER)
    check(lambda x: np.arange(2.0) @ x, LARGE)
    check(lambda x: np.arange(3.0) * x - np.ones(3), LARGE)
    check(lambda x: divmod(x, 0.7), LARGE, gradient=False)
    check(lambda x: (x > 2) & ~(x <= 1.5) | (x == 2) ^ (x != 2), LARGE, gradient=False)


def test_one_op_per_operator() -> None:
    traced = trace(lambda x, w: np.tanh(x @ w) * 2.0, LARGE, OTHER)
    assert [k for k in kinds(traced.graph) if k != "reshape"] == ["mm", "tanh", "Constant", "mul"]


# --- refused --------------------------------------------------------------------------------------


def test_unknown_ufuncs_are_named() -> None:
    with pytest.raises(UnsupportedOpError, match=r"mathieu_a(.|\n)*test_numpy_ufuncs.py"):
        trace(lambda x: scipy.special.mathieu_a(1, x), LARGE)
    with pytest.raises(UnsupportedOpError, match=r"power.reduce"):
        trace(lambda x: np.power.reduce(x), LARGE)
    with pytest.raises(ValueError, match="too deep"):
        trace(lambda x: np.add.reduceat(x, np.argsort(x)), LARGE)


def test_a_foreign_ufunc_of_a_known_name_is_not_taken_for_it() -> None:
    foreign = np.frompyfunc(lambda x: x + 1, 1, 1)
    with pytest.raises((UnsupportedOpError, DtypeError)):
        trace(lambda x: foreign(x), LARGE)


def test_out_into_a_plain_array() -> None:
    plain = np.zeros((2, 3))
    with pytest.raises(UnsupportedOpError, match="plain array"):
        trace(lambda x: np.add(x, 1, out=plain), LARGE)
    assert not plain.any()


def test_where_without_out() -> None:
    with pytest.raises(UnsupportedOpError, match="undefined"):
        trace(lambda x: np.add(x, 1, where=x > 0), LARGE)


def test_wrong_shapes_are_named_with_the_line() -> None:
    with pytest.raises(ShapeError, match=r"broadcast(.|\n)*test_numpy_ufuncs.py"):
        trace(lambda x: x + np.ones(5), LARGE)
    with pytest.raises(ShapeError, match="matmul"):
        trace(lambda x: x @ x, LARGE)
