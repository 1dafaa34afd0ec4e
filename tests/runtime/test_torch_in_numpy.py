"""Functions of numpy arrays that have torch in them: constants are guarded, or it is torch's."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import gradof
import gradof.autograd
from gradof import differentiate
from gradof.errors import EagerWarning, TorchInsideError, TraceError

torch.manual_seed(0)
MODEL = nn.Linear(3, 3)
BOX = SimpleNamespace(w=torch.ones(3), kept=None)


def _change(step: int) -> None:
    with torch.no_grad():
        MODEL.weight.fill_(step)
    BOX.w = torch.full((3,), step + 2.0)
    torch.manual_seed(step)


def draws(a: Any) -> Any:
    return a + torch.randn(3).numpy()


def computes(a: Any) -> Any:
    return a * (BOX.w * 2).numpy()


def models(a: Any) -> Any:
    return a * MODEL(torch.ones(3)).detach().numpy()


def makes(a: Any) -> Any:
    return a * 2, torch.ones(3) * len(a)


def catches(a: Any) -> Any:
    try:
        return a * (BOX.w * 2).numpy()
    except TraceError:
        return a


def sums(a: Any) -> Any:
    return a * BOX.w.sum().item()


def no_rows(a: Any) -> Any:
    return torch.tensor(a[:0]) * 1


def _same(got: Any, want: Any) -> None:
    got, want = (x if isinstance(x, tuple) else (x,) for x in (got, want))
    for ours, theirs in zip(got, want, strict=True):
        assert type(ours) is type(theirs) and ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize(
    "fn", [draws, computes, models, makes, catches, no_rows, sums], ids=lambda fn: fn.__name__
)
def test_what_torch_computes_is_no_constant(fn: Callable[..., Any]) -> None:
    fast = differentiate(fn, strict=True)
    for step in range(4):
        a = np.ones((3, 3)) + step
        _change(step)
        want = fn(a)
        _change(step)
        _same(fast(a), want)
    assert fast.cache_info().entries == 1, "it is one trace, of torch's"


def arrays(a: Any) -> Any:
    return a * np.sin(np.asarray(BOX.w * 2))


def test_what_is_neither_runs_eagerly() -> None:
    fast = differentiate(arrays)
    for step in range(4):
        _change(step)
        if step:
            _same(fast(np.ones(3)), arrays(np.ones(3)))
        else:
            with pytest.warns(EagerWarning):
                _same(fast(np.ones(3)), arrays(np.ones(3)))
    assert fast.cache_info().misses <= 4


def elements(a: Any) -> Any:
    return np.sum(a**2 * BOX.w.detach().cpu().numpy())


def as_array(a: Any) -> Any:
    return np.sum(a**2 * np.asarray(BOX.w)) * BOX.w.shape[0]


def numbers(a: Any) -> Any:
    return np.sum(a**2) * sum(BOX.w.tolist())


@pytest.mark.parametrize("fn", [elements, as_array, numbers], ids=lambda fn: fn.__name__)
def test_elements_of_a_tensor_are_guarded(fn: Callable[..., Any]) -> None:
    derive = gradof.value_and_grad(fn)
    for step in (0, 0, 1, 1, 0):
        _change(step)
        for change in (0.0, 1.0):
            BOX.w.add_(change)
            value, slope = derive(np.arange(3.0))
            assert value == pytest.approx(fn(np.arange(3.0)))
            moved = [fn(np.arange(3.0) + d) for d in np.eye(3) * 1e-6]
            np.testing.assert_allclose(slope, (np.array(moved) - value) / 1e-6, atol=1e-3)


def test_the_shape_of_a_tensor_is_guarded() -> None:
    derive = gradof.value_and_grad(lambda a: np.sum(a**2) * BOX.w.shape[0] * len(BOX.w))
    for n in (2, 3):
        BOX.w = torch.ones(n)
        assert derive(np.ones(2))[0] == 2 * n * n
    BOX.w = torch.ones(3, dtype=torch.bfloat16)
    with pytest.raises(TorchInsideError, match="is called in a function of numpy's"):
        gradof.grad(elements)(np.ones(3))
    BOX.w = torch.ones(3)


def test_gradients_where_torch_computes_are_refused() -> None:
    with pytest.raises(TorchInsideError, match="randn is called in a function of numpy's"):
        gradof.autograd.grad(lambda a: np.sum(draws(a)))(np.ones(3))

    def writes(a: Any) -> Any:
        BOX.w.numpy()[0] = 5.0
        return np.sum(a * BOX.w.numpy())

    with pytest.raises(TraceError, match="changed in place"):
        gradof.grad(writes)(np.ones(3))


def test_a_tensor_that_is_stored_or_a_result() -> None:
    def keeps(a: Any) -> Any:
        BOX.kept = BOX.w
        return a * 2

    fast = differentiate(keeps)
    for step in range(3):
        _change(step)
        _same(fast(np.ones(3)), np.full(3, 2.0))
        assert BOX.kept is BOX.w
