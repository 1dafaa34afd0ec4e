"""Whole numbers of arguments that decide shapes and places: a trace holds for the same ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gradof import differentiate, value_and_grad

Array = Any
M = np.random.default_rng(0).normal(size=(3, 4))
MASK = np.array([True, False, True])


def put(x: Array, i: Array) -> Array:
    y = x * 1
    np.put(y, i, 1.0)
    return y


# The function and two arguments, one after the other.
CASES: dict[str, tuple[Callable[[Array, Array], Array], Any, Any]] = {
    "reshape": (lambda x, i: np.reshape(x, i), [4, 3], [2, 6]),
    "reshape: items": (lambda x, i: x.reshape(i[0], i[1]), [4, 3], [6, 2]),
    "reshape: tuple": (lambda x, i: x.reshape(tuple(i)), [4, 3], [6, 2]),
    "resize": (lambda x, i: np.resize(x, i), [4, 3], [2, 7]),
    "zeros": (lambda x, i: np.zeros(i) + x[0, 0], [4, 3], [2, 7]),
    "broadcast_to": (lambda x, i: np.broadcast_to(x[0, 0], i), [4, 3], [2, 7]),
    "repeat": (lambda x, i: np.repeat(x, i, axis=0), [0, 2, 1], [3, 0, 1]),
    "delete": (lambda x, i: np.delete(x, i, axis=0), [0, 2], [1, 1]),
    "delete: mask": (lambda x, i: np.delete(x, i, axis=0), MASK, ~MASK),
    "insert": (lambda x, i: np.insert(x, i, 0.0, axis=0), [0, 2], [1, 1]),
    "insert: one": (lambda x, i: np.insert(x, i, x[:2], axis=0), [1], [2]),
    "split": (lambda x, i: np.concatenate(np.split(x, i)[::-1]), [0, 2], [1, 2]),
    "pad": (lambda x, i: np.pad(x, ((i[0], i[1]), (0, 0))), [0, 2], [2, 1]),
    "pad: widths": (lambda x, i: np.pad(x, i), [0, 2], [2, 1]),
    "tile": (lambda x, i: np.tile(x, i), [2, 1], [1, 3]),
    "roll": (lambda x, i: np.roll(x, i, (0, 1)), [0, 2], [2, 1]),
    "arange": (lambda x, i: np.arange(i[0], i[1]) * x[0, 0], [1, 3], [0, 4]),
    "linspace": (lambda x, i: np.linspace(x[0, 0], x[1, 1], i[0]), [3], [5]),
    "reduceat": (lambda x, i: np.add.reduceat(x[0], i), [0, 2], [1, 3]),
    "maximum.at": (lambda x, i: _at(x, i), [0, 2], [1, 1]),
    "digitize": (lambda x, i: x[0][np.digitize(x[1], i * 1.0) - 1], [-1, 1], [0, 2]),
    "put": (put, [0, 2], [5, 1]),
    "ix_": (lambda x, i: x[np.ix_(i, i)], [0, 2], [2, 1]),
    "ix_: mask": (lambda x, i: x[np.ix_(i, [0, 1])], MASK, ~MASK),
    "isin": (lambda x, i: x * np.isin(np.arange(4), i), [0, 2], [3, 1]),
    "isin: not": (lambda x, i: x[:, i] * np.isin(i, [1, 2], invert=True), [0, 2], [3, 1]),
    "unravel_index": (lambda x, i: x[np.unravel_index(i, (3, 4))], [0, 7], [11, 4]),
    "unravel_index: F": (lambda x, i: x[np.unravel_index(i, (3, 4), "F")], [0, 7], [11, 4]),
    "ravel_multi_index": (
        lambda x, i: x.ravel()[np.ravel_multi_index((i, i), (3, 4))], [0, 2], [2, 1]
    ),
    "ravel_multi_index: modes": (
        lambda x, i: x.ravel()[np.ravel_multi_index((i, i), (3, 4), ("wrap", "clip"), "F")],
        [-1, 5], [7, -2],
    ),
    "tolist": (lambda x, i: x[0][i.tolist()], [0, 2], [3, 1]),
    "norm": (lambda x, i: np.linalg.norm(x, i[0], axis=0), [1, 2], [3, 2]),
}  # fmt: skip


def _at(x: Array, i: Array) -> Array:
    y = np.zeros(4)
    np.maximum.at(y, i, x[0, :2])
    return y


@pytest.mark.parametrize("name", CASES)
def test_another_number_is_another_trace(name: str) -> None:
    fn, *numbers = CASES[name]
    compiled = differentiate(fn)
    slope = value_and_grad(lambda x, i: np.sum(fn(x, i) ** 2))
    for n in (*numbers, *numbers):
        i = np.asarray(n)
        got, want = compiled(M, i), fn(M, i)
        np.testing.assert_array_equal(np.shape(got), np.shape(want))
        np.testing.assert_allclose(got, want, rtol=1e-12)
        _, gradient = slope(M, i)
        way = np.random.default_rng(1).normal(size=M.shape)
        up, down = (np.sum(fn(M + h * way, i) ** 2) for h in (1e-6, -1e-6))
        np.testing.assert_allclose(np.sum(gradient * way), (up - down) / 2e-6, rtol=1e-6, atol=1e-8)


def test_places_outside_are_numpys_error() -> None:
    compiled = differentiate(lambda x, i: x[np.unravel_index(i, (3, 4))])
    compiled(M, np.array([1, 11]))
    with pytest.raises(ValueError):
        compiled(M, np.array([1, 12]))


def test_many_elements_are_looked_up_by_numpy() -> None:
    """All pairs of them would be 2e9 numbers."""
    known = np.arange(0, 10**5, 7) ** 2 % 10**5

    def fn(x: Array, i: Array) -> Array:
        return np.sum(x * np.isin(i, known)) - np.sum(x * np.isin(known[: len(i)], i, invert=True))

    compiled = value_and_grad(fn)
    x, i = np.random.default_rng(0).normal(size=10**4), np.arange(10**4) * 7
    for places in (i, i[::-1].copy(), i + 1):
        value, slope = compiled(x, places)
        np.testing.assert_allclose(value, fn(x, places), rtol=1e-12)
        inside = np.isin(places, known).astype(float)
        outside = np.isin(known[: 10**4], places, invert=True)
        np.testing.assert_array_equal(slope, inside - outside)
    assert compiled.cache_info().misses == 1
