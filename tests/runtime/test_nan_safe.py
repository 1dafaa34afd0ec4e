"""numerics="nan_safe": a branch that is not taken contributes zero, in both libraries.

The reference is the double-where trick by hand: the operand chosen first.
"""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import gradof
from gradof import differentiate
from gradof.errors import InputError, TraceError

POINTS = np.array([0.0, 1.5, -1.0, 4.0, 0.0])

Fn = Callable[[Any, Any], Any]

# name: (the function as people write it, the same with its operands chosen first)
CASES: dict[str, tuple[Fn, Fn]] = {
    "sqrt (jax#347)": (
        lambda m, x: m.where(x > 0, m.sqrt(x), 0.0),
        lambda m, x: m.where(x > 0, m.sqrt(m.where(x > 0, x, 1.0)), 0.0),
    ),
    "log (jax#1052)": (
        lambda m, x: m.where(x > 0, x * m.log(x), 0.0),
        lambda m, x: m.where(x > 0, x * m.log(m.where(x > 0, x, 1.0)), 0.0),
    ),
    "division (jax#5798)": (
        lambda m, x: m.where(x == 0, 1.0, m.sin(x) / x),
        lambda m, x: m.where(x == 0, 1.0, m.sin(x) / m.where(x == 0, 1.0, x)),
    ),
    "power": (
        lambda m, x: m.where(x > 0, x**0.3, x * 2),
        lambda m, x: m.where(x > 0, m.where(x > 0, x, 1.0) ** 0.3, x * 2),
    ),
    "exp that overflows": (
        lambda m, x: m.where(x > 0, m.log(x * 1e-3), m.exp(x * 1e4) * x),
        lambda m, x: m.where(
            x > 0, m.log(m.where(x > 0, x, 1.0) * 1e-3), m.exp(m.where(x > 0, 0.0, x) * 1e4) * x
        ),
    ),
    "arctan2 and norm at zero": (
        lambda m, x: m.where(x == 0, 0.0, m.arctan2(x, 0 * x) * m.sqrt(x * x)),
        lambda m, x: (lambda y: m.where(x == 0, 0.0, m.arctan2(y, 0 * y) * m.sqrt(y * y)))(
            m.where(x == 0, 1.0, x)
        ),
    ),
    "nested": (
        lambda m, x: m.where(x > 1, m.sqrt(x - 1), m.where(x > 0, m.log(x), x * x)),
        lambda m, x: m.where(
            x > 1, m.sqrt(m.where(x > 1, x - 1, 1.0)),
            m.where(x > 0, m.log(m.where(x > 0, x, 1.0)), x * x),
        ),
    ),
    "a scalar shared by all": (
        lambda m, x: m.where(x > 9, m.sqrt(x[0]) + x, x * x),
        lambda m, x: m.where(x > 9, x, x * x),
    ),
    "a norm as the divisor": (
        lambda m, x: m.where(x[0] > 0, x / m.sqrt((x[:1] ** 2).sum()), x * x),
        lambda m, x: x * x,
    ),
}  # fmt: skip


WEIGHTS = np.cos(np.arange(5.0))


def total(fn: Fn, m: Any) -> Callable[[Any], Any]:
    weights = torch.tensor(WEIGHTS) if m is torch else WEIGHTS

    def loss(x: Any) -> Any:
        return (fn(m, x) * weights).sum()

    return loss


def orders(loss: Callable[[Any], Any], x: torch.Tensor) -> list[Any]:
    (g,) = torch.autograd.grad(loss(x), x, create_graph=True)
    (h,) = torch.autograd.grad((g * torch.arange(1.0, 6.0)).sum(), x)
    return [g.detach().numpy(), h.numpy()]


@pytest.mark.parametrize("name", CASES)
def test_torch_is_the_double_where(name: str) -> None:
    plain, safe = CASES[name]
    x = torch.tensor(POINTS, requires_grad=True)
    want = orders(total(safe, torch), x)
    got = orders(differentiate(total(plain, torch), numerics="nan_safe"), x)
    for a, b in zip(got, want, strict=True):
        assert np.isfinite(b).all()
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)
    assert not np.isfinite(orders(differentiate(total(plain, torch)), x)[0]).all()


@pytest.mark.parametrize("name", CASES)
def test_numpy_is_the_double_where(name: str) -> None:
    plain, safe = CASES[name]
    x = torch.tensor(POINTS, requires_grad=True)
    want = orders(total(safe, torch), x)
    loss = total(plain, np)
    got = gradof.grad(loss, numerics="nan_safe")(POINTS)
    np.testing.assert_allclose(got, want[0], rtol=1e-12, atol=1e-14)
    hessian = gradof.hessian(loss, numerics="nan_safe")(POINTS)
    np.testing.assert_allclose(hessian @ np.arange(1.0, 6.0), want[1], rtol=1e-12, atol=1e-14)
    inner = gradof.grad(
        lambda x: (gradof.grad(loss)(x) * np.arange(1.0, 6.0)).sum(), numerics="nan_safe"
    )
    np.testing.assert_allclose(inner(POINTS), want[1], rtol=1e-12, atol=1e-14)


TORCH_ONLY = {
    "masked_fill": lambda x: x.log().masked_fill(x <= 0, 0.0).sum(),
    "clamp": lambda x: x.sqrt().nan_to_num(0.0).clamp(min=0.1).sum(),
    "logsumexp": lambda x: torch.where(
        x > 0, torch.stack([x.log(), x.log()]).logsumexp(0), x
    ).sum(),
}


@pytest.mark.parametrize("name", TORCH_ONLY)
def test_other_selects(name: str) -> None:
    x = torch.tensor(POINTS, requires_grad=True)
    (g,) = torch.autograd.grad(differentiate(TORCH_ONLY[name], numerics="nan_safe")(x), x)
    assert torch.isfinite(g).all()
    (eager,) = torch.autograd.grad(TORCH_ONLY[name](x), x)
    taken = torch.isfinite(eager)
    assert not taken.all()
    torch.testing.assert_close(g[taken], eager[taken])


def test_what_is_finite_in_eager_is_not_changed_to_second_order() -> None:
    def loss(x: torch.Tensor) -> torch.Tensor:
        return (x.sin() ** 2).sum() + torch.where(x > 0, x.exp(), x**3).sum() + (x * 0).cos().sum()

    x = torch.tensor(POINTS, requires_grad=True)
    for a, b in zip(
        orders(differentiate(loss, numerics="nan_safe"), x), orders(loss, x), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_infinite_slopes_that_are_taken_stay() -> None:
    (g,) = (gradof.grad(lambda x: np.sum(np.sqrt(x)), numerics="nan_safe")(np.zeros(1)),)
    assert g == np.inf


class Root(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.where(x > 0, x.sqrt(), x)


def test_modules_and_settings() -> None:
    x = torch.tensor(POINTS, requires_grad=True)
    module = differentiate(Root(), numerics="nan_safe")
    assert torch.isfinite(torch.autograd.grad(module(x).sum(), x)[0]).all()
    with pytest.raises(InputError, match="numerics='safe'"):
        differentiate(Root().forward, numerics="safe")  # type: ignore[call-overload]
    inner = differentiate(lambda x: x * 1, numerics="nan_safe")
    with pytest.raises(TraceError, match="nan_safe"):
        differentiate(lambda x: inner(x), strict=True)(x)


def test_lint_names_the_op_and_the_select() -> None:
    def loss(x: Any) -> Any:
        root = np.sqrt(x)  # the op
        scaled = root * 2.0
        return np.sum(np.where(x > 0, scaled, x))  # the select

    compiled = differentiate(loss)
    (found,) = compiled.lint(POINTS)
    line = loss.__code__.co_firstlineno
    assert (found.op, found.count, found.select) == ("sqrt", 3, "where")
    assert (found.loc.line, found.taken_by.line) == (line + 1, line + 3)
    assert "3 elements that the where at" in str(found)
    assert compiled.lint(np.ones(5)) == []


def test_lint_of_torch() -> None:
    (found,) = differentiate(TORCH_ONLY["masked_fill"]).lint(torch.tensor(POINTS))
    assert (found.op, found.count) == ("log", 2) and found.select is not None
