"""Pooling against torch to second order: kernels that differ from strides, ceil mode, ties."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as tf

from gradof.codegen.lowering.numpy import Library
from gradof.errors import InferenceError
from gradof.ops.expr import Expr, F
from tests.ops.reference import compare, forward, gradient, randn

# shape, kernel, stride, padding, dilation, ceil_mode
MAX: list[tuple[Any, ...]] = [
    ((2, 3, 6, 6), (2, 2), (2, 2), (0, 0), (1, 1), False),
    ((2, 3, 5, 7), (3, 2), (2, 1), (1, 0), (1, 2), False),
    ((1, 2, 7, 8), (3, 3), (2, 3), (1, 1), (1, 1), True),
    ((2, 5, 5), (2, 3), (3, 2), (1, 0), (1, 1), True),
    ((1, 2, 4, 5, 6), (2, 2, 3), (2, 1, 2), (1, 0, 1), (1, 1, 1), False),
]


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("case", MAX, ids=str)
def test_max_pool(case: tuple[Any, ...], library: Library) -> None:
    shape, kernel, stride, padding, dilation, ceil_mode = case
    name = f"max_pool{len(kernel)}d_with_indices"

    def build(x: Expr) -> tuple[Expr, ...]:
        return F.__getattr__(name).multiple(
            x, kernel=kernel, stride=stride, padding=padding, dilation=dilation,
            ceil_mode=ceil_mode,
        )  # fmt: skip

    def eager(x: torch.Tensor) -> Any:
        return getattr(torch.ops.aten, name)(x, kernel, stride, padding, dilation, ceil_mode)

    compare(build, eager, randn(*shape), library=library)
    compare(build, eager, np.full(shape, -np.inf), library=library, order=1)
    ties = np.random.default_rng(1).integers(0, 2, shape).astype(np.float64)
    compare(build, eager, ties, library=library, order=1)
    spoilt = randn(*shape)
    spoilt.flat[7] = np.nan
    compare(build, eager, spoilt, library=library, order=1)


def _max_pool2d(x: Expr) -> Expr:
    return F.max_pool2d_with_indices.multiple(
        x, kernel=(2, 2), stride=(2, 2), padding=(0, 0), dilation=(1, 1), ceil_mode=False
    )[0]


def test_one_maximum_takes_the_whole_gradient() -> None:
    (grad,) = gradient(_max_pool2d, np.arange(4.0).reshape(1, 1, 2, 2))
    assert grad.tolist() == [[[[0.0, 0.0], [0.0, 1.0]]]]


def test_max_pool1d() -> None:
    compare(
        lambda x: F.max_pool1d_with_indices.multiple(
            x, kernel=(3,), stride=(2,), padding=(1,), dilation=(1,), ceil_mode=True),
        lambda x: tf.max_pool1d(x, 3, 2, 1, 1, True, return_indices=True),
        randn(2, 3, 8),
    )


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("count_include_pad", [False, True])
@pytest.mark.parametrize("divisor", [None, 5])
@pytest.mark.parametrize("case", [
    ((2, 3, 5, 5), (2, 2), (2, 2), (0, 0)), ((2, 3, 7, 6), (3, 2), (2, 3), (1, 1)),
    ((1, 2, 4, 5, 6), (2, 3, 2), (2, 2, 3), (1, 1, 0)), ((2, 3, 8), (3,), (2,), (1,)),
], ids=str)  # fmt: skip
def test_avg_pool(
    case: tuple[Any, ...], ceil_mode: bool, count_include_pad: bool, divisor: int | None
) -> None:
    shape, kernel, stride, padding = case
    if len(kernel) == 1 and divisor is not None:
        divisor = None  # torch's avg_pool1d has no divisor
    more = () if len(kernel) == 1 else (divisor,)
    eager = {1: tf.avg_pool1d, 2: tf.avg_pool2d, 3: tf.avg_pool3d}[len(kernel)]
    compare(
        lambda x: F.avg_pool(
            x, kernel=kernel, stride=stride, padding=padding, ceil_mode=ceil_mode,
            count_include_pad=count_include_pad, divisor_override=divisor),
        lambda x: eager(x, kernel, stride, padding, ceil_mode, count_include_pad, *more),
        randn(*shape),
    )  # fmt: skip


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (4, 4), (7, 9)], ids=str)
def test_adaptive_avg_pool2d(size: tuple[int, int]) -> None:
    for shape in ((2, 3, 6, 6), (2, 3, 7, 5)):
        compare(lambda x: F.adaptive_avg_pool(x, size=size),
                lambda x: tf.adaptive_avg_pool2d(x, size), randn(*shape))  # fmt: skip


def test_wrong_windows_are_refused() -> None:
    with pytest.raises(InferenceError, match="larger than the padded input"):
        forward(_max_pool2d, randn(1, 1, 1, 1))
    with pytest.raises(InferenceError, match="half of the kernel"):
        forward(lambda x: F.avg_pool(
            x, kernel=(2,), stride=(1,), padding=(2,), ceil_mode=False, count_include_pad=True,
            divisor_override=None), randn(1, 1, 8))  # fmt: skip
    with pytest.raises(InferenceError, match="sees only padding"):
        forward(lambda x: F.max_pool2d_with_indices.multiple(
            x, kernel=(2, 2), stride=(4, 4), padding=(1, 1), dilation=(2, 2), ceil_mode=False),
            randn(1, 2, 2, 1))  # fmt: skip
