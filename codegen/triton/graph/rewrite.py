"""A graph as kernels like it: the same values by ops that fewer passes over memory compute.

    grouped = in_kernels(graph, supports, worth)       # a FusionGroup for each kernel

Every rule holds for a device alone, where one more launch or pass over memory costs more than the
arithmetic that it spares. The CPU's emitters have their own (`gradof.codegen`).
"""

from __future__ import annotations

from collections.abc import Callable

from gradof.codegen.fusion.fuse import Worth, fuse
from gradof.codegen.triton.graph.one_hot import pick_from_memory
from gradof.codegen.triton.graph.refine import refine_reshapes
from gradof.codegen.triton.graph.split_sums import split_sums
from gradof.codegen.triton.graph.views_up import move_views_up
from gradof.codegen.triton.graph.windows import put_into_loops
from gradof.ir.builder import Builder
from gradof.ir.clone import clone_graph
from gradof.ir.core import Graph, Node
from gradof.ir.types import TensorType
from gradof.passes.hoist_slices import move_slices
from gradof.passes.pipeline import CLEAN_UP, run_passes


def in_kernels(graph: Graph, supports: Callable[[Node], bool], worth: Worth) -> Graph:
    """The graph rewritten, with its fusion groups; nothing in `graph` is changed."""
    copy = clone_graph(graph)
    drop_copies(copy)
    copy = move_slices(copy)
    refine_reshapes(copy)
    move_views_up(copy)
    run_passes(copy, CLEAN_UP)
    split_sums(copy)
    pick_from_memory(copy)
    put_into_loops(copy)
    run_passes(copy, CLEAN_UP)
    copy_what_is_returned(copy)
    return fuse(copy, supports, worth, device=True)


def drop_copies(graph: Graph) -> None:
    """A copy has the same value, and what is returned is made the caller's own (`execute`)."""
    for node in list(graph.nodes()):
        if node.kind == "copy" and node.inputs[0].type == node.output.type:
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
