"""Modules that a function calls which cannot be traced are compiled by themselves."""

from __future__ import annotations

import gc
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from gradof import differentiate
from gradof.errors import EagerWarning

Tensor = torch.Tensor
_PLAIN: Any = nn.Module


class Block(nn.Module):
    def __init__(self, says: bool = False) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.BatchNorm1d(3), nn.Linear(3, 6), nn.Linear(6, 3)
        self.says = says

    def forward(self, x: Tensor) -> Tensor:
        if self.says:
            print(end="")
        found: Tensor = x + self.down(torch.tanh(self.up(self.norm(x))))
        return found


class Net(nn.Module):
    def __init__(self, says: bool = False) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block(says), nn.Dropout(0.5), Block())

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.blocks(x)
        return found


def _net(says: bool = False) -> Net:
    torch.manual_seed(0)
    return Net(says)


def _step(net: nn.Module) -> Callable[[Tensor], Tensor]:
    def step(x: Tensor) -> Tensor:
        print(end="")
        found: Tensor = (net(x) ** 2).mean()
        return found

    return step


def _nodes(tensor: Tensor) -> set[str]:
    """The names of the backward nodes that a tensor leads to."""
    names, stack = set[str](), [tensor.grad_fn]
    while stack:
        node = stack.pop()
        if node is not None:
            names.add(type(node).__name__)
            stack += [following for following, _ in node.next_functions]
    return names


def _run(fn: Callable[[Tensor], Tensor], net: nn.Module, twice: bool = False) -> list[Any]:
    torch.manual_seed(1)
    x = torch.randn(5, 3, requires_grad=True)
    value = fn(x)
    net.zero_grad()
    (slope,) = torch.autograd.grad(value, x, create_graph=True)
    torch.autograd.backward(slope.square().sum() if twice else value)
    grads = [p.grad.clone() for p in net.parameters() if p.grad is not None]
    return [value.detach(), slope.detach(), *grads, *(b.clone() for b in net.buffers())]


def _all_close(got: list[Any], want: list[Any]) -> None:
    for ours, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore::gradof.errors.EagerWarning")
@pytest.mark.parametrize("says", [False, True])
@pytest.mark.parametrize("twice", [False, True])
def test_as_in_eager_and_compiled(says: bool, twice: bool) -> None:
    ours, theirs = _net(says), _net(says)
    fast = differentiate(_step(ours))
    for training in (True, True, True, False, True, True, False):
        ours.train(training)
        theirs.train(training)
        _all_close(_run(fast, ours, twice), _run(_step(theirs), theirs, twice))
        with torch.no_grad():
            for net in (ours, theirs):
                for p in net.parameters():
                    p.mul_(0.9)
    assert "_CompiledBackward" in _nodes(fast(torch.ones(5, 3)))
    assert fast.cache_info().eager_runs == 8
    assert _PLAIN._call_impl.__module__ == "torch.nn.modules.module"


@pytest.mark.filterwarnings("ignore::gradof.errors.EagerWarning")
def test_of_signatures_that_are_not_tried() -> None:
    net = _net()
    fast = differentiate(lambda x, n: _step(net)(x))
    for n in range(6):
        value = fast(torch.ones(5, 3), n)
    assert "_CompiledBackward" in _nodes(value) and fast.cache_info().misses == 3


def test_one_warning_for_all() -> None:
    fast = differentiate(_step(_net(True)))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(5):
            fast(torch.ones(5, 3))
    assert [w.category for w in seen] == [EagerWarning]
    assert "modules that it calls are compiled" in str(seen[0].message)


@pytest.mark.filterwarnings("ignore::gradof.errors.EagerWarning")
def test_hooks_are_called_as_in_eager() -> None:
    net = _net()
    seen: list[Any] = []
    net.blocks[1].register_forward_hook(lambda module, args, out: seen.append(out.shape))
    net.register_forward_hook(lambda module, args, out: seen.append("net"))
    fast = differentiate(_step(net))
    for _ in range(4):
        _run(fast, net)
    assert seen == [(5, 3), "net"] * 4


@pytest.mark.filterwarnings("ignore::gradof.errors.EagerWarning")
@pytest.mark.parametrize("reentrant", [False, True])
def test_a_checkpoint_runs_the_same_again(reentrant: bool) -> None:
    ours, theirs = _net(), _net()

    def stepping(net: nn.Module) -> Callable[[Tensor], Tensor]:
        def step(x: Tensor) -> Tensor:
            print(end="")
            found: Any = checkpoint(net, x, use_reentrant=reentrant)
            value: Tensor = (found**2).mean()
            return value

        return step

    for net, step in ((ours, differentiate(stepping(ours))), (theirs, stepping(theirs))):
        torch.manual_seed(1)
        x = torch.randn(5, 3, requires_grad=True)
        for _ in range(5):
            torch.autograd.backward(step(x))
        setattr(net, "x", x)  # noqa: B010
    pairs = zip((ours.x, *ours.parameters()), (theirs.x, *theirs.parameters()), strict=True)
    for mine, other in pairs:
        assert isinstance(mine, Tensor) and isinstance(other, Tensor)
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore::gradof.errors.EagerWarning")
def test_errors_pass_and_other_threads_are_left_alone() -> None:
    net, found = _net(), list[Any]()

    def step(x: Tensor) -> Tensor:
        print(end="")
        if x.shape[1] == 3:
            thread = threading.Thread(target=lambda: found.append(_nodes(net(x).sum())))
            thread.start()
            thread.join()
        value: Tensor = (net(x) ** 2).mean()
        return value

    fast = differentiate(step)
    for _ in range(3):
        value = fast(torch.ones(5, 3))
    assert "_CompiledBackward" in _nodes(value)
    assert all("_CompiledBackward" not in nodes for nodes in found)
    with pytest.raises(RuntimeError, match="running_mean should contain"):
        fast(torch.ones(5, 4))
    assert _PLAIN._call_impl.__module__ == "torch.nn.modules.module"


@pytest.mark.filterwarnings("ignore::gradof.errors.EagerWarning")
def test_modules_are_not_kept_alive() -> None:
    net = _net()
    fast = differentiate(_step(net))
    for _ in range(4):
        fast(torch.ones(5, 3))
    gone = weakref.ref(net)
    del fast, net
    gc.collect()
    assert gone() is None


@pytest.mark.filterwarnings("ignore::gradof.errors.EagerWarning")
def test_modules_that_are_made_for_a_call_are_left_alone() -> None:
    fast = differentiate(lambda x: _step(_net())(x))
    for _ in range(5):
        assert "_CompiledBackward" not in _nodes(fast(torch.ones(5, 3)))
