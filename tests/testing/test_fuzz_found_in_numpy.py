"""What random programs of numpy's found, and scipy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradof
from gradof.errors import ShapeError
from gradof.testing import check


def test_results_that_are_arguments_are_forward_runs() -> None:
    """A pullback of them counted the forward as a backward, and a check took it for none."""
    compiled = gradof.differentiate(lambda x: np.asanyarray(x))
    _, pullback = gradof.vjp(compiled, np.ones((1, 2)))
    np.testing.assert_array_equal(pullback(np.full((1, 2), 3.0))[0], np.full((1, 2), 3.0))
    info = compiled.cache_info()
    assert (info.forward_runs, info.backward_runs) == (1, 1)
    check(lambda x: np.asanyarray(x), (np.ones((1, 2)),))


def test_classes_of_c_have_no_table_of_annotations() -> None:
    """A guard of what scipy reads asked `types.FunctionType` for its: a TypeError."""
    from scipy import special

    def program(x: Any, scale: Any) -> Any:
        inner = gradof.grad(lambda t: np.sum(t**3 * scale))(x)
        return special.logsumexp(x, axis=0) + np.sum(inner)

    x, scale = np.array([0.5, 1.0]), np.array([2.0, -1.0])
    check(program, (x, scale))


def _windows(x: Any, width: int = 3) -> Any:
    return np.lib.stride_tricks.sliding_window_view(x, width)


def _of_an_argument(x: Any) -> Any:
    windows = _windows(np.ravel(x))
    np.add(x, 1.0, out=x)
    return windows


def _of_a_result(x: Any) -> Any:
    y = np.sin(x)
    windows, steps = _windows(y), _windows(y[::2], 2)
    y[2] = 7.0
    return windows.sum() + (steps**2).sum()


def _of_two_dims(x: Any) -> Any:
    y = x * 1.5
    windows = np.lib.stride_tricks.sliding_window_view(y.reshape(2, 4), (2, 2))
    y *= y
    return windows


@pytest.mark.parametrize("program", [_of_an_argument, _of_a_result, _of_two_dims])
def test_windows_see_what_is_written_to_their_array(program: Any) -> None:
    """They were a copy: what was written to the array later was not seen."""
    x, y = np.arange(8.0), np.arange(8.0)
    np.testing.assert_allclose(gradof.differentiate(program)(x), program(y))
    np.testing.assert_array_equal(x, y)
    check(program, (np.linspace(0.1, 0.9, 8),), order=2)


def test_a_diagonal_sees_what_is_written_to_its_matrix() -> None:
    """`np.diag` of a matrix was a copy."""

    def program(x: Any) -> Any:
        y = x * 1.0
        diagonal = np.diag(y)
        y[0] = 7.0
        return diagonal * y[1]

    x = np.arange(4.0).reshape(2, 2)
    np.testing.assert_allclose(gradof.differentiate(program)(x), program(x))
    check(program, (x + 0.3,), order=2)


def test_elements_in_another_order_than_memory_are_not_written_to_a_copy() -> None:
    """What `x.T.flat[0] = 5` writes was lost."""

    def program(x: Any) -> Any:
        y = x * 1.0
        y.T.flat[1] = 5.0
        return y

    with pytest.raises(ShapeError, match="read-only"):
        gradof.differentiate(program)(np.ones((2, 3)))

    def rows(x: Any) -> Any:
        y = x * 1.0
        y.flat[1] = 5.0
        return y * sum(y.T.flat)

    x = np.arange(4.0).reshape(2, 2)
    np.testing.assert_allclose(gradof.differentiate(rows)(x), rows(x))
