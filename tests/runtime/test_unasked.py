"""Calls whose gradients nobody asks for save their inputs; who asks after all gets them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from gradof import differentiate, tuning, value_and_grad
from gradof.runtime.unasked import IDLE


def _chain(x: Any, w: Any) -> Any:
    return ((-x * x).exp() * w + x).tanh().sum()


def _args() -> tuple[Any, Any]:
    torch.manual_seed(0)
    return (torch.rand(4, 4, dtype=torch.float64, requires_grad=True),
            torch.rand(4, dtype=torch.float64, requires_grad=True))  # fmt: skip


def _eager(x: Any, w: Any) -> tuple[Any, Any]:
    value = _chain(x, w)
    return value, torch.autograd.grad(value, (x, w), create_graph=True)


def _idle() -> tuple[Any, Any, Any]:
    """A function that was called so often without a backward, and its arguments."""
    fn, args = value_and_grad(_chain, (0, 1)), _args()
    for _ in range(IDLE):
        fn(*args)
    return fn, *args


def _saved(value: Any) -> list[Any]:
    node = value.grad_fn
    return [*node.saved_tensors, *(getattr(node, "values", None) or ())]


def test_nothing_is_saved_but_the_inputs() -> None:
    fn, args = value_and_grad(_chain, (0, 1)), _args()
    value, slopes = fn(*args)
    assert len(_saved(value)) > 2
    value, slopes = _idle()[0](*args)
    assert [s.data_ptr() for s in _saved(value)] == [a.data_ptr() for a in args]
    expected, wanted = _eager(*args)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(slopes, wanted)


ASKED: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "backward of the value": lambda value, slopes, x, w: torch.autograd.grad(value, (x, w)),
    "one input": lambda value, slopes, x, w: torch.autograd.grad(value, (w,)),
    "second": lambda value, slopes, x, w: torch.autograd.grad(slopes[0].sum(), (x, w)),
    "third": lambda value, slopes, x, w: torch.autograd.grad(
        torch.autograd.grad(slopes[0].square().sum(), x, create_graph=True)[0].sum(), (x, w)),
    "batched": lambda value, slopes, x, w: torch.autograd.grad(
        slopes[1], (x,), torch.eye(4, dtype=torch.float64), is_grads_batched=True),
    "twice": lambda value, slopes, x, w: (
        torch.autograd.grad(value, (x,), retain_graph=True), torch.autograd.grad(value, (x,))),
}  # fmt: skip


@pytest.mark.parametrize("name", ASKED)
def test_who_asks_after_all_gets_what_eager_gives(name: str) -> None:
    fn, x, w = _idle()
    for _ in range(2):  # the second call saves again
        value, slopes = fn(x, w)
        torch.testing.assert_close(
            ASKED[name](value, slopes, x, w), ASKED[name](*_eager(x, w), x, w)
        )
    assert len(_saved(fn(x, w)[0])) > 2


def test_an_input_that_has_changed_is_an_error() -> None:
    fn, x, w = _idle()
    value, _ = fn(x, w)
    with torch.no_grad():
        x += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()


def test_of_several_inputs_some_that_require_none() -> None:
    fn = differentiate(lambda x, w: (_chain(x, w), (x > 0.5).sum()))
    x, w = _args()
    w = w.detach()
    for _ in range(IDLE + 2):
        value, count = fn(x, w)
    assert value.requires_grad and not count.requires_grad
    value.backward()
    torch.testing.assert_close(x.grad, torch.autograd.grad(_chain(x, w), x)[0])


def test_what_draws_or_is_long_saves_as_ever(monkeypatch: Any) -> None:
    x, w = _args()
    dropped = differentiate(lambda x, w: _chain(torch.nn.functional.dropout(x * w), w))
    for _ in range(IDLE + 2):
        value = dropped(x, w)
    torch.manual_seed(3)
    value = dropped(x, w)
    (mine,) = torch.autograd.grad(value, x)
    torch.manual_seed(3)
    (wanted,) = torch.autograd.grad(_chain(torch.nn.functional.dropout(x * w), w), x)
    torch.testing.assert_close(mine, wanted)
    monkeypatch.setattr(tuning, "UNASKED_NODES", 2)
    fn, x, w = _idle()
    assert len(_saved(fn(x, w)[0])) > 2


def test_a_model_that_is_evaluated_before_it_is_trained() -> None:
    torch.manual_seed(0)
    model: Any = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    plain, fast = copy.deepcopy(model), differentiate(model)
    x = torch.rand(3, 4)
    for _ in range(IDLE + 1):
        fast(x)
    for _ in range(3):
        for each in (plain, fast):
            each(x).square().sum().backward()
        for mine, other in zip(model.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, other.grad)
