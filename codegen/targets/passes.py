"""The passes of targets, by name; they run after those that every graph has had (PREPARE).

    run_target(graph, target)      the passes of the target, in its order, on a copy
    GRAPH_PASSES["fuse"]           a pass, with what it does

A pass changes the graph it is given, or returns another one in its place; `applies` says cheaply
whether it has anything to do, so that a graph is copied only where one has. After each the graph
is verified where GRADOF_CHECK=1, and shown to `gradof.passes.pipeline.watching`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gradof.codegen.fusion.fuse import fuse
from gradof.codegen.targets.target import Target
from gradof.codegen.targets.weak_numbers import may_round, round_weak_numbers
from gradof.codegen.triton.attention.replace import with_attention
from gradof.codegen.triton.graph.copies import copy_what_is_returned, drop_copies, drop_detaches
from gradof.codegen.triton.graph.linear_sums import split_linear_sums
from gradof.codegen.triton.graph.one_hot import pick_from_memory
from gradof.codegen.triton.graph.refine import refine_reshapes
from gradof.codegen.triton.graph.split_sums import split_sums
from gradof.codegen.triton.graph.views_up import move_views_up
from gradof.codegen.triton.graph.windows import put_into_loops
from gradof.codegen.whole.stretches import gather_stretches, may_stretch
from gradof.ir.clone import clone_graph
from gradof.ir.core import Graph
from gradof.passes.hoist_slices import may_hoist
from gradof.passes.pipeline import PASSES, after_pass

# Gives the graph to go on with, or says whether it has changed the one it was given.
Run = Callable[[Graph, Target], "Graph | bool | None"]
Applies = Callable[[Graph, Target], bool]


@dataclass(frozen=True)
class GraphPass:
    """A pass for a target: `about` is one line for `gradof opt --list`."""

    run: Run
    about: str
    applies: Applies = lambda graph, target: True
    rebuilds: bool = False  # gives a graph of its own, and leaves the one it is given


def _in_place(
    function: Callable[[Graph], bool | None], applies: Applies | None = None
) -> GraphPass:
    about = (function.__doc__ or "").splitlines()[0]
    run: Run = lambda graph, target: function(graph)  # noqa: E731
    return GraphPass(run, about, applies) if applies else GraphPass(run, about)


_HAVE_TO: dict[str, Applies] = {
    "hoist-slices": lambda graph, target: may_hoist(graph),
}

GRAPH_PASSES: dict[str, GraphPass] = {
    **{name: _in_place(function, _HAVE_TO.get(name)) for name, function in PASSES.items()},
    "round-weak-numbers": GraphPass(
        lambda graph, target: round_weak_numbers(graph, target.library),
        (round_weak_numbers.__doc__ or "").splitlines()[0],
        lambda graph, target: may_round(graph, target.library),
    ),
    "gather-stretches": GraphPass(
        lambda graph, target: gather_stretches(graph, target.library),
        (gather_stretches.__doc__ or "").splitlines()[0],
        lambda graph, target: may_stretch(graph, target.library), rebuilds=True,
    ),
    "attention": GraphPass(
        lambda graph, target: with_attention(graph)[0],
        "Put one node in place of each softmax(Q K^T) V that a kernel can compute.",
    ),
    "drop-copies": _in_place(drop_copies),
    "drop-detaches": _in_place(drop_detaches),
    "refine-reshapes": _in_place(refine_reshapes),
    "move-views-up": _in_place(move_views_up),
    "split-linear-sums": _in_place(split_linear_sums),
    "split-sums": _in_place(split_sums),
    "pick-from-memory": _in_place(pick_from_memory),
    "put-into-loops": _in_place(put_into_loops),
    "copy-what-is-returned": _in_place(copy_what_is_returned),
    "fuse": GraphPass(
        lambda graph, target: fuse(
            graph, target.supports, target.worth, again=target.rematerialize, device=target.device
        ),
        "Put the nodes that one loop nest computes into FusionGroup nodes.", rebuilds=True,
    ),
}  # fmt: skip


def run_target(graph: Graph, target: Target) -> Graph:
    """The graph after the passes of its target; `graph` itself is left as it was."""
    given = graph
    for name in target.passes:
        each = GRAPH_PASSES[name]
        if not each.applies(graph, target):
            continue
        if graph is given and not each.rebuilds:
            graph = clone_graph(graph)
        result = each.run(graph, target)
        graph = result if isinstance(result, Graph) else graph
        after_pass(name, graph, result is not False)
    return graph
