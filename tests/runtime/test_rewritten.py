"""Modules that store a container anew at each call and read it: one trace serves the calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import gradof

Forward = Callable[[Any, Any], Any]


class Keeps(nn.Module):
    def __init__(self, forward: Forward) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
        self.kept: Any = None
        self.info: Any = {"n": 0}
        self.run = forward

    def forward(self, x: Any) -> Any:
        return self.run(self, x)


def grows(m: Any, x: Any) -> Any:
    m.kept = []
    for _ in range(3):
        x = x * m.weight
        m.kept.append(x)
    return torch.cat(m.kept)


def table(m: Any, x: Any) -> Any:
    m.kept = {}
    m.kept["a"] = x * m.weight
    m.kept["b"] = m.kept["a"] * 2
    return m.kept["b"] + m.kept["a"]


def nested(m: Any, x: Any) -> Any:
    m.kept = [x * m.weight, {"twice": x * 2}]
    return m.kept[0] + m.kept[1]["twice"]


# What reads the container of the call before.
def counts(m: Any, x: Any) -> Any:
    n = m.info["n"]
    m.info = {"n": n + 1}
    return x * m.weight * n


def carries(m: Any, x: Any) -> Any:
    before = m.kept[0] if m.kept else x
    m.kept = [(before * 2 + x).detach()]
    return before + x * m.weight


def asks_shape(m: Any, x: Any) -> Any:
    rows = m.kept[0].shape[0] if m.kept else 1
    m.kept = [torch.zeros(rows + 1)]
    return x * rows * m.weight


def asks_grad(m: Any, x: Any) -> Any:
    had = m.kept[0].requires_grad if m.kept else False
    m.kept = [x.detach() if had else x * m.weight]
    return x * (2 if had else 3) * m.weight


def branches(m: Any, x: Any) -> Any:
    large = m.kept is not None and bool(m.kept[0].sum() > 0)
    m.kept = [x.detach()]
    return x * m.weight * (2 if large else 3)


def hands_on(m: Any, x: Any) -> Any:
    m.info, m.kept = {"n": 0, "before": m.kept}, [x * m.weight]
    return m.kept[0] * 2


def of_both(forward: Forward, between: Callable[[Any, int], None] = lambda m, i: None) -> Any:
    """The same results, gradients and state as eager over some calls; how often it was traced."""
    eager, ours = Keeps(forward), Keeps(forward)
    compiled = gradof.differentiate(ours)
    for i in range(7):
        x = torch.randn(3, generator=torch.Generator().manual_seed(i))
        between(eager, i)
        between(ours, i)
        want, got = eager(x), compiled(x)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close([ours.kept, ours.info], [eager.kept, eager.info])
        slopes = [
            torch.autograd.grad(y.sum(), m.weight)[0] for y, m in ((want, eager), (got, ours))
        ]  # fmt: skip
        torch.testing.assert_close(*slopes)
    return compiled.cache_info()


@pytest.mark.parametrize("forward", [grows, table, nested])
def test_a_container_that_is_stored_and_then_read_is_no_new_trace(forward: Forward) -> None:
    info = of_both(forward)
    assert (info.misses, info.eager_runs) == (2, 0)  # None at first, and then a container


@pytest.mark.filterwarnings("ignore::gradof.errors.RetraceWarning")
@pytest.mark.parametrize(
    "forward", [counts, carries, asks_shape, asks_grad, branches, hands_on]
)
def test_what_is_read_of_the_call_before_is_what_it_left(forward: Forward) -> None:
    of_both(forward)


@pytest.mark.filterwarnings("ignore::gradof.errors.RetraceWarning")
@pytest.mark.parametrize("forward", [nested, carries, asks_grad, counts])
def test_what_the_user_puts_there_between_calls_is_seen(forward: Forward) -> None:
    def between(m: Any, i: int) -> None:
        if i % 3 == 2:
            m.kept = [torch.arange(3.0) + i]
            m.info = {"n": 10 * i}
        if i == 4:
            m.kept = [torch.ones(3, requires_grad=True) * 1]

    of_both(forward, between)


def test_a_container_that_the_user_puts_into_itself_is_another_one() -> None:
    module = Keeps(nested)
    compiled = gradof.differentiate(module)
    x = torch.ones(3)
    for _ in range(3):
        compiled(x)
    module.kept.append(module.kept)
    torch.testing.assert_close(compiled(x), Keeps(nested)(x))
