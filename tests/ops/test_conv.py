"""Convolutions against torch to second order: odd sizes, strides that leave rests, groups."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from gradof.codegen.lowering.numpy import Library
from gradof.errors import InferenceError
from gradof.ops.expr import Expr, F
from tests.ops.reference import compare, forward, randn

# x shape, w shape, stride, padding, dilation, transposed, output_padding, groups
Case = tuple[Any, ...]
CASES: dict[str, Case] = {
    "1d": ((2, 3, 7), (4, 3, 3), (1,), (1,), (1,), False, (0,), 1),
    "5x6, k3, s2": ((1, 1, 5, 6), (1, 1, 3, 3), (2, 2), (0, 0), (1, 1), False, (0, 0), 1),
    "6x6, k3, s2": ((2, 1, 6, 6), (2, 1, 3, 3), (2, 2), (0, 0), (1, 1), False, (0, 0), 1),
    "uneven": ((2, 4, 7, 9), (6, 2, 3, 2), (2, 3), (1, 0), (1, 2), False, (0, 0), 2),
    "depthwise": ((2, 3, 5, 6), (6, 1, 3, 3), (1, 1), (1, 1), (1, 1), False, (0, 0), 3),
    "pointwise": ((2, 3, 4, 4), (5, 3, 1, 1), (1, 1), (0, 0), (1, 1), False, (0, 0), 1),
    "stride over kernel": ((1, 2, 8, 9), (3, 2, 2, 2), (3, 4), (0, 0), (1, 1), False, (0, 0), 1),
    "3d": ((1, 2, 4, 5, 6), (3, 2, 2, 3, 2), (1, 2, 2), (0, 1, 1), (2, 1, 1), False, (0, 0, 0), 1),
    "transposed 1d": ((2, 3, 5), (3, 4, 3), (2,), (1,), (1,), True, (1,), 1),
    "transposed 2d": ((2, 4, 3, 4), (4, 3, 3, 2), (2, 3), (1, 0), (1, 2), True, (1, 2), 2),
    "transposed, output padding of a stride":
        ((1, 2, 4, 4), (2, 3, 3, 3), (1, 2), (1, 0), (2, 3), True, (1, 2), 1),
    "transposed 3d":
        ((1, 2, 2, 3, 2), (2, 2, 2, 2, 3), (2, 1, 2), (0, 1, 0), (1, 1, 1), True, (1, 0, 0), 1),
}  # fmt: skip


def _pair(case: Case) -> tuple[Any, Any]:
    _, _, stride, padding, dilation, transposed, extra, groups = case

    def build(x: Expr, w: Expr) -> Expr:
        return F.convolution(
            x, w, stride=stride, padding=padding, dilation=dilation, transposed=transposed,
            output_padding=extra, groups=groups,
        )  # fmt: skip

    def eager(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = torch.ops.aten.convolution(
            x, w, None, stride, padding, dilation, transposed, extra, groups
        )
        return result

    return build, eager


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("name", CASES)
def test_matches_torch_to_second_order(name: str, library: Library) -> None:
    case = CASES[name]
    build, eager = _pair(case)
    compare(build, eager, randn(*case[0]), randn(*case[1]), library=library)


def test_third_order_stays_closed() -> None:
    case = CASES["uneven"]
    build, eager = _pair(case)
    compare(build, eager, randn(*case[0]), randn(*case[1]), order=3)


def _random_case(rng: random.Random) -> Case:
    rank, groups, transposed = rng.randint(1, 3), rng.choice([1, 1, 2, 3]), rng.random() < 0.5

    def draw(low: int, high: int) -> tuple[int, ...]:
        return tuple(rng.randint(low, high) for _ in range(rank))

    kernel, stride, padding, dilation = draw(1, 3), draw(1, 3), draw(0, 2), draw(1, 3)
    most = [max(pair) - 1 if transposed else 0 for pair in zip(stride, dilation, strict=True)]
    extra = tuple(rng.randint(0, m) for m in most)
    c, o = rng.randint(1, 2) * groups, rng.randint(1, 2) * groups
    weight = ((c, o // groups) if transposed else (o, c // groups)) + kernel
    x = (rng.randint(1, 2), c, *draw(1, 7))
    return x, weight, stride, padding, dilation, transposed, extra, groups


@pytest.mark.parametrize("seed", range(40))
def test_random_settings_give_torch_s_result_or_its_refusal(seed: int) -> None:
    case = _random_case(random.Random(seed))
    build, eager = _pair(case)
    x, w = randn(*case[0]), randn(*case[1], seed=1)
    try:
        eager(torch.from_numpy(x), torch.from_numpy(w))
    except RuntimeError:
        with pytest.raises(InferenceError):
            forward(build, x, w)
    else:
        compare(build, eager, x, w)


def test_wrong_shapes_are_refused() -> None:
    def run(x: tuple[int, ...], w: tuple[int, ...], groups: int = 1) -> None:
        forward(lambda a, b: F.convolution(
            a, b, stride=(1, 1), padding=(0, 0), dilation=(1, 1), transposed=False,
            output_padding=(0, 0), groups=groups,
        ), randn(*x), randn(*w))  # fmt: skip

    with pytest.raises(InferenceError, match="3 channels"):
        run((1, 3, 5, 5), (4, 2, 3, 3))
    with pytest.raises(InferenceError, match="larger than the padded input"):
        run((1, 3, 2, 2), (4, 3, 3, 3))
    with pytest.raises(InferenceError, match="in 2 groups"):
        run((1, 4, 5, 5), (3, 2, 3, 3), groups=2)
