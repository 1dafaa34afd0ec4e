"""What `make test` runs of long lists of cases: tests/sample.py."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from tests.sample import CASES, not_in_sample


class _Item:
    """What is asked of a collected test."""

    def __init__(self, nodeid: str, marks: dict[str, Any]) -> None:
        self.nodeid, self.marks = nodeid, marks

    def get_closest_marker(self, name: str) -> Any:
        return self.marks.get(name)


def _items(function: str, count: int, **marks: Any) -> list[Any]:
    return [_Item(nodeid=f"{function}[{n}]", marks=marks) for n in range(count)]


def _chosen(items: list[Any]) -> list[int]:
    left = not_in_sample(items)
    return [n for n, item in enumerate(items) if item not in left]


@pytest.mark.parametrize("count", [1, CASES, CASES + 1, 1000])
def test_the_first_and_others_at_equal_distances(count: int) -> None:
    chosen = _chosen(_items("a.py::test_a", count))
    assert chosen[0] == 0 and min(count, CASES // 2) <= len(chosen) <= CASES
    assert len({b - a for a, b in itertools.pairwise(chosen)}) <= 1


def test_a_test_says_how_many() -> None:
    marks = {"cases": SimpleNamespace(args=(3,))}
    assert _chosen(_items("a.py::test_a", 12, **marks)) == [0, 4, 8]


def test_functions_are_apart_and_long_ones_left_alone() -> None:
    both = [*_items("a.py::test_a", 30), *_items("a.py::test_b", 3), *_items("b.py::test_a", 3)]
    assert _chosen(both)[-6:] == list(range(30, 36))
    assert not not_in_sample(_items("a.py::test_a", 50, long=object()))
