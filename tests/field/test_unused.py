"""Section C: gradients that nobody asked for are neither computed nor made up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from gradof import differentiate
from tests.runtime.compare import check, close

Tensor = torch.Tensor
F64 = torch.float64


def _leaf(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=F64, generator=generator).requires_grad_()


def _kinds(compiled: Any) -> list[list[str]]:
    """The ops of each specialised df so far."""
    return [
        [n.kind for n in special.plan.prepared.walk()]
        for plan in compiled.plans()
        for gradient in plan.gradients.values()
        for special in gradient.dfs.values()
    ]


@pytest.mark.parametrize("asked", [1, 2, 5])
def test_pytorch_131794_as_many_cosines_as_outputs_asked_for(asked: int) -> None:
    """Of ten sines `asked` are differentiated: so many cosines, and None for the other inputs."""

    def fn(*xs: Tensor) -> tuple[Tensor, ...]:
        return tuple(x.sin() for x in xs)

    compiled = differentiate(fn)
    leaves = [_leaf(3, seed=n) for n in range(10)]
    outs = compiled(*leaves)
    loss = torch.stack([out.sum() for out in outs[:asked]]).sum()
    grads = torch.autograd.grad(loss, leaves, allow_unused=True)
    for n, (x, g) in enumerate(zip(leaves, grads, strict=True)):
        close(g, x.detach().cos() if n < asked else None)
    (kinds,) = _kinds(compiled)
    assert kinds.count("cos") == asked


def test_pytorch_186355_an_unused_branch_never_runs() -> None:
    """A zero cotangent of a square root at zero would be 0 * inf; where nothing runs is no NaN."""

    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        return x * 2, x.sqrt()

    compiled = differentiate(fn)
    for which, wanted in ((0, [2.0, 2.0]), (1, [float("inf"), 0.5])):
        x = torch.tensor([0.0, 1.0], dtype=F64, requires_grad=True)
        compiled(x)[which].sum().backward()
        close(x.grad, torch.tensor(wanted, dtype=F64))
    first, second = _kinds(compiled)
    assert "div" not in first and "div" in second
    check(fn, _leaf(3).detach().abs().requires_grad_(), skip=(1,))


def test_pytorch_186355_one_specialisation_per_set_of_outputs() -> None:
    """The same outputs again compile nothing; another set does, once."""
    compiled = differentiate(lambda x: (x.sin(), x.cos(), x.exp()))
    for chosen in ((0,), (0, 2), (0,), (0, 1, 2), (0, 2), (0,)):
        x = _leaf(4)
        outs = compiled(x)
        torch.autograd.backward([outs[i].sum() for i in chosen])
        slopes = (x.detach().cos(), -x.detach().sin(), x.detach().exp())
        close(x.grad, torch.stack([slopes[i] for i in chosen]).sum(0))
    assert len(_kinds(compiled)) == 3 and compiled.cache_info().misses == 1


def test_pytorch_186355_second_order_of_one_output() -> None:
    """The gradient of a gradient keeps to the outputs in use, and to None elsewhere."""

    def fn(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return (a**3).sum(), (a * b.exp()).sum()

    runs = []
    for run in (differentiate(fn), fn):
        a, b = _leaf(3), _leaf(3, seed=1)
        (first,) = torch.autograd.grad(run(a, b)[0], a, create_graph=True)
        runs.append((first, *torch.autograd.grad(first.sum(), (a, b), allow_unused=True)))
    for mine, theirs in zip(*runs, strict=True):
        close(mine, theirs)
    assert runs[0][2] is None


class _TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(4, 6)
        self.heads = nn.ModuleList([nn.Linear(6, 2), nn.Linear(6, 3)])

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        h = torch.tanh(self.body(x))
        return tuple(head(h) for head in self.heads)


def _trained(wrap: Callable[[nn.Module], Any]) -> nn.Module:
    """Six steps on one head or the other; weight decay moves whatever has a gradient, even zero."""
    torch.manual_seed(0)
    model = _TwoHeads().to(F64)
    run = wrap(model)
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
    for n in range(6):
        optimiser.zero_grad(set_to_none=True)
        run(_leaf(5, 4, seed=n).detach())[n % 3 == 2].square().mean().backward()
        optimiser.step()
    return model


def test_pytorch_195689_an_unused_head_keeps_its_weights() -> None:
    """None is not zero: an optimiser with weight decay tells the difference."""
    ours, theirs = _trained(differentiate), _trained(lambda model: model)
    for mine, wanted in zip(ours.parameters(), theirs.parameters(), strict=True):
        close(mine.grad, wanted.grad)
        close(mine.detach(), wanted.detach())


def test_pytorch_195689_what_is_saved_for_an_unused_output_is_let_go() -> None:
    """After the backward of one output the saved values of the whole call are free, as in eager."""
    compiled = differentiate(lambda x: (x.sin(), x.exp()))
    x = _leaf(4)
    first, second = compiled(x)
    first.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        second.sum().backward()
    first, second = compiled(x)
    x.grad = None
    first.sum().backward(retain_graph=True)
    second.sum().backward()
    close(x.grad, x.detach().cos() + x.detach().exp())


def test_pytorch_177764_a_cotangent_that_is_zero_is_not_one_that_is_missing() -> None:
    """Zeros given by the caller make zeros; a missing one makes None."""

    def fn(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return a * 2, b * 3

    a, b = _leaf(3), _leaf(3, seed=1)
    for run in (differentiate(fn), fn):
        outs = run(a, b)
        zero = torch.zeros(3, dtype=F64)
        one = torch.ones(3, dtype=F64)
        got = torch.autograd.grad(outs, (a, b), (one, zero), allow_unused=True, retain_graph=True)
        close(got[1], zero)
        assert torch.autograd.grad(outs[0], (a, b), one, allow_unused=True)[1] is None
