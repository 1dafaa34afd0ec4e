"""Indices that are numbers of the graph: what they pick is gathered, no value is read.

    row = table[t]          t : i64[] of the graph      →      row = take(%table, %t)
    chunk = x[i : i + 4]                                →      take(%x, %i + [0, 1, 2, 3])
    cache[:, t] = k                                     →      an `index_put`

torch's own indexing asks a 0-d tensor of integers for its element, so that each index would be a
path of its own, and a traced number would be a constant.

Note [Picked rows]
In eager `table[t]` is a view of the table; what is gathered is a copy. They differ where one of
them is changed in place after, or where the view is handed to the caller. So it is noted what was
picked where; if at the end of the trace either has changed, or a result shares memory with what was
picked, the line is noted, and the function is traced again with the index read there.

A slice is picked where its length is the same for all numbers: the difference of its bounds is a
constant of affine expressions. The trace holds where no bound is cut off at an end.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

import torch

from gradof.ir.core import Value
from gradof.ops.expr import F
from gradof.tracer.core.number import TracedNumber
from gradof.tracer.core.number_trees import has_number
from gradof.tracer.state.bytecode import instructions
from gradof.tracer.torch.functional import inner, is_wrapper
from gradof.tracer.torch.numbers import Call, TorchNumbers
from gradof.tracer.torch.overrides import INDEXING, with_stacked_index
from gradof.tracer.torch.recorder import Recorder

Site = tuple[CodeType, int]
_KNOWN: dict[Any, set[Site]] = {}  # by the traced function's code: where views are needed
_INDICES = frozenset({torch.int64, torch.int32, torch.int16, torch.int8})
_NOTED = 2  # references to a row: the note's, and that of the call that counts them
_FIRST_IN_PLACE = 13  # of the arguments of BINARY_OP: `+=`
_SET = torch.Tensor.__setitem__
_NARROWS = frozenset({torch.narrow, torch.Tensor.narrow})
INDEXES = INDEXING | _NARROWS


def places_of_views(fn: Any) -> set[Site]:
    """The places in a function's runs where an index is read, as the view itself is needed."""
    return _KNOWN.setdefault(getattr(fn, "__code__", type(fn)), set())


@dataclass(frozen=True)
class _Pick:
    """Which elements of one dim: an index of shape (1,), or of the length of a slice."""

    index: torch.Tensor
    is_slice: bool


class _Made:
    """What was picked at a line, and of what; with their versions then."""

    def __init__(self, x: torch.Tensor, row: torch.Tensor, items: Sequence[Any], at: Site) -> None:
        self.x = x
        self.row = row
        self.items = items
        self.item_versions = _versions(items)
        self.at = at
        self.versions = _version(x), _version(row)
        self.owners = _owners(row)
        self.is_gone = False  # before it showed that the row is no view

    def is_row_of(self, x: torch.Tensor, items: Sequence[Any], value: Any) -> bool:
        """Whether `x[items] = value` puts it back; it may have changed till then."""
        return (
            value is self.row and x is self.x and _version(x) == self.versions[0]
            and len(items) == len(self.items) and all(map(_is_same, items, self.items))
            and _versions(items) == self.item_versions
        )  # fmt: skip

    @property
    def has_changed(self) -> bool:
        """Whether either has been changed in place."""
        return (_version(self.x), _version(self.row)) != self.versions

    @property
    def is_alive(self) -> bool:
        """Whether anything but this note has the row, or a view of it."""
        return sys.getrefcount(self.row) > _NOTED or _owners(self.row) > self.owners


def _narrowed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    """`narrow` from a traced number as a slice; other calls as they are."""
    if kwargs or len(args) != 4 or not has_number(args[2:]):
        return func, args, kwargs
    x, dim, start, length = args
    if type(dim) is not int or not -x.dim() <= dim < x.dim():
        return func, args, kwargs
    picked = (*[slice(None)] * (dim % x.dim()), slice(start, start + length))
    return torch.Tensor.__getitem__, (x, picked), {}


class Picks:
    """The picks of one trace; Note [Picked rows]."""

    def __init__(self, recorder: Recorder, numbers: TorchNumbers) -> None:
        self.recorder = recorder
        self.numbers = numbers
        self.views: set[Site] = set()
        self.missing = False  # whether this trace would have needed another view
        self._made: list[_Made] = []

    def indexing(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """A call as `x[...]`, with one tensor for each list of tensors or of traced numbers.

        `select` asks what it is given for its value before any mode sees the call.
        """
        if func in _NARROWS:
            return _narrowed(func, args, kwargs)
        x, index, *value = with_stacked_index(args)
        if has_number(index):
            items = tuple(map(self._table, index)) if isinstance(index, tuple) else None
            index = self._table(index) if items is None else items
        return func, (x, index, *value), kwargs

    def _table(self, i: Any) -> Any:
        if type(i) is not list or not all(
            type(n) is int or (type(n) is TracedNumber and isinstance(n.value, int)) for n in i
        ):
            return i
        return torch.stack([self.numbers.tensor(n, torch.int64) for n in i])

    def resolve(self, func: Any, args: tuple[Any, ...], frame: FrameType) -> Any:
        """The result of `x[i]`, or None after `x[i] = v`; NotImplemented where torch does it."""
        x, index, *value = args
        items = index if isinstance(index, tuple) else (index,)
        if func is _SET:
            self._let_go(x, items, value[0], frame)
        if not _is_plain(x, items) or not any(map(self._is_pick, items)):
            return NotImplemented
        at = _site(frame)
        if at in self.views:
            return NotImplemented
        sizes = _sizes(x, items)
        if sizes is None:
            return NotImplemented
        pairs = [(i, self._pick(i, n)) for i, n in zip(items, sizes, strict=True)]
        if any(pick is None and self._is_pick(i) for i, pick in pairs):
            return NotImplemented
        basic = tuple(slice(None) if pick else i for i, pick in pairs)
        view = x if all(type(i) is slice and i == slice(None) for i in basic) else x[basic]
        dims = _dims(view, basic)
        found = {dim: pick for dim, (_, pick) in zip(dims, pairs, strict=True) if pick}
        if func is _SET:
            return _put(view, found, value[0])
        row = _taken(view, found)
        self._made.append(_Made(x, row, items, at))
        return row

    def _let_go(self, x: Any, items: Sequence[Any], value: Any, frame: FrameType) -> None:
        """Rows that nothing has any more as their tensor is about to change need not be views.

        Nor need the one that an `x[i] += ...` puts back, whatever it has become.
        """
        for made in self._made:
            if made.x is x and not made.is_gone:
                is_put_back = made.is_row_of(x, items, value) and _is_augmented(_site(frame))
                made.is_gone = is_put_back or not (made.has_changed or made.is_alive)

    def check(self, memories: Iterable[int]) -> None:
        """Note which picks had to be views, now that results lie in these memories.

        The next trace reads their indices.
        """
        taken = set(memories)
        found = {
            made.at for made in self._made
            if not made.is_gone and (made.has_changed or _memory(made.row) in taken)
        }  # fmt: skip
        self.views |= found
        self.missing = bool(found)

    def _is_pick(self, i: Any) -> bool:
        if type(i) is TracedNumber:
            return isinstance(i.value, int)
        if type(i) is slice:
            return type(i.start) is TracedNumber and type(i.stop) is TracedNumber
        return (
            isinstance(i, torch.Tensor) and i.dim() == 0 and i.dtype in _INDICES and is_wrapper(i)
            and self.recorder.value(inner(i), None) in self.recorder.varying
        )  # fmt: skip

    def _pick(self, i: Any, size: int) -> _Pick | None:
        """What an index picks; None where torch itself does it, or raises."""
        if not self._is_pick(i):
            return None
        if type(i) is slice:
            return self._slice(i, size)
        if type(i) is TracedNumber:
            if not -size <= i.value < size:
                return None
            i = self.numbers.tensor(i, torch.int64)
        else:
            with self.recorder.pause(), torch._C.DisableTorchFunction():
                if not -size <= int(inner(i)) < size:
                    return None
        return _Pick(i.reshape(1), False)

    def _slice(self, i: slice, size: int) -> _Pick | None:
        start, stop = i.start, i.stop
        if i.step not in (None, 1) or not 0 <= start.value < stop.value <= size:
            return None
        if not _differ_by_a_constant(start.expr.value, stop.expr.value):
            return None
        number = self.numbers.numbers
        number.guard(lambda: F.ge(start.expr, 0), True)
        number.guard(lambda: F.le(stop.expr, size), True)
        first = self.numbers.tensor(start, torch.int64)
        return _Pick(first + torch.arange(stop.value - start.value), True)


def _is_same(a: Any, b: Any) -> bool:
    """Whether two parts of indices are the same in every run of the graph."""
    if type(a) is slice and type(b) is slice:
        return all(map(_is_same, (a.start, a.stop, a.step), (b.start, b.stop, b.step)))
    if type(a) is TracedNumber and type(b) is TracedNumber:
        return a.expr.value is b.expr.value
    return a is b or (type(a) is int and type(b) is int and a == b)


def _site(frame: FrameType) -> Site:
    """Where tracing code was called: the code and the instruction that indexes."""
    while str(frame.f_globals.get("__name__", "")).partition(".")[0] == "gradof":
        assert frame.f_back is not None
        frame = frame.f_back
    return frame.f_code, frame.f_lasti


def _is_augmented(at: Site) -> bool:
    """Whether an instruction ends an `x[i] += ...`, which nothing else than the stack holds."""
    code, offset = at
    before = [i for i in instructions(code) if i.offset <= offset and i.opname != "SWAP"]
    return (
        len(before) > 1 and before[-1].opname.startswith("STORE_")
        and before[-2].opname == "BINARY_OP" and before[-2].argval >= _FIRST_IN_PLACE
    )  # fmt: skip


def _owners(tensor: torch.Tensor) -> int:
    """How many tensors share the memory of one."""
    return int(torch._C._storage_Use_Count(_memory(tensor)))


def _memory(tensor: torch.Tensor) -> int:
    with torch._C.DisableTorchFunction():
        return int(tensor.untyped_storage()._cdata)


def _version(tensor: torch.Tensor) -> int:
    with torch._C.DisableTorchFunction():
        return tensor._version


def _versions(items: Sequence[Any]) -> list[int]:
    return [_version(i) for i in items if isinstance(i, torch.Tensor)]


def _is_plain(x: Any, items: Sequence[Any]) -> bool:
    """Whether all other parts of an index are such as make views."""
    return isinstance(x, torch.Tensor) and is_wrapper(x) and all(
        i is None or i is Ellipsis or type(i) in (int, slice, TracedNumber)
        or (isinstance(i, torch.Tensor) and i.dim() == 0 and i.dtype in _INDICES)
        for i in items
    )  # fmt: skip


def _sizes(x: torch.Tensor, items: Sequence[Any]) -> list[int] | None:
    """The size of the dim that each part of an index is about; 0 for None and `...`."""
    taken = sum(i is not None and i is not Ellipsis for i in items)
    if taken > x.dim() or sum(i is Ellipsis for i in items) > 1:
        return None  # torch raises
    sizes, dim = [], 0
    for i in items:
        sizes.append(0 if i is None or i is Ellipsis else x.shape[dim])
        dim += x.dim() - taken if i is Ellipsis else i is not None
    return sizes


def _dims(view: torch.Tensor, basic: Sequence[Any]) -> list[int]:
    """The dim of `x[basic]` that each part of the index has become."""
    kept = sum(i is None or type(i) is slice for i in basic)
    dims, dim = [], 0
    for i in basic:
        dims.append(dim)
        dim += view.dim() - kept if i is Ellipsis else i is None or type(i) is slice
    return dims


def _numbered(view: torch.Tensor, at: dict[int, torch.Tensor]) -> tuple[tuple[Any, ...], int]:
    """One index for all picks of single elements, and where in its result their dim is."""
    index = tuple(at.get(dim, slice(None)) for dim in range(max(at) + 1))
    first, last = min(at), max(at)
    return index, first if last - first + 1 == len(at) else 0


def _taken(view: torch.Tensor, picks: dict[int, _Pick]) -> torch.Tensor:
    for dim, pick in picks.items():
        if pick.is_slice:
            view = view.index_select(dim, pick.index)
    at = {dim: pick.index for dim, pick in picks.items() if not pick.is_slice}
    if not at:
        return view
    index, place = _numbered(view, at)
    return view[index].squeeze(place)


def _put(view: torch.Tensor, picks: dict[int, _Pick], value: Any) -> Any:
    """Write to what is picked; NotImplemented where torch does it."""
    has_slice = any(pick.is_slice for pick in picks.values())
    if has_slice and len(picks) > 1:
        return NotImplemented
    index, place = _numbered(view, {dim: pick.index for dim, pick in picks.items()})
    if isinstance(value, torch.Tensor) and not has_slice:
        after = view.dim() - len(picks) - place  # dims of the value that come after the picked one
        if value.dim() > view.dim() - len(picks):
            return NotImplemented  # leading dims of one element
        if value.dim() > after:
            value = value.unsqueeze(value.dim() - after)
    view[index] = value
    return None


def _differ_by_a_constant(a: Value, b: Value) -> bool:
    """Whether the difference of two whole numbers is the same for all inputs."""
    difference = Counter(_terms(b))
    difference.subtract(_terms(a))
    return not any(count for value, count in difference.items() if value is not None)


def _terms(value: Value) -> Counter[Value | None]:
    """A whole number as a sum of multiples of values; the constant is of None."""
    node = value.node
    if node is not None and node.kind == "Constant":
        return Counter({None: node.attrs["value"]})
    if node is None or node.kind not in ("add", "sub", "mul"):
        return Counter({value: 1})
    a, b = map(_terms, node.inputs)
    if node.kind == "mul":
        by = next((t for t in (a, b) if not any(v is not None and n for v, n in t.items())), None)
        if by is None:
            return Counter({value: 1})
        return Counter({v: n * by[None] for v, n in (b if by is a else a).items()})
    total = Counter(a)
    (total.update if node.kind == "add" else total.subtract)(b)
    return total
