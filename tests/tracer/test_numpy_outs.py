"""`out=` of numpy's functions and methods, by name and by place: twice in a trace, and traced anew.

A second trace, and a second call of the same types, are where a record that is kept may lack what
is written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gradof import differentiate, value_and_grad

Array = Any
FIRST = np.random.default_rng(0).normal(size=(4, 4))

# What follows the first argument, up to `out`.
FUNCTIONS: dict[Any, tuple[Any, ...]] = {
    np.clip: (-0.5, 0.5), np.compress: ([True, False, True, True], None), np.cumprod: (0, None),
    np.cumsum: (1, None), np.max: (0,), np.mean: (0, None), np.median: (0,), np.min: (0,),
    np.nancumsum: (0, None), np.nanmax: (0,), np.nanmean: (0, None), np.nanmedian: (0,),
    np.nanpercentile: (30, 0), np.nanstd: (0, None), np.nansum: (0, None), np.nanvar: (0, None),
    np.percentile: (30, 0), np.prod: (0, None), np.ptp: (0,), np.quantile: (0.3, 0), np.round: (1,),
    np.std: (0, None), np.sum: (0, None), np.take: ([1, 2], 0), np.trace: (0, 0, 1, None),
    np.var: (0, None), np.fix: (),
}  # fmt: skip


def _of(function: Any, rest: tuple[Any, ...]) -> Callable[..., Any]:
    if function is np.compress:
        return lambda x, *out, **named: np.compress(rest[0], x, rest[1], *out, **named)
    return lambda x, *out, **named: function(x, *rest, *out, **named)


CALLS: dict[str, Callable[..., Any]] = {
    **{f.__name__: _of(f, rest) for f, rest in FUNCTIONS.items()},
    **{
        f"x.{f.__name__}": lambda x, *out, name=f.__name__, rest=rest, **named: getattr(x, name)(
            *rest, *out, **named
        )
        for f, rest in FUNCTIONS.items()
        if hasattr(np.ndarray, f.__name__) and f is not np.compress and f is not np.ptp
    },
    "dot": lambda x, *out, **named: np.dot(x, x.T, *out, **named),
    "x.dot": lambda x, *out, **named: x.dot(x.T, *out, **named),
    "outer": lambda x, *out, **named: np.outer(x, x[0], *out, **named),
    "concatenate": lambda x, *out, **named: np.concatenate([x, x * 2], 1, *out, **named),
    "stack": lambda x, *out, **named: np.stack([x, x * 2], 1, *out, **named),
    "matmul": lambda x, *out, **named: np.matmul(x, x, *out, **named),
    "add": lambda x, *out, **named: np.add(x, x, *out, **named),
}


def program(call: Callable[..., Any], by_name: bool) -> Callable[[Array], Array]:
    shape = np.shape(call(FIRST))

    def into(x: Array, y: Array) -> Array:
        return call(x, out=y) if by_name else call(x, y)

    def fn(x: Array) -> Array:
        a, b = np.zeros(shape), np.zeros(shape)
        first = into(x, a)
        into(x * 2, b)
        last = into(x * 3, b)
        return np.sum(a) + 2 * np.sum(b) + 3 * np.sum(first) + 4 * np.sum(last) ** 2

    return fn


@pytest.mark.parametrize("by_name", [True, False])
@pytest.mark.parametrize("name", CALLS)
def test_what_is_written_is_there(name: str, by_name: bool) -> None:
    call = CALLS[name]
    fn = program(call, by_name)

    def without(x: Array) -> Array:
        a, b = call(x), call(x * 3)
        return 4 * np.sum(a) + 2 * np.sum(b) + 4 * np.sum(b) ** 2

    want, slope = value_and_grad(without)(FIRST)
    np.testing.assert_allclose(want, fn(FIRST), rtol=1e-12)
    for _ in range(2):  # the second trace finds the records of the first
        compiled = differentiate(fn)
        for _ in range(2):
            np.testing.assert_allclose(compiled(FIRST), want, rtol=1e-12)
        value, gradient = value_and_grad(fn)(FIRST)
        np.testing.assert_allclose(value, want, rtol=1e-12)
        np.testing.assert_allclose(gradient, slope, rtol=1e-10, atol=1e-12)


def test_what_does_not_fit_is_numpys_error() -> None:
    def fn(x: Array) -> Array:
        y = np.zeros((2, 4))
        return np.sum(x, axis=0, out=y)

    with pytest.raises(ValueError):
        fn(FIRST)
    with pytest.raises(ValueError):
        differentiate(fn)(FIRST)


def rows_written(x: Array) -> Array:
    y = np.zeros((3, 4, 4))
    for t in range(3):
        np.dot(x, x if t == 0 else y[t - 1], out=y[t])
    return np.sum(y**2)


def a_grid_is_a_copy(x: Array) -> Array:
    a, b = np.meshgrid(x[0], x[1])
    a[0] = 0.0
    return np.sum(a * b * x)


def no_numbers_in_place(x: Array) -> Array:
    y = x * 1
    y[0] = np.inf
    z = np.nan_to_num(y, copy=False, posinf=3.0)
    z *= 2
    return np.sum(y**2)


def parts_are_set(x: Array) -> Array:
    z = x + 1j
    z.real = x * 2
    z.imag = x[0]
    z.real[1] *= 2
    return np.sum(np.abs(z) ** 2 * x)


@pytest.mark.parametrize(
    "fn", [rows_written, a_grid_is_a_copy, no_numbers_in_place, parts_are_set]
)
def test_writes_are_as_numpys(fn: Callable[[Array], Array]) -> None:
    for _ in range(2):
        value, gradient = value_and_grad(fn)(FIRST)
        np.testing.assert_allclose(value, fn(FIRST), rtol=1e-12)
        way = np.random.default_rng(1).normal(size=FIRST.shape)
        step = 1e-6 * way
        slope = (fn(FIRST + step) - fn(FIRST - step)) / 2e-6
        np.testing.assert_allclose(np.sum(gradient * way), slope, rtol=1e-6)
