"""Values that are another one at each step, as one array whose rows they are."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from gradof import tuning
from gradof.ir.attrs import Dense, to_numpy_dtype
from gradof.ir.core import Node, Value
from gradof.ir.types import BF16, C32, F16, ScalarType, TensorType
from gradof.ops.expr import Emitter, Expr, F

# Ops that give the same for a number of Python's and for an array of the dtype of the other side.
_EITHER = frozenset({
    "add", "sub", "mul", "div", "maximum", "minimum", "gt", "ge", "lt", "le", "eq", "ne",
})  # fmt: skip


def sequence_of(
    values: Sequence[Value], node: Node, k: int, emitter: Emitter
) -> Value | None:
    """The sequence with these rows, which `node` reads as operand `k`; None if there is none."""
    if all(v.node is not None and v.node.kind == "Constant" for v in values):
        return _of_constants(values, node, k, emitter)
    type_ = values[0].type
    if not isinstance(type_, TensorType) or type_.shape is None or type_.device != "cpu":
        return None
    found = _of_slices(values, emitter)
    if found is not None:
        return found
    if type_.size > tuning.LOOP_STACKED:
        return None
    tall = [emitter.wrap(v).reshape((1, *type_.shape)) for v in values]
    return F.cat(*tall, dim=0).value


def _of_constants(values: Sequence[Value], node: Node, k: int, emitter: Emitter) -> Value | None:
    numbers = [v.node.attrs["value"] for v in values if v.node is not None]
    if isinstance(values[0].type, ScalarType):
        others = [v.type for i, v in enumerate(node.inputs) if i != k]
        dtypes = {t.dtype for t in others if isinstance(t, TensorType)}
        if node.kind not in _EITHER or len(dtypes) != 1 or dtypes & {F16, BF16, C32}:
            return None
        rows = np.array(numbers, to_numpy_dtype(dtypes.pop()))
    else:
        rows = np.stack([n.numpy() for n in numbers if isinstance(n, Dense)])
    return emitter.body.constant(Dense.of(rows))


def _of_slices(values: Sequence[Value], emitter: Emitter) -> Value | None:
    """Rows that are slices of one array."""
    slices = [_slice_behind(v) for v in values]
    first = slices[0]
    if first is None:
        return None
    base, dim = first.inputs[0], first.attrs["dim"]
    starts = []
    for node in slices:
        if node is None or node.inputs[0] is not base or node.attrs["dim"] != dim:
            return None
        starts.append(node.attrs["start"])
    whole = [s for s in starts if isinstance(s, int)]
    assert isinstance(dim, int) and isinstance(values[0].type, TensorType)
    found = slices_as_sequence(base, dim, whole, emitter)
    shape = values[0].type.shape
    assert shape is not None
    return found.reshape((len(values), *shape)).value


def _slice_behind(value: Value) -> Node | None:
    """The slice of one place that a value is, in whatever shape."""
    node = value.node
    if node is not None and node.kind == "reshape":
        node = node.inputs[0].node
    if node is None or node.kind != "slice" or node.attrs["step"] != 1:
        return None
    start, stop = node.attrs["start"], node.attrs["stop"]
    assert isinstance(start, int) and isinstance(stop, int)
    return node if stop - start == 1 else None


def slices_as_sequence(base: Value, dim: int, starts: Sequence[int], emitter: Emitter) -> Expr:
    """The slices of one place along a dim, at these starts, stacked in front."""
    x = emitter.wrap(base)
    if len({b - a for a, b in itertools.pairwise(starts)}) > 1:
        index = emitter.body.constant(Dense.of(np.array(starts, np.int64)))
        part = F.index_select(x, emitter.wrap(index), dim=dim)
        return part.permute(_front(dim, part.rank))
    step = starts[1] - starts[0]
    low, high = min(starts), max(starts)
    if step == 0:
        part = F.slice(x, dim=dim, start=low, stop=low + 1, step=1)
        part = part.permute(_front(dim, part.rank))
        return part.expand((len(starts), *part.shape[1:]))
    if (low, high, abs(step)) == (0, x.shape[dim] - 1, 1):
        part = x
    else:
        part = F.slice(x, dim=dim, start=low, stop=high + 1, step=abs(step))
    if step < 0:
        part = F.flip(part, dims=(dim,))
    return part.permute(_front(dim, part.rank))


def _front(dim: int, rank: int) -> tuple[int, ...]:
    return (dim, *(d for d in range(rank) if d != dim))
