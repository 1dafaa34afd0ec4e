"""Programs that are drawn (`drawn.py`): fixed seeds, of which most run in `make programs` alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from tests.programs import drawn_numpy, drawn_torch
from tests.programs.search import FINE

ALWAYS, SEEDS = 25, 400


def _seeds() -> Iterator[Any]:
    for seed in range(SEEDS):
        marks = [pytest.mark.programs] if seed >= ALWAYS else []
        yield pytest.param(seed, marks=marks)


@pytest.mark.parametrize("seed", [*_seeds()])
@pytest.mark.parametrize("of", [drawn_torch, drawn_numpy], ids=["torch", "numpy"])
def test_a_drawn_program_is_as_plain(
    of: ModuleType, seed: int, record_property: Callable[[str, object], None]
) -> None:
    drawn = of.draw(seed)
    kind, text = of.judge(drawn)
    record_property("sequence", [f"drawn {kind}"])
    assert kind in FINE, f"{text}\n{drawn}"


@pytest.mark.parametrize("of", [drawn_torch, drawn_numpy], ids=["torch", "numpy"])
def test_each_part_is_drawn(of: ModuleType) -> None:
    found = {part for seed in range(SEEDS) for part in of.draw(seed).parts}
    assert found == set(of.PARTS)
