"""Programs that are drawn (`drawn.py`): fixed seeds, of which most run in `make programs` alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from tests.programs import drawn_numpy, drawn_torch
from tests.programs.search import FINE

ALWAYS, SEEDS = 25, 400
# What is wrong, and why; listed in docs/testing.md.
KNOWN = {
    (drawn_torch, 237): "it stores before eager's error, of buffers that inference mode made",
}


def _programs() -> Iterator[Any]:
    for of, name in ((drawn_torch, "torch"), (drawn_numpy, "numpy")):
        for seed in range(SEEDS):
            marks = [pytest.mark.programs] if seed >= ALWAYS else []
            if (of, seed) in KNOWN:
                marks.append(pytest.mark.xfail(strict=True, reason=KNOWN[of, seed]))
            yield pytest.param(of, seed, marks=marks, id=f"{name}-{seed}")


@pytest.mark.parametrize(("of", "seed"), [*_programs()])
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
