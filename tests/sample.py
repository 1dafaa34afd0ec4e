"""A fixed part of a long list of cases: `make test` runs every n-th, `make long` all of them.

    @every(4)
    def test_kernels(cases: int, tmp_path: Path) -> None:
        found = run("triton_cases", "interpret", tmp_path, interpret=True, **only(cases))
        assert set(found) == set(part(NAMES, cases))

The process that runs the cases calls `part(NAMES)`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, TypeVar

import pytest

VARIABLE = "GRADOF_TEST_EVERY"
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
