"""What random programs of numpy's found, and scipy's."""

from __future__ import annotations

from typing import Any

import numpy as np

import gradof
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
