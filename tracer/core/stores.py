"""What a traced function wrote to Python's state, as stores that each call repeats.

    self.step += 1                 Store("set", self.step, constant or number of the graph)
    self.mask = build(x)           Store("set", self.mask, tensor or array of the graph)
    history.append(loss.item())    Store("grow", history, number of the graph)

The trace itself leaves no trace: everything is put back, and the first call writes as every other
does. What is written is the difference between entry and end (`gradof.tracer.state.held`).
"""

from __future__ import annotations

import enum
import gc
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from gradof.errors import TraceError
from gradof.ir.core import Loc
from gradof.tracer.core.number import TracedNumber
from gradof.tracer.core.result import OutputLeaf, Store
from gradof.tracer.state.changes import MISSING, Change
from gradof.tracer.state.places import Place, Raw, makes_items
from gradof.tracer.state.reads import Reads
from gradof.tracer.state.scripted import is_scripted

_SHARED = (
    type(None), bool, int, float, complex, str, bytes, range, slice, enum.Enum, type, FunctionType,
    BuiltinFunctionType, MethodType, ModuleType, type(Ellipsis),
)  # fmt: skip

Flatten = Callable[[Any], tuple[list[Any], Any]]
Output = Callable[[Any], OutputLeaf]  # a leaf of a value that is stored → how a call gets it


def is_bookkeeping(change: Change) -> bool:
    """Whether it is a cache of Python's own, of torch's or of ours, such as warnings once given."""
    if change.key == "forward" and isinstance(change.container, dict):
        return is_scripted(change.container)  # the method that torch.jit keeps there
    return change.key in _BOOKS


_BOOKS = (
    "__warningregistry__", "_abc_impl", "__abstractmethods__", "__gradof_compiled__",
    "__gradof_autograd__",
)  # fmt: skip


@dataclass(frozen=True)
class Writer:
    """Makes the stores of one run, for a library's tensors or arrays.

    `is_value` tells what is a leaf that each call can have: the library's own, and what is shared.
    """

    reads: Reads
    was_there: Callable[[Any], bool]
    is_value: Callable[[Any], bool]
    flatten: Flatten
    output: Output
    loc: Loc | None
    left: list[Change] | None = None

    def stores(self, changes: Sequence[Change]) -> tuple[Store, ...]:
        """The stores that repeat changes.

        A change to a value that no call could make again is added to `left`, where there is such a
        list, and has no store; else it is a TraceError.
        """
        return tuple(store for store in map(self._store, changes) if store is not None)

    def _store(self, change: Change) -> Store | None:
        if change.kind == "all":
            return self._content(change)
        kind, container, key = change.kind, change.container, change.key
        if kind == "attr":
            kind = "class" if isinstance(container, type) else "slot"
        if kind == "slot":
            key = next(vars(b)[key] for b in type(container).__mro__ if key in vars(b))
        cls = type(container)
        if kind == "item" and (cls.__setitem__ is not dict.__setitem__ or makes_items(cls)):
            container = Raw(container)
        place = Place(kind, container, key)
        if change.after is MISSING:
            return Store("remove", place)
        return self._valued("set", place, change.after, change)

    def _content(self, change: Change) -> Store | None:
        place = Place("fill", change.container, None)
        before, after = change.before, change.after
        value: list[Any] | dict[Any, Any]
        if isinstance(change.container, set):
            grows = before <= after
            value = list(after - before if grows else after)
        elif isinstance(change.container, (dict, bytearray)):
            grows, value = False, after if isinstance(after, dict) else list(after)
        else:
            grows, value = _tail(change, self.reads)
        return self._valued("grow" if grows else "fill", place, value, change)

    def _valued(self, mode: Any, place: Place, value: Any, change: Change) -> Store | None:
        try:
            leaves, tree = self.flatten(value)
        except TraceError:  # it holds what is traced, and could not be made again
            if self.left is None:
                raise
            self.left.append(change)
            return None
        for leaf in leaves:
            if not self._can_be_stored(leaf, change):
                if self.left is not None:
                    self.left.append(change)
                    return None
                name = change.key
                what = name if name is not None else f"a {type(change.container).__name__}"
                raise TraceError(
                    f"the function stores a {type(leaf).__qualname__} in {what}; the compiled "
                    "call could not make it again", loc=self.loc,
                    hint="make it outside, or store arrays, numbers, and containers of them",
                )  # fmt: skip
        return Store(mode, place, tree, tuple(map(self.output, leaves)))

    def _can_be_stored(self, leaf: Any, change: Change) -> bool:
        return (
            isinstance(leaf, _SHARED)
            or (callable(leaf) and not gc.is_tracked(leaf))  # C's: it refers to nothing
            or type(leaf) is TracedNumber
            or self.is_value(leaf)
            or self.was_there(leaf)
            or (type(leaf) is weakref.ref and self._can_be_stored(leaf(), change))
            or any(leaf is item for item in _items(change.before))
            or (type(leaf) is set and all(self._can_be_stored(x, change) for x in leaf))
        )


def _tail(change: Change, reads: Reads) -> tuple[bool, list[Any]]:
    """Whether items were only appended to a list or deque, and those items, or all."""
    before, after = change.before, list(change.after)
    n = len(before)
    if len(after) >= n and all(a is b for a, b in zip(before, after[:n], strict=True)):
        return True, after[n:]
    if isinstance(change.container, deque) and len(after) == change.container.maxlen:
        count = reads.grown.get(id(change.container), (None, 0))[1]
        kept = before[len(before) + count - len(after) :] if count < len(after) else []
        if all(a is b for a, b in zip(kept, after[: len(kept)], strict=True)):
            return True, after[len(kept) :]
    return False, after


def _items(before: Any) -> Iterator[Any]:
    yield before
    if isinstance(before, dict):
        yield from before.values()
    elif isinstance(before, (list, set)):
        yield from before
