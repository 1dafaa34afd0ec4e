"""Evaluate graphs node by node, and compare an op with torch to second order.

    compare(lambda x: F.softmax(x, dim=1), lambda x: torch.softmax(x, 1), randn(4, 3))

builds the graph, its pullback and the pullback of its pullback, evaluates all three in float64
with random cotangents, and compares them with torch eager's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import gradof.ops  # registers every op
from gradof.autodiff.compose import pullback_graph
from gradof.codegen.host.evaluate import interpret
from gradof.codegen.lowering.numpy import Library
from gradof.ir.attrs import from_numpy_dtype, to_numpy_dtype
from gradof.ir.builder import Builder
from gradof.ir.core import Graph, Node
from gradof.ir.types import TensorType
from gradof.ir.verify import verify
from gradof.ops.expr import Emitter, Expr
from gradof.passes.expand_composites import expand_composites

assert gradof.ops is not None
Array = NDArray[Any]
Build = Callable[..., Any]


def build_graph(build: Build, *types: TensorType) -> Graph:
    """The verified graph of a function on expressions."""
    graph = Graph("f")
    emitter = Emitter(Builder(graph.block))
    result = build(*(emitter.wrap(graph.block.add_param(t)) for t in types))
    results = result if isinstance(result, tuple) else (result,)
    graph.set_outputs([r.value for r in results])
    verify(graph)
    return graph


def evaluate(graph: Graph, *arrays: Array, library: Library = "numpy") -> tuple[Array, ...]:
    """Results of a graph, node by node; each result must have the shape and dtype inferred."""
    expand_composites(graph)
    verify(graph)

    def observe(node: Node, results: Sequence[Any]) -> None:
        for out, result in zip(node.outputs, results, strict=True):
            if isinstance(out.type, TensorType) and isinstance(result, np.ndarray):
                dt = to_numpy_dtype(out.type.dtype)
                assert (result.shape, result.dtype) == (out.type.shape, dt), node.kind

    return interpret(graph, arrays, library=library, observe=observe)


def type_of(array: Array) -> TensorType:
    """The IR type of an array."""
    return TensorType(from_numpy_dtype(array.dtype), array.shape)


def randn(*shape: int, seed: int = 0) -> Array:
    """Random normal float64."""
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape)


def compare(
    build: Build, eager: Callable[..., Any], *arrays: Array, order: int = 2, tol: float = 1e-10,
    library: Library = "numpy",
) -> None:
    """Forward, pullback and pullback of the pullback against torch; float inputs require grad."""
    graph = build_graph(build, *map(type_of, arrays))
    leaves = [torch.from_numpy(a.copy()) for a in arrays]
    wrt = [i for i, t in enumerate(leaves) if t.is_floating_point()]
    for i in wrt:
        leaves[i].requires_grad_()
    result = eager(*leaves)
    want = list(result) if isinstance(result, tuple) else [result]
    _close(evaluate(graph, *arrays, library=library), want, tol, "forward")
    wanted = [leaves[i] for i in wrt]
    for level in range(1, order + 1):
        outputs = [i for i, t in enumerate(want) if t.requires_grad]
        assert outputs, f"torch has no gradient of order {level}"
        seeds = [
            torch.from_numpy(randn(*want[i].shape, seed=10 * level + i))
            .to(want[i].dtype).requires_grad_()
            for i in outputs
        ]
        grads = torch.autograd.grad(
            [want[i] for i in outputs], wanted, seeds, create_graph=True, allow_unused=True
        )
        want = [
            torch.zeros_like(w) if g is None else g for g, w in zip(grads, wanted, strict=True)
        ]
        graph = pullback_graph(graph, wrt, outputs)
        verify(graph)
        leaves, wrt = [*leaves, *seeds], [*wrt, *range(len(leaves), len(leaves) + len(seeds))]
        wanted = [leaves[i] for i in wrt]
        given = [t.detach().numpy() for t in leaves]
        _close(evaluate(graph, *given, library=library), want, tol, f"gradient {level}")
        if not any(t.requires_grad for t in want):
            break


def _close(have: Sequence[Any], want: Sequence[torch.Tensor], tol: float, what: str) -> None:
    assert len(have) == len(want), what
    for i, (a, b) in enumerate(zip(have, want, strict=True)):
        np.testing.assert_allclose(
            a, b.detach().numpy(force=True), rtol=tol, atol=tol, err_msg=f"{what}, result {i}"
        )


def forward(build: Build, *arrays: Array) -> tuple[Any, ...]:
    """Results of a function on expressions."""
    return evaluate(build_graph(build, *map(type_of, arrays)), *arrays)


def gradient(build: Build, *arrays: Array) -> tuple[Any, ...]:
    """Gradients of the sum of the first result for every float input."""
    graph = build_graph(build, *map(type_of, arrays))
    wrt = [i for i, a in enumerate(arrays) if a.dtype.kind == "f"]
    result = evaluate(build_graph(build, *map(type_of, arrays)), *arrays)[0]
    return evaluate(pullback_graph(graph, wrt, [0]), *arrays, np.ones_like(result))


__all__ = ["Expr", "build_graph", "compare", "evaluate", "forward", "gradient", "randn"]
