"""What a function has made, and hands to its caller or to Python's state: others at every call."""

from __future__ import annotations

import array
import collections
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gradof import differentiate


class Record:
    def __init__(self) -> None:
        self.names, self.data, self.queue = {1}, bytearray(b"a"), collections.deque([1])


def _add(obj: Any) -> None:
    """Change an object of the result, as its caller may."""
    if isinstance(obj, Record):
        for part in vars(obj).values():
            _add(part)
    elif isinstance(obj, (set, dict)):
        obj.update({9: 9})
    elif isinstance(obj, (list, bytearray, array.array, collections.deque)):
        if isinstance(obj, list) and isinstance(obj[0], set):
            obj[0].add(9)
        obj.append(obj[-1])
    elif isinstance(obj, (random.Random, np.random.Generator)):
        obj.random()
    else:
        obj += 1


def _told(obj: Any) -> Any:
    if isinstance(obj, Record):
        return {name: str(part) for name, part in vars(obj).items()}
    if isinstance(obj, random.Random):
        return obj.getstate()
    return obj.bit_generator.state if isinstance(obj, np.random.Generator) else str(obj)


MADE: list[Callable[[], Any]] = [
    lambda: {1}, lambda: bytearray(b"a"), lambda: array.array("d", [1.0]), lambda: [{1}, {2}],
    lambda: {"names": {1}}, lambda: collections.deque([1]), lambda: collections.Counter(a=1),
    lambda: np.ones(2), lambda: torch.ones(2), lambda: random.Random(3), Record,
    lambda: np.random.default_rng(3), lambda: np.array(["a", "b"], object), lambda: [1],
]  # fmt: skip


@pytest.mark.cases(14)
@pytest.mark.parametrize(
    ("make", "library"),
    [(m, library) for m in MADE for library in ("torch", "numpy")
     if library == "torch" or not isinstance(m(), torch.Tensor)],
)  # fmt: skip
def test_what_a_caller_changes_is_not_in_the_result_of_another_call(
    make: Callable[[], Any], library: str
) -> None:
    compiled = differentiate(lambda x: (x.sum(), make()))
    x = torch.ones(3, requires_grad=True) if library == "torch" else np.ones(3)
    wanted = _told(make())
    first, second = compiled(x)[1], compiled(x)[1]
    if not (isinstance(first, np.ndarray) and first.dtype == object):
        _add(first)
    else:
        first[0] = "c"
    assert _told(second) == _told(compiled(x)[1]) == wanted
    assert compiled.cache_info().eager_runs == 0


def test_what_was_there_is_handed_on_as_it_is() -> None:
    names = {1}

    compiled = differentiate(lambda x: (x.sum(), names))
    for _ in range(3):
        assert compiled(torch.ones(3))[1] is names


class Registry:
    """As of a library that replaces its state by a changed copy of it."""

    def __init__(self) -> None:
        self.names: set[str] = {"a"}

    def with_name(self, name: str) -> Registry:
        found = Registry()
        found.names.update(self.names)
        found.names.add(name)
        return found


REGISTRY = {"now": Registry()}


@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_a_set_that_is_stored_is_made_at_each_call(library: str) -> None:
    def fn(x: Any) -> Any:
        REGISTRY["now"] = REGISTRY["now"].with_name("b")
        return x.sum() * len(REGISTRY["now"].names)

    compiled = differentiate(fn)
    REGISTRY["now"] = Registry()
    x = torch.ones(3) if library == "torch" else np.ones(3)
    seen = []
    for _ in range(5):
        assert float(compiled(x)) == 6.0
        assert REGISTRY["now"].names == {"a", "b"}
        seen.append(REGISTRY["now"].names)
    assert len({*map(id, seen)}) == 5
    REGISTRY["now"].names.add("c")
    assert float(compiled(x)) == 9.0
    assert REGISTRY["now"].names == {"a", "b", "c"} and "c" not in seen[0]
    info = compiled.cache_info()
    assert info.eager_runs == 0 and info.misses <= 4
