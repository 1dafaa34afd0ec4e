"""Functions that ask for gradients of their arguments and of state themselves."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gradof import differentiate
from gradof.errors import EagerWarning

Tensor = torch.Tensor


def forces(pos: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """As force fields have it."""
    pos.requires_grad_(True)
    energy = (pos * w).sin().sum()
    (slope,) = torch.autograd.grad(energy, pos, create_graph=True)
    return energy, -slope


def set_by_attribute(pos: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    pos.requires_grad = True
    return (pos * pos).sum(), w * 1.0


@pytest.mark.parametrize("fn", [forces, set_by_attribute])
@pytest.mark.parametrize("asks", [False, True])
def test_an_argument(fn: Any, asks: bool) -> None:
    compiled = differentiate(fn)
    for _ in range(3):
        found = []
        for each in (compiled, fn):
            pos = torch.linspace(0.1, 0.9, 4, dtype=torch.float64).requires_grad_(asks)
            w = torch.linspace(1.0, 2.0, 4, dtype=torch.float64, requires_grad=True)
            first, second = each(pos, w)
            (first + second.square().sum()).backward()
            assert pos.requires_grad and pos.grad is not None and w.grad is not None
            found.append([first.detach(), second.detach(), pos.grad, w.grad])
        for mine, theirs in zip(*found, strict=True):
            torch.testing.assert_close(mine, theirs)
    assert not compiled.cache_info().eager_runs


def test_a_tensor_of_the_state() -> None:
    state = torch.zeros(3)

    def fn(x: Tensor) -> Tensor:
        state.requires_grad = True
        return (state * 2 + x).sum()

    compiled = differentiate(fn)
    for n in range(3):
        compiled(torch.ones(3, requires_grad=True)).backward()
        assert state.grad is not None
        assert torch.equal(state.grad, torch.full((3,), 2.0 * (n + 1)))
    assert not compiled.cache_info().eager_runs


@pytest.mark.filterwarnings("ignore::gradof.errors.EagerWarning")
def test_after_it_was_used_it_is_eager_s() -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        before = x * 2
        x.requires_grad_()
        return (before * x * y).sum()

    found = []
    compiled = differentiate(fn)
    for each in (compiled, fn):
        x, y = torch.ones(3), torch.full((3,), 3.0, requires_grad=True)
        each(x, y).backward()
        assert x.grad is not None and y.grad is not None
        found.append([x.grad, y.grad])
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs)
    assert compiled.cache_info().eager_runs == 1


def test_under_no_grad() -> None:
    compiled = differentiate(set_by_attribute)
    pos, w = torch.ones(3), torch.ones(3)
    with torch.no_grad():
        value, _ = compiled(pos, w)
    assert pos.requires_grad and not value.requires_grad


@pytest.mark.parametrize("asks", [(False, False), (True, False), (False, True), (True, True)])
def test_a_result_of_an_argument_and_of_a_leaf_that_was_made(asks: tuple[bool, bool]) -> None:
    """As the first state of a spiking neuron: it requires grad, whatever the arguments do."""

    def step(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        start = torch.zeros(2)
        start.requires_grad = True
        state = start + x
        return state.sin(), state * state * w, x + 1, state.detach()

    compiled = differentiate(step)
    for _ in range(3):
        found = []
        for each in (compiled, step):
            x, w = (torch.tensor([1.0, 2.0], requires_grad=a) for a in asks)
            results = each(x, w)
            results[1].sum().backward()
            flags = [(r.requires_grad, r.is_leaf) for r in results]
            results[0].add_(1)  # it is no view
            found.append((flags, [r.detach() for r in results], [x.grad, w.grad]))
        assert found[0][0] == found[1][0]
        torch.testing.assert_close(found[0][1:], found[1][1:])
    with torch.no_grad():
        assert not any(r.requires_grad for r in compiled(torch.ones(2), torch.ones(2)))
    assert compiled.cache_info().eager_runs == 0


def test_results_of_a_leaf_that_was_made_and_of_each_other_are_eager_s() -> None:
    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        state = torch.zeros(2).requires_grad_() + x
        return state, state * state

    with pytest.warns(EagerWarning, match="are computed from each other"):
        state, square = differentiate(step)(torch.ones(2))
    assert torch.autograd.grad(square.sum(), state)[0].tolist() == [2.0, 2.0]
