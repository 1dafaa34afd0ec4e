"""Arguments of numpy functions whose strides decide what a view is, and memory that is shared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import gradof
from gradof.errors import TraceError


def _grid() -> Any:
    return np.arange(40.0).reshape(8, 5)


_LAYOUTS: dict[str, Callable[[], Any]] = {
    "columns backwards": lambda: _grid()[:, ::-1],
    "rows backwards": lambda: _grid()[::-1],
    "both backwards": lambda: _grid()[::-1, ::-1],
    "transposed, backwards": lambda: np.arange(40.0).reshape(5, 8).T[::-1],
    "rows backwards, with gaps": lambda: np.arange(80.0).reshape(8, 10)[::-1, ::2],
    "one backwards of three": lambda: np.ndarray(
        (8, 5, 1), np.float64, np.arange(4000.0).data, 8224, (1280, -256, 8)
    ),
    "repeated columns": lambda: np.broadcast_to(np.arange(8.0)[:, None], (8, 5)),
    "windows": lambda: as_strided(np.arange(12.0), (8, 5), (8, 8)),
}


@pytest.mark.parametrize("layout", _LAYOUTS)
@pytest.mark.parametrize("flat", [
    lambda x: x.reshape((-1, 4)), lambda x: x.ravel(), lambda x: x[::-1, ::-1].reshape(-1),
])  # fmt: skip
def test_what_is_no_view_is_changed_alone(layout: str, flat: Callable[[Any], Any]) -> None:
    def program(x: Any) -> Any:
        v = flat(x)
        v += 1.0  # of memory of its own, or of the argument's
        return (x * x).sum(0), v * 2.0

    plain, ours = _LAYOUTS[layout](), _LAYOUTS[layout]()
    expected = program(plain)
    got = gradof.differentiate(program)(ours)
    np.testing.assert_array_equal(ours, plain)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("layout", ["repeated columns", "windows"])
def test_a_change_of_elements_that_share_memory_is_refused(layout: str) -> None:
    def program(x: Any) -> Any:
        x[2] = 1.0
        return x.sum(0)

    x = as_strided(np.arange(8.0), (8, 5), (8, 0))
    x = x if layout == "repeated columns" else _LAYOUTS[layout]()
    before = x.copy()
    with pytest.raises(TraceError, match=r"%x is changed in place, and some of its elements"):
        gradof.differentiate(program)(x)
    np.testing.assert_array_equal(x, before)


def _shift(a: Any, b: Any) -> Any:
    a += 1.0
    return b * 2.0


def test_memory_that_is_shared_at_a_later_call_alone_is_refused() -> None:
    f, x = gradof.differentiate(_shift), np.arange(8.0)
    np.testing.assert_array_equal(f(x[:4], x[4:]), 2.0 * np.arange(4.0, 8.0))
    before = x.copy()
    with pytest.raises(TraceError, match="shares memory with another input") as found:
        f(x[:4], x[1:5])
    assert "test_argument_strides.py" in str(found.value)  # the user's line
    np.testing.assert_array_equal(x, before)
    with pytest.raises(TraceError, match="some of its elements share memory"):
        f(as_strided(x, (4,), (0,)), np.arange(4.0))


def test_elements_between_those_of_another_are_apart() -> None:
    x = np.arange(8.0)
    np.testing.assert_array_equal(gradof.differentiate(_shift)(x[::2], x[1::2]), [2, 6, 10, 14])
    np.testing.assert_array_equal(x, [1, 1, 3, 3, 5, 5, 7, 7])


def test_a_trace_of_another_layout_is_not_taken() -> None:
    def program(x: Any) -> Any:
        v = x.ravel()
        v *= 2.0
        return x.sum(0)

    f = gradof.differentiate(program)
    x = _grid()
    np.testing.assert_array_equal(f(x), 2.0 * _grid().sum(0))
    np.testing.assert_array_equal(x, 2.0 * _grid())
    y = _grid()[:, ::-1]
    np.testing.assert_array_equal(f(y), _grid()[:, ::-1].sum(0))
    np.testing.assert_array_equal(y, _grid()[:, ::-1])
