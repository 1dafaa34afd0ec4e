"""Modules whose forward runs as it is: what they and their children share, and see."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from torch import nn

import gradof
from gradof.errors import InputError


class Wrapper(nn.Module):
    """A wrapper with state of its own, as torch's distributed ones have."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.calls = 0
        self.seen: list[float] = []

    def forward(self, x: torch.Tensor) -> Any:
        self.calls += 1
        y = self.module(x)
        self.seen.append(y.sum().item())
        return y


Wrapper.forward.__module__ = "torch.distributed.of_this_test"


class Blocks(nn.Module):
    """Children in containers, some of which are wrapped."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Wrapper(nn.Linear(3, 3)), nn.Linear(3, 3)])
        self.named = nn.ModuleDict({"a": nn.Sequential(nn.Linear(3, 3), nn.Tanh())})

    def forward(self, x: torch.Tensor) -> Any:
        for block in self.blocks:
            x = torch.tanh(block(x))
        return self.named["a"](x)


def _net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 3)).double()


def _x() -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(5, 3, dtype=torch.float64, requires_grad=True)


def _equal(fast: nn.Module, plain: nn.Module) -> None:
    x = _x()
    wanted = [x, *plain.parameters()]
    have, want = fast(x), plain(x)
    torch.testing.assert_close(have, want)
    first = [torch.autograd.grad((v**2).sum(), wanted, create_graph=True) for v in (have, want)]
    torch.testing.assert_close(*first)
    second = [torch.autograd.grad((g[0] ** 2).sum(), wanted, allow_unused=True) for g in first]
    for a, b in zip(*second, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b)


def test_the_wrapper_runs_as_it_is_around_a_compiled_module() -> None:
    plain = Wrapper(_net())
    fast = gradof.differentiate(plain)
    for calls in (2, 4, 6):
        _equal(fast, plain)
        assert plain.calls == fast.calls == len(plain.seen) == calls
    assert fast.cache_info().misses == 1 and fast.cache_info().backward_runs >= 3
    assert type(plain.module) is nn.Sequential, "what was given stays as it was"
    assert fast.cache_info().forward_runs == 3, "and it runs as it was"


def test_everything_is_shared() -> None:
    plain: Any = Wrapper(_net())
    fast = gradof.differentiate(plain)
    assert [*fast.state_dict()] == [*plain.state_dict()]
    assert all(a is b for a, b in zip(fast.parameters(), plain.parameters(), strict=True))
    fast.eval()
    assert not plain.module[0].training and not plain.training
    plain.module[2] = nn.Linear(4, 1).double()
    assert fast(_x()).shape == (5, 1)
    fast.module = nn.Linear(3, 2).double()
    assert fast(_x()).shape == plain(_x()).shape == (5, 2)
    assert isinstance(fast, Wrapper) and type(plain.module) is nn.Linear


def test_what_contains_a_wrapper_runs_as_it_is_and_the_rest_is_compiled() -> None:
    torch.manual_seed(0)
    plain = Blocks().double()
    fast = gradof.differentiate(plain)
    for _ in range(2):
        _equal(fast, plain)
    info = fast.cache_info()
    assert info.misses == 3 and info.backward_runs >= 6
    assert fast.blocks[0].module.cache_info().backward_runs >= 2
    assert [type(m) for m in plain.modules()] == [type(m) for m in Blocks().modules()]
    plain.blocks.append(nn.Linear(3, 3).double())
    _equal(fast, plain)
    del fast.blocks[0]
    assert len(plain.blocks) == 2
    _equal(fast, plain)


def test_items_of_a_sequential_with_a_wrapper_can_be_taken_out() -> None:
    plain = nn.Sequential(Wrapper(nn.Linear(3, 3)), nn.Tanh(), nn.Linear(3, 2)).double()
    fast = gradof.differentiate(plain)
    _equal(fast, plain)
    del fast[1]
    assert [type(m) for m in plain] == [Wrapper, nn.Linear]
    _equal(fast, plain)
    fast.append(nn.Tanh())
    assert [type(m) for m in plain] == [Wrapper, nn.Linear, nn.Tanh]
    _equal(fast, plain)


def test_copies_and_pickles() -> None:
    fast = gradof.differentiate(Wrapper(_net()))
    x, want = _x(), fast(_x())
    for other in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
        torch.testing.assert_close(other(x), want)
        assert other.cache_info().forward_runs == 1 and other.calls == 2


def test_a_shell_has_no_graph_of_its_own() -> None:
    fast = gradof.differentiate(Wrapper(_net()))
    for name in ("trace", "gradient", "explain", "lint"):
        with pytest.raises(InputError, match="its children are compiled"):
            getattr(fast, name)(_x())
    assert "mm" in str(fast.module.trace(_x()))
    with pytest.raises(InputError, match="differentiated already"):
        gradof.differentiate(fast)


def test_settings_are_the_childrens() -> None:
    fast = gradof.differentiate(Wrapper(_net()), numerics="nan_safe")
    fast(_x())
    assert fast.module.trace(_x()).nan_safe
