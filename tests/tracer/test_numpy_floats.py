"""Floats of Python's in numpy functions: their type, precision and errors, with the gradient."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, optimize

from gradof import differentiate, value_and_grad

Array = NDArray[Any]


def _sum_of(values: list[float]) -> float:
    total = 0.0
    for v in values:
        total += math.sin(v) / (1.0 + v * v)
    return total


def _in_place(x: Array) -> Any:
    s = float(x[0])
    s *= 2
    s -= 1
    s /= 3
    s **= 2
    return s


def _assigned(x: Array) -> Any:
    y = np.zeros_like(x)
    y[0] = x[0].item() * 3
    y[1:] = float(x[1])
    return y


def _own_file(x: Array) -> Any:
    a, b = x[0].item(), x.item(1)
    return {"sum": a + b, "list": [a, b * 2], "array": np.array([a, b]), "both": (a * x, a * x[1])}


CASES: dict[str, Callable[[Array], Any]] = {
    "item": lambda x: x.sum().item(),
    "item of a place": lambda x: (x.item(1), x.reshape(1, -1).item(0, 2)),
    "products": lambda x: float(x[0]) * float(x[1]),
    "quotients": lambda x: float(x[0]) ** 2 / float(x[1]),
    "reflected": lambda x: (1 - float(x[0]), 2 / float(x[0]), 2 ** float(x[1]), 7 % float(x[2])),
    "unary": lambda x: (-float(x[0]), +float(x[1]), abs(-float(x[2]))),
    "floors": lambda x: (float(x[2]) // 0.2, float(x[2]) % 0.2, divmod(float(x[2]), 0.3)),
    "rounded": lambda x: (round(float(x[0]), 2), round(float(x[0]) * 10), int(float(x[2]) * 10)),
    "in place": _in_place,
    "beside an array": lambda x: float(x[0]) * x - x.tolist()[1],
    "beside half precision": lambda x: x.astype(np.float16) * float(x[1]),
    "half precision's": lambda x: float(x.astype(np.float16)[0]) * x,
    "items of half precision": lambda x: x.astype(np.float16).item(0),
    "beside complex numbers": lambda x: x.astype(np.complex64) * float(x[1]),
    "complex": lambda x: (complex(x[0], x[1]) * 2, complex(x[0], x[1]) * x),
    "complex items": lambda x: x.astype(np.complex64)[0].item() * 2,
    "a complex power": lambda x: (-float(x[0])) ** 0.5,
    "numpy's numbers": lambda x: (float(x[0]) * np.float32(2), np.float64(2) * float(x[0])),
    "whole numbers": lambda x: ((x * 10).astype(int).tolist(), float(x[0]) * np.int32(2)),
    "numpy's functions": lambda x: (np.exp(float(x[0])), np.hypot(x[0].item(), x[1].item())),
    "math's functions": lambda x: (math.sin(x[0]), math.sin(x[0]) * x, math.exp(x[1]) + 1),
    "where": lambda x: np.where(x > 0.15, x[0].item(), x),
    "select": lambda x: np.select([x > 0.5, x > 0.1], [x, float(x[0])], float(x[1])),
    "scipy's integrals": lambda x: (
        integrate.quad(lambda t: t * x[0], 0.0, 1.0)[0],
        integrate.quad(lambda t: t * t, 0.0, float(x[0]))[0] * x,
    ),
    "scipy's roots": lambda x: optimize.brentq(lambda t: t * t - x[0], 0.0, 1.0),
    "complex parts": lambda x: (
        (float(x[0]) + 2j).imag, abs(complex(x[0], x[1])), float(x[0]).is_integer(),
    ),
    "clip": lambda x: np.clip(x, x[0].item(), x[1].item()),
    "maximum": lambda x: np.maximum(x.item(0), x),
    "filled": lambda x: (np.full(3, x[0].item()), np.full_like(x, x[0].item())),
    "joined": lambda x: (np.array([float(v) for v in x]), np.stack([x[0].item(), x[1].item()])),
    "math's functions of lists": lambda x: (
        math.fsum(x.tolist()), math.prod(x.tolist()), math.dist(x.tolist(), [1, 2, 3]),
        math.hypot(*x.tolist()), math.fsum([v * v for v in x.tolist()]),
    ),
    "norms": lambda x: np.linalg.norm([x[0].item(), x[1].item()]),
    "dots": lambda x: np.dot(x.tolist(), x),
    "interpolated": lambda x: np.interp(0.3, x.tolist(), [1.0, 2.0, 3.0]),
    "assigned": _assigned,
    "lists": lambda x: x.tolist(),
    "lists of lists": lambda x: np.outer(x, x).tolist(),
    "a sum of a list": lambda x: sum(x.tolist()) / len(x),
    "a loop over a list": lambda x: _sum_of(x.tolist()),
    "a long loop": lambda x: _sum_of(np.tile(x, 20).tolist()),
    "a loop over an array": lambda x: sum(float(v) ** 2 for v in x),
    "extremes": lambda x: (max(x.tolist()), min(float(x[0]), float(x[1])), sorted(x.tolist())[1]),
    "truths": lambda x: (float(x[0]) > 0.05, (float(x[0]) > 0) + (float(x[1]) > 0)),
    "truths of arrays": lambda x: (float(x[0]) == x[0], (x[0] > 0) + (x[1] > 0), x[0] > 0),
    "products of truths": lambda x: ((float(x[0]) > 0) * x, (float(x[0]) > 0) * 2.5),
    "kinds": lambda x: (
        isinstance(x[0].item(), float), isinstance(x[0].item(), np.ndarray),
        np.isscalar(x.item(0)), isinstance(x[0], np.floating),
    ),
    "nests": _own_file,
}  # fmt: skip


def _same(ours: Any, want: Any, tolerance: float) -> None:
    assert type(ours) is type(want), (ours, want)
    if isinstance(want, dict):
        assert list(ours) == list(want)
        ours, want = list(ours.values()), list(want.values())
    if isinstance(want, (list, tuple)):
        assert len(ours) == len(want)
        for a, b in zip(ours, want, strict=True):
            _same(a, b, tolerance)
        return
    assert getattr(ours, "dtype", None) == getattr(want, "dtype", None)
    np.testing.assert_allclose(ours, want, rtol=tolerance, atol=1e-15)


def _near(name: str, dtype: type) -> float:
    if "half" in name:
        return 2e-3
    if "scipy" in name and dtype is np.float32:  # the root of another number, in its last bits
        return 2e-6
    return 3e-7 if dtype is np.float32 else 1e-13


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", CASES)
def test_floats_are_pythons(name: str, dtype: type) -> None:
    compiled = differentiate(CASES[name])
    for x in ([0.125, 0.25, 0.75], [0.13, 0.2, 0.7], [0.13, 0.2, 0.7]):
        given: Array = np.array(x, dtype)
        _same(compiled(given), CASES[name](given), _near(name, dtype))


_SMOOTH = ["products", "quotients", "in place", "a loop over a list", "a long loop",
           "a sum of a list", "a loop over an array", "norms"]  # fmt: skip


@pytest.mark.parametrize("name", _SMOOTH)
def test_their_gradient_is_that_of_differences(name: str) -> None:
    x, step = np.array([0.125, 0.25, 0.75]), 1e-6
    _, slope = value_and_grad(CASES[name])(x)
    units = np.eye(3) * step
    want = [(CASES[name](x + u) - CASES[name](x - u)) / (2 * step) for u in units]
    np.testing.assert_allclose(slope, want, rtol=1e-6)
    _, single = value_and_grad(CASES[name])(x.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, slope, rtol=1e-5)


def test_precision_is_not_that_of_the_array() -> None:
    """1 + 1e-9 of a float32's float is no float32."""
    def small(x: Array) -> float:
        return (1.0 + float(x[0]) * 1e-9) - 1.0

    given = np.array([1.0], np.float32)
    assert differentiate(small)(given) == small(given) != 0.0


ERRORS: dict[str, tuple[Callable[[Array], Any], type[Exception], list[float]]] = {
    "division": (lambda x: float(x[0]) / float(x[1]), ZeroDivisionError, [1.0, 0.0]),
    "floor": (lambda x: float(x[0]) // float(x[1]), ZeroDivisionError, [1.0, 0.0]),
    "remainder": (lambda x: float(x[0]) % float(x[1]), ZeroDivisionError, [1.0, 0.0]),
    "divmod": (lambda x: divmod(float(x[0]), float(x[1])), ZeroDivisionError, [1.0, 0.0]),
    "reflected": (lambda x: 1.0 / float(x[1]), ZeroDivisionError, [1.0, 0.0]),
    "power": (lambda x: float(x[0]) ** float(x[1]), OverflowError, [1e300, 2.0]),
    "negative power": (lambda x: float(x[0]) ** -1.0, ZeroDivisionError, [0.0, 2.0]),
    "in a loop": (lambda x: _inverses(x), ZeroDivisionError, [20.0, -1.0]),
}  # fmt: skip


def _inverses(x: Array) -> float:
    s = float(x[0])
    for _ in range(40):
        s = s + float(x[1])
        s = s + 0.0 / s
    return s


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_pythons(name: str) -> None:
    fn, error, wrong = ERRORS[name]
    for first in ([3.0, 2.5], wrong):
        compiled = differentiate(fn)
        for given in (first, wrong, [3.0, 2.0]):
            x = np.array(given)
            if given is wrong:
                with pytest.raises(error):
                    fn(x)
                with pytest.raises(error):
                    compiled(x)
            else:
                assert compiled(x) == fn(x)


def test_an_error_that_is_caught_is_another_path() -> None:
    def safe(x: Array) -> Any:
        try:
            return float(x[0]) / float(x[1])
        except ZeroDivisionError:
            return -1.0

    compiled = differentiate(safe)
    for b in (2.0, 0.0, 4.0, 0.0):
        x = np.array([1.0, b])
        assert compiled(x) == safe(x)
    assert compiled.cache_info().misses == 2


def test_numpys_functions_of_floats_have_numpys_values() -> None:
    """Where an operator of Python's raises, a function of numpy's has an infinity."""
    compiled = differentiate(lambda x: np.divide(float(x[0]), float(x[1])))
    for b in (2.0, 0.0):
        x = np.array([1.0, b])
        with np.errstate(divide="ignore"):
            assert compiled(x) == np.divide(1.0, b)
