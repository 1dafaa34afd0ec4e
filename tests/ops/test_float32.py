"""float32 stays float32 through forward, gradient and second gradient, with both lowerings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as tf

from gradof.codegen.lowering.numpy import Library
from gradof.ops.expr import F
from tests.ops.reference import compare, randn

INDEX = np.array([[0, 2, 1], [1, 1, 0]])
Case = tuple[Callable[..., Any], Callable[..., Any], tuple[tuple[int, ...], ...]]
CONV = {"stride": (2, 1), "padding": (1, 0), "dilation": (1, 1), "output_padding": (0, 0)}
POOL: dict[str, Any] = {"kernel": (2, 2), "stride": (2, 2), "padding": (0, 0), "ceil_mode": True}
CASES: dict[str, Case] = {
    "softmax": (lambda x: F.softmax(x, dim=1), lambda x: torch.softmax(x, 1), ((3, 4),)),
    "log_softmax": (lambda x: F.log_softmax(x, dim=0), lambda x: torch.log_softmax(x, 0),
                    ((3, 4),)),
    "logsumexp": (lambda x: F.logsumexp(x, dims=(1,), keepdims=False),
                  lambda x: torch.logsumexp(x, 1), ((3, 4),)),
    "convolution": (
        lambda x, w: F.convolution(x, w, transposed=False, groups=1, **CONV),
        lambda x, w: torch.conv2d(x, w, None, (2, 1), (1, 0)), ((2, 3, 5, 6), (4, 3, 3, 2))),
    "max_pool2d": (
        lambda x: F.max_pool2d_with_indices.multiple(x, dilation=(1, 1), **POOL)[0],
        lambda x: tf.max_pool2d(x, 2, ceil_mode=True), ((2, 3, 5, 6),)),
    "avg_pool2d": (
        lambda x: F.avg_pool(x, count_include_pad=True, divisor_override=None, **POOL),
        lambda x: tf.avg_pool2d(x, 2, ceil_mode=True), ((2, 3, 5, 6),)),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool(x, size=(2, 4)),
                            lambda x: tf.adaptive_avg_pool2d(x, (2, 4)), ((2, 3, 5, 6),)),
    "std": (lambda x: F.std(x, dims=(1,), correction=1, keepdims=True),
            lambda x: torch.std(x, 1, keepdim=True), ((3, 4),)),
    "layer_norm": (lambda x: F.layer_norm.multiple(x, dims=(1,), eps=1e-5)[0],
                   lambda x: tf.layer_norm(x, (4,)), ((3, 4),)),
    "batch_norm": (lambda x: F.batch_norm.multiple(x, eps=1e-5)[0],
                   lambda x: tf.batch_norm(x, None, None, training=True), ((4, 3, 5),)),
    "index": (lambda x: F.index(x, x.emitter.wrap(_index(x)), dims=(1,)),
              lambda x: x[:, torch.from_numpy(INDEX)], ((3, 4),)),
    "sort": (lambda x: F.sort.multiple(x, dim=1, descending=True, stable=True)[0],
             lambda x: torch.sort(x, 1, True)[0], ((3, 4),)),
    "cumprod": (lambda x: F.cumprod(x, dim=1), lambda x: torch.cumprod(x, 1), ((3, 4),)),
    "logcumsumexp": (lambda x: F.logcumsumexp(x, dim=1), lambda x: torch.logcumsumexp(x, 1),
                     ((3, 4),)),
    "mse_loss": (lambda x, y: F.mse_loss(x, y, reduction="mean"), tf.mse_loss, ((3, 4), (3, 4))),
}  # fmt: skip


def _index(x: Any) -> Any:
    from gradof.ir.attrs import Dense

    return x.emitter.body.constant(Dense.of(INDEX))


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("name", CASES)
def test_float32(name: str, library: Library) -> None:
    build, eager, shapes = CASES[name]
    arrays = [randn(*s, seed=i).astype(np.float32) for i, s in enumerate(shapes)]
    compare(build, eager, *arrays, tol=2e-4, library=library)
