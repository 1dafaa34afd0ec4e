"""Copies: those between kernels are dropped, as each is a launch; those of results are made."""

from __future__ import annotations

from gradof.ir.builder import Builder
from gradof.ir.core import Graph
from gradof.ir.types import TensorType


def drop_copies(graph: Graph) -> None:
    """Drop copies: what is returned is made the caller's own by the emitter."""
    for node in list(graph.nodes()):
        if node.kind == "copy" and node.inputs[0].type == node.output.type:
            node.output.replace_all_uses_with(node.inputs[0])
            node.erase()


def drop_detaches(graph: Graph) -> None:
    """Drop what cuts gradients: there are none behind a target, and loops go on through it."""
    for node in list(graph.nodes()):
        if node.kind in ("detach", "alias"):
            node.output.replace_all_uses_with(node.inputs[0])
            node.erase()


def copy_what_is_returned(graph: Graph) -> None:
    """An operand that is returned, as a gradient that passes through, is copied where it is read.

    By itself a copy is a launch of its own, and another read.
    """
    outputs = list(graph.outputs)
    builder = Builder(graph.block, graph.block.returns)
    for k, value in enumerate(outputs):
        read = any(use.node is not graph.block.returns for use in value.uses)
        if value.node is None and read and isinstance(value.type, TensorType):
            outputs[k] = builder.emit("copy", value)
            outputs[k].hint = value.hint
    graph.set_outputs(outputs)
