"""Views move above what loops compute, and casts there and back vanish.

    reshape(cast(x))                        → cast(reshape(x))
    cast(slice(cast(x, f32)), bf16)         → slice(x)              of a bf16 x
    reshape(permute(a * b))                 → reshape(permute(a) * permute(b))

A view of memory is free. A view of what a kernel computes breaks the loop apart: the kernel has to
write the whole, and what reads the view is another kernel, or a copy into the view's order. So a
view that a loop or a copy reads is taken of the operands instead. A cast may be done twice for
that; other ops are not, so nothing but the view may read them.
"""

from __future__ import annotations

from gradof.codegen.fusion.access import renames_axes
from gradof.codegen.fusion.iteration_space import REDUCTIONS
from gradof.codegen.triton.graph.one_hot import is_cells
from gradof.ir.builder import Builder
from gradof.ir.core import Graph, Node, Value
from gradof.ir.types import BF16, F16, F32, F64, DType, TensorType

_WIDER: dict[DType, tuple[DType, ...]] = {BF16: (F32, F64), F16: (F32, F64), F32: (F64,)}
_BREAKS = frozenset({"cat", "pad", "unslice", "slice_scatter"})  # what windows are made of


def move_views_up(graph: Graph) -> None:
    """Move every view that pays, the lowest first."""
    for node in reversed(list(graph.nodes())):
        there = node.block is not None  # one that another has moved on is not
        if there and node.kind in ("reshape", "permute", "slice") and _pays(node):
            _move(node)
    for node in list(graph.nodes()):
        if node.kind == "cast" and (value := _there_and_back(node)) is not None:
            node.output.replace_all_uses_with(value)
            node.erase()


def _there_and_back(node: Node) -> Value | None:
    """What was cast to a wider dtype and is cast back; views between the casts moved up."""
    inner = node.inputs[0].node
    if inner is None or inner.kind != "cast":
        return None
    value = inner.inputs[0]
    if not isinstance(value.type, TensorType) or value.type != node.output.type:
        return None
    return value if inner.attrs["dtype"] in _WIDER.get(value.type.dtype, ()) else None


def _pays(view: Node) -> bool:
    """Whether a loop makes the operand, and a loop or a copy reads the view."""
    source = view.inputs[0].node
    if source is None or not is_cells(source) or view.output.shape is None:
        return False
    if source.output.shape == ():
        return False  # a number, whose operands have no dims to take a view of
    if source.kind != "cast" and len(source.output.uses) != 1:
        return False
    if view.kind == "slice" and source.kind != "cast":
        return False  # see `passes/hoist_slices`
    dims = view.attrs.get("dims")
    if isinstance(dims, tuple) and dims[-1:] != (len(dims) - 1,):
        return False  # neighbours would be apart, in all that is read
    whole = source.output.shape
    if view.kind == "reshape" and any(
        v.shape not in ((), whole) and not _is_kept(v, view) for v in source.inputs
    ):
        return False
    return any(_is_loop_or_copy(use.node, view) for use in view.output.uses)


def _is_kept(value: Value, reshape: Node) -> bool:
    """Whether an operand broadcasts along the last dims alone, which the reshape leaves alone."""
    before, after, shape = reshape.inputs[0].shape, reshape.output.shape, value.shape
    assert before is not None and after is not None
    return shape is not None and 0 < len(shape) < min(len(before), len(after)) and (
        before[-len(shape) :] == after[-len(shape) :]
    )  # fmt: skip


def _is_loop_or_copy(user: Node, view: Node) -> bool:
    if is_cells(user) or user.kind in REDUCTIONS or user.kind in _BREAKS:
        return True
    if user.kind == "reshape" and view.kind == "permute" and not renames_axes(user):
        return True
    return user.kind in ("reshape", "permute", "slice", "expand") and any(
        _is_loop_or_copy(use.node, user) for use in user.output.uses
    )


def _move(view: Node) -> None:
    source = view.inputs[0].node
    assert source is not None and view.block is not None
    builder = Builder(view.block, view, source.loc)
    whole = source.output.shape
    assert whole is not None
    operands = [_viewed(v, view, len(whole), builder) for v in source.inputs]
    made = builder.emit(source.kind, *operands, **source.attrs)
    made.hint = view.output.hint
    view.output.replace_all_uses_with(made)
    view.erase()
    if not source.output.uses:
        source.erase()
    for value in operands:  # further up
        node = value.node
        if node is not None and node.kind == view.kind and node.block is not None and _pays(node):
            _move(node)


def _viewed(value: Value, view: Node, rank: int, builder: Builder) -> Value:
    """The view of an operand, which broadcasts to the operand of the view."""
    shape = value.shape
    assert shape is not None
    if shape == () or (view.kind == "reshape" and _is_kept(value, view)):
        return value
    if len(shape) < rank:
        value = builder.emit("reshape", value, shape=(1,) * (rank - len(shape)) + shape)
    return builder.emit(view.kind, value, **view.attrs)
