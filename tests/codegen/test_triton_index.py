"""Positions past 2**31: which launches compute in int64, decided by sizes and strides alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from gradof.codegen.triton.kernel import TritonKernel
from gradof.codegen.triton.planned import Planned, PlannedParts
from tests.codegen.triton_index import nest_of
from tests.codegen.triton_process import run

tl = pytest.importorskip("triton.language", reason="pip install 'gradof[triton]'")
BIG = 1 << 31
POINTWISE = "graph f(%x : f32[4,6]):\n %y : f32[4,6] = exp(%x)\n return (%y)"
ROWS = "graph f(%x : f32[4,6]):\n %y : f32[4,1] = amax[dims=(1,), keepdims=True](%x)\n return (%y)"
WHOLE = "graph f(%x : f32[8]):\n %y : f32[] = sum[dims=(0,), keepdims=False](%x)\n return (%y)"
COLUMNS = "graph f(%x : f32[4,6]):\n %y : f32[6] = sum[dims=(0,), keepdims=False](%x)\n return (%y)"
META = torch.empty((), device="meta")


def plans(text: str, tensor: torch.Tensor) -> list[Planned]:
    """The launches for a tensor without memory, those of both parts where the nest has two."""
    kernel = TritonKernel(nest_of(text))
    planned = kernel._plan([tensor])
    if isinstance(planned, Planned):
        return [planned]
    assert isinstance(planned, PlannedParts)
    assert isinstance(planned.first, TritonKernel)
    found = planned.first._plan([tensor])
    assert isinstance(found, Planned)
    return [found]


def meta(*shape: int, strides: tuple[int, ...] | None = None) -> torch.Tensor:
    if strides is None:
        return torch.empty(shape, device="meta")
    return torch.empty_strided(shape, strides, device="meta")


@pytest.mark.parametrize(("text", "tensor", "wide"), [
    (POINTWISE, meta(4, 6), False),
    (POINTWISE, meta(2, 1 << 30), False),  # the last element is 2**31 - 1
    (POINTWISE, meta(2, (1 << 30) + 1), True),
    (POINTWISE, meta(1, BIG - 1), False),
    (POINTWISE, meta(3, 5, strides=(1 << 30, 1)), True),  # few elements, far apart
    (POINTWISE, meta(3, 5, strides=((1 << 30) - 2, 1)), True),
    (POINTWISE, meta(3, 5, strides=((1 << 30) - 3, 1)), False),
    (POINTWISE, META.expand(1 << 16, 1 << 15), False),
    (POINTWISE, META.expand(1 << 16, (1 << 15) + 1), True),  # what is written is not expanded
    (ROWS, meta(1 << 15, 1 << 16), False),
    (ROWS, meta((1 << 15) + 1, 1 << 16), True),
    (ROWS, META.expand(1 << 17, 1 << 17), False),  # neither rows nor columns are too many
    (ROWS, META.expand(4, BIG + 1), True),
    (WHOLE, META.expand(BIG + 1), True),  # nothing is far, positions are many
    (WHOLE, META.expand(BIG - (1 << 23)), False),
    (WHOLE, META.expand(BIG - 1), True),  # the last program's positions reach beyond
    (WHOLE, meta(BIG // 2, strides=(2,)), False),
    (WHOLE, meta(BIG // 2 + 1, strides=(2,)), True),
    (COLUMNS, META.expand(1 << 14, 1 << 22), False),  # few programs have partial results
    (COLUMNS, META.expand(4, BIG + 1), True),
])  # fmt: skip
def test_int64_is_chosen_where_int32_does_not_hold_a_position(
    text: str, tensor: torch.Tensor, wide: bool
) -> None:
    for planned in plans(text, tensor):
        assert planned.constants["INDEX"] is (tl.int64 if wide else tl.int32)


def test_a_row_far_away_is_read(tmp_path: Path) -> None:
    found: Any = run("triton_far", "", tmp_path, interpret=True)
    assert found == [[0, 1, 1, 0, 1], [1, 1, 0, 0, 0]]
