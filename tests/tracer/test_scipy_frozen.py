"""Distributions of scipy's that are made at each call, and methods that read their signatures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.stats as st

import gradof

X = np.array([0.4, 0.9, 1.3])
CALLS: dict[str, Callable[..., Any]] = {
    "norm": lambda x, m, s: np.sum(st.norm(m, s).logpdf(x)),
    "gamma": lambda x, m, s: np.sum(st.gamma(m, scale=s).logpdf(x)),
    "beta": lambda x, m, s: np.sum(st.beta(m, s).cdf(x * 0.5)),
    "std": lambda x, m, s: np.sum(st.f.std(x + 4, x + 6, m, s)),
}


@pytest.mark.parametrize("name", CALLS)
def test_they_are_traced_once(name: str) -> None:
    fn = CALLS[name]
    derive: Any = gradof.value_and_grad(fn)
    for step in range(6):
        args = X + 0.01 * step, 1.1 + 0.01 * step, 1.5
        value, slope = derive(*args)
        assert value == pytest.approx(fn(*args))
        moved = [fn(args[0] + d, *args[1:]) for d in np.eye(3) * 1e-6]
        np.testing.assert_allclose(slope, (np.array(moved) - value) / 1e-6, rtol=1e-3)
    assert derive.base.cache_info().misses <= 3, "the first, and for the numbers that vary"
