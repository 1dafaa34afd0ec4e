"""What a backward of the user's writes is written by backwards alone, as in eager."""

# mypy: disable-error-code="no-untyped-call, no-any-return"
from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch

from gradof import differentiate
from gradof.errors import EagerWarning

Tensor = torch.Tensor


class Tally:
    """What a backward may write to."""

    def __init__(self) -> None:
        self.n, self.log = 0, list[int]()


def _of_class(cls: Any, ctx: Any) -> None:
    cls.n += 1


def _list_of_class(cls: Any, ctx: Any) -> None:
    cls.log.append(1)


def _of_context(cls: Any, ctx: Any) -> None:
    ctx.tally.n += 1


def _by_helper(cls: Any, ctx: Any) -> None:
    _note(cls.log)


def _nested(cls: Any, ctx: Any) -> None:
    cls.logs["all"].append(1)


def _of_an_item(cls: Any, ctx: Any) -> None:
    for tally in cls.tallies:
        tally.n += 1


def _note(log: list[int]) -> None:
    log.append(1)


def function(write: Callable[[Any, Any], None]) -> Any:
    class Noted(torch.autograd.Function):
        n, log = 0, list[int]()
        logs: ClassVar[Any] = {"all": []}
        tallies: ClassVar[Any] = [Tally()]

        @staticmethod
        def forward(ctx: Any, x: Tensor, tally: Tally) -> Tensor:
            ctx.tally = tally
            return x.exp()

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            write(Noted, ctx)
            ctx.spare = g
            return g * 3, None

    return Noted


@pytest.mark.parametrize(
    "write", [_of_class, _list_of_class, _of_context, _by_helper, _nested, _of_an_item]
)
def test_a_backward_that_writes_runs_as_it_is(write: Callable[[Any, Any], None]) -> None:
    def run(wrap: Callable[..., Any]) -> list[Any]:
        cls, tally, found = function(write), Tally(), list[Any]()
        call = wrap(lambda x: cls.apply(x, tally).sum())
        for i in range(4):
            x = torch.ones(3, requires_grad=True)
            value = call(x)
            for _ in range(i % 3):  # none, one, two
                value.backward(retain_graph=True)
            noted = cls.n, list(cls.log), list(cls.logs["all"]), cls.tallies[0].n, tally.n
            found.append((x.grad, *noted))
        return found

    with pytest.warns(EagerWarning, match="a backward may write"):
        have = run(differentiate)
    assert str(have) == str(run(lambda fn: fn))


def test_what_is_kept_on_the_context_is_traced() -> None:
    class Clean(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x.exp()

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            ctx.seen = g
            return g * 3

    call = differentiate(lambda x: Clean.apply(x).sum())
    for _ in range(2):
        x = torch.ones(3, requires_grad=True)
        call(x).backward()
        assert x.grad is not None and x.grad.tolist() == [3.0, 3.0, 3.0]
    assert call.cache_info().eager_runs == 0


def test_a_list_that_is_only_read_is_traced() -> None:
    class Tree:
        """As linear_operator has it: how an operator is made of its tensors again."""

        def __init__(self, n: int) -> None:
            self.places, self.settings = list(range(n)), {"scale": 2.0}

        def __call__(self, *tensors: Tensor) -> Any:
            found = []
            for place in self.places:
                found.append(tensors[place] * self.settings["scale"])
            return found

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, tree: Tree, *tensors: Tensor) -> Tensor:
            ctx.tree = tree
            ctx.save_for_backward(*tensors)
            a, b = tree(*tensors)
            return a * b

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            a, b = ctx.tree(*ctx.saved_tensors)
            return None, g * b * 2, g * a * 2

    call = differentiate(lambda x, y: Product.apply(Tree(2), x, y).sum())
    for n in range(3):
        x, y = torch.full((3,), n + 1.0, requires_grad=True), torch.full((3,), 5.0)
        call(x, y.requires_grad_()).backward()
        assert x.grad is not None and x.grad.tolist() == [20.0] * 3
        assert y.grad is not None and y.grad.tolist() == [4.0 * (n + 1)] * 3
    assert call.cache_info().eager_runs == 0
