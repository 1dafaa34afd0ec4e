"""Medians and quantiles have numpy's last bit: whether two distances from one are equal says it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.stats

from gradof import differentiate

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "median": lambda x: np.median(x, axis=0), "of all": np.median,
    "rows": lambda x: np.median(x, axis=-1, keepdims=True),
    "nanmedian": lambda x: np.nanmedian(x, axis=0),
    **{
        method: lambda x, method=method: np.quantile(x, [0.1, 0.25, 0.7, 0.9], method=method)  # type: ignore[misc]
        for method in (
            "linear", "hazen", "weibull", "median_unbiased", "normal_unbiased", "midpoint",
            "averaged_inverted_cdf", "interpolated_inverted_cdf",
        )
    },
    "distances": lambda x: np.abs(x - np.median(x, axis=0)),
    "ranks": lambda x: scipy.stats.rankdata(np.abs(x - np.median(x, axis=0)), axis=0),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_the_last_bit_is_numpys(name: str, dtype: Any) -> None:
    rng, function = np.random.default_rng(0), FUNCTIONS[name]
    compiled = differentiate(function)
    for _ in range(10):
        x = rng.standard_normal((6, 4)).astype(dtype)
        have, want = compiled(x), function(x)
        assert have.dtype == want.dtype
        np.testing.assert_array_equal(have, want)
