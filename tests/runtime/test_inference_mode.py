"""Calls within `torch.inference_mode()`: compiled as any, and what code asks of the mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from gradof import differentiate

ENABLED = torch.is_inference_mode_enabled


class Box:
    kept: Any = None


def detached(x: Any) -> Any:
    return x.detach() * 0.5 + x


def of_data(x: Any) -> Any:
    h = x * 2
    h.data.mul_(3)
    return h + 1


def stored(x: Any) -> Any:
    box = Box()
    box.kept = x.detach().mean()
    return x + box.kept


def in_place(x: Any) -> Any:
    h = x.clone()
    v = h[1:]
    v.add_(h[:1])
    h.unfold(0, 2, 2).sum()
    return h.view(-1).cumsum(0)


def left(x: Any) -> Any:
    with torch.inference_mode(False):
        return x.clone() * 2


def by_mode(x: Any) -> Any:
    return x * 2 if torch.is_inference_mode_enabled() else x * 3


def by_tensor(x: Any) -> Any:
    h = x * 2
    return h + 1 if h.is_inference() and not torch.is_inference(WEIGHT) else h - 1


def by_argument(x: Any) -> Any:
    return x * 2 if x.is_inference() else x * 3


WEIGHT = torch.ones(3)
FUNCTIONS = [detached, of_data, stored, in_place, left, by_mode, by_tensor, by_argument]


@pytest.mark.parametrize("f", FUNCTIONS)
@pytest.mark.parametrize("made_within", [True, False], ids=["made within", "made before"])
def test_a_call_is_compiled(f: Callable[[Any], Any], made_within: bool) -> None:
    g = differentiate(f, strict=True)
    for _ in range(3):
        before = torch.rand(4, 3, requires_grad=True)
        with torch.inference_mode():
            x = torch.rand(4, 3) if made_within else before
            found, expected = g(x), f(x)
        torch.testing.assert_close(found, expected)
        assert (found.is_inference(), found.requires_grad) == (True, False) or f is left
        torch.testing.assert_close(g(before), f(before))  # outside it has a gradient
        assert g(before).requires_grad
        g(before).sum().backward()
    assert torch.is_inference_mode_enabled is ENABLED


@pytest.mark.parametrize("f", FUNCTIONS)
def test_a_tensor_of_inference_mode_outside_of_it(f: Callable[[Any], Any]) -> None:
    with torch.inference_mode():
        x = torch.rand(4, 3)
    torch.testing.assert_close(differentiate(f, strict=True)(x), f(x))


@pytest.mark.filterwarnings("ignore::gradof.errors.EagerWarning")
def test_a_gradient_within_is_refused_as_eager_does() -> None:
    seen: list[int] = []

    def f(x: Any) -> Any:
        seen.append(1)
        with torch.enable_grad():
            z = x.detach().requires_grad_()
            (slope,) = torch.autograd.grad((z**2).sum(), z)
        return x - slope

    g = differentiate(f)
    with torch.inference_mode():
        x = torch.rand(3)
        for function in (f, g):
            seen.clear()
            with pytest.raises(RuntimeError):
                function(x)
            assert seen == [1]
    y = torch.rand(3, requires_grad=True)
    assert torch.equal(g(y), f(y))


def test_a_module_keeps_what_it_has_seen() -> None:
    class Averaged(nn.Module):
        mean: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)
            self.register_buffer("mean", torch.zeros(3))
            self.last: Any = None

        def forward(self, x: Tensor) -> Any:
            h = self.layer(x)
            if self.last is not None:
                h = h + self.last.detach()
            self.mean = self.mean * 0.9 + h.detach().mean(0)
            self.last = h
            return h - self.mean

    torch.manual_seed(0)
    module = Averaged()
    plain = Averaged()
    plain.load_state_dict(module.state_dict())
    compiled = differentiate(module, strict=True)
    for within in (False, True, True, False, True):
        x = torch.rand(4, 3)
        with torch.inference_mode(within), torch.set_grad_enabled(not within):
            torch.testing.assert_close(compiled(x), plain(x))
        torch.testing.assert_close(module.mean, plain.mean)
