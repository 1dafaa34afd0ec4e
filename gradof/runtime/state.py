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

from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

from gradof.tracer.origins import Step, _children

_ATOMS = (type(None), bool, int, float, complex, str, bytes)
_SKIP = frozenset({"_backward_hooks", "_forward_hooks", "__doc__"})

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
            for step, child in _children(obj, root=obj is root):
                if is_array(child) or isinstance(child, ModuleType) or step.key in _SKIP:
                    continue
                shown = f"{path}.{step.key}" if path else str(step.key)
                place = _place(obj, step)
                if place is not None:
                    edges = self.by_value if isinstance(child, _ATOMS) else self.by_identity
                    edges.append((*place, child, shown))
                if not isinstance(child, _ATOMS):
                    queue.append((child, shown))

    def check(self) -> bool:
        """Whether every guarded value is as it was."""
        try:
            for container, key, expected, _ in self.by_identity:
                if container[key] is not expected:
                    return False
            for container, key, expected, _ in self.by_value:
                found = container[key]
                if found is not expected and (
                    type(found) is not type(expected) or found != expected
                ):
                    return False
            return all(len(container) == n for container, n, _ in self.lengths)
        except (KeyError, IndexError, ValueError):
            return False  # the place is gone, which is a change

    def first_change(self) -> str | None:
        """A description of the first guarded value that changed; None if nothing did."""
        for container, key, expected, shown in (*self.by_identity, *self.by_value):
            try:
                found = container[key]
            except (KeyError, IndexError, ValueError):
                return f"{shown} is gone"
            if found is not expected and (type(found) is not type(expected) or found != expected):
                return f"{shown} was {expected!r} and is {found!r}"
        for container, n, shown in self.lengths:
            if len(container) != n:
                return f"{shown} had {n} items and has {len(container)}"
        return None


class _Cell:
    """A closure cell read like a container."""

    __slots__ = ("cell",)

    def __init__(self, cell: Any) -> None:
        self.cell = cell

    def __getitem__(self, _: Any) -> Any:
        return self.cell.cell_contents


def _place(obj: Any, step: Step) -> tuple[Any, Any] | None:
    """Where an edge can be read again: a container and a key; None for edges that cannot change."""
    if step.kind == "closure":
        assert isinstance(obj, FunctionType) and obj.__closure__ is not None
        return _Cell(obj.__closure__[obj.__code__.co_freevars.index(step.key)]), 0
    if step.kind == "global":
        return obj.__globals__, step.key
    if step.kind == "item" and isinstance(obj, (dict, list)):
        return obj, step.key
    if step.kind == "module":
        return vars(obj.__globals__[step.key[0]]), step.key[1]
    if step.kind == "attr" and not isinstance(obj, type):
        attributes = getattr(obj, "__dict__", {})
        for table in ("_modules", "_parameters", "_buffers"):
            if step.key in attributes.get(table, ()):
                return attributes[table], step.key
        if step.key in attributes:
            return attributes, step.key
    return None
