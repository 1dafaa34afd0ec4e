"""State that a backward of the user's reads: as in eager, or an error that says what changed."""

# mypy: disable-error-code="no-untyped-call, no-any-return"
from __future__ import annotations

import logging
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch

from gradof import differentiate, vjp
from gradof.errors import EagerWarning, TraceError

Tensor = torch.Tensor
_logger = logging.getLogger(__name__)
RATE = 3.0
SCALE = 2.0
TABLE = torch.ones(3)
SETTINGS = ModuleType("settings")


class Config:
    """What a backward may read."""

    scale = 2.0


class Keeper(torch.nn.Module):
    """A module that a context keeps."""

    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))
        self.count = 0


def rescaled(g: Tensor) -> Tensor:
    """Read by a helper."""
    return g * Config.scale


def set_scale(value: float) -> None:
    global SCALE
    SCALE = value


def set_table(value: float) -> None:
    globals()["TABLE"] = torch.full((3,), value)


def function(read: Callable[[Any, Tensor], Tensor], keeper: Any = None) -> Any:
    class Read(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.keeper = keeper
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return read(ctx, g)

    return Read


CASES: dict[str, tuple[Callable[[Any, Tensor], Tensor], Callable[[Keeper, float], Any]]] = {
    "class": (lambda ctx, g: g * Config.scale, lambda k, v: setattr(Config, "scale", v)),
    "helper": (lambda ctx, g: rescaled(g), lambda k, v: setattr(Config, "scale", v)),
    "module": (lambda ctx, g: g * SETTINGS.scale, lambda k, v: setattr(SETTINGS, "scale", v)),
    "context": (lambda ctx, g: g * ctx.keeper.rate, lambda k, v: setattr(k, "rate", v)),
    "mode": (lambda ctx, g: g * 2 if ctx.keeper.training else g * 3, lambda k, v: k.train(v == 2)),
    "buffer": (lambda ctx, g: g + ctx.keeper.seen, lambda k, v: k.seen.fill_(v)),
    "tensor": (lambda ctx, g: g * TABLE, lambda k, v: set_table(v)),
    "environment": (
        lambda ctx, g: g * float(os.environ["GRADOF_TEST"]),
        lambda k, v: os.environ.__setitem__("GRADOF_TEST", str(v)),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_change_before_the_backward_is_an_error_and_eager_then(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, change = CASES[case]
    monkeypatch.setenv("GRADOF_TEST", "2")

    def run(wrap: Callable[..., Any]) -> list[Any]:
        keeper, found = Keeper(), list[Any]()
        change(keeper, 2.0)
        cls = function(read, keeper)
        call = wrap(lambda x: cls.apply(x).sum())
        for i in range(7):
            x = torch.ones(3, requires_grad=True)
            value = call(x)
            if i in (3, 5):
                change(keeper, 2.0 + i)
            try:
                value.backward()
                found.append(x.grad)
            except TraceError as error:
                assert "between the call and its backward" in str(error)
                found.append(None)
        change(keeper, 2.0)
        return found

    with pytest.warns(EagerWarning, match="between the call and its backward"):
        have = run(differentiate)
    want = run(lambda fn: fn)
    assert [h is None for h in have] == [i == 3 for i in range(7)]
    assert all(h is None or torch.equal(h, w) for h, w in zip(have, want, strict=True))


@pytest.mark.parametrize("case", CASES)
def test_a_change_between_calls_is_noticed(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read, change = CASES[case]
    monkeypatch.setenv("GRADOF_TEST", "2")
    keeper = Keeper()
    cls = function(read, keeper)
    call = differentiate(lambda x: cls.apply(x).sum(), strict=True)
    for value in (2.0, 2.0, 3.0, 5.0, 2.0, 2.0):
        change(keeper, value)
        x, y = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
        call(x).backward()
        cls.apply(y).sum().backward()
        assert torch.equal(x.grad, y.grad)  # type: ignore[arg-type]
    change(keeper, 2.0)


def test_a_pullback_tells_of_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Config, "scale", 2.0)
    cls = function(lambda ctx, g: g * Config.scale)
    _, pullback = vjp(cls.apply, torch.ones(3))
    assert torch.equal(pullback(torch.ones(3))[0], torch.full((3,), 2.0))
    Config.scale = 5.0
    with pytest.raises(TraceError, match=r"scale was 2\.0 and is 5\.0"):
        pullback(torch.ones(3))


def test_loggers_names_and_globals_that_nothing_rebinds_are_traced() -> None:
    def read(ctx: Any, g: Tensor) -> Tensor:
        _logger.debug("backward of %s", __name__)
        return g * RATE

    cls = function(read)
    call = differentiate(lambda x: cls.apply(x).sum(), strict=True)
    for _ in range(4):
        x = torch.ones(3, requires_grad=True)
        call(x).backward()
        assert torch.equal(x.grad, torch.full((3,), 3.0))  # type: ignore[arg-type]
    assert call.cache_info().misses == 1 and call.cache_info().backward_runs == 4


EVERYTHING, TWICE, ALLOWED, DOTS = slice(None), range(2), frozenset({1, 2}), ...


def test_globals_that_cannot_change_are_traced() -> None:
    def read(ctx: Any, g: Tensor) -> Tensor:
        made = g[DOTS, EVERYTHING]
        for k in TWICE:
            made = made * (3.0 if k + 1 in ALLOWED else 0.0)
        return made

    x = torch.ones(3, requires_grad=True)
    value = differentiate(function(read).apply, strict=True)(x)
    assert torch.autograd.grad(value.sum(), x)[0].tolist() == [9.0] * 3


def _count(keeper: Keeper) -> None:
    keeper.count += 1


def _see(keeper: Keeper) -> None:
    keeper.seen.add_(1)


@pytest.mark.parametrize(("write", "read"), [
    (_count, lambda ctx, g: g * ctx.keeper.count),
    (_see, lambda ctx, g: g * ctx.keeper.seen),
    (lambda keeper: None, lambda ctx, g: g * SCALE),
])  # fmt: skip
def test_what_the_call_or_the_module_writes_runs_eagerly(
    write: Callable[[Keeper], None], read: Callable[[Any, Tensor], Tensor]
) -> None:
    def run(wrap: Callable[..., Any]) -> list[Any]:
        keeper, found = Keeper(), list[Any]()
        cls = function(read, keeper)

        def loss(x: Tensor) -> Tensor:
            y = cls.apply(x).sum()
            write(keeper)
            return y

        call = wrap(loss)
        for i in range(4):
            x = torch.ones(3, requires_grad=True)
            value = call(x)
            set_scale(2.0 + i)
            value.backward()
            found.append(x.grad)
        return found

    with pytest.warns(EagerWarning, match="a backward reads"):
        have = run(differentiate)
    assert str(have) == str(run(lambda fn: fn))


def test_what_the_call_writes_elsewhere_under_the_same_name_is_compiled() -> None:
    class Reverse(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, rate: float) -> Tensor:
            ctx.rate = rate
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
            return -ctx.rate * g, None

    keeper: Any = Keeper()
    keeper.rate = 1.0

    def loss(x: Tensor) -> Tensor:
        keeper.rate *= 2
        return Reverse.apply(x, keeper.rate).sum()

    call = differentiate(loss, strict=True)
    x = torch.ones(3, requires_grad=True)
    (call(x) + call(x)).backward()  # each with the rate that it had
    assert torch.equal(x.grad, torch.full((3,), -6.0))  # type: ignore[arg-type]


class Net(torch.nn.Sequential):
    """Whose forward goes through its table of modules."""

    def __init__(self) -> None:
        super().__init__(torch.nn.Linear(1, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))


class Integral(torch.autograd.Function):
    """The integral of a function with parameters, whose backward has functions of its own."""

    @staticmethod
    def forward(ctx: Any, f: Any, x: Tensor, *parameters: Tensor) -> Tensor:
        ctx.f = f
        ctx.save_for_backward(x, *parameters)
        return f(x / 2) * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, *parameters = ctx.saved_tensors

        def slopes(at: Tensor) -> Any:
            with torch.enable_grad():
                area = ctx.f(at / 2) * at
                return torch.autograd.grad(area, (at, *parameters), g)

        return (None, *slopes(x.detach().requires_grad_()))


def test_a_backward_may_have_functions_and_run_modules() -> None:
    torch.manual_seed(0)
    net = Net()
    compiled = differentiate(lambda x: Integral.apply(net, x, *net.parameters()).sum())
    for n in range(3):
        x, y = (torch.linspace(0.0, 1.0 + n, 4).unsqueeze(1).requires_grad_() for _ in range(2))
        found, wanted = compiled(x), (net(y / 2) * y).sum()
        torch.testing.assert_close(found, wanted)
        weights = list(net.parameters())
        have = torch.autograd.grad(found, [x, *weights])
        torch.testing.assert_close(have, torch.autograd.grad(wanted, [y, *weights]))
    info = compiled.cache_info()
    assert (info.eager_runs, info.misses) == (0, 1)
