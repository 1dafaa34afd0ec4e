"""What a trace's reason says of a value of Python state that changed: never that it is the same."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

import numpy as np
import pytest

from gradof import differentiate
from gradof.errors import RetraceWarning
from gradof.runtime.state_values import difference


class Point(NamedTuple):
    x: int


class Kind(enum.Enum):
    A = 1
    B = 2


class Settings:
    value: Any = None


LONG = "a" * 90
CASES: dict[str, tuple[Any, Any, str]] = {
    "number": (1, 2, "was 1 and is 2"),
    "type": (1, 1.0, "was 1 and is 1.0"),
    "enum": (Kind.A, Kind.B, "was <Kind.A: 1> and is <Kind.B: 2>"),
    "tuple": ((1, "a"), (1, "b"), "was (1, 'a') and is (1, 'b')"),
    "tuple of lists": (([1],), ([1],), "was another tuple: item 0 was another list"),
    "long tuple": ((*range(90), 1), (*range(90), 2), "was another tuple: item 90 was 1 and is 2"),
    "length": (([],), ([], []), "was another tuple of 1 items, and has 2"),
    "long text": (LONG + "b", LONG + "c", "'aaaaaaaaaab' was at 90, where 'aaaaaaaaaac' is"),
    "frozenset": (frozenset("ab"), frozenset("ac"), "it had 'b' and has 'c'"),
    "smaller": (frozenset("ab"), frozenset("a"), "it had 'b' and has no others"),
    "range": (range(2), range(3), "was range(0, 2) and is range(0, 3)"),
    "slice": (slice(2), slice(3), "was slice(None, 2, None) and is slice(None, 3, None)"),
    "object": (Point(1), Point(1), "was another Point"),
    "function": (lambda: 1, lambda: 1, "was another function"),
}


@pytest.mark.parametrize("name", CASES)
def test_it_says_what_differs(name: str) -> None:
    before, after, said = CASES[name]
    text = difference("opts", before, after)
    assert text.startswith("opts was ") and text.endswith(said), text


@pytest.mark.filterwarnings("ignore::gradof.errors.RetraceWarning")
def test_a_tuple_that_changes_is_told_in_the_reason() -> None:
    compiled = differentiate(lambda x: np.sum(x) * len(str(Settings.value)))
    reasons = []
    values: tuple[Any, ...] = ((1, "a"), (1, "bb"), (1, "bb", []), (1, "bb", [], []))
    for value in values:
        Settings.value = value
        compiled(np.ones(2))
        reasons.append(compiled.explain(np.ones(2)).reason)
    assert reasons[1].endswith("Settings.value was (1, 'a') and is (1, 'bb')")
    assert reasons[2].endswith("Settings.value was (1, 'bb') and is a tuple")
    assert reasons[3].endswith("Settings.value had 3 items and has 4")


def test_it_is_warned_of_once_for_one_place() -> None:
    compiled = differentiate(lambda x: np.sum(x) * Settings.value[0])
    with pytest.warns(RetraceWarning, match=r"Settings.value was \(2, 1\) and is \(3, 1\)"):
        for n in range(1, 4):
            Settings.value = (n, 1)
            compiled(np.ones(2))
