"""Operands followed through views to the values that they are of.

    access = follow(v)          # %v = permute[dims=(1, 0)](%x): base %x, dims (1, 0)

Note [Views in groups]
`expand`, `permute` and a `reshape` that only adds or drops axes of size 1 only rename axes, so an
operand is followed through them (`follow`), inside the group and beyond it. All other views are
taken outside, where they cost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from gradof.ir.core import Node, Value

Axes = tuple[int | None, ...]  # per dim of a value: the axis of a space, None where size is 1


@dataclass(frozen=True)
class Access:
    """An operand followed through views: `dims[k]` is the dim of `base` along dim k, or None."""

    base: Value
    dims: Axes


def is_static(node: Node) -> bool:
    """Whether the shapes of all it reads and makes are known, and none has no elements."""
    shapes = [v.shape for v in (*node.inputs, *node.outputs)]
    return all(s is not None and 0 not in s for s in shapes)


def renames_axes(node: Node) -> bool:
    """Whether a view only renames axes; see Note [Views in groups]."""
    if node.kind in ("expand", "permute", "alias", "detach"):
        return node.output.shape is not None and node.inputs[0].shape is not None
    if node.kind != "reshape":
        return False
    before, after = node.inputs[0].shape, node.output.shape
    if before is None or after is None:
        return False
    return [n for n in before if n != 1] == [n for n in after if n != 1]


def follow(value: Value) -> Access:
    """The value an operand comes from by renaming axes."""
    shape = value.shape
    assert shape is not None
    dims: Axes = tuple(range(len(shape)))
    while value.node is not None and renames_axes(value.node):
        node = value.node
        through = _through(node)
        dims = tuple(None if d is None else through[d] for d in dims)
        value = node.inputs[0]
    return Access(value, dims)


def _through(node: Node) -> Axes:
    """Per dim of a view's result: the dim of its operand."""
    before, after = node.inputs[0].shape, node.output.shape
    assert before is not None and after is not None
    if node.kind == "permute":
        dims = node.attrs["dims"]
        assert isinstance(dims, tuple)
        return tuple(d if isinstance(d, int) else None for d in dims)
    if node.kind == "expand":
        lead = len(after) - len(before)
        return tuple(
            None if k < lead or before[k - lead] != n else k - lead for k, n in enumerate(after)
        )
    if node.kind == "reshape":
        kept = iter([k for k, n in enumerate(before) if n != 1])
        return tuple(None if n == 1 else next(kept) for n in after)
    return tuple(range(len(after)))


def pads_of(node: Node) -> tuple[tuple[int, int], ...]:
    """The pads of a `pad`: before and after, for each dim."""
    pads = node.attrs["pads"]
    assert isinstance(pads, tuple)
    found = []
    for pair in pads:
        assert isinstance(pair, tuple)
        low, high = pair
        assert isinstance(low, int) and isinstance(high, int)
        found.append((low, high))
    return tuple(found)
