"""What code that ran can reach from a function: each place with its value at entry.

    for edge in Reach(reads).edges(fn, root=True): ...
    Edge(step=Step("closure", "w"), child=w, place=Place("cell", cell, None))

`Origins` and `StateGuard` walk along these edges. See Note [What code can see] in
`gradof.tracer.state.reads` for what is left out.
"""

from __future__ import annotations

import builtins
import functools
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import Field
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any

import numpy as np

from gradof.tracer.state.caches import LRU, used_since, wrapped_by
from gradof.tracer.state.changes import MISSING
from gradof.tracer.state.code_facts import facts_of
from gradof.tracer.state.code_of import absolute, code_of, makes_names, wraps
from gradof.tracer.state.edges import ATOMS, Edge, edges_of_built
from gradof.tracer.state.frames import arrays_of, attributes_of, is_frame
from gradof.tracer.state.heard import OPAQUE, hides, is_heard, is_of_stdlib
from gradof.tracer.state.kinds import (
    HEAP,
    HOOKS,
    MODULE_TABLES,
    REFERENCES,
    VIEWS,
    applied_by,
    global_hooks,
    module_of,
    slot,
)
from gradof.tracer.state.origins import Origin, Step, Trail
from gradof.tracer.state.places import Place, Raw, makes_items, place_key
from gradof.tracer.state.reads import Reads
from gradof.tracer.state.renewable import BUILT, is_renewable
from gradof.tracer.state.scripted import edges_of_scripted, is_scripted
from gradof.tracer.state.swapped import is_swapped

_CLASS_BOOKS = frozenset({"__doc__", "__module__", "__qualname__", "__dict__", "__weakref__",
                          "__slots__", "__annotations__"})  # fmt: skip
_FIRST = frozenset({"given", "handed"})  # steps to an argument
_OF_SYS = frozenset({"argv", "path"})
_BUILTINS = frozenset(vars(builtins))
MANY = 4096  # items of a dict; of larger ones those whose keys the code names
Value = Any


class Reach:
    """The edges from objects, for one run; see the module docstring."""

    def __init__(self, reads: Reads) -> None:
        self.reads, self._has_modules = reads, False
        self._followed: set[CodeType] = set()
        self._home: dict[str, Any] | None = None  # the globals of the first function
        self.reached: set[int] = set()  # ids of objects, their namespaces, cells and globals

    def edges(
        self, obj: Any, root: bool = False, name: Any = None, place: Place | None = None
    ) -> Iterator[Edge]:
        """The edges from one object, which was found under a name, in a place."""
        at = self._renewed(obj, place)
        if at is not None and type(obj) in BUILT:
            yield from edges_of_built(obj, at, self.reads.held)
        elif isinstance(obj, FunctionType):
            if (root or self.reads.ran(obj)) and not is_swapped(obj):
                yield from self._of_function(obj)
            elif wraps(obj):
                yield from self._of_wrapper(obj)
        elif isinstance(obj, MethodType):
            own, function = obj.__self__, obj.__func__
            yield from self._fixed(obj, ("self", None, own), ("function", None, function))
        elif isinstance(obj, (BuiltinFunctionType, MethodWrapperType)):  # of a list or a dict
            if not isinstance(obj.__self__, (ModuleType, type)):
                yield from self._fixed(obj, ("self", None, obj.__self__))
        elif isinstance(obj, (staticmethod, classmethod)):
            yield from self._fixed(obj, ("function", None, obj.__func__))
        elif isinstance(obj, property):
            yield from self._fixed(obj, ("attr", "fget", obj.fget), ("attr", "fset", obj.fset))
        elif isinstance(obj, functools.partial):
            yield from self._fixed(
                obj, ("partial", None, applied_by(obj)),
                *(("partial_arg", i, v) for i, v in enumerate(obj.args)),
            )
            for name, value in self.reads.held.entry(obj.keywords).items():
                yield Edge(Step("partial_kw", name), value, Place("item", obj.keywords, name))
            yield from self._of_instance(obj, at)
        elif type(obj) is LRU:
            yield from self._fixed(obj, ("attr", "__wrapped__", wrapped_by(obj)))
            for key, value in self.used_of(obj):
                yield Edge(Step("cached", key), value, Place("cached", obj, key))
        elif type(obj) in VIEWS:
            yield from self._given(obj, VIEWS[type(obj)](obj))
        elif type(obj) in REFERENCES:
            for value in REFERENCES[type(obj)](obj):
                yield Edge(Step("refers"), value, Place("fixed", obj, None))
        elif isinstance(obj, type):
            yield from self._of_class(obj)
        elif isinstance(obj, ModuleType):
            yield from self._of_module(obj)
        elif is_frame(type(obj)):
            yield from self._of_frame(obj)
        elif isinstance(obj, np.ndarray):  # of objects
            for index, value in np.ndenumerate(obj):
                yield Edge(Step("item", index), value, Place("item", obj, index))
        else:
            if isinstance(obj, (dict, list, tuple, deque, set, frozenset)):
                yield from self._of_container(obj, name, place)
            yield from self._of_instance(obj, at)

    def unreached(self) -> Iterator[Edge]:
        """Globals of code that ran, though no edge so far led to it; to be asked at the end.

        Such as the Python of an operator, which torch's dispatcher knows. Each is told once.
        """
        for code, space in self.reads.codes.items():
            if code in self._followed:
                continue
            self._follow(code)
            module = sys.modules.get(str(space.get("__name__")))
            if space is self._home:
                yield from self._globals(code, space)
            elif module is not None and vars(module) is space:
                yield Edge(Step("import", module.__name__), module, Place("fixed", module, ""))

    def _follow(self, code: CodeType) -> None:
        """Note that the globals of this code, and of what is nested in it, are followed."""
        self._followed.add(code)
        for const in code.co_consts:
            if isinstance(const, CodeType):
                self._follow(const)

    def used_of(self, cached: Any) -> list[tuple[Any, Any]]:
        """The arguments and results of a cached function that the run used."""
        _, before = self.reads.held.caches.get(id(cached), (None, cached.cache_info()))
        return used_since(cached, before)

    def attributes_of(self, array: Any) -> Iterator[Edge]:
        """What the user has set on a tensor, where code reads it."""
        attributes = getattr(array, "__dict__", None)
        if attributes:
            yield from self._named(self.reads.held.entry(attributes), attributes, self.reads.names)

    def _of_wrapper(self, fn: FunctionType) -> Iterator[Edge]:
        """What a library has wrapped: `contextlib.contextmanager`, `torch.no_grad()`."""
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            value = self.reads.held.cell_entry(cell, fn.__code__, name)
            if isinstance(value, (FunctionType, MethodType, functools.partial, LRU)):
                yield Edge(Step("closure", name), value, Place("cell", cell, None))

    def _fixed(self, obj: Any, *steps: tuple[Any, Any, Any]) -> Iterator[Edge]:
        for kind, key, value in steps:
            if value is not None:
                yield Edge(Step(kind, key), value, Place("fixed", obj, key))

    def _of_function(self, fn: FunctionType) -> Iterator[Edge]:
        code, held = fn.__code__, self.reads.held
        self._follow(code)
        for name, cell in zip(code.co_freevars, fn.__closure__ or (), strict=True):
            value = held.cell_entry(cell, code, name)
            if value is not MISSING:
                yield Edge(Step("closure", name), value, Place("cell", cell, None))
        names = code.co_varnames[: code.co_argcount]
        defaults = fn.__defaults__ or ()
        for name, value in zip(names[len(names) - len(defaults) :], defaults, strict=True):
            yield Edge(Step("default", name), value, Place("step", fn, Step("default", name)))
        for name, value in (fn.__kwdefaults__ or {}).items():
            yield Edge(Step("kwdefault", name), value, Place("step", fn, Step("kwdefault", name)))
        self._home = self._home or fn.__globals__
        yield from self._globals(code, fn.__globals__)
        for told in facts_of(code).imports:
            name = absolute(told, fn.__globals__)
            module = sys.modules.get(name)
            if module is not None:
                yield Edge(Step("import", name), module, Place("item", sys.modules, name))
        yield from self._named(held.entry(fn.__dict__), fn.__dict__, self.reads.names)

    def _globals(self, code: CodeType, space: dict[str, Any]) -> Iterator[Edge]:
        for name in self.reads.globals_of(facts_of(code)):
            value = self.reads.held.name_entry(space, name)
            if value is not MISSING:
                yield Edge(Step("global", name), value, Place("item", space, name))
            elif name not in _BUILTINS and name in vars(builtins):
                value, place = vars(builtins)[name], Place("item", vars(builtins), name)
                yield Edge(Step("global", name), value, place)

    def _of_module(self, module: ModuleType) -> Iterator[Edge]:
        space = vars(module)
        if not is_heard(module.__name__) or module.__name__.startswith("torch"):
            for name in self.reads.names & space.keys():
                value = space[name]
                patched = isinstance(value, FunctionType) and self.reads.ran(value)
                if module is sys and name in _OF_SYS:
                    yield Edge(Step("attr", name), value, Place("item", space, name))
                elif patched or isinstance(value, ModuleType):
                    # which one it is, the guard compares for the whole module
                    yield Edge(Step("attr", name), value, Place("fixed", space, name))
            return
        for name in self.reads.names & space.keys():
            value = self.reads.held.name_entry(space, name)
            # what code of this module reads, it reads as a global
            if value is not MISSING and not isinstance(value, ModuleType):
                yield Edge(Step("attr", name), value, Place("item", space, name))

    def _given(self, obj: Any, parts: Iterable[Any]) -> Iterator[Edge]:
        """What an object holds that has no place of its own: as long as it is this object."""
        for part in parts:
            if type(part) not in ATOMS:
                yield Edge(Step("given", part), part, Place("fixed", obj, None))

    def _of_container(self, obj: Any, name: Any, at: Place | None) -> Iterator[Edge]:
        held = self.reads.held.entry(obj)
        if isinstance(obj, (set, frozenset)):
            yield from self._given(obj, held)
            return
        if isinstance(obj, dict):
            yield from self._given(obj, held)
            plain = Raw(obj) if makes_items(type(obj)) else obj
            names = self.reads.names if len(held) > MANY else self.reads.keys_of(name)
            for key in list(held) if names is None else names & held.keys():
                place = Place("item", plain, key)
                yield Edge(Step("item", key), dict.get(held, key), place)
            return
        if isinstance(obj, tuple):
            found = at is not None and at.kind not in ("fixed", "cached")
            for i, value in enumerate(held):
                place = Place("index", at, i) if found else Place("fixed", obj, i)
                yield Edge(Step("item", i), value, place)
            return
        for i, value in enumerate(held):
            yield Edge(Step("item", i), value, Place("item", obj, i))

    def _of_class(self, cls: type) -> Iterator[Edge]:
        every = id(cls) in self.reads.everything
        for base in cls.__mro__:
            if not base.__flags__ & HEAP or not is_heard(module_of(base)):
                continue
            space = vars(base)
            for name, value in list(space.items()):
                if name in _CLASS_BOOKS:
                    continue
                code = code_of(value)
                named = code is None or wraps(value)
                read = every or name in self.reads.names
                if read if named else code in self.reads.codes:
                    value = self.reads.held.class_entry(base, name, value)
                    if value is not MISSING:
                        step = Step("class", (base, name))
                        yield Edge(step, value, Place("class", base, name))

        if type(cls) is not type:
            yield from self._of_class(type(cls))

    def _renewed(self, obj: Any, place: Place | None) -> Place | None:
        """The place of an object, if there is another one at each call."""
        known = self.reads.renewed
        found = known and place is not None and place_key(place) in known and is_renewable(obj)
        return place if found else None

    def _of_instance(self, obj: Any, at: Place | None) -> Iterator[Edge]:
        """`at` is where it is renewed."""
        cls: type = type(obj)
        if module_of(cls).partition(".")[0] in OPAQUE and cls.__name__ != "_local":
            return
        attributes = getattr(obj, "__dict__", None)
        own = module_of(cls).startswith("gradof.runtime")  # read by code that is not noted
        hidden = self.reads.held.sight is not None and hides(cls)
        everything = own or hidden or id(obj) in self.reads.everything or makes_names(cls)
        # what its own code in the standard library reads, such as a weak dictionary's `data`
        told = hides(cls) and is_of_stdlib(cls)
        if type(attributes) is dict:
            entry = self.reads.held.entry(attributes)
            names = entry.keys() if everything or told else self.reads.names_of(obj)
            names = names - getattr(cls, "_gradof_private", frozenset())
            if is_scripted(entry):
                every = id(obj) in self.reads.everything
                yield from edges_of_scripted(entry, None if every else self.reads.names)
            if "_modules" in entry:
                yield from self._of_nn_module(entry)
                names = names - frozenset(MODULE_TABLES)
            if at is not None:
                for name in names & entry.keys():
                    yield Edge(Step("attr", name), entry[name], Place("attr", at, name))
            else:
                yield from self._named(entry, attributes, names)
        if at is not None:
            yield Edge(Step("type"), cls, Place("fixed", cls, None))
        elif cls.__flags__ & HEAP:
            yield from self._of_slots(obj, cls, everything)
            yield Edge(Step("type"), cls, Place("type", obj, None))

    def _of_frame(self, frame: Any) -> Iterator[Edge]:
        for i, array in enumerate(arrays_of(frame)):
            yield Edge(Step("block", i), array, Place("block", frame, i))
        named = attributes_of(frame)
        for name in self.reads.names & named.keys():
            yield Edge(Step("attr", name), named[name], Place("item", vars(frame), name))
        cls: type = type(frame)
        if is_heard(module_of(cls)):  # a subclass of the user's
            yield Edge(Step("type"), cls, Place("type", frame, None))

    def _of_nn_module(self, entry: dict[str, Any]) -> Iterator[Edge]:
        for table in MODULE_TABLES:
            items = entry.get(table)
            if isinstance(items, dict):
                for name, value in self.reads.held.entry(items).items():
                    yield Edge(Step("attr", name), value, Place("item", items, name))
        for name in HOOKS:
            for key, hook in list(self.reads.held.entry(entry.get(name) or {}).items()):
                yield Edge(Step("hook", (name, key)), hook, Place("fixed", entry, name))
        if not self._has_modules:
            self._has_modules = True
            for name, hooks in global_hooks():
                for hook in list(hooks.values()):
                    yield Edge(Step("refers"), hook, Place("fixed", hooks, name))

    def _named(
        self, entry: dict[str, Any], attributes: dict[str, Any], names: Any
    ) -> Iterator[Edge]:
        for name in names & entry.keys():
            yield Edge(Step("attr", name), entry[name], Place("item", attributes, name))

    def _of_slots(self, obj: Any, cls: type, everything: bool) -> Iterator[Edge]:
        kind = "fixed" if cls is Field else "slot"  # a dataclass is made of its fields but once
        for base in cls.__mro__[:-1]:
            for name, member in vars(base).items():
                if type(member) is not MemberDescriptorType:
                    continue
                if everything or name in self.reads.names:
                    value = self.reads.held.slot_entry(obj, name, slot(obj, member))
                    if value is not MISSING:
                        yield Edge(Step("attr", name), value, Place(kind, obj, member))

    def find(
        self, fn: Any, is_tensor: Any, given: Iterable[Any] = (), limit: int = 400_000
    ) -> dict[int, tuple[Any, Origin]]:
        """Every tensor that is reached from `fn`, by id, with its shortest path.

        `given` are the objects among the arguments (those of `reads.handed` are in a place).
        """
        found: dict[int, tuple[Any, Trail]] = {}
        seen: dict[int, Any] = {}
        queue: deque[tuple[Any, Trail | None]] = deque([(fn, None)])
        queue.extend((obj, self._trail(obj)) for obj in given)
        while len(seen) < limit:
            if not queue:
                queue.extend((e.child, Trail(None, e.step, e.place)) for e in self.unreached())
            if not queue:
                break
            obj, trail = queue.popleft()
            if id(obj) in seen or type(obj) in ATOMS:
                continue
            seen[id(obj)] = obj
            self._reached(obj)
            if module_of(type(obj)).startswith("gradof.tracer"):
                continue  # traced numbers and arrays
            if is_tensor(obj):
                if trail is not None:
                    found[id(obj)] = obj, trail
                for edge in self.attributes_of(obj):
                    queue.append((edge.child, Trail(trail, edge.step, edge.place)))
                continue
            last = None if trail is None or trail.step.kind in _FIRST else trail.step.key
            where = None if trail is None else trail.place
            for edge in self.edges(obj, trail is None, last, where):
                queue.append((edge.child, Trail(trail, edge.step, edge.place)))
        return {key: (obj, trail.origin()) for key, (obj, trail) in found.items()}

    def _trail(self, given: Any) -> Trail:
        _, place = self.reads.handed.get(id(given), (None, None))
        step = Step("given", given) if place is None else Step("handed", place)
        return Trail(None, step, place)

    def _reached(self, obj: Any) -> None:
        self.reached.add(id(obj))
        attributes = getattr(obj, "__dict__", None)
        if type(attributes) is dict:
            self.reached.add(id(attributes))
            self.reached.update(id(attributes.get(t)) for t in MODULE_TABLES)
        if isinstance(obj, FunctionType):
            if not str(obj.__globals__.get("__name__")).startswith("torch."):
                self.reached.add(id(obj.__globals__))  # what is patched there is the tracer's
            self.reached.update(map(id, obj.__closure__ or ()))

