"""The iteration space of a fusion group while it grows: which nodes fit into one loop nest.

    space = Space(supports)
    if (fit := space.fit(node)) is not None:
        space.add(fit)

Given  %q : f32[8,4] = square(%x);  %s : f32[8,1] = sum[dims=(1,)](%q);  %y = mul(%x, %s)
the space has the axes 0 (size 8) and 1 (size 4); the sum makes axis 1 the columns; %s has the axes
(0, None), %y has (0, 1). A sum of %y over dim 0 is a fold over the rows, whose result nothing in
the group may read. A sum over another set of axes does not fit, nor does anything that needs a
third axis once rows and columns are settled.

Note [Which axis]
An operand from outside varies along dims for which the group may have no axis yet, or several of
the same size. Any choice is right: what cannot be combined under it later just does not fit. The
axis is taken that keeps the order of dims, or a new one is made. Of several it is the one along
which the group has read the operand before (images may be as wide as there are channels); on a
device the one that broadcasting would take (rows may be as many as columns).

Note [Windows]
On a device a `pad` of what no node of the group made is a load that is masked: the operand has
some of the positions along an axis (`Buffer.windows`), and the others have the number. A `cat` of
equal parts that the group makes and does not read ("join") is one array, which each part is stored
into (`Buffer.times`).

Note [One-hot gathers]
`gather` along the columns with one index a row is the sum of `where(index == column, x, 0)`, and
`scatter_add` of one value a row is that `where` itself, so neither breaks a softmax cross-entropy
apart. Indices are known to be in range, because they come from `in_range`. On a device a gather
of what no node of the group made loads the cells that are picked ("pick"), and `in_range` is part
of a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from gradof.codegen.fusion.access import Access, Axes, follow, is_static, pads_of, renames_axes
from gradof.ir.core import Node, Value
from gradof.ir.opinfo import has_trait
from gradof.ops.cost import is_expensive

How = Literal["cells", "reduce", "fold", "fold rows", "all", "pick", "join", "recast"]
NUMBERS = frozenset({"full", "within", "position"})  # for all cells, or by position alone
REDUCTIONS = {"sum": "sum", "prod": "prod", "amax": "max", "amin": "min"}


@dataclass(frozen=True)
class Fit:
    """How a node would join a space."""

    node: Node
    how: How
    axes: Axes  # of the result
    whole: Axes  # of the operand of a reduction or pick; otherwise those of the result
    varies: frozenset[int]
    grown: tuple[tuple[int, int, int], ...] = ()  # new axes: id, size, position in the order
    columns: frozenset[int] | None = None  # settled by this node
    rows: frozenset[int] | None = None


class Space:
    """See the module docstring. `axes` has every value made in the group."""

    def __init__(self, supports: Callable[[Node], bool], device: bool = False) -> None:
        self.supports = supports
        self.device = device
        self.order: list[int] = []
        self.sizes: dict[int, int] = {}
        self.axes: dict[Value, Axes] = {}
        self.varies: dict[Value, frozenset[int]] = {}
        self.columns: frozenset[int] | None = None
        self.rows: frozenset[int] | None = None
        self.reduced = False
        self.fits: list[Fit] = []
        self.hidden: set[Value] = set()  # results of folds: known only after the last row
        self.folded: set[Value] = set()  # those that nothing casts
        self.read: dict[Value, dict[int, int]] = {}  # of values from outside, dims: their axes

    def copy(self) -> Space:
        """An independent space in the same state."""
        other = Space(self.supports, self.device)
        other.order, other.sizes = list(self.order), dict(self.sizes)
        other.axes, other.varies = dict(self.axes), dict(self.varies)
        other.columns, other.rows, other.reduced = self.columns, self.rows, self.reduced
        other.fits, other.hidden = list(self.fits), set(self.hidden)
        other.folded = set(self.folded)
        other.read = {value: dict(axes) for value, axes in self.read.items()}
        return other

    def fit(self, node: Node) -> Fit | None:
        """How the node would join, or None if it does not."""
        if len(node.outputs) != 1 or not self.supports(node) or not is_static(node):
            return None
        if any(v.shape is not None and follow(v).base in self.hidden for v in node.inputs):
            return self._recast(node) if node.kind == "cast" and self.device else None
        if node.kind in REDUCTIONS:
            dims = node.attrs["dims"]
            assert isinstance(dims, tuple)
            return self._reduction(node, frozenset(dims))
        if node.kind == "gather":
            if not is_one_hot(node):
                return None
            if self.device and follow(node.inputs[0]).base not in self.axes:
                return self._pick(node)
            return self._reduction(node, frozenset({node.attrs["dim"]}))
        if node.kind == "scatter_add":
            return self._cells(node) if is_one_hot(node) else None
        if node.kind == "pad" and self.device:
            return self._pad(node)
        if node.kind == "cat" and self.device:
            return self._join(node)
        cells = has_trait(node.kind, "elementwise")
        cells |= self.device and node.kind == "in_range"
        return self._cells(node) if cells else None

    def add(self, fit: Fit) -> None:
        """Let the node join."""
        for axis, size, position in fit.grown:
            self.sizes[axis] = size
            self.order.insert(position, axis)
        self._note_reads(fit)
        out = fit.node.output
        self.axes[out] = fit.axes
        self.varies[out] = fit.varies
        self.fits.append(fit)
        if fit.how not in ("cells", "pick", "join", "recast"):
            self.reduced = True
        if fit.how in ("fold", "fold rows", "all", "join", "recast"):
            self.hidden.add(out)
        if fit.how in ("fold", "fold rows", "all"):
            self.folded.add(out)
        self.columns = fit.columns if fit.columns is not None else self.columns
        self.rows = fit.rows if fit.rows is not None else self.rows

    def _note_reads(self, fit: Fit) -> None:
        for value in fit.node.inputs:
            access = follow(value)
            if access.base in self.axes:
                continue
            known = self.read.setdefault(access.base, {})
            lead = len(fit.whole) - len(access.dims)
            for d, axis in zip(access.dims, fit.whole[max(lead, 0) :], strict=False):
                if d is not None and axis is not None:
                    known.setdefault(d, axis)

    def with_nodes(self, nodes: Sequence[Node]) -> Space | None:
        """This space once all of these have joined, in order; None if one does not fit."""
        for node in nodes:
            fit = self.fit(node)
            if fit is None:
                return None
            self.add(fit)
        return self

    # --- the parts of fit ------------------------------------------------------------------------

    def operand_axes(self, access: Access) -> Axes | None:
        """Per dim of the operand, the axis known from inside the group; None for the outside."""
        known = self.axes.get(access.base)
        if known is None:
            return None
        return tuple(None if d is None else known[d] for d in access.dims)

    def aligned(
        self, operands: list[Value], shape: tuple[int, ...]
    ) -> tuple[Axes, frozenset[int], tuple[tuple[int, int, int], ...]] | None:
        """Axes of a result of this shape, what it varies along, and the axes it would add."""
        found: list[int | None] = [None] * len(shape)
        outside: set[int] = set()  # dims along which operands from outside vary
        varies: set[int] = set()
        usual: dict[int, int] = {}  # dims of which an operand was read along an axis before
        for value in operands:
            access = follow(value)
            if access.base.node is not None and access.base.node.kind in NUMBERS:
                continue
            lead = len(shape) - len(access.dims)
            axes = self.operand_axes(access)
            for j, d in enumerate(access.dims):
                k = j + lead
                if d is None or shape[k] == 1 or _size(access.base, d) == 1:
                    continue
                if axes is None:
                    outside.add(k)
                    before = None if self.device else self.read.get(access.base, {}).get(d)
                    if before is not None:
                        usual.setdefault(k, before)
                    continue
                if found[k] not in (None, axes[j]):
                    return None
                found[k] = axes[j]
            if axes is not None:
                varies |= self.varies[access.base] & {a for a in axes if a is not None}
        used = [a for a in found if a is not None]
        if len(set(used)) != len(used):
            return None
        placed = self._place(found, shape, usual)
        if placed is None:
            return None
        axes_, grown = placed
        varies |= {a for k, a in enumerate(axes_) if k in outside and a is not None}
        return axes_, frozenset(varies), grown

    def _place(
        self, found: list[int | None], shape: tuple[int, ...], usual: dict[int, int]
    ) -> tuple[Axes, tuple[tuple[int, int, int], ...]] | None:
        """An axis for every dim that has none; see Note [Which axis]."""
        order, sizes = list(self.order), dict(self.sizes)
        grown = []
        for k in reversed(range(len(shape))):
            if found[k] is not None or shape[k] == 1:
                continue
            left = [order.index(a) for a in found[:k] if a is not None]
            right = [order.index(a) for a in found[k + 1 :] if a is not None]
            low, high = max(left, default=-1), min(right, default=len(order))
            free = [
                a for a in order[low + 1 : max(high, low + 1)]
                if sizes[a] == shape[k] and a not in found
            ]  # fmt: skip
            if free:
                after = len(shape) - k  # dims from here on, those of size 1 as well
                aligned = [a for a in free if self.device and len(order) - order.index(a) == after]
                found[k] = usual[k] if usual.get(k) in free else [*free, *aligned][-1]
            elif self.reduced:
                return None
            else:
                axis = len(sizes)
                position = max(high, low + 1) if right else len(order)
                sizes[axis] = shape[k]
                order.insert(position, axis)
                grown.append((axis, shape[k], position))
                found[k] = axis
        return tuple(found), tuple(grown)

    def _cells(self, node: Node) -> Fit | None:
        shape = node.output.shape
        assert shape is not None
        operands = [v for v in node.inputs if v.shape != ()]
        aligned = self.aligned(operands, shape)
        if aligned is None:
            return None
        axes, varies, grown = aligned
        if node.kind == "scatter_add":
            dim = node.attrs["dim"]
            assert isinstance(dim, int)
            varies |= {a for a in (axes[dim],) if a is not None}
        if self.reduced and is_expensive(node.kind) and not self._is_full(varies):
            rows = self._rows()
            if rows and not varies & rows:
                return None  # it would be computed again for every row
        return Fit(node, "cells", axes, axes, varies, grown)

    def _pad(self, node: Node) -> Fit | None:
        """What is in memory, loaded where there is some of it."""
        shape = node.output.shape
        assert shape is not None
        base = follow(node.inputs[0]).base
        if base in self.axes or (base.node is not None and base.node.kind in NUMBERS):
            return None
        aligned = self.aligned(list(node.inputs), shape)
        if aligned is None:
            return None
        axes, varies, grown = aligned
        padded = {a for a, pair in zip(axes, pads_of(node), strict=True) if pair != (0, 0)}
        varies |= {a for a in padded if a is not None}
        return Fit(node, "cells", axes, axes, varies, grown)

    def _recast(self, node: Node) -> Fit | None:
        """The cast of a fold that nothing else reads: it is stored as that."""
        access = follow(node.inputs[0])
        axes = self.operand_axes(access)
        if access.base not in self.folded or axes is None or not _is_all_that_reads(node):
            return None
        return Fit(node, "recast", axes, axes, frozenset(a for a in axes if a is not None))

    def _join(self, node: Node) -> Fit | None:
        """A concatenation that is only stored: each part in its place."""
        dim, shapes = node.attrs["dim"], {v.shape for v in node.inputs}
        found = {self.operand_axes(follow(v)) for v in node.inputs}
        if len(found) != 1 or len(shapes) != 1:
            return None
        (axes,) = found
        assert isinstance(dim, int)
        if axes is None or axes[dim] is None:
            return None
        return Fit(node, "join", axes, axes, frozenset(a for a in axes if a is not None))

    def _pick(self, node: Node) -> Fit | None:
        """A gather from memory: one cell for each row, along an axis that there is."""
        shape = node.inputs[0].shape
        assert shape is not None
        aligned = self.aligned(list(node.inputs), shape)
        if aligned is None or aligned[2]:
            return None
        whole = aligned[0]
        axes = tuple(None if k == node.attrs["dim"] else a for k, a in enumerate(whole))
        return Fit(node, "pick", axes, whole, frozenset(a for a in axes if a is not None))

    def _is_full(self, varies: frozenset[int]) -> bool:
        return len(varies) == len(self.order)

    def _rows(self) -> frozenset[int]:
        if self.rows is not None:
            return self.rows
        return frozenset(self.order) - (self.columns or frozenset(self.order[-1:]))

    def _reduction(self, node: Node, dims: frozenset[object]) -> Fit | None:
        value = node.inputs[0]
        shape, result = value.shape, node.output.shape
        assert shape is not None and result is not None
        operands = [v for v in node.inputs if v.shape != ()]
        aligned = self.aligned(operands, shape)
        if aligned is None:
            return None
        axes, _, grown = aligned
        space = frozenset(self.order) | {axis for axis, _, _ in grown}
        whole = frozenset(a for a in axes if a is not None)
        red = frozenset(a for k, a in enumerate(axes) if k in dims and a is not None)
        if not red:
            return None
        kept = [a for k, a in enumerate(axes) if k not in dims]
        out = axes if len(result) == len(shape) else tuple(kept)
        out = tuple(None if a in red else a for a in out)
        varies = whole - red
        how, columns, rows = self._how(node, space, whole, red, grown)
        if how is None:
            return None
        return Fit(node, how, out, axes, varies, grown, columns, rows)

    def _how(
        self, node: Node, space: frozenset[int], whole: frozenset[int], red: frozenset[int],
        grown: tuple[tuple[int, int, int], ...],
    ) -> tuple[How | None, frozenset[int] | None, frozenset[int] | None]:  # fmt: skip
        nothing: tuple[None, None, None] = (None, None, None)
        settled = self.columns is not None
        if settled and whole == self.rows and red == self.rows and node.kind != "gather":
            return "fold rows", None, None
        if whole != space:
            return nothing
        if red == space and node.kind != "gather" and len(space) > 1:
            return "all", None, None
        if red == space:  # one axis: a row of its own, so that what follows can read the result
            if settled and self.columns != space:
                return nothing
            return "reduce", frozenset(space), frozenset()
        if settled:
            if red == self.columns:
                return "reduce", None, None
            return ("fold", None, None) if red == self.rows and node.kind != "gather" else nothing
        order = list(self.order)
        for axis, _, position in grown:
            order.insert(position, axis)
        reduced = frozenset(a for a in order if a in red)
        if order[-1] in red:
            return "reduce", reduced, space - reduced
        if node.kind == "gather":
            return nothing
        return "fold", space - reduced, reduced


def _size(value: Value, dim: int) -> int:
    shape = value.shape
    assert shape is not None
    return shape[dim]


def _is_all_that_reads(node: Node) -> bool:
    """Whether nothing but the node reads its operand, nor what that is a view of."""
    value = node.inputs[0]
    while len(value.uses) == 1:
        if value.node is None or not renames_axes(value.node):
            return True
        value = value.node.inputs[0]
    return False


def is_one_hot(node: Node) -> bool:
    """Whether one index a row, in range, is gathered or scattered; see Note [One-hot gathers]."""
    dim = node.attrs["dim"]
    assert isinstance(dim, int)
    index = node.inputs[1]
    whole, picked = node.inputs[0].shape, index.shape
    if whole is None or picked is None or len(whole) != len(picked) or not whole:
        return False
    expected = tuple(1 if k == dim else n for k, n in enumerate(whole))
    base = follow(index).base
    if base.node is None:  # within a group already: it was checked when that was formed
        checked = base.block is not None and isinstance(base.block.owner, Node)
    else:
        checked = base.node.kind == "in_range"
    if node.kind == "scatter_add" and node.inputs[2].shape != expected:
        return False
    return checked and picked == expected and whole[dim] > 1
