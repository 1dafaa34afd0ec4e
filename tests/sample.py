"""A fixed part of a long list of cases: `make test` runs every n-th, `make long` all of them.

Of a test with more than 6 cases `make test` (pytest --sample) runs so many, evenly chosen from
the list. A case that takes seconds asks for fewer, and a list that is short work is run whole:

    @pytest.mark.cases(4)
    @pytest.mark.parametrize("name", NAMES)
    def test_program(name: str) -> None: ...

A test whose cases run in one process of their own takes the part as an argument:

    @every(4)
    def test_kernels(cases: int, tmp_path: Path) -> None:
        found = run("triton_cases", "interpret", tmp_path, interpret=True, **only(cases))
        assert set(found) == set(part(NAMES, cases))

The process that runs the cases calls `part(NAMES)`.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import pytest

VARIABLE = "GRADOF_TEST_EVERY"
CASES = 6  # of one test in `make test`, where it does not say how many
T = TypeVar("T")


def every(cases: int) -> pytest.MarkDecorator:
    """Parametrise a test by `cases`: 1, for all of them, which is long; and `cases`."""
    return pytest.mark.parametrize("cases", all_and(cases))


def all_and(cases: int) -> list[Any]:
    """The values of such a parameter, for a fixture's `params`."""
    return [pytest.param(1, marks=pytest.mark.long, id="all"), pytest.param(cases, id="sample")]


def only(cases: int) -> dict[str, str]:
    """The environment of a process that is to run every `cases`-th."""
    return {VARIABLE: str(cases)}


def part(items: Iterable[T], cases: int | None = None) -> tuple[T, ...]:
    """Every `cases`-th item; of a process's own environment, if it is not given."""
    return tuple(items)[:: cases or int(os.environ.get(VARIABLE, "1"))]


def not_in_sample(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """The tests of a collection that `make test` leaves to `make long`.

    Of each test function the first case stays, and others at equal distances.
    """
    functions: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("long") is None:
            functions[item.nodeid.partition("[")[0]].append(item)
    left: set[pytest.Item] = set()
    for cases in functions.values():
        marker = cases[0].get_closest_marker("cases")
        most = CASES if marker is None else marker.args[0]
        left |= set(cases) - set(cases[:: -(-len(cases) // most)])
    return left
