"""Calls of which something of torch's sees each op: they run as they are, and are seen.

Compiled code would show none of its ops to torch.jit.trace, make_fx, torch.export, torch.fx, a
counter of operations or a mode of the user's.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import gradof
from gradof.errors import EagerWarning, TraceError

X = torch.linspace(-1.0, 1.0, 15).reshape(5, 3)


@pytest.fixture(params=["fresh", "called"])
def fast(request: pytest.FixtureRequest) -> nn.Module:
    """A compiled model, before and after calls for which everything has been generated."""
    torch.manual_seed(0)
    made: nn.Module = gradof.differentiate(
        nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    )
    for _ in range(6 if request.param == "called" else 0):
        made(X).sum().backward()
        with torch.no_grad():
            made(X)
    return made


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, of what it traces, and ours
        yield


def _by_jit(fn: Any) -> Any:
    return torch.jit.trace(fn, X)  # type: ignore[no-untyped-call]


def _by_make_fx(fn: Any) -> Any:
    return make_fx(fn)(X)


def _by_export(fn: Any) -> Any:
    return torch.export.export(fn, (X,)).module()


def _by_fx(fn: Any) -> Any:
    return torch.fx.symbolic_trace(fn)


@pytest.mark.parametrize("record", [_by_jit, _by_make_fx, _by_export, _by_fx])
def test_what_records_a_call_has_its_ops(record: Callable[[Any], Any], fast: nn.Module) -> None:
    recorded = record(fast)
    torch.testing.assert_close(recorded(2 * X), fast(2 * X))


class Ops(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the ops that it sees."""

    seen = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen += 1
        return func(*args, **(kwargs or {}))


class Functions(TorchFunctionMode):
    """Counts the functions that it sees."""

    seen = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [Ops, Functions])
def test_modes_see_what_eager_shows_them(mode: Any, fast: nn.Module) -> None:
    plain = nn.Sequential(*fast.children())
    seen = []
    for model in (plain, fast):
        with mode() as counts:
            model(X)
        seen.append(counts.seen)
    assert seen[0] == seen[1] > 2


def test_operations_are_counted(fast: nn.Module) -> None:
    with FlopCounterMode(display=False) as counter:
        fast(X)
    assert counter.get_total_flops() == 2 * 5 * (3 * 4 + 4 * 2)


def test_functions_without_tensors_are_seen() -> None:
    w = torch.ones(3, requires_grad=True)
    fast = gradof.differentiate(lambda: (2 * w).sum())
    for _ in range(6):
        fast().backward()
    with Ops() as counts:  # type: ignore[no-untyped-call]
        fast()
    assert counts.seen == 2


def test_it_is_told() -> None:
    def double(x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    with warnings.catch_warnings(record=True) as told, Ops():  # type: ignore[no-untyped-call]
        warnings.simplefilter("always")
        gradof.differentiate(double)(X)
    assert [w.category for w in told] == [EagerWarning]
    assert "Ops sees each op of this call" in str(told[0].message)
    with pytest.raises(TraceError, match="Ops sees each op"), Ops():  # type: ignore[no-untyped-call]
        gradof.differentiate(double, strict=True)(X)


def test_a_default_device_is_no_observer() -> None:
    fast = gradof.differentiate(lambda x: (x * torch.ones(3)).sum(), strict=True)
    x = torch.ones(3, requires_grad=True)
    with torch.device("cpu"):
        for _ in range(6):
            fast(x).backward()
    assert fast.cache_info().misses == 1 and x.grad is not None and x.grad.tolist() == [6.0] * 3
