"""Sums over rows in the dtype and shape that they are wanted in: a fold's kernel writes both.

    %s : f32[1,8] = FusionGroup(...)        # a fold
    %r : f32[8] = reshape(%s)          →    %c : bf16[8] = FusionGroup(...)
    %c : bf16[8] = cast(%r)

A gradient of half precision is summed in float32 and rounded once. Left to torch, that is a launch
for each of them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from gradof.codegen.gpu.emit_triton import folds_of
from gradof.codegen.loopnest import Buffer, LoopNest
from gradof.ir.core import Node, Value
from gradof.ir.types import BF16, F16, F32, DType, TensorType


def finish_folds(
    nest: LoopNest, results: list[Value], kept: Collection[Value]
) -> tuple[LoopNest, list[Value], set[Node]]:
    """The nest with outputs as they are wanted, whose results these are, and what is left out.

    `results` are those of the group, `kept` are values that the graph returns.
    """
    outputs, found, done = list(nest.outputs), list(results), set[Node]()
    for fold in folds_of(nest):
        k = fold.attrs["buffer"]
        assert isinstance(k, int)
        while (node := _only_reader(found[k], kept)) is not None:
            made = _as_wanted(outputs[k], node)
            if made is None:
                break
            outputs[k], found[k] = made, node.output
            done.add(node)
    return replace(nest, outputs=tuple(outputs)), found, done


def _only_reader(value: Value, kept: Collection[Value]) -> Node | None:
    uses = value.uses
    return uses[0].node if len(uses) == 1 and value not in kept else None


def _as_wanted(buffer: Buffer, node: Node) -> Buffer | None:
    """The buffer after the node; None where a fold cannot write that."""
    if len(node.inputs) != 1 or len(node.outputs) != 1:
        return None
    wanted = node.output.type
    if not isinstance(wanted, TensorType) or wanted.shape is None:
        return None
    shape = wanted.shape
    if node.kind == "cast" and _rounds(buffer.dtype, wanted.dtype):
        return replace(buffer, dtype=wanted.dtype)
    if node.kind != "reshape":
        return None
    if [n for n in shape if n != 1] != [n for n in buffer.shape if n != 1]:
        return None
    named = sorted(d for d in buffer.dims if d is not None)
    places = [d for d, n in enumerate(shape) if n != 1]
    if len(places) != len(named):  # an axis of one element
        return None
    moved = dict(zip(named, places, strict=True))
    dims = tuple(None if d is None else moved[d] for d in buffer.dims)
    return replace(buffer, shape=shape, dims=dims)


def _rounds(dtype: DType, to: DType) -> bool:
    return dtype == F32 and to in (F16, BF16)
