"""Backwards in torch's anomaly mode: an error where eager has one, and nowhere else."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from gradof import differentiate

Function = Callable[[torch.Tensor], torch.Tensor]
FUNCTIONS: dict[str, Function] = {
    "gradients add up to it": lambda x: torch.sqrt(x - x).sum(),
    "of no number": lambda x: torch.sqrt(x - x),
    "an op makes it": lambda x: (torch.sqrt(x - x) * 0).sum(),
    "of two ops": lambda x: (torch.sqrt(x - x) * x).sum(),
    "none": lambda x: (x * x).sum(),
}


def _gradient(f: Function, asked: str) -> Any:
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    out = f(2 * x if asked == "of no leaf" else x).sum()
    before = torch.is_anomaly_enabled()
    try:
        with torch.autograd.detect_anomaly():
            if asked == "by grad":
                (found,) = torch.autograd.grad(out, x)
            else:
                torch.autograd.backward(out)
                assert x.grad is not None
                found = x.grad
            assert torch.is_anomaly_enabled()
    except RuntimeError as error:
        assert "nan values" in str(error)
        return "an error"
    finally:
        assert torch.is_anomaly_enabled() == before
    return found.numpy().tobytes()


@pytest.mark.parametrize("asked", ["backward", "by grad", "of no leaf"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_nan_is_an_error_where_it_is_in_eager(name: str, asked: str) -> None:
    eager, ours = FUNCTIONS[name], differentiate(FUNCTIONS[name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, that anomaly mode is slow
        for _ in range(4):  # the later ones have value and gradient of one run
            assert _gradient(ours, asked) == _gradient(eager, asked)
    assert ours.cache_info().backward_runs > 0
