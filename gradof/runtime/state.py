"""What a traced function reads besides its arguments, guarded.

    loss = differentiate(lambda x: (scale * model(x)).sum())      # where scale = 2.0

A trace bakes in `scale`, the identity of `model` and its `training` flag. `StateGuard(fn, reads)`
has every place that the code which ran could read (`gradof.tracer.state.reads`), from `fn` and the
objects `given` as arguments, with its value at entry. `check()` says whether all of it is as it
was, `first_change()` what is not. Tensors and arrays are not part of it: those that were used are
inputs of the graph (gradof.tracer.state.origins), of the others the type counts.

Note [The check of each call]
Mostly every value is the very object it was, so that is what is looked at first, in generated code
(`state_check`). Only where one is not, values are compared.
"""

from __future__ import annotations

import builtins
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from operator import getitem
from types import FunctionType, MappingProxyType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from gradof.runtime.state_absent import lacking, lacking_globals, lacking_in_bases, may_come
from gradof.runtime.state_changes import changes, other_change
from gradof.runtime.state_check import GONE, compile_check
from gradof.runtime.state_contents import is_closed, note_contents
from gradof.runtime.state_extras import Extras, More
from gradof.runtime.state_renewed import Apart, OfClass, RenewedObjects
from gradof.runtime.state_rewritten import Rewritten
from gradof.runtime.state_values import (
    Checked,
    are_equal,
    array_type,
    arrays_are,
    checksum,
    content_of,
    is_plain,
    is_tuple,
    last_name,
    read_at,
    reference,
    shown_path,
    surroundings_are,
)
from gradof.tracer.core.number import NUMBERS
from gradof.tracer.core.result import Store
from gradof.tracer.state.code_facts import facts_of
from gradof.tracer.state.edges import Edge
from gradof.tracer.state.frames import is_frame
from gradof.tracer.state.heard import is_heard
from gradof.tracer.state.kinds import HEAP, HOOKS, MODULE_TABLES, global_hooks, module_of
from gradof.tracer.state.places import GUARDED, Place, place_key, read_place, written_at
from gradof.tracer.state.reach import Reach
from gradof.tracer.state.reads import Reads
from gradof.tracer.state.renewable import NESTED
from gradof.tracer.state.scripted import filled_in
from gradof.tracer.state.surroundings import is_installed

_READ_AGAIN = frozenset({"item", "cell", "slot", "class", "script", *NESTED})
_VARYING = frozenset({"item", "cell", "slot", "class", "attr", "entry"})


class StateGuard:
    """A snapshot of the Python state a run read; see the module docstring."""

    def __init__(
        self, fn: Any, reads: Reads, is_array: Callable[[Any], bool],
        used: Iterable[Any] = (), varying: frozenset[Any] = frozenset(), by_content: bool = False,
        given: Mapping[str, Any] = MappingProxyType({}), stores: Iterable[Store] = (),
        walked: set[int] | None = None,  # gets the ids of what may be read
    ) -> None:  # fmt: skip
        self._reads = reads
        self._is_array = is_array
        self._used = {id(x) for x in used if type(x) not in NUMBERS}  # which may be in many places
        self._varying = varying
        self._by_content = by_content  # numpy arrays are data to torch functions: their elements
        self.data: list[tuple[Any, Any, str]] = []
        self.items, self.cells = list[Checked](), list[Checked]()
        self.others: list[Checked] = []  # read by a step or a slot
        self.types: list[tuple[Any, type]] = []
        self.own_type: tuple[Any, type] | None = None
        self.codes: list[tuple[FunctionType, Any]] = []
        self.lengths: list[tuple[Any, int, str]] = []
        self.contents: list[tuple[Any, Any, str]] = []  # sets, keys of dicts, and bytes
        self.absent: list[tuple[Any, frozenset[str], str]] = []
        self.builtin: dict[int, tuple[dict[str, Any], set[str]]] = {}  # globals: Python's own names
        self.empty: list[Any] = []  # hooks of modules
        self.arrays: list[tuple[Place, Any, str]] = []  # those that are no inputs, by type
        self.shared: list[tuple[Place, Place, str]] = []  # where one input is found, too
        self.more: list[More] = []  # what is compared by a function of its own
        self.numbers: dict[Any, tuple[Place, str]] = {}
        self.environment, self.variables = dict(reads.environment), dict(reads.variables)
        self.switches = dict(reads.switches)
        self.renewed, self._has_modules = RenewedObjects(reads), False
        self.untraceable: str | None = None  # an iterator: what it gives next cannot be known
        self._class_names: dict[type, frozenset[str]] = {}
        self._extras = Extras(reads, self.renewed.first)
        self._rewritten = Rewritten(reads, stores, self._used)
        self._walk(fn, given, set() if walked is None else walked)
        self.renewed.forget()
        self.more += self._extras.checks(fn)
        self.compile()
        del self._reads, self._is_array, self._used, self._class_names, self._own
        del self._extras, self._rewritten, self._containers, self._called, self._first

    # --- the walk ---------------------------------------------------------------------------------

    def _walk(self, root: Any, given: Mapping[str, Any], walked: set[int]) -> None:
        reach = Reach(self._reads)
        self._own = own = getattr(root, "__self__", None)
        seen: dict[int, Any] = {}
        queue = deque[tuple[Any, str, Place | None]]([(root, "", None)])
        queue.extend((value, str(var.name), None) for var, value in self.variables.items())
        queue.extend((obj, path, None) for path, obj in given.items())
        self.renewed.seeds.update(id(obj) for obj, _, _ in queue)
        queue.extend((obj, place.key, place) for obj, place in self._reads.handed.values())
        self._containers: list[tuple[Any, str]] = []
        self._first: dict[int, Place] = {}  # by the id of an input, where it was found first
        self._called: dict[int, set[str]] = {}  # by id, the names an object was found under
        grown: list[tuple[Any, str, Place | None]] = []
        closed: list[tuple[Any, str]] = []
        while True:
            if not queue and not grown:
                queue.extend((e.child, shown_path("", e.step), e.place) for e in reach.unreached())
                if not queue:
                    break
            if not queue:  # under another name it may be read after all
                queue.extend(g for g in grown if not self._is_closed(g[0], g[1]))
                closed += [(obj, path) for obj, path, _ in grown if self._is_closed(obj, path)]
                grown = []
                continue
            obj, path, place = queue.popleft()
            if id(obj) in seen:
                continue
            if self._is_closed(obj, path):
                grown.append((obj, path, place))
                continue
            seen[id(obj)] = obj
            if self._is_array(obj):
                if place is None and id(obj) not in self._used:  # a context variable's
                    self.data.append((Place("itself", obj, None), checksum(obj), path))
                edges = reach.attributes_of(obj)
            else:
                self._object(obj, path, obj is own)
                if id(obj) not in self.renewed.first:
                    self._containers.append((obj, path))
                self._extras.see(obj, path)
                edges = reach.edges(obj, obj is root, last_name(path), place)
            queue.extend(part for edge in edges if (part := self._follow(edge, path)))
        self._containers += closed
        self._finish(seen)
        walked.update(seen)

    def _follow(self, edge: Edge, path: str) -> tuple[Any, str, Place | None] | None:
        """Guard where an edge leads to; what is to be looked into further, by path and place."""
        shown = shown_path(path, edge.step)
        parts = self._rewritten.guard_of(edge)
        renewed = None if parts is not None else self.renewed.place_of(
            edge, self._called, self.shared, shown
        )  # fmt: skip
        self._called.setdefault(id(edge.child), set()).add(last_name(shown))
        if self._is_array(edge.child):
            if id(edge.child) in self._used:
                self._input(edge, shown)
            else:
                self._array(edge.place, edge.child, shown)
            self._lacks(edge.child, shown)
            has_attributes = getattr(edge.child, "__dict__", None)
            return (edge.child, shown, edge.place) if has_attributes else None
        if id(edge.child) in self._used:
            return None
        if renewed is not None:
            return edge.child, shown, renewed
        if parts is not None:
            self.more.append((parts, shown))
            return None
        self._edge(edge, shown)
        return None if is_plain(edge.child) else (edge.child, shown, edge.place)

    def _finish(self, seen: Mapping[int, Any]) -> None:
        """What can be said once all is known that was found."""
        if self.renewed.first:
            self.more.append((Apart(self.renewed.first, seen), "an object of several"))
        note_contents(self, self._reads, self._containers, self._called)
        for space, missing in lacking_globals(self._reads):
            self.builtin.setdefault(id(space), (space, set()))[1].update(missing)

    def _is_closed(self, obj: Any, path: str) -> bool:
        return is_closed(self._reads, obj, self._called.get(id(obj), {last_name(path)}))

    def _edge(self, edge: Edge, shown: str) -> None:
        kind, container, key = edge.place
        if kind in ("fixed", "cached") or self._extras.refers(edge, shown):
            return
        if kind == "type":
            self._type(container, edge.child, shown)
            return
        if type(edge.child) in NUMBERS or self._varying:
            name = place_key(edge.place)
            if name in self._varying:
                return
            if type(edge.child) in NUMBERS and written_at(edge.place).kind in _VARYING:
                self.numbers[name] = edge.place, shown
        if is_tuple(cls := type(edge.child)) and kind != "slot" and not is_plain(edge.child):
            # which tuple it is does not matter, but what is in it
            self.others.append((edge.place, cls, len(edge.child), shown))
        elif kind in NESTED or kind == "script":
            self.others.append((edge.place, None, edge.child, shown))
        elif kind == "cell":
            self.cells.append((container, key, edge.child, shown))
        elif kind == "class":
            self.items.append((vars(container), key, edge.child, shown))
        elif kind == "item" and type(container) is not deque:
            self.items.append((container, key, edge.child, shown))
        else:
            self.others.append((container, key, edge.child, shown))

    def _type(self, obj: Any, cls: type, shown: str) -> None:
        if obj is self._own:  # a cache must not keep the object alive whose method it serves
            self.own_type = reference(obj), cls
        elif id(obj) not in self._extras.weakly:
            self.types.append((obj, cls))
        self._class(cls)

    def _class(self, cls: type) -> None:
        """The names that a class's earlier bases, and itself, lack and may get."""
        if cls in self._class_names:
            return
        self.absent += lacking_in_bases(cls, self._reads)
        self._class_names[cls] = may_come(cls, self._reads)

    def _array(self, place: Place, array: Any, shown: str) -> None:
        """An array that is no input: code may have asked for its shape or dtype."""
        if place.kind == "fixed":  # of a partial, of a method of its own
            place = Place("itself", array, None)
        if place.kind in GUARDED:
            if isinstance(array, np.ndarray) and self._by_content:
                self.data.append((place, checksum(array), shown))
            self.arrays.append((place, array_type(array), shown))

    def _input(self, edge: Edge, shown: str) -> None:
        """An input that is in two places, as a tied weight is, is to be one in both."""
        place, first = edge.place, self._first.setdefault(id(edge.child), edge.place)
        if first is not place and {first.kind, place.kind} <= _READ_AGAIN:
            self.shared.append((first, place, shown))

    def _object(self, obj: Any, path: str, own: bool) -> None:
        path = path or "the function"
        if (built_as := self.renewed.built_as(obj)) is not None:
            self.more.append((built_as, path))
        elif isinstance(obj, FunctionType) and self._reads.ran(obj):
            self.codes.append((obj, obj.__code__))
            if not is_installed(obj.__code__):  # `len = ...` in the module would be another one
                space = obj.__globals__
                names = facts_of(obj.__code__).globals_read & vars(builtins).keys() - space.keys()
                self.builtin.setdefault(id(space), (space, set()))[1].update(names)
        elif isinstance(obj, type):  # `Config.scale`, of a class that inherits it
            if obj.__flags__ & HEAP and is_heard(module_of(obj)):
                self._class(obj)
        elif isinstance(obj, Iterator) and self.untraceable is None:
            self.untraceable = path
        attributes = None if is_frame(type(obj)) else getattr(obj, "__dict__", None)
        if isinstance(obj, (FunctionType, ModuleType)):
            self._lacks(obj, path)
        elif type(attributes) is dict and not isinstance(obj, type):
            self._instance(obj, attributes, path, own)

    def _lacks(self, obj: Any, path: str) -> None:
        if missing := lacking(obj, self._reads):
            self.absent.append((vars(obj), missing, path))

    def _instance(self, obj: Any, attributes: dict[str, Any], path: str, own: bool) -> None:
        entry, cls = self._reads.entry(attributes), type(obj)
        if not cls.__flags__ & HEAP and cls is not SimpleNamespace:
            return
        if (place := self.renewed.first.get(id(obj))) is not None:
            self._class(cls)
            missing = self._class_names[cls] - entry.keys()
            every = tuple(entry) if id(obj) in self._reads.everything else None
            self.more.append((OfClass(place, cls, missing, every), path))
            return
        if cls not in self._class_names:
            self._type(obj, cls, path)
        names = self._class_names[cls]
        there = set(entry).union(*(t for k in MODULE_TABLES if isinstance(t := entry.get(k), dict)))
        missing = names - there - {"_modules", "_parameters"} - filled_in(entry)
        if id(obj) in self._reads.everything:  # names are computed: any that comes may be one
            self.contents.append((attributes, tuple(entry), path))
        if missing:
            self.absent.append((attributes, missing, path))
        if "_modules" not in entry:
            return
        for table in MODULE_TABLES:  # what is in them is looked at item by item
            if table in self._reads.names and isinstance(entry.get(table), dict):
                keys = tuple(self._reads.entry(entry[table]))  # in order, as they are gone through
                self.contents.append((entry[table], keys, path))
        for name in () if own else HOOKS:  # its own hooks run around its forward
            self._hooks(entry.get(name), f"{path}.{name}")
        if not self._has_modules:
            self._has_modules = True
            for name, hooks in global_hooks():
                self._hooks(hooks, name)

    def _hooks(self, hooks: Any, path: str) -> None:
        keys = () if hooks is None else tuple(self._reads.entry(hooks))
        if keys:
            self.contents.append((hooks, keys, path))
        elif hooks is not None:
            self.empty.append(hooks)

    # --- the check --------------------------------------------------------------------------------

    def check(self) -> bool:
        """Whether every guarded value is as it was; see Note [The check of each call]."""
        return self._check()

    def compare(self) -> bool:
        """As `check`, where some value is not the object it was."""
        try:
            same = self.places_are_equal()
        except GONE:
            return False  # the place is gone, which is a change
        if same and self._compiled < 3:  # names came that do not matter: lengths are others
            self._compiled += 1
            self._check = compile_check(self, by_length=self._compiled < 3)
        return same

    def compile(self) -> None:
        """Generate the check, of the rows that there are now."""
        self._compiled = 0
        self._check = compile_check(self, by_length=True)

    def rows(self) -> StateGuard:
        """A guard with the same rows and no check, for rows of other objects."""
        made = StateGuard.__new__(StateGuard)
        vars(made).update((k, v) for k, v in vars(self).items() if k != "_check")
        return made

    def places_are_equal(self) -> bool:
        """Whether every place has its value, compared one by one; may raise one of GONE."""
        rows = (self.items, getitem), (self.cells, content_of), (self.others, read_at)
        if not all(are_equal(*each) for each in rows) or not self.inputs_are_shared():
            return False
        if any(len(container) != n for container, n, _ in self.lengths) or any(self.empty):
            return False
        own = [] if self.own_type is None else [(self.own_type[0](), self.own_type[1])]
        if any(type(obj) is not cls for obj, cls in (*self.types, *own)):
            return False
        if any(fn.__code__ is not code for fn, code in self.codes):
            return False
        absent = *((space, names) for space, names, _ in self.absent), *self.builtin.values()
        if not all(space.keys().isdisjoint(names) for space, names in absent):
            return False
        return self.rest()

    def rest(self) -> bool:
        """What is not compared object by object; raises one of GONE where a place is gone."""
        for container, expected, _ in self.contents:
            if (tuple(container) if isinstance(container, dict) else container) != expected:
                return False
        if not are_equal(self.others, read_at) or not self.arrays_are_same():
            return False
        return all(holds() for holds, _ in self.more) and self.surroundings_are_same()

    def arrays_are_same(self) -> bool:
        """Whether arrays that are no inputs are of their types, those with data by elements."""
        return arrays_are(self.arrays, self.data)

    def inputs_are_shared(self) -> bool:
        """Whether inputs that were found in two places are the same in both."""
        return all(read_place(a) is read_place(b) for a, b, _ in self.shared)

    def surroundings_are_same(self) -> bool:
        """Whether environment, switches and context variables are."""
        return surroundings_are(self.switches, self.environment, self.variables)

    def first_change(self) -> str | None:
        """A description of the first guarded value that changed; None if nothing did."""
        return (self.changed() or (None,))[0]

    def changed(self) -> tuple[str, Any] | None:
        """The first change, in words, and its `place_key` where both are numbers of one type."""
        return next(changes(self), None) or other_change(self)

    def changes(self) -> Iterator[tuple[str, Any]]:
        """The places that hold another value, as `changed` has them."""
        return changes(self)

    @property
    def size(self) -> int:
        """How many places are looked at."""
        places: tuple[Sized, ...] = (
            self.items, self.cells, self.others, self.types, self.codes, self.lengths,
            self.contents, self.absent, self.empty, self.arrays, self.shared, self.more,
        )  # fmt: skip
        return sum(map(len, places))
