"""Dropout whose probability varies: eager's masks, and no trace for each probability."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import gradof
from gradof.codegen.host.evaluate import interpret
from gradof.ir.parser import parse_graph

Tensor = torch.Tensor
LAYER = torch.nn.Dropout(0.0)
PROBABILITIES = [0.1, 0.2, 0.0, 0.7, 1.0, 0.35, 0.05, 0.9]


def _by_layer(x: Tensor, p: float) -> Any:
    LAYER.p = p
    return LAYER(x)


FUNCTIONS: dict[str, tuple[Callable[[Tensor, float], Any], int]] = {  # the last: traces at most
    "functional": (lambda x, p: F.dropout(x, p), 4),
    "torch's": (lambda x, p: torch.dropout(x, p, True), 4),
    "torch's by name": (lambda x, p: torch.dropout(input=x, p=p, train=True), 4),
    "by name": (lambda x, p: F.dropout(input=x, p=p, training=True), 4),
    "layer": (_by_layer, 4),
    "twice": (lambda x, p: F.dropout(F.dropout(x, p).sin(), p), 4),
    "not in training": (lambda x, p: F.dropout(x, p, training=False), 4),
    "of the other": (lambda x, p: F.dropout(x, 1.0 - p), 4),
    "transposed": (lambda x, p: F.dropout(x.t(), p).t(), 8),
    "in place": (lambda x, p: F.dropout(x.clone(), p, inplace=True), 8),
    "channels": (lambda x, p: F.dropout2d(x[None, :, :, None], p)[0, :, :, 0], 8),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.filterwarnings("ignore::gradof.errors.RetraceWarning")
def test_masks_are_eagers(name: str, dtype: torch.dtype) -> None:
    fn, most = FUNCTIONS[name]
    compiled = gradof.differentiate(lambda x, p: (fn(x.sin(), p) * x).sum(), strict=True)
    found = []
    for f in (lambda x, p: (fn(x.sin(), p) * x).sum(), compiled):
        torch.manual_seed(3)
        for i, p in enumerate(PROBABILITIES):
            x = torch.linspace(-2.0, 2.0, 20, dtype=dtype).reshape(5, 4).add(i).requires_grad_()
            value = f(x, p)
            (first,) = torch.autograd.grad(value, x, create_graph=True)
            (second,) = torch.autograd.grad((first * first).sum(), x)
            found.append((value, first, second, torch.get_rng_state()))
    n = len(PROBABILITIES)
    for want, have in zip(found[:n], found[n:], strict=True):
        for w, h in zip(want, have, strict=True):
            torch.testing.assert_close(h, w)
    info = compiled.cache_info()
    assert info.misses <= most and info.eager_runs == 0


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_the_op_draws_with_its_operand(library: Any) -> None:
    graph = parse_graph(
        "graph f(%p : f64[]): %y : f32[3,5] = bernoulli_by[shape=(3, 5), dtype=f32](%p) return (%y)"
    )
    for p in (0.0, 0.4, 1.0):
        np.random.seed(5)
        torch.manual_seed(5)
        (have,) = interpret(graph, [np.asarray(p)], library=library)
        if library == "numpy":
            np.random.seed(5)
            want = (np.random.random_sample((3, 5)) < p).astype(np.float32)
        else:
            torch.manual_seed(5)
            want = torch.empty(3, 5).bernoulli_(p).numpy()
        np.testing.assert_array_equal(have, want)
