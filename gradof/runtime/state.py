"""What a traced function reads besides its arguments, guarded.

    scale = 2.0
    @differentiate
    def loss(x): return (scale * model(x)).sum()

A trace bakes in `scale`, the identity of `model` and its `training` flag. `StateGuard(fn)` takes
a snapshot of every Python value that can be reached from the function through closures, globals
its code names, attributes, and containers; `check()` says whether all of it is as it was,
`first_change()` what is not. Arrays are not part of it: they are inputs of the graph, re-read at
every call (see gradof.tracer.origins).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import FunctionType, MemberDescriptorType, ModuleType
from typing import Any

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

    def check(self) -> bool:
        """Whether every guarded value is as it was."""
        try:
            for container, key, expected, _ in self.by_identity:
                if container[key] is not expected:
                    return False
            for container, key, expected, _ in self.by_value:
                found = container[key]
                if found is not expected and not _same(found, expected):
                    return False
            return all(len(container) == n for container, n, _ in self.lengths)
        except _GONE:
            return False  # the place is gone, which is a change

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
