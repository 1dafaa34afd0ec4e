"""Traces of numpy functions against numpy itself: values, gradients, and what tracing leaves alone.

check(np.tanh, x)      # value, dtype, shape, write-backs, gradient; again at other values
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.autodiff.compose import pullback_graph
from gradof.codegen.host.evaluate import interpret
from gradof.ir.core import Graph
from gradof.ir.parser import parse_graph
from gradof.ir.types import TensorType
from gradof.ir.verify import verify
from gradof.passes.expand_composites import expand_composites
from gradof.tracer.core.pytree import flatten
from gradof.tracer.core.result import TensorOut, Traced
from gradof.tracer.numpy.tracer import trace_numpy

Array = np.ndarray[Any, Any]
STEP = 1e-6


def trace(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Traced:
    """A verified trace whose text parses back to the same graph, the arguments as they were."""
    before = copy.deepcopy((args, kwargs))
    traced = trace_numpy(fn, args, kwargs)
    for now, then in zip(flatten((args, kwargs))[0], flatten(before)[0], strict=True):
        np.testing.assert_array_equal(now, then, "tracing changed an argument")
    verify(traced.graph)
    assert parse_graph(str(traced.graph)) == traced.graph
    return traced


def kinds(graph: Graph) -> list[str]:
    """The ops of a graph, in order."""
    return [node.kind for node in graph.block.nodes()]


def inputs_of(traced: Traced, fn: Any, args: tuple[Any, ...]) -> list[Array]:
    """The arrays behind the graph's inputs."""
    leaves, _ = flatten((args, {}))
    real = [leaves[i] for i in traced.arg_leaves] + [o.read(fn) for o in traced.origins]
    return [np.asarray(a) for a in real]


def run(traced: Traced, fn: Any, args: tuple[Any, ...]) -> Any:
    """The traced call: write-backs copied into the arguments, the result rebuilt."""
    inputs = inputs_of(traced, fn, args)
    results = interpret(traced.graph, [a.copy() for a in inputs])
    for back in traced.writebacks:
        inputs[back.input][...] = results[back.output]
    return traced.out_tree.unflatten(traced.leaves(traced.outputs, inputs, results, {}))


def check(
    fn: Callable[..., Any], *args: Any, rtol: float = 1e-11, gradient: bool = True,
    gradient_rtol: float = 2e-6,
) -> Traced:  # fmt: skip
    """The trace of fn at args computes what numpy does, there and nearby, with its gradient."""
    traced = trace(fn, *args)
    rng = np.random.default_rng(5)
    for point in (args, _nearby(args, rng)):
        mine, eager = copy.deepcopy(point), copy.deepcopy(point)
        got = run(traced, fn, mine)
        with np.errstate(all="ignore"):
            want = fn(*eager)
        _same(got, want, rtol)
        _same(list(mine), list(eager), rtol)
    if gradient:
        check_gradient(traced, fn, args, rng, gradient_rtol)
    return traced


def _nearby(args: tuple[Any, ...], rng: np.random.Generator) -> tuple[Any, ...]:
    leaves, tree = flatten(args)
    moved = [
        (np.asarray(a) * (1 + 1e-3 * rng.random(a.shape))).astype(a.dtype)
        if isinstance(a, (np.ndarray, np.generic)) and a.dtype.kind == "f" else a
        for a in leaves
    ]  # fmt: skip
    result: tuple[Any, ...] = tree.unflatten(moved)
    return result


def _same(got: Any, want: Any, rtol: float) -> None:
    mine, tree = flatten(got)
    theirs, expected = flatten(want)
    assert tree == expected
    for g, w in zip(mine, theirs, strict=True):
        if isinstance(w, (np.ndarray, np.generic)):
            assert (np.shape(g), g.dtype) == (np.shape(w), w.dtype)
            np.testing.assert_allclose(np.asarray(g), np.asarray(w), rtol=rtol, atol=rtol)
        else:
            assert g == w and type(g) is type(w)


def check_gradient(
    traced: Traced, fn: Any, args: tuple[Any, ...], rng: np.random.Generator, rtol: float
) -> None:
    """The pullback with random cotangents against central differences of numpy's own function."""
    inputs = inputs_of(traced, fn, args)
    wrt = [i for i in range(len(traced.arg_leaves)) if inputs[i].dtype.kind == "f"]
    outs = sorted({o.index for o in traced.outputs if isinstance(o, TensorOut)})
    outs = [i for i in outs if _is_float(traced.graph, i)]
    assert wrt and outs, "nothing to differentiate"
    seeds = [rng.standard_normal(_type(traced.graph, i).shape or ()) for i in outs]
    seeds = [s.astype(inputs[wrt[0]].dtype) for s in seeds]
    graph = pullback_graph(traced.graph, wrt, outs)
    expand_composites(graph)
    grads = interpret(graph, [*(a.copy() for a in inputs), *map(np.asarray, seeds)])

    def scalar(leaf: int, at: tuple[int, ...], shift: float) -> float:
        leaves, tree = flatten(copy.deepcopy(args))
        moved = np.array(leaves[leaf])
        moved[at] += shift
        leaves[leaf] = moved[()] if isinstance(leaves[leaf], np.generic) else moved
        results = flatten(fn(*tree.unflatten(leaves)))[0]
        floats = {o.index: r for o, r in zip(traced.outputs, results, strict=True)
                  if isinstance(o, TensorOut)}  # fmt: skip
        return float(sum(np.sum(s * floats[i]) for s, i in zip(seeds, outs, strict=True)))

    for i, got in zip(wrt, grads, strict=True):
        assert (got.shape, got.dtype) == (inputs[i].shape, inputs[i].dtype)
        leaf = traced.arg_leaves[i]
        want = np.zeros(inputs[i].shape)
        for at in np.ndindex(inputs[i].shape):
            want[at] = (scalar(leaf, at, STEP) - scalar(leaf, at, -STEP)) / (2 * STEP)
        scale = max(1.0, float(np.max(np.abs(want), initial=0.0)))
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol * scale * 5,
                                   err_msg=f"gradient of {traced.input_names[i]}")  # fmt: skip


def _type(graph: Graph, index: int) -> TensorType:
    type_ = graph.outputs[index].type
    assert isinstance(type_, TensorType)
    return type_


def _is_float(graph: Graph, index: int) -> bool:
    return _type(graph, index).dtype.is_float
