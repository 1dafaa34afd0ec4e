"""Which emitter computes the fusion groups of a graph on the CPU, and which groups are worth it.

`GRADOF_BACKEND` in the environment says `numpy` (whole arrays, no fusion), `tiles` (numpy in
cache-sized tiles, on threads) or `auto`, the default: tiles for arrays that do not fit the cache.
"""

from __future__ import annotations

import os
from typing import Literal, cast, get_args

from gradof.codegen.cpu.half import HELD
from gradof.codegen.cpu.lowering import Library, lowering
from gradof.codegen.fusion import Group, cells, fuse
from gradof.codegen.space import EXPENSIVE, REDUCTIONS
from gradof.errors import CodegenError, ConfigError
from gradof.ir.core import Graph, Node
from gradof.ir.types import TensorType
from gradof.ops.registry import get_op

Backend = Literal["auto", "numpy", "tiles"]
SMALL = 1 << 15  # cells: below, whole arrays stay in the cache and statements cost less than tiles


def default_backend() -> Backend:
    """GRADOF_BACKEND, or auto; ConfigError where it names none."""
    name = os.environ.get("GRADOF_BACKEND", "auto")
    if name not in get_args(Backend):
        raise ConfigError(
            f"GRADOF_BACKEND is {name!r}", hint=f"one of {', '.join(get_args(Backend))}"
        )
    return cast(Backend, name)


def fused_for_tiles(graph: Graph, library: Library) -> Graph:
    """The graph with fusion groups for numpy tiles, or itself where nothing is large enough."""
    if not any(_large(node) for node in graph.nodes()):
        return graph
    return fuse(graph, lambda node: in_tiles(node, library), _worth)


def in_tiles(node: Node, library: Library) -> bool:
    """Whether numpy computes a tile of the node from tiles of its operands."""
    types = [v.type for v in (*node.inputs, *node.outputs)]
    if any(
        isinstance(t, TensorType) and (t.device != "cpu" or t.dtype.is_complex or t.dtype in HELD)
        for t in types
    ):
        return False
    if node.kind in REDUCTIONS or node.kind in ("gather", "scatter_add"):
        return node.inputs[0].type.dtype.kind != "bool"  # type: ignore[union-attr]  # a tensor
    record = get_op(node.kind)
    if "elementwise" not in record.traits or record.is_composite:
        return False
    try:
        low = lowering(record, library)
    except CodegenError:
        return False
    return low.kind != "function" or library == "numpy" or record.torch is None


def _large(node: Node) -> bool:
    return any(
        isinstance(v.type, TensorType) and v.type.shape is not None and v.type.size >= SMALL
        for v in (*node.inputs, *node.outputs)
    )


def _worth(group: Group) -> bool:
    """Large enough for threads, and either several statements, or one that is no mere copy."""
    kinds = [node.kind for node in group.nodes]
    if cells(group) < SMALL:
        return False
    return len(kinds) > 1 or kinds[0] in EXPENSIVE or kinds[0] in REDUCTIONS
