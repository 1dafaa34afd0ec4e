"""Axes of arrays without dims: numpy lets 0 and -1 pass for reductions by ufuncs and for scans."""

from __future__ import annotations

import numpy as np
import pytest

import gradof

REDUCED = ("sum", "prod", "max", "min", "ptp", "nansum", "any", "all", "argmax", "argmin",
           "count_nonzero")  # fmt: skip
OTHERS = ("cumsum", "cumprod", "argsort")


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize(
    ("name", "keepdims"),
    [(n, k) for n in REDUCED for k in (False, True)] + [(n, None) for n in OTHERS],
)
def test_axis_of_an_array_without_dims(name: str, keepdims: bool | None, axis: int) -> None:
    fn = getattr(np, name)
    kwargs = {} if keepdims is None else {"keepdims": keepdims}
    x = np.array(2.5)
    have = gradof.differentiate(lambda x: fn(x, axis=axis, **kwargs))(x)
    want = fn(x, axis=axis, **kwargs)
    assert np.shape(have) == np.shape(want) and have == want


@pytest.mark.parametrize("name", ["sum", "prod", "max"])
def test_their_gradient(name: str) -> None:
    fn = getattr(np, name)
    assert gradof.grad(lambda x: fn(x * 3.0, axis=-1))(np.array(2.5)) == 3.0


@pytest.mark.parametrize("name", ["sum", "argmax", "cumsum"])
def test_other_axes_are_numpys_error(name: str) -> None:
    with pytest.raises(np.exceptions.AxisError):
        gradof.differentiate(lambda x: getattr(np, name)(x, axis=1))(np.array(2.5))
