"""What a traced function reads besides its arguments, guarded.

    scale = 2.0
    @differentiate
    def loss(x): return (scale * model(x)).sum()

A trace bakes in `scale`, the identity of `model` and its `training` flag. `StateGuard(fn)` takes
a snapshot of every Python value that can be reached from the function through closures, globals
its code names, attributes, and containers; `check()` says whether all of it is as it was,
`first_change()` what is not. Arrays are not part of it: they are inputs of the graph, re-read at
every call (see gradof.tracer.origins).

Note [The check of each call]
Mostly every value is the very object it was, so that is what is looked at first, in loops of C, or
with a line per value. Only where one is not, values are compared.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from operator import getitem, is_
from types import FunctionType, MemberDescriptorType, ModuleType
from typing import Any

from gradof.runtime.arrays import global_hooks
from gradof.tracer.origins import Step, _children

_ATOMS = (type(None), bool, int, float, complex, str, bytes)
_NONE: dict[str, Any] = {}  # no value is this one
_GONE = (LookupError, AttributeError, ValueError)  # ValueError: an empty closure cell
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")

Edge = tuple[Any, Any, Any, str]  # container (dict, list, cell), key, expected value, description


class StateGuard:
    """A snapshot of the Python state a function can see; see the module docstring."""

    def __init__(self, fn: Any, is_array: Callable[[Any], bool]) -> None:
        self.by_value: list[Edge] = []
        self.by_identity: list[Edge] = []
        self.lengths: list[tuple[Any, int, str]] = []
        self._walk(fn, is_array)
        self._places = _Places((*self.by_identity, *self.by_value))
        self._sized = [container for container, _, _ in self.lengths]
        self._sizes = [n for _, n, _ in self.lengths]

    def _walk(self, root: Any, is_array: Callable[[Any], bool]) -> None:
        seen: dict[int, Any] = {}
        queue: list[tuple[Any, str]] = [(root, "")]
        while queue:
            obj, path = queue.pop()
            if id(obj) in seen:
                continue
            seen[id(obj)] = obj
            if isinstance(obj, (list, dict)):
                self.lengths.append((obj, len(obj), path or "the function"))
            # a module's own hooks run around its forward, not in what is traced
            skip = _HOOKS if obj is getattr(root, "__self__", None) else ()
            if not skip:
                self._count_hooks(obj, path)
            for step, child in _children(obj, root=obj is root):
                if is_array(child) or isinstance(child, ModuleType) or step.key == "__doc__":
                    continue
                if step.key in skip:
                    continue
                shown = f"{path}.{step.key}" if path else str(step.key)
                place = place_of(obj, step, child)
                if place is not None:
                    edges = self.by_value if isinstance(child, _ATOMS) else self.by_identity
                    edges.append((*place, child, shown))
                if not isinstance(child, _ATOMS):
                    queue.append((child, shown))

    def _count_hooks(self, obj: Any, path: str) -> None:
        attributes = getattr(obj, "__dict__", {})
        if "_modules" in attributes:
            self.lengths += [(attributes[n], len(attributes[n]), f"{path}.{n}") for n in _HOOKS]
            self._note_global_hooks()

    def _note_global_hooks(self) -> None:
        tables = global_hooks()
        if any(container is tables[0][1] for container, _, _ in self.lengths):
            return
        for name, table in tables:
            self.lengths.append((table, len(table), name))
            self.by_identity += [(table, key, hook, name) for key, hook in table.items()]

    def check(self) -> bool:
        """Whether every guarded value is as it was; see Note [The check of each call]."""
        try:
            if self._sized and list(map(len, self._sized)) != self._sizes:
                return False
            return self._places.are_same() or self._are_equal()
        except _GONE:
            return False  # the place is gone, which is a change

    def _are_equal(self) -> bool:
        for container, key, expected, _ in self.by_identity:
            if container[key] is not expected:
                return False
        for container, key, expected, _ in self.by_value:
            found = container[key]
            if found is not expected and not _same(found, expected):
                return False
        return True

    def first_change(self) -> str | None:
        """A description of the first guarded value that changed; None if nothing did."""
        for container, key, expected, shown in (*self.by_identity, *self.by_value):
            try:
                found = container[key]
            except _GONE:
                return f"{shown} is gone"
            if found is not expected and not _same(found, expected):
                return f"{shown} was {expected!r} and is {found!r}"
        for container, n, shown in self.lengths:
            if len(container) != n:
                return f"{shown} had {n} items and has {len(container)}"
        return None


def _same(found: Any, expected: Any) -> bool:
    """Equal values of one type; zeros by sign too, and nan is itself."""
    if type(found) is not type(expected):
        return False
    if type(found) in (float, complex):
        return repr(found) == repr(expected)
    return bool(isinstance(found, _ATOMS) and found == expected)


class _Places:
    """Places of objects, sorted by how they are read the fastest."""

    def __init__(self, edges: Sequence[Edge]) -> None:
        self.containers: list[Any] = []  # dicts, lists and such: read by C
        self.keys: list[Any] = []
        self.objects: list[Any] = []
        self.cells: list[tuple[Any, Any]] = []  # (closure cell, object)
        # of a class, read through an instance: (its dict, the class, name, object)
        self.of_class: list[tuple[dict[str, Any], type, str, Any]] = []
        self.others: list[tuple[Any, Any, Any]] = []
        instances: dict[int, tuple[Callable[[], Any], type]] = {}
        for container, key, value, _ in edges:
            if type(container) is _Cell:
                self.cells.append((container.cell, value))
            elif type(container) is not _Taken:
                self.containers.append(container)
                self.keys.append(key)
                self.objects.append(value)
            elif (found := _of_class(container.alive(), key)) is not None:
                self.of_class.append(found)
                instances[id(found[0])] = container.alive, found[1]
            else:
                self.others.append((container, key, value))
        self.instances = list(instances.values())

    def are_same(self) -> bool:
        """Whether the very objects are there; raises one of _GONE where a place is gone."""
        if self.keys:
            found = map(getitem, self.containers, self.keys)
            if not all(map(is_, found, self.objects)):
                return False
        for cell, value in self.cells:
            if cell.cell_contents is not value:
                return False
        for alive, cls in self.instances:
            if type(alive()) is not cls:
                return False
        for attributes, cls, name, value in self.of_class:
            if name in attributes or getattr(cls, name) is not value:
                return False
        for container, key, value in self.others:
            if container[key] is not value:
                return False
        return True


def _of_class(obj: Any, step: Step) -> tuple[dict[str, Any], type, str, Any] | None:
    """Where an attribute of an instance is its class's, and the same object whenever it is read."""
    cls, attributes = type(obj), getattr(obj, "__dict__", None)
    if step.kind not in ("attr", "method") or type(cls) is not type or type(attributes) is not dict:
        return None
    stored = _stored(obj, step.key)
    if step.key in attributes or (
        hasattr(type(stored), "__get__") and not isinstance(stored, FunctionType)
    ):
        return None  # its own code may run when it is read
    return attributes, cls, step.key, stored


class _Cell:
    """A closure cell read like a container."""

    __slots__ = ("cell",)

    def __init__(self, cell: Any) -> None:
        self.cell = cell

    def __getitem__(self, _: Any) -> Any:
        return self.cell.cell_contents


class _Taken:
    """An edge read by taking its step again; the object is not kept alive by it.

    Attributes are read as they are stored: a method is not bound, which would make a new object.
    """

    __slots__ = ("alive",)

    def __init__(self, obj: Any) -> None:
        try:
            self.alive: Callable[[], Any] = weakref.ref(obj)
        except TypeError:  # without __weakref__

            def alive() -> Any:
                return obj

            self.alive = alive

    def __getitem__(self, step: Step) -> Any:
        obj = self.alive()
        return _stored(obj, step.key) if step.kind in ("attr", "method") else step.read(obj)


def place_of(obj: Any, step: Step, child: Any) -> tuple[Any, Any] | None:
    """Where an edge can be read again: a container and a key; None for edges that cannot change."""
    if step.kind == "closure":
        assert isinstance(obj, FunctionType) and obj.__closure__ is not None
        return _Cell(obj.__closure__[obj.__code__.co_freevars.index(step.key)]), 0
    if step.kind == "global":
        return obj.__globals__, step.key
    if step.kind == "item":
        return (obj, step.key) if isinstance(obj, (dict, list)) else None
    if step.kind == "module":
        return vars(obj.__globals__[step.key[0]]), step.key[1]
    if step.kind == "partial_kw":
        return obj.keywords, step.key
    if step.kind in ("default", "kwdefault"):
        return _Taken(obj), step
    if step.kind in ("attr", "method"):
        return _place_of_attribute(obj, step, child)
    return None  # self, function, partial, partial_arg: read-only


def _place_of_attribute(obj: Any, step: Step, child: Any) -> tuple[Any, Any] | None:
    if isinstance(obj, type):
        return vars(obj), step.key  # a live view
    attributes = getattr(obj, "__dict__", {})
    for table in ("_modules", "_parameters", "_buffers"):
        if attributes.get(table, _NONE).get(step.key, _NONE) is child:
            return attributes[table], step.key
    if attributes.get(step.key, _NONE) is child:
        return attributes, step.key
    if _stored(obj, step.key) is child:
        return _Taken(obj), step
    for base in type(obj).__mro__:  # what a subclass overrides, still there for super()
        if vars(base).get(step.key) is child:
            return vars(base), step.key
    return None


def _stored(obj: Any, name: str) -> Any:
    """An attribute of an instance, its classes included, without calling descriptors but slots."""
    attributes = getattr(obj, "__dict__", {})
    if name in attributes:
        return attributes[name]
    for base in type(obj).__mro__:
        if name in vars(base):
            found = vars(base)[name]
            return found.__get__(obj) if isinstance(found, MemberDescriptorType) else found
    raise AttributeError(name)
