"""Containers and namespaces as they were before a run wrote to them, and what it wrote.

    held = Held()
    held.see(obj, facts)        # before code with these facts runs: copy what it can reach
    ...                         # the run
    held.changes()              # [Change(container, key, before, after), ...]
    held.changes()[0].undo()

Copies are one level deep: an item is the object it was. Namespaces are the `__dict__` of objects,
classes and modules; cells of closures and slots are kept one by one.
"""

from __future__ import annotations

import builtins
import functools
import sys
from collections import deque
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from types import (
    BuiltinFunctionType,
    CodeType,
    FrameType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)  # fmt: skip
from typing import Any

import numpy as np

from gradof.tracer.state.buffers import Buffers, is_buffer
from gradof.tracer.state.caches import LRU, caches_of
from gradof.tracer.state.changes import MISSING, Change, copy_of, differences, size_of, write
from gradof.tracer.state.code_facts import Facts
from gradof.tracer.state.frames import Frames, is_frame
from gradof.tracer.state.heard import hides, is_of_stdlib, is_opaque
from gradof.tracer.state.items import SEQUENCES, count_of, items_of
from gradof.tracer.state.iterators import gives_anew, position
from gradof.tracer.state.kinds import (
    ATOMS,
    GETTERS,
    HEAP,
    HOOKS,
    LEAVES,
    MODULE_TABLES,
    REFERENCES,
    WATCHED,
    WITH_ATTRIBUTES,
    applied_by,
    content,
    is_ours,
    is_users,
    module_of,
    names_of,
    private,
    slot,
)  # fmt: skip

_LARGE = 100_000  # items of a container that are copied; of larger ones only the length is known
_BUILTINS = vars(builtins)  # of the interpreter: while a run is traced its `__import__` is ours

class Held:
    """See the module docstring."""

    def __init__(self, copies_arrays: bool = True) -> None:
        self._copies_arrays = copies_arrays  # not for numpy's own functions, whose values they are
        self.iterator: Any = None
        self.iterators: dict[int, tuple[Any, Any]] = {}  # old ones, and where they stood
        self.names: frozenset[str] = frozenset()  # that getters in reach read
        self.caches: dict[int, tuple[Any, Any]] = {}  # `lru_cache`s, and their info at entry
        self.buffers = Buffers()
        self.watched: dict[int, tuple[Any, Any]] = {}  # see `kinds.watch_type`
        self.frames = Frames()
        self.stand_ins: dict[int, Any] = {}  # by id: they stay while another trace needs them
        self._copies: dict[int, tuple[Any, Any]] = {}  # id → (container, copy)
        self._cells: dict[int, tuple[Any, Any]] = {}
        self._slots: dict[tuple[int, str], tuple[Any, Any]] = {}
        self._names: dict[tuple[int, str], tuple[dict[str, Any], Any]] = {}
        self._class_names: dict[tuple[type, str], Any] = {}
        self._stores: dict[tuple[CodeType, str], Any] = {}  # closure variables, by code that stores
        self._seen: set[tuple[int, tuple[int, int]]] = set()
        self.alive: list[Any] = []  # ids stay theirs until the trace is entered
        self.sight: Callable[[Any, bool], bool] | None = None  # see `see`
        self.met: dict[int, bool] = {}  # by id, what it was told of, and whether that is old
        self._seen_old: set[tuple[int, tuple[int, int]]] = set()

    # --- before -----------------------------------------------------------------------------------

    def see(self, obj: Any, facts: Facts, given: bool = False, old: bool = False) -> None:
        """Copy what code with these facts can reach from an object.

        `iterator` is then one that is reached; an iterator that is `given` may be the run's own.

        `sight(obj, old)`, where there is one, is told of each object before code that can reach it
        runs. `old` ones were there before the run, as was all that was seen from them; others may
        be the run's own. An object that turns out to be old is told again. Where it says no, what
        the object leads to is left alone.
        """
        kind: Any = type(obj)
        if kind in ATOMS or is_ours(kind):
            return
        old = self.sight is not None and (old or self.met.get(id(obj), False))
        known = None
        while known != len(self.names):  # more names came: what was passed by is looked at, too
            known = len(self.names)
            self._see(obj, facts, given, old)

    def _see(self, obj: Any, facts: Facts, given: bool, old: bool) -> None:
        stack = [(obj, not given)]
        names = facts.reads | facts.stores | self.names
        mark, seen = (id(facts), len(self.names)), self._seen_old if old else self._seen
        while stack:
            obj, kept = stack.pop()
            kind: Any = type(obj)
            if kind in ATOMS or is_ours(kind) or (id(obj), mark) in seen:
                continue
            if kind is np.ndarray and not (self._copies_arrays or old):
                continue
            if obj is _BUILTINS or obj is sys.modules or is_opaque(kind):
                stack.extend((c, True) for c in caches_of(kind, names))  # a logger's `warn_once`
                continue
            seen.add((id(obj), mark))
            self.alive.append(obj)
            if self.sight is not None and old > self.met.get(id(obj), -1):
                self.met[id(obj)] = old
                if not is_frame(kind) and not self.sight(obj, old):
                    continue
            if is_frame(kind):
                columns = self.frames.see(obj, names, old or self.sight is None)
                stack.extend((part, True) for part in columns)
                continue
            if kind is np.ndarray and not self._copies_arrays and obj.dtype != np.object_:
                continue
            if kind in LEAVES:
                if kind in WITH_ATTRIBUTES:
                    inside = self._attributes_of(obj, names, facts.stores)
                    stack.extend((part, True) for part in inside)
                continue
            if isinstance(obj, (list, dict, set, deque, bytearray)):
                self.container(obj)
            elif is_buffer(kind) or (isinstance(obj, np.ndarray) and obj.dtype != np.object_):
                self.buffers.see(obj)
                continue
            elif gives_anew(kind, names):
                self.iterator = obj if kept else self.iterator
                if old:
                    self.iterators.setdefault(id(obj), (obj, position(obj)))
            elif kind in WATCHED:
                self.watched.setdefault(id(obj), (obj, WATCHED[kind](obj)))
            kept = kept or not isinstance(obj, (list, tuple, dict, set, frozenset))
            stack.extend((inside, kept) for inside in self._inside(obj, names, facts))

    def _attributes_of(
        self, leaf: Any, names: frozenset[str], stores: frozenset[str]
    ) -> Iterator[Any]:
        """What the user has set on a tensor, or may set."""
        attributes = getattr(leaf, "__dict__", None)
        if attributes or (stores and attributes is not None):
            self.container(attributes)
            yield from (attributes[name] for name in names & attributes.keys())

    def _inside(self, obj: Any, names: frozenset[str], facts: Facts) -> Iterator[Any]:
        if type(obj) in REFERENCES:
            if type(obj) is LRU:
                self.caches.setdefault(id(obj), (obj, obj.cache_info()))
            yield from REFERENCES[type(obj)](obj)
        elif isinstance(obj, GETTERS):
            self.names |= frozenset(names_of(obj))
        elif isinstance(obj, dict):
            if dict.__len__(obj) <= _LARGE:
                yield from (*dict.keys(obj), *dict.values(obj))
        elif isinstance(obj, np.ndarray):
            yield from obj.flat if obj.size <= _LARGE else ()
        elif isinstance(obj, SEQUENCES):
            yield from items_of(obj) if count_of(obj) <= _LARGE else ()
        elif isinstance(obj, FunctionType):
            yield from self._of_function(obj, bool(facts.stores) or facts.dynamic)
        elif isinstance(obj, MethodType):
            yield from (obj.__self__, obj.__func__)
        elif isinstance(obj, (BuiltinFunctionType, MethodWrapperType)):
            if not isinstance(obj.__self__, (ModuleType, type)):
                yield obj.__self__
            return
        elif isinstance(obj, functools.partial):
            self.container(obj.keywords)
            yield from (applied_by(obj), *obj.args, *obj.keywords.values())
        elif isinstance(obj, type):
            yield from self._of_class(obj, names, facts.stores)
        elif isinstance(obj, ModuleType):
            space = vars(obj)
            for name in facts.stores:
                self.name(space, name)
            for name in names & space.keys():
                if not isinstance(space[name], (ModuleType, FunctionType, type)):
                    yield space[name]
        if not isinstance(obj, (type, ModuleType, FunctionType)):
            yield from self._of_instance(obj, names, facts.stores)

    def _of_function(self, fn: FunctionType, may_write: bool) -> Iterator[Any]:
        for cell in fn.__closure__ or ():
            first = id(cell) not in self._cells
            self._part(fn, cell)
            value = content(cell)
            if first:
                self._cells[id(cell)] = cell, value
            if first or self.sight is not None:
                yield value
        if self.sight is not None:
            yield from fn.__defaults__ or ()
            yield from (fn.__kwdefaults__ or {}).values()
        if may_write or fn.__dict__ or self.sight is not None:
            self.container(fn.__dict__)
            self._part(fn, fn.__dict__)
            yield from fn.__dict__.values()

    def _part(self, whole: Any, part: Any) -> None:
        """A part is as old as the whole, where that is known."""
        if self.sight is not None:
            self.met[id(part)] = self.met.get(id(whole), False)

    def _of_class(
        self, cls: type, names: frozenset[str], stores: frozenset[str]
    ) -> Iterator[Any]:
        for name in stores - vars(cls).keys() if cls.__flags__ & HEAP else ():
            self._class_names.setdefault((cls, name), MISSING)
        for base in cls.__mro__:
            if base is object or not base.__flags__ & HEAP:
                continue
            space = vars(base)
            for name in names & space.keys():
                value = space[name]
                if type(value) is property and not isinstance(value.fget, FunctionType):
                    yield value.fget
                if not isinstance(value, (FunctionType, property, staticmethod, classmethod)):
                    self._class_names.setdefault((base, name), value)
                    yield value
                elif type(found := getattr(value, "__func__", None)) is LRU:
                    yield found
                elif self.sight is not None:  # methods lead to arrays by closures and defaults
                    yield getattr(value, "fget", None) or getattr(value, "__func__", value)
                elif stores and isinstance(value, FunctionType):
                    self.container(value.__dict__)

    def _of_instance(
        self, obj: Any, names: frozenset[str], stores: frozenset[str]
    ) -> Iterator[Any]:
        attributes = getattr(obj, "__dict__", None)
        cls: Any = type(obj)
        if type(attributes) is dict:
            self.container(attributes)
            self._part(obj, attributes)
            if module_of(type(obj)).startswith("gradof.runtime"):
                names = frozenset(attributes) - private(type(obj))
            elif hides(cls) and (self.sight is not None or is_of_stdlib(cls)):
                names = frozenset(attributes)  # what its own code reads, such as a WeakSet's `data`
            for name in names & attributes.keys():
                yield attributes[name]
            if "_modules" in attributes:  # of a torch.nn.Module, and of what looks like one
                yield attributes.get("forward")
                for items in map(attributes.get, MODULE_TABLES):
                    if isinstance(items, dict):
                        self.container(items)
                        yield from items.values()
                for hooks in (attributes.get(name) for name in HOOKS):
                    if isinstance(hooks, dict):  # one may remove itself
                        self.container(hooks)
        if cls.__flags__ & HEAP:
            for base in cls.__mro__:
                for name, member in vars(base).items() if base is not object else ():
                    if name in names and type(member) is MemberDescriptorType:
                        value = slot(obj, member)
                        self._slots.setdefault((id(obj), name), (obj, value))
                        if value is not MISSING:
                            yield value
            yield from self._of_class(cls, names, stores)

    def container(self, container: Any) -> None:
        """Copy a list, dict, set, deque or bytearray, if this is the first time it is seen."""
        if id(container) not in self._copies and size_of(container) <= _LARGE:
            self._copies[id(container)] = container, copy_of(container)

    def renew(self, ids: set[int]) -> None:
        """Take containers, objects and cells as they are now."""
        for key, (container, _) in self._copies.items():
            if key in ids:
                self._copies[key] = container, copy_of(container)
        for key, (cell, _) in self._cells.items():
            if key in ids:
                self._cells[key] = cell, content(cell)
        for (key, name), (obj, _) in self._slots.items():
            if key in ids:
                self._slots[key, name] = obj, getattr(obj, name, MISSING)

    def name(self, space: dict[str, Any], name: str) -> None:
        """Keep one name of a module's globals."""
        key = id(space), name
        if key not in self._names:
            self._names[key] = space, space.get(name, MISSING)

    def cells_of(self, frame: FrameType, facts: Facts) -> None:
        """Keep the closure variables that the code of a frame stores."""
        for name in facts.cells_stored:
            key = frame.f_code, name
            if key not in self._stores:
                self._stores[key] = frame.f_locals.get(name, MISSING)

    def globals_of(self, space: dict[str, Any], names: Set[str], facts: Facts) -> None:
        """Copy what code reaches through the globals of these names."""
        if self.sight is not None and id(space) not in self.met:
            self.met[id(space)] = True
            self.sight(space, True)
        for name in names & space.keys():
            value = space[name]
            kind = type(value)
            if (kind not in ATOMS and kind is not ModuleType) or is_users(value):
                self.see(value, facts, old=True)
            elif kind is ModuleType:
                for stored in facts.stores:
                    self.name(vars(value), stored)

    def correct(self, kind: str, holder: Any, key: Any, value: Any) -> None:
        """A reference that stood for another while the run went on; `value` was there before it."""
        if kind == "item" and (found := self._copies.get(id(holder))) is not None:
            found[1].pop(key, None) if value is MISSING else found[1].__setitem__(key, value)
        tables: Any = {"item": self._names, "cell": self._cells, "slot": self._slots}
        at = id(holder) if kind == "cell" else (id(holder), getattr(key, "__name__", key))
        if kind in tables and at in tables[kind]:
            tables[kind][at] = holder, value
        elif kind == "class" and (holder, key) in self._class_names:
            self._class_names[holder, key] = value

    @contextmanager
    def apart(self) -> Iterator[None]:
        """What is written within it is no part of the run, and is taken back."""
        before = {change.at: change for change in self.changes()}
        yield
        for change in self.changes():
            known = before.pop(change.at, None)
            write(change, change.before if known is None else known.after)
        for change in before.values():  # what is as it was at entry had another value
            write(change, change.after)

    # --- after ------------------------------------------------------------------------------------

    def copies(self) -> list[Any]:
        """The copies of all containers."""
        return [copy for _, copy in self._copies.values()]

    def entry(self, container: Any) -> Any:
        """The copy of a container, or the container itself if nothing copied it."""
        found = self._copies.get(id(container))
        return container if found is None else found[1]

    def cell_entry(self, cell: Any, code: CodeType, name: str) -> Any:
        """What a closure cell held at entry; MISSING if it was not set."""
        found = self._cells.get(id(cell))
        if found is not None:
            return found[1]
        return self._stores.get((code, name), content(cell))

    def name_entry(self, space: dict[str, Any], name: str) -> Any:
        """What a global was at entry; MISSING if it was not set."""
        found = self._names.get((id(space), name))
        return space.get(name, MISSING) if found is None else found[1]

    def class_entry(self, cls: type, name: str, now: Any) -> Any:
        """What an attribute of a class was at entry."""
        return self._class_names.get((cls, name), now)

    def slot_entry(self, obj: Any, name: str, now: Any) -> Any:
        """What a slot held at entry; MISSING if it was not set."""
        found = self._slots.get((id(obj), name))
        return now if found is None else found[1]

    def has_keys(self, cls: type) -> bool:
        """Whether a dict or set that was there at entry has keys of this class."""
        keyed = (copy for copy in self.copies() if isinstance(copy, (dict, set)))
        return any(isinstance(key, cls) for keys in keyed for key in keys)

    def changes(self) -> list[Change]:
        """Everything that is not as it was copied."""
        found = [c for held, before in self._copies.values() for c in differences(held, before)]
        for cell, value in self._cells.values():
            if (now := content(cell)) is not value:
                found.append(Change("cell", cell, None, value, now))
        for (_, name), (obj, value) in self._slots.items():
            if (now := getattr(obj, name, MISSING)) is not value:
                found.append(Change("attr", obj, name, value, now))
        for (_, name), (space, value) in self._names.items():
            if (now := space.get(name, MISSING)) is not value:
                found.append(Change("item", space, name, value, now))
        for (cls, name), value in self._class_names.items():
            if (now := vars(cls).get(name, MISSING)) is not value:
                found.append(Change("attr", cls, name, value, now))
        stand_ins = self.stand_ins
        return [c for c in found if id(c.after) not in stand_ins] if stand_ins else found
