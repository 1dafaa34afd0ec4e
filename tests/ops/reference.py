"""Evaluate a graph by its ops' numpy lowerings, and compare an op with torch to second order.

    compare(lambda x: F.softmax(x, dim=1), lambda x: torch.softmax(x, 1), randn(4, 3))

builds the graph, its pullback and the pullback of its pullback, evaluates all three in float64
with random cotangents, and compares them with torch eager's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import gradof.ops  # registers every op
from gradof.autodiff.compose import pullback_graph
from gradof.ir.attrs import Dense, from_numpy_dtype, to_numpy_dtype
from gradof.ir.builder import Builder
from gradof.ir.core import Block, Graph, Value
from gradof.ir.types import DType, TensorType
from gradof.ir.verify import verify
from gradof.ops.expr import Emitter, Expr
from gradof.ops.registry import get_op
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


def evaluate(graph: Graph, *arrays: Any, library: str = "numpy") -> tuple[Any, ...]:
    """Results of a graph by the ops' lowerings for `library`; shapes and dtypes are checked."""
    expand_composites(graph)
    verify(graph)
    return _run(graph.block, dict(zip(graph.inputs, arrays, strict=True)), library)


def _run(block: Block, values: dict[Value, Any], library: str) -> tuple[Any, ...]:
    for node in block.nodes():
        inputs = [values[v] for v in node.inputs]
        if node.kind == "Constant":
            value = node.attrs["value"]
            results: tuple[Any, ...] = (_constant(value, library),)
        elif node.blocks:
            inner = dict(values)
            inner.update(zip(node.blocks[0].params, inputs, strict=True))
            results = _run(node.blocks[0], inner, library)
        else:
            result = _call(node.kind, inputs, node.attrs, library)
            results = result if len(node.outputs) > 1 else (result,)
        for out, result in zip(node.outputs, results, strict=True):
            if isinstance(out.type, TensorType) and not np.isscalar(result):
                _check(node.kind, out.type, result)
            values[out] = result
    return tuple(values[v] for v in block.results)


def _check(kind: str, type_: TensorType, result: Any) -> None:
    have = result.detach().numpy() if isinstance(result, torch.Tensor) else result
    assert tuple(have.shape) == type_.shape, f"{kind}: {have.shape} for {type_}"
    assert have.dtype == to_numpy_dtype(type_.dtype), f"{kind}: {have.dtype} for {type_}"


def _constant(value: Any, library: str) -> Any:
    if not isinstance(value, Dense):
        return value
    array = value.numpy().copy()
    return torch.from_numpy(array) if library == "torch" else array


def _call(kind: str, inputs: Sequence[Any], attrs: Mapping[str, Any], library: str) -> Any:
    record = get_op(kind)
    use_torch = library == "torch" and record.torch is not None
    lowering = record.torch if use_torch else record.numpy
    if record.variadic:
        named: dict[str, Any] = {}
    else:
        named = dict(zip(record.inputs, inputs, strict=True))
    if library == "torch" and not use_torch:
        inputs = [x.numpy() if isinstance(x, torch.Tensor) else x for x in inputs]
        named = {k: x.numpy() if isinstance(x, torch.Tensor) else x for k, x in named.items()}
    settings = {k: _attribute(v, torch_=use_torch) for k, v in attrs.items()}
    result: Any
    with np.errstate(all="ignore"):
        if callable(lowering):
            result = lowering(*inputs, **settings)
        else:
            assert lowering is not None, f"{kind} has no lowering"
            text = lowering if "{" in lowering else f"{lowering}(*inputs)"
            text = text.replace("({xs},)", "inputs")
            text = re.sub(r"\{(\w+)\}", r"v_\1", text)
            scope = {f"v_{k}": v for k, v in {**named, **settings}.items()}
            result = eval(text, {"np": np, "torch": torch, "inputs": inputs, **scope})
    if library == "torch" and not use_torch:
        many = result if isinstance(result, tuple) else (result,)
        tensors = tuple(torch.from_numpy(np.array(r)) for r in many)
        return tensors if isinstance(result, tuple) else tensors[0]
    if library == "torch" or isinstance(result, tuple):
        return result
    first = next((x for x in inputs if isinstance(x, np.ndarray)), None)
    # numpy turns 0-d results into scalars
    return result if isinstance(result, np.ndarray) or first is None else np.asarray(result)


def _attribute(value: Any, *, torch_: bool) -> Any:
    if isinstance(value, DType):
        array_type = to_numpy_dtype(value)
        return getattr(torch, array_type.name) if torch_ else array_type
    return value


def type_of(array: Array) -> TensorType:
    """The IR type of an array."""
    return TensorType(from_numpy_dtype(array.dtype), array.shape)


def randn(*shape: int, seed: int = 0) -> Array:
    """Random normal float64."""
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape)


def compare(
    build: Build, eager: Callable[..., Any], *arrays: Array, order: int = 2, tol: float = 1e-10,
    library: str = "numpy",
) -> None:
    """Forward, pullback and pullback of the pullback against torch; float inputs require grad."""
    graph = build_graph(build, *map(type_of, arrays))
    leaves = [torch.from_numpy(a.copy()) for a in arrays]
    wrt = [i for i, t in enumerate(leaves) if t.is_floating_point()]
    for i in wrt:
        leaves[i].requires_grad_()
    result = eager(*leaves)
    want = list(result) if isinstance(result, tuple) else [result]
    given: list[Any] = [torch.from_numpy(a) if library == "torch" else a for a in arrays]
    _close(evaluate(graph, *given, library=library), want, tol, "forward")
    wanted = [leaves[i] for i in wrt]
    for level in range(1, order + 1):
        outputs = [i for i, t in enumerate(want) if t.requires_grad]
        assert outputs, f"torch has no gradient of order {level}"
        seeds = [
            torch.from_numpy(randn(*want[i].shape, seed=10 * level + i)).requires_grad_()
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
        given = [
            t.detach() if library == "torch" else t.detach().numpy() for t in leaves
        ]
        _close(evaluate(graph, *given, library=library), want, tol, f"gradient {level}")
        if not any(t.requires_grad for t in want):
            break


def _close(have: Sequence[Any], want: Sequence[torch.Tensor], tol: float, what: str) -> None:
    assert len(have) == len(want), what
    for i, (a, b) in enumerate(zip(have, want, strict=True)):
        mine = a.detach().numpy() if isinstance(a, torch.Tensor) else a
        np.testing.assert_allclose(
            mine, b.detach().numpy(force=True), rtol=tol, atol=tol, err_msg=f"{what}, result {i}"
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
