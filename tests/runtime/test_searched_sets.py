"""Sets of classes that code only asks what is in them: the classes themselves are not read."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from gradof import differentiate


class First:
    factor = 2.0


class Second:
    factor = 3.0


KNOWN: set[Any] = {First, Second}
ALSO = KNOWN


def _calls(loss: Any) -> tuple[Any, Any]:
    compiled: Any = differentiate(loss)

    def call() -> Any:
        x = torch.ones(2, requires_grad=True)
        value = compiled(x)
        torch.testing.assert_close(value, loss(x))
        return value.item()

    return compiled, call


def test_their_attributes_may_change() -> None:
    def loss(x: Tensor) -> Any:
        factor = First.factor if First in KNOWN else 1.0
        return (x * factor).sum()

    compiled, call = _calls(loss)
    assert call() == 4.0
    Second.factor += 1.0
    assert call() == 4.0 and compiled.cache_info().misses == 1
    KNOWN.discard(First)
    try:
        assert call() == 2.0
    finally:
        KNOWN.add(First)
    assert call() == 4.0


def test_where_they_are_gone_through_they_are_read_again() -> None:
    def loss(x: Tensor) -> Any:
        if First not in KNOWN:
            return x.sum()
        return x.sum() * sum(each.factor for each in KNOWN)

    _, call = _calls(loss)
    before = call()
    Second.factor += 1.0
    assert call() == before + 2.0


def test_under_another_name_they_are_read_again() -> None:
    def loss(x: Tensor) -> Any:
        if First not in KNOWN:
            return x.sum()
        return x.sum() * sum(each.factor for each in ALSO)

    _, call = _calls(loss)
    before = call()
    Second.factor += 1.0
    assert call() == before + 2.0


def test_by_a_variable_they_are_read_again() -> None:
    def loss(x: Tensor) -> Any:
        known = KNOWN
        return x.sum() * sum(each.factor for each in known) if First in KNOWN else x.sum()

    _, call = _calls(loss)
    before = call()
    Second.factor += 1.0
    assert call() == before + 2.0
