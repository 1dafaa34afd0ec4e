"""What a function writes to Python's state is written again at each call, without another trace.

Every program runs five times, as it is and compiled, in a namespace of its own; value, gradient and
everything that it keeps are compared after each call.
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn

import gradof
from gradof.errors import EagerWarning

CALLS = 5
CONSTANT = 1  # traces, where what is written does not change what is computed
VARYING = 2  # where a number is seen to vary only at the second call

# name → source that defines f(x) and `kept()`, and how many traces it may take
PROGRAMS: dict[str, tuple[str, int]] = {
    "counter on self": ("""
class Loss:
    def __init__(self): self.step = 0
    def __call__(self, x):
        self.step += 1
        return (x ** 2).sum() / self.step
f = Loss()
kept = lambda: f.step
""", VARYING),
    "global counter": ("""
step = 0
def f(x):
    global step
    step += 1
    return (x * step).sum()
kept = lambda: step
""", VARYING),
    "nonlocal counter": ("""
def make():
    step = 0
    def f(x):
        nonlocal step
        step += 1
        return (x * step).sum()
    return f, lambda: step
f, kept = make()
""", VARYING),
    "counter in a dict": ("""
state = {"step": 0}
def f(x):
    state["step"] += 1
    return (x * state["step"]).sum()
kept = lambda: dict(state)
""", VARYING),
    "annealed weight": ("""
class Loss:
    def __init__(self): self.beta = 1.0
    def __call__(self, x):
        self.beta *= 0.9
        return (x ** 2).sum() * self.beta
f = Loss()
kept = lambda: f.beta
""", VARYING),
    "log of .item()": ("""
log = []
def f(x):
    loss = (x ** 2).sum()
    log.append(loss.item())
    return loss
kept = lambda: list(log)
""", CONSTANT),
    "running mean of .item()": ("""
class Loss:
    def __init__(self): self.mean = 0.0
    def __call__(self, x):
        loss = (x ** 2).sum()
        self.mean = 0.9 * self.mean + 0.1 * loss.item()
        return loss
f = Loss()
kept = lambda: f.mean
""", VARYING),
    "mask built when first used": ("""
class Net:
    def __init__(self): self.mask = None
    def __call__(self, x):
        if self.mask is None:
            self.mask = torch.tril(torch.ones(3, 3, dtype=x.dtype))
        return (self.mask * x).sum()
f = Net()
kept = lambda: f.mask
""", VARYING),
    "tuple of hidden states": ("""
class Net:
    def __init__(self): self.hidden = torch.zeros(3).double(), torch.zeros(3).double()
    def __call__(self, x):
        h, c = self.hidden
        c = torch.tanh(x[0] + c)
        h = c * torch.sigmoid(h + x[1])
        self.hidden = h.detach(), c.detach()
        return h.sum()
f = Net()
kept = lambda: f.hidden
""", CONSTANT),
    "deque of a length": ("""
import collections
last = collections.deque(maxlen=3)
def f(x):
    loss = (x ** 2).sum()
    last.append(loss.item())
    return loss
kept = lambda: list(last)
""", CONSTANT),
    "set of shapes": ("""
seen = set()
def f(x):
    seen.add(tuple(x.shape))
    return (x ** 2).sum()
kept = lambda: set(seen)
""", CONSTANT),
    "cache of keys": ("""
keys = []
def f(x):
    keys.append(x.detach() * 2)
    return (x ** 2).sum()
kept = lambda: list(keys)
""", CONSTANT),
    "weak references": ("""
import weakref
class Net: pass
net = Net()
weight = torch.ones(3).double()
def f(x):
    net.last = x.detach() * 2
    net.seen = [weakref.ref(net.last), weakref.ref(weight)]
    return (x * weight).sum()
kept = lambda: (net.seen[0]() is net.last, net.seen[1]() is weight) if vars(net) else 0
""", CONSTANT),
}  # fmt: skip


def _run(source: str, compiled: bool) -> tuple[list[Any], Any]:
    """Value, gradient and what is kept after each of the calls; and the function."""
    space: dict[str, Any] = {"torch": torch, "__name__": "program"}
    exec(source, space)
    fn: Any = gradof.differentiate(space["f"]) if compiled else space["f"]
    seen = []
    generator = torch.Generator().manual_seed(0)
    for _ in range(CALLS):
        x = torch.randn(3, 3, dtype=torch.float64, generator=generator, requires_grad=True)
        value = fn(x)
        value.backward()
        seen.append((value.detach(), x.grad, space["kept"]()))
    return seen, fn


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager(name: str) -> None:
    source, traces = PROGRAMS[name]
    want, _ = _run(source, compiled=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", EagerWarning)
        have, fn = _run(source, compiled=True)
    for mine, eagers in zip(have, want, strict=True):
        _same(mine, eagers)
    info = fn.cache_info()
    assert info.misses <= traces and info.eager_runs == 0, info
    assert info.backward_runs == CALLS, info


def _same(mine: Any, eagers: Any) -> None:
    """Equal in types, and in numbers to the rounding of float64."""
    assert type(mine) is type(eagers)
    if isinstance(mine, (tuple, list)):
        assert len(mine) == len(eagers)
        for a, b in zip(mine, eagers, strict=True):
            _same(a, b)
    elif isinstance(mine, torch.Tensor):
        torch.testing.assert_close(mine, eagers, rtol=1e-12, atol=1e-14)
        assert mine.requires_grad == eagers.requires_grad
    elif isinstance(mine, float):
        assert mine == pytest.approx(eagers, rel=1e-12)
    else:
        assert mine == eagers


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_trace_that_is_only_looked_at_writes_nothing(name: str) -> None:
    """`.trace(x)` runs the function; what it wrote is put back."""
    space: dict[str, Any] = {"torch": torch, "__name__": "program"}
    exec(PROGRAMS[name][0], space)
    before = space["kept"]()
    gradof.differentiate(space["f"]).trace(torch.ones(3, 3, dtype=torch.float64))
    _same(space["kept"](), before)


class Keeps(nn.Module):
    """Stores a list of tensors anew at each call, as hidden states and sampled weights are."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.kept: Any = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = x * self.weight
        self.kept = [h, {"twice": h * 2}]
        return h.sum()


def test_a_list_that_a_module_stores_and_does_not_read_is_one_trace() -> None:
    module, eager = Keeps(), Keeps()
    compiled = gradof.differentiate(module)
    for _ in range(4):
        x = torch.randn(3)
        torch.testing.assert_close(compiled(x), eager(x))
        torch.testing.assert_close(module.kept, eager.kept)
        module.kept[1]["twice"].sum().backward()
        eager.kept[1]["twice"].sum().backward()
        torch.testing.assert_close(module.weight.grad, eager.weight.grad)
    info = compiled.cache_info()
    assert (info.misses, info.eager_runs) == (1, 0)
    module.kept = nn.Linear(3, 3)  # a module of that name: eager refuses to store a list there
    with pytest.raises(TypeError, match="cannot assign"):
        compiled(torch.randn(3))
