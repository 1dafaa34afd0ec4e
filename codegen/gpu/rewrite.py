"""A graph as kernels like it: the same values by ops that fewer passes over memory compute.

    grouped = in_kernels(graph, supports, worth)       # a FusionGroup for each kernel

Every rule holds for a device alone, where one more launch or pass over memory costs more than the
arithmetic that it spares. The CPU's emitters have their own (`gradof.codegen`).
"""

from __future__ import annotations

from collections.abc import Callable

from gradof.codegen.fusion import Worth, fuse
from gradof.codegen.gpu.one_hot import pick_from_memory
from gradof.codegen.gpu.views_up import move_views_up
from gradof.codegen.gpu.windows import put_into_loops
from gradof.codegen.move_slices import move_slices
from gradof.ir.clone import clone_graph
from gradof.ir.core import Graph, Node
from gradof.passes.pipeline import CLEAN_UP, run_passes


def in_kernels(graph: Graph, supports: Callable[[Node], bool], worth: Worth) -> Graph:
    """The graph rewritten, with its fusion groups; nothing in `graph` is changed."""
    copy = move_slices(clone_graph(graph))
    move_views_up(copy)
    run_passes(copy, CLEAN_UP)
    pick_from_memory(copy)
    put_into_loops(copy)
    run_passes(copy, CLEAN_UP)
    return fuse(copy, supports, worth, device=True)
