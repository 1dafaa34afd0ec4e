"""The session of a numpy trace: gradients of a part of the graph under construction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradof.autodiff.compose import pullback_graph
from gradof.codegen.host.evaluate import interpret
from gradof.ir.clone import clone_graph, clone_node, inline
from gradof.ir.core import Graph, Node, Value
from gradof.ir.types import TensorType
from gradof.ops.expr import F
from gradof.passes.eliminate_dead_code import eliminate_dead_code
from gradof.passes.guards import path_part
from gradof.runtime.arrays import is_array
from gradof.runtime.thread import is_nan_safe
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.recorder import Recorder


class NumpySession:
    """See `gradof.runtime.nested.Session`."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def is_array(self, leaf: Any) -> bool:
        """Traced, or plain."""
        return isinstance(leaf, TracedArray) or is_array(leaf)

    def is_float(self, leaf: Any) -> bool:
        """Floating point."""
        return bool(leaf.dtype.kind in "fc")

    def fresh(self, leaf: Any) -> TracedArray:
        """A value of its own in the graph."""
        self.recorder.enter()
        array = self.recorder.traced(leaf)
        return self._wrap(F.alias(array.expr).value, self.recorder.numpy(np.copy, array))

    def ones(self, like: TracedArray) -> Any:
        """A plain array: it becomes a constant."""
        return np.ones(like.shape, like.dtype)

    def stack(self, arrays: Sequence[Any], shape: tuple[int, ...]) -> Any:
        """One array with all of them."""
        if not arrays:
            return np.zeros(shape)
        return np.reshape(np.stack(arrays), shape)

    def pullback(
        self, outputs: Sequence[Any], seeds: Sequence[Any], wrt: Sequence[Any]
    ) -> list[TracedArray]:
        """The reverse of the part of the graph between `wrt` and `outputs`, put at its end."""
        recorder = self.recorder
        recorder.enter()
        results = [recorder.traced(o).expr.value for o in outputs]
        weights = [recorder.traced(s).expr.cast(_dtype(v)).value
                   for s, v in zip(seeds, results, strict=True)]  # fmt: skip
        variables = [w.expr.value for w in wrt]
        part, captured = _part(recorder.graph, variables, results)
        part.nan_safe = is_nan_safe()
        reverse = pullback_graph(part, range(len(variables)), range(len(results)))
        block = recorder.graph.block
        values = inline(
            reverse.block, [*variables, *captured, *weights], block, block.returns
        )
        for node in block.nodes():
            if node.loc is None:
                node.loc = recorder.loc
        return [self._wrap(v, a) for v, a in zip(values, self._evaluate(values), strict=True)]

    def _wrap(self, value: Value, concrete: Any) -> TracedArray:
        return self.recorder.wrap(concrete, self.recorder.emitter.wrap(value))

    def _evaluate(self, values: Sequence[Value]) -> Sequence[Any]:
        return evaluate_sofar(self.recorder, values)


def evaluate_sofar(recorder: Recorder, values: Sequence[Value]) -> Sequence[Any]:
    """What values are in this run: the graph so far, evaluated on its inputs."""
    graph = recorder.graph
    graph.set_outputs(values)
    sofar = path_part(clone_graph(graph))
    graph.set_outputs([])
    return interpret(sofar, recorder.concrete_inputs)


def _dtype(value: Value) -> Any:
    assert isinstance(value.type, TensorType)
    return value.type.dtype


def _part(
    graph: Graph, variables: Sequence[Value], results: Sequence[Value]
) -> tuple[Graph, list[Value]]:
    """The nodes that lead from variables to results as a graph, and what else they read."""
    depends = set(variables)
    nodes: list[Node] = []
    for node in graph.block.nodes():
        if node.outputs and any(v in depends for v in node.inputs):
            depends.update(node.outputs)
            nodes.append(node)
    needed, chosen = set(results), []
    for node in reversed(nodes):
        if any(out in needed for out in node.outputs):
            needed.update(node.inputs)
            chosen.append(node)
    part = Graph(f"{graph.name}_inner")
    mapping = {v: part.block.add_param(v.type, v.hint) for v in variables}
    read = (v for node in reversed(chosen) for v in node.inputs)
    captured = [v for v in dict.fromkeys([*read, *results]) if v not in depends]
    constants = [v for v in captured if v.node is not None and v.node.kind == "Constant"]
    captured = [v for v in captured if v not in set(constants)]
    mapping.update((v, part.block.add_param(v.type, v.hint)) for v in captured)
    for value in constants:
        assert value.node is not None
        mapping[value] = part.block.append(clone_node(value.node, mapping)).output
    for node in reversed(chosen):
        clone = part.block.append(clone_node(node, mapping))
        mapping.update(zip(node.outputs, clone.outputs, strict=True))
    part.set_outputs([mapping[v] for v in results])
    eliminate_dead_code(part)
    return part, captured


