"""Sets of classes that code only asks what is in them: the classes themselves are not read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor

from tests.runtime.compare import held_to_eager


class First:
    factor = 2.0


class Second:
    factor = 3.0


KNOWN: set[Any] = {First, Second}
ALSO = KNOWN


def test_their_attributes_may_change() -> None:
    def loss(x: Tensor) -> Any:
        factor = First.factor if First in KNOWN else 1.0
        return (x * factor).sum()

    compiled, call = held_to_eager(loss)
    assert call() == 6.0
    Second.factor += 1.0
    assert call() == 6.0 and compiled.cache_info().misses == 1
    KNOWN.discard(First)
    try:
        assert call() == 3.0
    finally:
        KNOWN.add(First)
    assert call() == 6.0


def _by_its_name() -> Any:
    return KNOWN


def _by_another() -> Any:
    return ALSO


def _by_a_variable() -> Any:
    known = KNOWN
    return known


@pytest.mark.parametrize("known", [_by_its_name, _by_another, _by_a_variable])
def test_where_they_are_gone_through_they_are_read_again(known: Callable[[], Any]) -> None:
    def loss(x: Tensor) -> Any:
        return x.sum() * sum(each.factor for each in known()) if First in KNOWN else x.sum()

    _, call = held_to_eager(loss)
    before = call()
    Second.factor += 1.0
    assert call() == before + 3.0


def test_they_are_read_again_where_the_same_function_goes_through_them() -> None:
    def loss(x: Tensor) -> Any:
        return x.sum() * sum(each.factor for each in KNOWN) if First in KNOWN else x.sum()

    _, call = held_to_eager(loss)
    before = call()
    Second.factor += 1.0
    assert call() == before + 3.0
