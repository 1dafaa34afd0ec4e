"""The session of a numpy trace: gradients of a part of the graph under construction."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from gradof.autodiff.compose import pullback_graph
from gradof.codegen.host.evaluate import interpret
from gradof.ir.clone import clone_graph, clone_node, inline
from gradof.ir.core import Graph, Node, Value
from gradof.ir.loop import is_loop
from gradof.ir.opinfo import has_trait
from gradof.ir.types import TensorType
from gradof.ops.expr import F
from gradof.passes.eliminate_dead_code import eliminate_dead_code
from gradof.passes.guards import path_part
from gradof.runtime.arrays import is_array
from gradof.runtime.thread import is_nan_safe
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.recorder import Recorder
from gradof.tracer.state.unheard import unheard


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

    @unheard
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
    """What values are in this run: the graph so far, evaluated on its inputs.

    What loops have given is kept: a trace with many loops asks for each what follows from the last.
    Draws are made again in their order, and with them all there is.
    """
    graph = recorder.graph
    if any(map(_has_effect, graph.walk())):
        graph.set_outputs(values)
        sofar = path_part(clone_graph(graph))
        graph.set_outputs([])
        return interpret(sofar, recorder.concrete_inputs)
    known = dict(zip(graph.inputs, recorder.concrete_inputs, strict=True)) | recorder.evaluated
    part, read, kept = _leading_to(graph, values, known)
    found = interpret(part, [known[v] for v in read])
    recorder.evaluated.update(zip(kept, found[len(values) :], strict=True))
    return list(map(np.copy, found[: len(values)]))


def _has_effect(node: Node) -> bool:
    """Whether a node is more than its results; a Guard, which has none, is not evaluated."""
    if node.kind in ("Guard", "in_range"):
        return False
    return has_trait(node.kind, "random") or has_trait(node.kind, "effect")


def _leading_to(
    graph: Graph, values: Sequence[Value], known: Collection[Value]
) -> tuple[Graph, list[Value], list[Value]]:
    """The nodes that lead to values from known ones as a graph, which it reads, and of its loops.

    What the loops give are outputs behind the values.
    """
    needed, nodes = set(values), list[Node]()
    for node in reversed(list(graph.block.nodes())):
        if any(v in needed and v not in known for v in node.outputs):
            nodes.append(node)
            needed.update(node.inputs)
    part = Graph(f"{graph.name}_sofar")
    read = [v for v in known if v in needed]
    mapping = {v: part.block.add_param(v.type, v.hint) for v in read}
    for node in reversed(nodes):
        clone = part.block.append(clone_node(node, mapping))
        mapping.update(
            (v, made) for v, made in zip(node.outputs, clone.outputs, strict=True)
            if v not in mapping
        )  # fmt: skip
    kept = [v for node in nodes if is_loop(node) for v in node.outputs if v not in known]
    part.set_outputs([mapping[v] for v in (*values, *kept)])
    return part, read, kept


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


