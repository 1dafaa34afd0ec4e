"""Sums that keep dims between those that are summed, in two steps, by more programs.

    sum[dims=(0, 2, 3)](%x : f32[64,32,56,56])   →   sum[dims=(0,)](sum[dims=(2, 3)](%x))

A program has a row, which is all that one result is the sum of: 32 rows would be 32 programs of a
batch norm's statistics. The first step has a row for every image and channel; the second has little
to read. In half precision both are summed in float32, and rounded once.
"""

from __future__ import annotations

import math

from gradof import tuning
from gradof.codegen.triton.ops import HALF
from gradof.ir.builder import Builder
from gradof.ir.core import Graph, Node
from gradof.ir.types import F32, TensorType


def split_sums(graph: Graph) -> None:
    """Rewrite every sum of few rows over leading and trailing dims."""
    for node in list(graph.nodes()):
        if node.kind == "sum" and (parts := _parts(node)) is not None:
            _split(node, *parts)


def _parts(node: Node) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The leading and the trailing dims."""
    shape, dims = node.inputs[0].shape, node.attrs["dims"]
    if shape is None or 0 in shape:
        return None
    assert isinstance(dims, tuple)
    summed = [d for d in dims if isinstance(d, int)]
    kept = [d for d, n in enumerate(shape) if d not in summed and n != 1]
    if not kept or math.prod(shape[d] for d in kept) >= tuning.SPLIT_ROWS:
        return None
    leading = tuple(d for d in summed if d < kept[-1])
    trailing = tuple(d for d in summed if d > kept[-1])
    rows, cells = (math.prod(shape[d] for d in dims) for dims in (leading, trailing))
    if rows == 1 or cells < tuning.SPLIT_CELLS:
        return None
    return leading, trailing


def _split(node: Node, leading: tuple[int, ...], trailing: tuple[int, ...]) -> None:
    assert node.block is not None
    builder = Builder(node.block, node, node.loc)
    value = node.inputs[0]
    type_ = node.output.type
    assert isinstance(type_, TensorType)
    if type_.dtype in HALF:
        value = builder.emit("cast", value, dtype=F32)
    value = builder.emit("sum", value, dims=trailing, keepdims=True)
    value = builder.emit("sum", value, dims=leading, keepdims=True)
    value = builder.emit("reshape", value, shape=type_.shape)
    if type_.dtype in HALF:
        value = builder.emit("cast", value, dtype=type_.dtype)
    value.hint = node.output.hint
    node.output.replace_all_uses_with(value)
    node.erase()
