"""Iterators that functions within a function share: its own are traced, older ones are not."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from gradof import differentiate
from tests.runtime.test_eager import told


def of_a_tuple(*xs: torch.Tensor) -> Any:
    items = iter(xs)

    def taken() -> torch.Tensor:
        return next(items)

    return taken() * 2.0 + taken()


def of_a_generator(x: torch.Tensor, y: torch.Tensor) -> Any:
    products = (x * n + y for n in itertools.count(1))
    take: Callable[[], torch.Tensor] = lambda: next(products)  # noqa: E731
    return take() + take() * take()


def in_a_nest(x: torch.Tensor, y: torch.Tensor) -> Any:
    items = iter([x, y])

    def walked(depth: int) -> Any:
        return next(items) if depth == 0 else [walked(depth - 1) for _ in range(2)]

    a, b = walked(1)
    return a.exp() - b


@pytest.mark.parametrize("fn", [of_a_tuple, of_a_generator, in_a_nest])
def test_one_of_the_call_itself_is_traced(fn: Callable[..., Any]) -> None:
    compiled = differentiate(fn, strict=True)
    for seed in range(3):
        torch.manual_seed(seed)
        x, y = torch.randn(3), torch.randn(3)
        torch.testing.assert_close(compiled(x, y), fn(x, y))
    assert compiled.cache_info().misses == 1


class Holder:
    def __init__(self) -> None:
        self.numbers: Iterator[int] = itertools.count()


def older(kind: str) -> Callable[[torch.Tensor], Any]:
    holder, numbers = Holder(), itertools.count()

    def of_closure(x: torch.Tensor) -> Any:
        local = numbers
        return x * (lambda: next(local))()

    def of_attribute(x: torch.Tensor) -> Any:
        local = holder.numbers
        return x * (lambda: next(local))()

    def of_default(x: torch.Tensor, local: Iterator[int] = itertools.count()) -> Any:  # noqa: B008
        return x * (lambda: next(local))()

    return {"closure": of_closure, "attribute": of_attribute, "default": of_default}[kind]


@pytest.mark.parametrize("kind", ["closure", "attribute", "default"])
def test_one_that_was_there_before_is_taken_from_once_at_each_call(kind: str) -> None:
    compiled = differentiate(older(kind))
    with told():
        assert [compiled(torch.ones(())).item() for _ in range(4)] == [0.0, 1.0, 2.0, 3.0]
