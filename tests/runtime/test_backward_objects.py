"""Objects that are made anew for each call, where a backward of the user's reads some, or none."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from gradof import differentiate
from gradof.errors import TraceError

Tensor = torch.Tensor


class Box:
    def __init__(self, scale: float) -> None:
        self.scale, self.tensor, self.items = scale, torch.tensor(scale), [scale]

    def get(self) -> float:
        return self.scale


class Holder:
    def __init__(self, scale: float) -> None:
        self.box = Box(scale)


class Kept:
    def __init__(self, box: Box) -> None:
        self.inner = box


def scale_of(box: Box) -> float:
    return box.scale


# What a forward keeps of the holder, and what a backward makes of it.
READ: dict[str, tuple[Callable[[Holder], Any], Callable[[Any], Any]]] = {
    "object": (lambda h: h.box, lambda o: o.scale),
    "list": (lambda h: h.box.items, lambda o: o[0]),
    "tuple": (lambda h: (1, (h.box,)), lambda o: o[1][0].scale),
    "method": (lambda h: h.box.get, lambda o: o()),
    "partial": (lambda h: functools.partial(scale_of, h.box), lambda o: o()),
    "made": (lambda h: Kept(h.box), lambda o: o.inner.scale),
    "weak": (lambda h: weakref.ref(h.box), lambda o: o().scale),
    "holder": (lambda h: h, lambda o: o.box.scale),
}
UNREAD: dict[str, tuple[Callable[[Holder], Any], Callable[[Any], Any]]] = {
    "number": (lambda h: h.box.scale, lambda o: o),
    "tensor": (lambda h: h.box.tensor, lambda o: o),
    "nothing": (lambda h: None, lambda o: 3.0),
}


def function(case: str) -> Any:
    keep, read = {**READ, **UNREAD}[case]

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, holder: Holder) -> Tensor:
            ctx.kept = keep(holder)
            return x * holder.box.scale

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            return g * read(ctx.kept), None

    return Scaled


class Net(torch.nn.Module):
    def __init__(self, case: str) -> None:
        super().__init__()
        self.rule, self.box = function(case), Box(1.0)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.rule.apply(x.sin(), self)
        return y


def handed(case: str) -> tuple[Callable[[Tensor, Any], Any], Callable[[float], Holder]]:
    """A function of a tensor and a holder, which is another at each call."""
    rule = function(case)
    return (lambda x, holder: rule.apply(x.sin(), holder)), Holder


def in_state(case: str) -> tuple[Callable[[Tensor, Any], Any], Callable[[float], Any]]:
    """A module whose box is another at each call."""
    net = Net(case)

    def fresh(scale: float) -> Net:
        net.box = Box(scale)
        return net

    compiled: Any = differentiate(net)
    return (lambda x, holder: compiled(x)), fresh


def gradient(call: Any, holder: Any, between: Callable[[Any], None]) -> list[float] | None:
    """None where the backward says that it would read something else."""
    x = torch.tensor([0.5, 1.0], dtype=torch.float64, requires_grad=True)
    value = call(x, holder).sum()
    between(holder)
    try:
        value.backward()
    except TraceError as error:
        assert "between the call and its backward" in str(error)
        return None
    assert x.grad is not None
    return [float(g) for g in x.grad]


def eagers(case: str, holder: Any, between: Callable[[Any], None]) -> list[float]:
    found = gradient(lambda x, h: function(case).apply(x.sin(), h), holder, between)
    assert found is not None
    return found


def changed(holder: Any) -> None:
    holder.box.scale, holder.box.items[0] = 7.0, 7.0


def unchanged(holder: Any) -> None:
    pass


@pytest.mark.filterwarnings("ignore::gradof.errors.EagerWarning")
@pytest.mark.filterwarnings("ignore::gradof.errors.RetraceWarning")
@pytest.mark.parametrize("between", [changed, unchanged])
@pytest.mark.parametrize("make", [handed, in_state])
@pytest.mark.parametrize("case", [*READ, *UNREAD])
def test_gradients_are_those_of_eager_or_an_error(case: str, make: Any, between: Any) -> None:
    call, fresh = make(case)
    if make is handed:
        call = differentiate(call)
    told = 0
    for i in range(6):
        scale = 2.0 + i % 2
        found, wanted = gradient(call, fresh(scale), between), eagers(case, Holder(scale), between)
        told += found is None
        assert found is None or found == pytest.approx(wanted)
    assert told <= (1 if between is changed and case in READ else 0)


@pytest.mark.parametrize("make", [handed, in_state])
@pytest.mark.parametrize("case", UNREAD)
def test_what_no_backward_reads_is_traced_once(case: str, make: Any) -> None:
    call, fresh = make(case)
    compiled: Any = differentiate(call, strict=True)
    for _ in range(6):
        x = torch.ones(2, requires_grad=True)
        compiled(x, fresh(2.0)).sum().backward()
    assert compiled.cache_info().misses <= 2 and compiled.cache_info().backward_runs >= 5


def test_an_earlier_call_s_backward_reads_an_earlier_call_s_object() -> None:
    call, fresh = handed("object")
    compiled: Any = differentiate(call, strict=True)
    x = torch.ones(2, requires_grad=True)
    first, second = compiled(x, one := fresh(2.0)), compiled(x, two := fresh(2.0))
    assert one is not two
    for value in (first, second):
        (found,) = torch.autograd.grad(value.sum(), x)
        torch.testing.assert_close(found, 2.0 * x.detach().cos())
