"""Empty batches go through forward, gradient and second gradient, as in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as tf

from gradof.ops.expr import F
from tests.ops.reference import compare

CONV: dict[str, Any] = {
    "stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "output_padding": (0, 0),
    "groups": 1, "transposed": False,
}  # fmt: skip
POOL: dict[str, Any] = {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0), "ceil_mode": False}
Case = tuple[Callable[..., Any], Callable[..., Any], tuple[tuple[int, ...], ...]]
CASES: dict[str, Case] = {
    "convolution": (lambda x, w: F.convolution(x, w, **CONV), torch.conv2d,
                    ((0, 2, 4, 4), (3, 2, 2, 2))),
    "max_pool2d": (lambda x: F.max_pool2d_with_indices.multiple(x, dilation=(1, 1), **POOL)[0],
                   lambda x: tf.max_pool2d(x, 2), ((0, 2, 4, 4),)),
    "avg_pool2d": (lambda x: F.avg_pool(x, count_include_pad=True, divisor_override=None, **POOL),
                   lambda x: tf.avg_pool2d(x, 2), ((0, 2, 4, 4),)),
    "softmax": (lambda x: F.softmax(x, dim=1), lambda x: torch.softmax(x, 1), ((0, 4),)),
    "log_softmax of nothing": (lambda x: F.log_softmax(x, dim=1),
                               lambda x: torch.log_softmax(x, 1), ((3, 0),)),
    "layer_norm": (lambda x: F.layer_norm.multiple(x, dims=(1,), eps=1e-5)[0],
                   lambda x: tf.layer_norm(x, (4,)), ((0, 4),)),
    "sort": (lambda x: F.sort.multiple(x, dim=1, descending=True, stable=True)[0],
             lambda x: torch.sort(x, 1, True)[0], ((0, 4),)),
    "mse_loss": (lambda x, y: F.mse_loss(x, y, reduction="sum"),
                 lambda x, y: tf.mse_loss(x, y, reduction="sum"), ((0, 4), (0, 4))),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_empty(name: str) -> None:
    build, eager, shapes = CASES[name]
    compare(build, eager, *(np.ones(s) for s in shapes))
