"""The harness finds what is wrong, names it, and leaves the caller's data alone."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import gradof
from gradof.errors import GradientMismatchError, InputError, LeafTypeError
from gradof.ir.opinfo import OPS
from gradof.ops.expr import Expr
from gradof.ops.registry import get_op
from gradof.testing import check


@contextmanager
def planted(name: str, **changes: Any) -> Iterator[None]:
    """An op statement with some fields replaced, for a while."""
    good = get_op(name)
    OPS[name] = dataclasses.replace(good, **changes)
    try:
        yield
    finally:
        OPS[name] = good


def loss(x: Tensor, w: Tensor, y: Tensor) -> Tensor:
    """Three ops on three lines, so that lines tell them apart."""
    h = torch.tanh(x @ w)
    d = h - y
    return (torch.exp(d) * h).mean()


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    """x, w, y; only w requires grad."""
    torch.manual_seed(0)
    return torch.randn(5, 4), torch.randn(4, 3, requires_grad=True), torch.randn(5, 3)


def line_of(fn: Callable[..., Any], text: str) -> str:
    """file:line of the line of `fn` that holds `text`."""
    lines, first = inspect.getsourcelines(fn)
    number = first + next(i for i, line in enumerate(lines) if text in line)
    return f"test_harness.py:{number}"


@pytest.mark.parametrize("order", [1, 2])
def test_right_torch_function(order: int) -> None:
    report = check(loss, inputs(), order=order)
    assert report.ok and not report.culprits
    references = {row.reference for row in report.rows}
    assert references == {"eager", "float64", "finite differences"}
    assert ("second" in str(report)) == (order == 2)


def test_right_numpy_function() -> None:
    def valley(p: Any) -> Any:
        return np.sum(100 * (p[1:] - p[:-1] ** 2) ** 2 + (1 - p[:-1]) ** 2)

    assert check(valley, (np.linspace(-1, 1, 6),), order=2).ok
    assert check(valley, (np.linspace(-1, 1, 6, dtype=np.float32),)).ok


WRONG_RULES: list[tuple[str, str, dict[str, Any], str]] = [
    ("tanh", "sign flip", {"x": lambda g, y: -(g * (1.0 - y * y))}, "torch.tanh"),
    ("tanh", "dropped factor", {"x": lambda g: g}, "torch.tanh"),
    ("exp", "dropped cotangent", {"x": lambda g, y: y}, "torch.exp"),
    ("sub", "sign flip", {"a": lambda g: -g, "b": lambda g: -g}, "h - y"),
    ("mul", "swapped operands", {"a": lambda g, a: g * a, "b": lambda g, b: g * b}, "torch.exp"),
    ("mm", "doubled", {"a": lambda g, b: g @ b.mT, "b": lambda g, a: (a * 2.0).mT @ g}, "@ w"),
]


@pytest.mark.parametrize(("name", "what", "vjp", "text"), WRONG_RULES)
def test_wrong_rule_is_found_and_named(
    name: str, what: str, vjp: dict[str, Callable[..., Expr]], text: str
) -> None:
    reads = {k: tuple(inspect.signature(rule).parameters) for k, rule in vjp.items()}
    with planted(name, vjp=vjp, reads=reads):
        report = check(loss, inputs(), raise_on_error=False)
        assert not report.ok, what
        first = report.culprits[0]
        assert first.op == name and line_of(loss, text) in first.loc
        assert "gradient" in first.where
        with pytest.raises(GradientMismatchError, match=f"wrong op: {name}") as error:
            check(loss, inputs())
        assert line_of(loss, text) in str(error.value.loc)


WRONG_LOWERINGS = [("tanh", "np.sinh", "tanh"), ("exp", "np.exp2", "exp")]


@pytest.mark.parametrize(("name", "numpy", "text"), WRONG_LOWERINGS)
def test_wrong_lowering_is_found_and_named(name: str, numpy: str, text: str) -> None:
    with planted(name, numpy=numpy):
        report = check(loss, inputs(), raise_on_error=False)
    assert not report.ok
    assert report.culprits[0].op == name and report.culprits[0].where == "its value"
    assert line_of(loss, f"torch.{text}") in report.culprits[0].loc


def test_wrong_rule_in_numpy() -> None:
    def f(x: Any) -> Any:
        return np.sum(np.sin(x) * x)

    with planted("sin", vjp={"x": lambda g, x: g}, reads={"x": ("g", "x")}):
        report = check(f, (np.linspace(0.1, 2.0, 5),), raise_on_error=False)
    assert not report.ok and report.culprits[0].op == "sin"


def test_missing_gradient_is_wrong() -> None:
    """A rule of None where eager has a gradient is no agreement."""
    with planted("exp", vjp={"x": None}, reads={}):
        x = torch.randn(3, requires_grad=True)
        report = check(lambda x: torch.exp(x).sum() + x.sum(), (x,), raise_on_error=False)
    assert not report.ok


def test_module_is_left_as_it_was() -> None:
    """Parameters, running statistics, gradients, random state and arguments."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Dropout()
    )
    before = copy.deepcopy(net.state_dict())
    x = torch.randn(4, 1, 5, 5)
    kept, random = x.clone(), torch.get_rng_state()
    report = check(lambda images: net(images), (x,))
    assert report.ok and any("random" in note for note in report.notes)
    assert torch.equal(x, kept) and not x.requires_grad
    assert torch.equal(torch.get_rng_state(), random)
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name]) and value.dtype == before[name].dtype, name
    assert all(p.grad is None for p in net.parameters())


def test_mutated_arguments_are_restored() -> None:
    def f(x: Tensor, buffer: Tensor) -> Tensor:
        buffer.add_(1.0)
        return (x * buffer).sum()

    buffer = torch.ones(3)
    assert check(f, (torch.randn(3, requires_grad=True), buffer)).ok
    assert torch.equal(buffer, torch.ones(3))


def test_decorated_function_is_compared_with_its_original() -> None:
    compiled = gradof.differentiate(loss)
    assert check(compiled, inputs()).ok
    assert compiled.cache_info().backward_runs >= 1


def test_comparison_with_itself_is_refused() -> None:
    """A function whose result does not depend on gradients through our df proves nothing."""
    with pytest.raises((GradientMismatchError, RuntimeError)):
        check(lambda x: x.detach() * 2.0, (torch.randn(3, requires_grad=True),))


def test_bad_arguments() -> None:
    with pytest.raises(InputError, match="order"):
        check(loss, inputs(), order=3)
    with pytest.raises(LeafTypeError, match="array"):
        check(lambda n: n, (1,))
