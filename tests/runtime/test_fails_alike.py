"""A function that cannot be traced costs a few traces, whatever else it is called with."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from gradof import differentiate
from gradof.errors import EagerWarning

pytestmark = pytest.mark.filterwarnings("ignore::gradof.errors.EagerWarning")
ARGUMENTS: dict[str, Any] = {
    "numbers": lambda n: (torch.ones(3), n),
    "floats": lambda n: (torch.ones(3), 0.5 * n),
    "texts": lambda n: (torch.ones(3), str(n)),
    "shapes": lambda n: (torch.ones(n + 1), 0),
    "lists": lambda n: ([torch.ones(3)] * (n + 1), 0),
}


def _logger() -> Any:
    settings = {"log": True}

    def step(x: Any, n: Any) -> Any:
        if settings["log"]:
            print("called")
        return torch.cat(x).sum() if isinstance(x, list) else (2 * x).sum()

    return step, settings


@pytest.mark.parametrize("kind", ARGUMENTS)
def test_other_signatures_are_not_tried_for_ever(kind: str) -> None:
    step, _ = _logger()
    compiled = differentiate(step)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for n in range(20):
            x, other = ARGUMENTS[kind](n)
            assert compiled(x, other).item() > 0
    info = compiled.cache_info()
    assert info.misses == 3 and info.eager_runs == 20
    assert [each.category for each in told] == [EagerWarning]


def test_state_that_changes_at_each_call_is_no_reason_to_try_again() -> None:
    log: list[Any] = []
    seen = {"calls": 0}

    def step(x: Any, n: int) -> Any:
        log.append(object())
        seen["calls"] += 1
        return x.sum() * seen["calls"] * 2

    compiled = differentiate(step)
    for n in range(20):
        assert compiled(torch.ones(3), n).item() == 6 * (n + 1)
    info = compiled.cache_info()
    assert (info.misses, info.eager_runs) == (3, 20)


def test_what_failed_by_the_state_is_tried_again_when_that_has_changed() -> None:
    step, settings = _logger()
    compiled = differentiate(step)
    for n in range(6):
        compiled(torch.ones(n + 1), 0)
    assert compiled.cache_info().entries == 0
    settings["log"] = False
    compiled(torch.ones(10), 0)
    compiled(torch.ones(11), 0)
    info = compiled.cache_info()
    assert (info.entries, info.eager_runs) == (2, 6)


def test_errors_of_the_program_itself_say_nothing_of_other_signatures() -> None:
    @differentiate
    def step(x: Any) -> Any:
        if x.shape[0] < 5:
            raise ValueError("too few")
        return (2 * x).sum()

    for n in range(8):
        if n < 5:
            with pytest.raises(ValueError, match="too few"):
                step(torch.ones(n))
        else:
            step(torch.ones(n))
    assert step.cache_info().entries == 3
