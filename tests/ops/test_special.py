"""Special functions against torch to second order, with both lowerings."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gradof.codegen.lowering.numpy import Library
from gradof.errors import CodegenError
from gradof.ops.expr import F
from gradof.ops.registry import get_op
from tests.ops.reference import compare, forward, gradient

LIBRARIES: list[Library] = ["numpy", "torch"]
Case = tuple[Callable[..., Any], Callable[..., Any], float, float]
UNARY: dict[str, Case] = {
    "lgamma": (F.lgamma, torch.lgamma, 0.3, 5.0),
    "digamma": (F.digamma, torch.digamma, 0.3, 5.0),
    "polygamma": (lambda x: F.polygamma(x, n=2), lambda x: torch.polygamma(2, x), 0.5, 5.0),
    "erfinv": (F.erfinv, torch.erfinv, -0.9, 0.9),
    "ndtr": (F.ndtr, torch.special.ndtr, -3.0, 3.0),
    "log_ndtr": (F.log_ndtr, torch.special.log_ndtr, -3.0, 3.0),
    "ndtri": (F.ndtri, torch.special.ndtri, 0.05, 0.95),
    "i0": (F.i0, torch.special.i0, -3.0, 3.0),
    "i1": (F.i1, torch.special.i1, -3.0, 3.0),
    "i0e": (F.i0e, torch.special.i0e, -3.0, 3.0),
    "i1e": (F.i1e, torch.special.i1e, -3.0, 3.0),
    "entr": (F.entr, torch.special.entr, 0.1, 3.0),
    "logit": (lambda x: F.logit(x, eps=None), torch.logit, 0.05, 0.95),
    "logit_eps": (lambda x: F.logit(x, eps=0.2), lambda x: torch.logit(x, 0.2), 0.01, 0.99),
    "sinc": (F.sinc, torch.sinc, 0.2, 3.0),
}


def _sample(low: float, high: float, n: int = 24) -> Any:
    return np.random.default_rng(2).uniform(low, high, n)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name: str, library: Library) -> None:
    build, eager, low, high = UNARY[name]
    compare(build, eager, _sample(low, high), library=library, tol=1e-9)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", ["xlogy", "xlog1py"])
def test_logarithms_with_a_zero(name: str, library: Library) -> None:
    build, eager = F.__getattr__(name), getattr(torch.special, name)
    compare(build, eager, _sample(-2, 2), _sample(0.3, 3), library=library)
    # 0 log 0 = 0, and d/da at a = 0 is log b wherever that is finite
    compare(build, eager, np.zeros(3), np.array([2.0, 0.5, np.nan]), library=library, order=1)
    (value, grad) = forward(build, *_zeros())[0], gradient(build, *_zeros())[0]
    assert value.tolist() == [0.0, 0.0]
    assert np.isfinite(grad).all()


def _zeros() -> tuple[Any, Any]:
    return np.zeros(2), np.array([0.0, 1.0])


def test_pairs() -> None:
    a, b = _sample(0.5, 2.0), _sample(-1.5, -0.5)
    compare(F.hypot, torch.hypot, a, b)
    compare(F.logaddexp2, torch.logaddexp2, a, b)


def test_limits_at_zero() -> None:
    zero = np.zeros(1)
    assert forward(F.sinc, zero)[0].tolist() == [1.0]
    assert gradient(F.i1, zero)[0].tolist() == [0.5]
    assert gradient(F.i1e, zero)[0].tolist() == [0.5]
    assert forward(F.entr, np.array([0.0, -1.0]))[0].tolist() == [0.0, -np.inf]


def test_log_ndtr_keeps_the_far_tail() -> None:
    # d log Phi(x) ~ -x - 1/x far below, where Phi itself is zero
    (grad,) = gradient(F.log_ndtr, np.array([-1e4]))
    assert grad[0] == pytest.approx(1e4 + 1e-4, rel=1e-12)


def test_without_scipy_the_error_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    lowering = get_op("lgamma").numpy
    assert callable(lowering)
    with pytest.raises(CodegenError, match="pip install scipy"):
        lowering(np.ones(2))
