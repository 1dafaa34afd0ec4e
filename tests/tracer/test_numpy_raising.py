"""FloatingPointError in numpy functions: `np.errstate` and `np.seterr` that raise."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.stats
from scipy import special

import gradof

KINDS = ("divide", "over", "under", "invalid")
VALUES = [
    np.array(v) for v in (
        [1.0, 2.0], [0.0, 1.0], [-0.0, 2.0], [-1.0, 0.5], [1e308, 1.0], [-1e308, 1e300],
        [3e-308, 1e-200], [np.nan, 1.0], [np.inf, 1.0], [-np.inf, 2.0], [800.0, 1.0], [-800.0, 1.0],
    )
]  # fmt: skip
ONE = (
    np.exp, np.exp2, np.expm1, np.log, np.log2, np.log10, np.log1p, np.sqrt, np.square, np.sin,
    np.tan, np.arcsin, np.arctanh, np.arccosh, np.sinh, np.cosh, np.reciprocal, np.abs, np.floor,
    np.negative, np.isfinite, np.sign, np.sum, np.prod, np.mean, np.var, np.cumsum, np.cumprod,
    np.add.reduce, np.multiply.accumulate,
)  # fmt: skip
TWO = (
    np.add, np.subtract, np.multiply, np.divide, np.power, np.remainder, np.fmod, np.hypot,
    np.arctan2, np.maximum, np.fmin, np.copysign, np.greater, np.matmul, np.dot,
)  # fmt: skip
# What underflows within the function; see gradof.tracer.numpy.raising.
WITHIN = {
    np.expm1, np.log1p, np.sin, np.tan, np.arcsin, np.arctanh, np.sinh, np.arctan2, np.hypot,
    np.var, np.mean, np.prod, np.cumprod, np.multiply.accumulate, np.matmul, np.dot,
}  # fmt: skip


def outcome(fn: Callable[..., Any], args: tuple[Any, ...], kind: str) -> Any:
    """The error's text, without the word for what has no dims; None where there is none."""
    raising: Any = {kind: "raise"}
    with np.errstate(**raising):
        try:
            fn(*args)
        except FloatingPointError as error:
            return str(error).replace("scalar ", "")
    return None


@pytest.mark.filterwarnings("ignore:.* encountered:RuntimeWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_errors_are_numpys(kind: str) -> None:
    for fn in (*ONE, *TWO):
        if kind == "under" and fn in WITHIN:
            continue
        compiled = gradof.differentiate(lambda *args, fn=fn: fn(*args))
        for args in itertools.product(VALUES, repeat=1 + (fn in TWO)):
            have, want = outcome(compiled, args, kind), outcome(fn, args, kind)
            if not isinstance(fn, np.ufunc):  # it is one of the ufuncs within that numpy names
                have, want = (text and text.partition(" encountered")[0] for text in (have, want))
            assert have == want, (fn, args)


def test_another_branch_where_it_is_caught() -> None:
    def inverse(x: Any) -> Any:
        with np.errstate(divide="raise"):
            try:
                y = 1.0 / x
            except FloatingPointError:
                y = 3.0 * x
        return np.sum(y)

    derive = gradof.value_and_grad(inverse)
    for x in ([1.0, 2.0], [0.0, 2.0], [4.0, 0.5], [1.0, 0.0]):
        value, slope = derive(np.array(x))
        assert value == inverse(np.array(x))
        assert slope.tolist() == ([3.0, 3.0] if 0 in x else [-(t**-2) for t in x])


@pytest.mark.filterwarnings("ignore:.* encountered:RuntimeWarning")
def test_the_callers_settings_are_asked_at_each_call() -> None:
    def loss(x: Any) -> Any:
        return np.sum(np.log(x))

    derive, zero = gradof.grad(loss), np.array([0.0, 1.0])
    for _ in range(3):
        assert derive(np.array([2.0, 4.0])).tolist() == [0.5, 0.25]
        assert derive(zero).tolist() == [np.inf, 1.0]
        before = np.seterr(all="raise")
        try:
            with pytest.raises(FloatingPointError, match="divide by zero encountered in log"):
                derive(zero)
            assert derive(np.array([2.0, 4.0])).tolist() == [0.5, 0.25]
            with np.errstate(divide="ignore"):
                assert derive(zero).tolist() == [np.inf, 1.0]
        finally:
            np.seterr(**before)


def test_elements_that_are_left_out_and_results_in_place() -> None:
    def ratio(a: Any, b: Any) -> Any:
        with np.errstate(all="raise"):
            y = np.divide(a, b, out=np.zeros_like(a), where=b != 0)
            y /= a
        return np.sum(y)

    a, b = np.array([1.0, 2.0]), np.array([0.0, 4.0])
    compiled = gradof.differentiate(ratio)
    assert compiled(a, b) == ratio(a, b) == 0.25
    with pytest.raises(FloatingPointError, match="invalid value encountered in divide"):
        compiled(0 * a, b)
    with pytest.raises(FloatingPointError, match="invalid value encountered in divide"):
        ratio(0 * a, b)


def test_whole_numbers_are_divided() -> None:
    def share(x: Any, n: Any) -> Any:
        with np.errstate(divide="raise"):
            return x * (7 // n)

    compiled, x = gradof.differentiate(share), np.array([1.0, 2.0])
    assert compiled(x, np.array([2, 3])).tolist() == [3.0, 4.0]
    with pytest.raises(FloatingPointError, match="divide by zero encountered in floor_divide"):
        compiled(x, np.array([2, 0]))


@pytest.mark.parametrize("start", [70.5, 40.0, 3.0, 80.25, 60.0])
def test_an_error_in_a_late_step_of_a_loop(start: float) -> None:
    def chain(x: Any) -> Any:
        total = np.zeros_like(x)
        for _ in range(60):
            x = x - 1.0
            total = total + 1.0 / x
        return np.sum(total)

    x = np.array([start, 90.0])
    assert outcome(gradof.grad(chain), (x,), "divide") == outcome(chain, (x,), "divide")


def test_one_trace_for_all_calls_that_raise_nothing() -> None:
    def loss(x: Any) -> Any:
        for _ in range(30):
            x = x + np.log(x) / (1.0 + x * x)
        return np.sum(x)

    derive = gradof.value_and_grad(loss)
    with np.errstate(all="raise"):
        for seed in range(4):
            x = np.random.default_rng(seed).uniform(1.0, 2.0, 3)
            assert derive(x)[0] == pytest.approx(loss(x), rel=1e-14)
        assert derive.base.cache.misses == 1
        with pytest.raises(FloatingPointError, match="invalid value encountered in log"):
            derive(np.array([-1.0, 1.0, 2.0]))


LIBRARIES: dict[str, Callable[[Any], Any]] = {
    "interp": lambda x: np.interp(x, [0.0, 1.0, 1.0, 5.0], [1.0, 2.0, 3.0, 4.0]),
    "expit": lambda x: special.expit(x), "erf": lambda x: special.erf(x),
    "gammaln": lambda x: special.gammaln(np.abs(x)),
    "logcdf": lambda x: scipy.stats.norm.logcdf(x), "t": lambda x: scipy.stats.t.logpdf(x, 3.0),
    "median": lambda x: np.median(x), "corrcoef": lambda x: np.corrcoef(x, x**2)[0, 1],
}


@pytest.mark.parametrize("name", LIBRARIES)
def test_what_ours_computes_in_place_of_a_librarys_code_raises_nothing(name: str) -> None:
    x, fn = np.array([-800.0, 1.0, 700.0, 3.0]), LIBRARIES[name]
    with np.errstate(all="raise"):
        np.testing.assert_allclose(gradof.differentiate(fn)(x), fn(x), rtol=1e-12)


def test_functions_of_the_users_that_a_library_calls_do() -> None:
    def rows(x: Any) -> Any:
        return np.sum(np.apply_along_axis(lambda row: 1.0 / row, 1, x))

    x = np.array([[1.0, 2.0], [0.0, 4.0]])
    compiled = gradof.differentiate(rows)
    assert outcome(compiled, (x + 1,), "divide") is None
    assert outcome(compiled, (x,), "divide") == outcome(rows, (x,), "divide")


def _changed(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def fn(x: Any) -> Any:
        y = x * 1
        change(y)
        return y

    return fn


METHODS: dict[str, Callable[[Any], Any]] = {
    "at": _changed(lambda y: np.add.at(y, [0, 0], 1.0)),
    "at, by zero": _changed(lambda y: np.divide.at(y, [0], 0.0)),
    "outer": lambda x: np.divide.outer(x, x - x[0]), "reduceat": lambda x: np.add.reduceat(x, [0]),
    "accumulate": lambda x: np.multiply.accumulate(x * 1e200),
    "divmod": lambda x: np.divmod(x, x - x[0])[0], "modf": lambda x: np.modf(x)[1],
    "two results": lambda x: np.average(x, weights=x, returned=True)[0],
    "in place": _changed(lambda y: y.__imul__(1e308)), "complex": lambda x: abs((x + 1j) / (x - x)),
    "a norm": lambda x: np.linalg.norm(x * 1e200), "nothing": lambda x: np.mean(x[:0]),
    "single": lambda x: x.astype(np.float32) * np.float32(3e38),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.cases(13)
@pytest.mark.parametrize("name", METHODS)
def test_methods_and_kinds_of_results(name: str) -> None:
    fn, x = METHODS[name], np.array([1.0, 2.0, 3.0])
    for kind in ("divide", "over", "invalid"):
        have, want = outcome(gradof.differentiate(fn), (x,), kind), outcome(fn, (x,), kind)
        kinds = [text and text.partition(" encountered")[0] for text in (have, want)]
        assert kinds[0] == kinds[1], kind
