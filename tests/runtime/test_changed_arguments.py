# mypy: disable-error-code="no-untyped-call"
"""Arguments and state that a function changes in place, where the gradient needs what they were.

    def step(state, x):
        state.mul_(x)            # the gradient with respect to x is what `state` was
        return state.sum()
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import gradof
from gradof import differentiate

Tensor = torch.Tensor
ORDINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mul": lambda b, x: b.mul_(x).square().sum(),
    "div": lambda b, x: b.div_(x).square().sum(),
    "pow": lambda b, x: b.pow_(x).square().sum(),
    "twice": lambda b, x: b.mul_(x).mul_(x).square().sum(),
    "view": lambda b, x: (b[1:].mul_(x[1:]), b.square().sum())[1],
    "addcmul": lambda b, x: (b.addcmul_(x, x) * b * x).sum(),
    "handed on": lambda b, x: b.mul_(x),
}


def argument(kind: str) -> tuple[Tensor, list[Tensor]]:
    """What is changed, and what has its gradient."""
    base = (torch.arange(12.0, dtype=torch.float64) + 2).reshape(3, 4)
    if kind == "plain":
        return base, []
    base.requires_grad_()
    made = base * 1.0
    return (made, [base]) if kind == "with history" else (made.t()[:3], [base])


def value_of(fn: Any, kind: str) -> tuple[Tensor, Tensor, list[Tensor]]:
    """A value, what was changed for it, and what has its gradient."""
    b, inputs = argument(kind)
    x = torch.linspace(0.5, 1.5, b.numel(), dtype=torch.float64).reshape(b.shape)
    inputs.append(x.requires_grad_())
    return fn(b, x).sum(), b, inputs


def derivatives(fn: Any, kind: str) -> list[Tensor]:
    found: list[Tensor] = []
    for _ in range(3):
        value, b, inputs = value_of(fn, kind)
        first = torch.autograd.grad(value, inputs, create_graph=True)
        total = torch.stack([g.square().sum() for g in first]).sum()
        curved = total.requires_grad  # not where the gradient is what the argument was
        second = torch.autograd.grad(total, inputs, allow_unused=True) if curved else ()
        found += [t.detach() for t in (value, *first, *second, b) if t is not None]
    return found


@pytest.mark.cases(21)
@pytest.mark.parametrize("kind", ["plain", "with history", "of columns"])
@pytest.mark.parametrize("name", ORDINARY)
def test_an_argument_that_is_changed_has_eagers_gradients(name: str, kind: str) -> None:
    compiled = differentiate(ORDINARY[name])
    torch.testing.assert_close(derivatives(compiled, kind), derivatives(ORDINARY[name], kind))
    assert compiled.cache_info().eager_runs == 0


def test_functional_gradients_of_an_argument_that_is_changed() -> None:
    b, x = torch.arange(1.0, 4.0), torch.tensor([0.5, 0.7, 1.3])
    fn = ORDINARY["mul"]
    torch.testing.assert_close(gradof.grad(fn, argnums=1)(b.clone(), x), 2 * b * b * x)
    torch.testing.assert_close(gradof.grad(fn)(b.clone(), x), 2 * b * x * x)


BUFFER = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
# what runs eagerly, as torch there saves memory that is changed behind its back
THROUGH_DATA: dict[str, tuple[Callable[[Tensor, Tensor], Any], bool]] = {
    "lerp": (lambda b, x: (b.data.lerp_(x, 0.3), b * x)[1], True),
    "mul": (lambda b, x: (b.data.mul_(x), b * x)[1], True),
    "detach": (lambda b, x: (b.detach().mul_(x), b * x)[1], True),
    "view": (lambda b, x: (b.data[1:].mul_(x[1:]), b * x)[1], True),
    "twice": (lambda b, x: (b.data.mul_(x), b.data.add_(x), b * x)[2], True),
    "kept": (lambda b, x: ((d := b.data), d.mul_(x), d * b * x)[2], True),
    "also read": (lambda b, x: (b.data.addcmul_(b, x), b * x)[1], False),
    "read in a view": (lambda b, x: (b.data[:2].mul_(b[1:] * x[1:]), b * x)[1], True),
    "saved before": (lambda b, x: ((y := b * x), b.data.mul_(x), y)[2], False),
    "read for a count": (
        lambda b, x: ((n := (b * x).argmax()), b.data.mul_(x), (b * x)[n])[2], True,
    ),
    "a gradient within": (
        lambda b, x: ((n := (b * x)), b.data.mul_(x), torch.autograd.grad(n.sum(), x)[0])[2], False,
    ),
    "read by a sum": (lambda b, x: ((y := (b + x) ** 2), b.data.mul_(x), y + b)[2], False),
}


@pytest.mark.filterwarnings("ignore::gradof.errors.EagerWarning")
@pytest.mark.cases(12)
@pytest.mark.parametrize("name", THROUGH_DATA)
def test_state_that_is_changed_through_data(name: str) -> None:
    fn, is_compiled = THROUGH_DATA[name]
    found = []
    compiled: Any = None
    for wrap in (lambda f: f, differentiate):
        buffer = BUFFER.clone()
        compiled = wrap(lambda x, buffer=buffer: fn(buffer, x).sum())
        rows: list[Tensor] = []
        for n in range(3):
            x = torch.tensor([0.5, 0.7, 1.3 + n], dtype=torch.float64, requires_grad=True)
            value = compiled(x)
            slopes = torch.autograd.grad(value, x) if value.requires_grad else ()
            rows += [value.detach(), *slopes, buffer.clone()]
        found.append(rows)
    torch.testing.assert_close(found[1], found[0])
    assert bool(compiled.cache_info().eager_runs) is not is_compiled


class Converted(torch.nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight, self.dtype = torch.nn.Parameter(torch.arange(1.0, 4.0)), dtype

    def forward(self, x: Tensor) -> Tensor:
        self.weight.data = self.weight.data.to(device=x.device, dtype=self.dtype)
        return (x * self.weight.to(x.dtype)).square().sum()


@pytest.mark.filterwarnings("ignore::gradof.errors.EagerWarning")
@pytest.mark.parametrize(("dtype", "eager"), [(torch.float32, 0), (torch.float64, 1)])
def test_a_parameter_is_given_its_own_memory(dtype: torch.dtype, eager: int) -> None:
    """As losses with proxies do at each call, in case that the device is another one."""
    model, other = Converted(dtype), Converted(dtype)
    compiled = differentiate(other)
    for n in range(3):
        x = torch.full((3,), 1.0 + n)
        for call, each in ((model, model), (compiled, other)):
            each.zero_grad()
            call(x).backward()
        torch.testing.assert_close(other.weight.grad, model.weight.grad)
        assert other.weight.dtype == model.weight.dtype == dtype
    assert compiled.cache_info().eager_runs == eager


def after(fn: Any, kind: str) -> list[Tensor]:
    """The gradients for what the argument has become, and for what changed it."""
    found: list[Tensor] = []
    for _ in range(3):
        value, b, inputs = value_of(fn, kind)
        first = torch.autograd.grad(value, [b, *inputs], create_graph=True)
        second = torch.autograd.grad(first[0].square().sum(), [b, *inputs], allow_unused=True)
        found += [t.detach() for t in (value, *first, *second) if t is not None]
    return found


@pytest.mark.parametrize("kind", ["plain", "with history", "of columns"])
def test_what_an_argument_has_become_has_a_gradient(kind: str) -> None:
    def fn(b: Tensor, x: Tensor) -> Tensor:
        b.mul_(x)
        return b.sin() * x

    compiled = differentiate(fn)
    for mine, theirs in zip(after(compiled, kind), after(fn, kind), strict=True):
        torch.testing.assert_close(mine, theirs)
    assert not compiled.cache_info().eager_runs


def test_a_carried_argument_keeps_its_gradient_and_its_hooks() -> None:
    def step(carry: Tensor, x: Tensor) -> Tensor:
        carry.mul_(0.5).add_(x.tanh())
        return carry.exp().sum()

    def run(fn: Any) -> list[Tensor]:
        torch.manual_seed(0)
        xs = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
        carry, seen = torch.zeros(3, dtype=torch.float64), []
        losses = []
        for x in xs.unbind():
            losses.append(fn(carry, x))
            carry.register_hook(lambda g: seen.append(g.detach().clone()))
        carry.retain_grad()
        torch.stack(losses).sum().backward()
        assert carry.grad is not None and xs.grad is not None
        return [carry.grad, xs.grad, *seen]

    compiled = differentiate(step)
    mine, theirs = run(compiled), run(step)
    assert len(mine) == len(theirs) == 6
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b)
    assert not compiled.cache_info().eager_runs


class Shifted(torch.autograd.Function):
    """The largest is taken off in place, as implementations of sparsemax do."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x -= x.max()
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad * ctx.saved_tensors[0]


@pytest.mark.parametrize("is_leaf", [True, False])
def test_a_forward_of_the_users_changes_its_argument_behind_autograd(is_leaf: bool) -> None:
    def fn(x: Tensor) -> Tensor:
        shifted: Any = Shifted
        made: Tensor = shifted.apply(x)
        return made

    compiled = differentiate(fn)
    found = []
    for each in (compiled, fn):
        leaf = torch.tensor([1.0, 3.0, 2.0], requires_grad=True)
        x = leaf if is_leaf else leaf * 2.0
        maker = x.grad_fn
        y = each(x)
        assert x.grad_fn is maker
        found.append([y.detach(), x.detach(), *torch.autograd.grad(y.sum(), leaf)])
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs)
    assert not compiled.cache_info().eager_runs


@pytest.mark.filterwarnings("ignore::gradof.errors.EagerWarning")
@pytest.mark.parametrize(("size", "strides", "overlaps"), [
    ((2, 3), (2, 1), True), ((1, 2, 2), (1, 1, 1), True), ((3, 2), (2, 3), False),
    ((2, 2), (2, 3), False), ((4, 1), (2, 1), False), ((0, 3), (1, 1), False),
])  # fmt: skip
def test_windows_that_overlap_are_changed_as_eager_does(
    size: tuple[int, ...], strides: tuple[int, ...], overlaps: bool
) -> None:
    def fn(b: Tensor, x: Tensor) -> Tensor:
        return (b.pow_(2) * x).sum()

    compiled = differentiate(fn)
    found = []
    for each in (compiled, fn):
        memory = torch.linspace(0.5, 1.5, 12, dtype=torch.float64)
        x = torch.full((), 2.0, dtype=torch.float64, requires_grad=True)
        y = each(memory.as_strided(size, strides), x)
        found.append([y.detach(), memory, *torch.autograd.grad(y, x)])
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs)
    assert bool(compiled.cache_info().eager_runs) is overlaps
