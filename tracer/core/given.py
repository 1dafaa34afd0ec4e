"""Containers among the arguments that a function changes: each call changes the caller's.

    def forward(batch):                  # batch = {"x": tensor}
        batch["y"] = batch["x"] * 2      Store("fill", place (0, 0), {"x": ..., "y": ...})
        return batch                     GivenOut((0, 0)): the caller's dict itself

The trace gives the function containers of its own. Those whose items or attributes are others when
it ends are filled again at each call; the place of each is the way to it from `(args, kwargs)`, as
the numbers of children. Where one is changed, all that are handed on are the caller's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradof.errors import TraceError
from gradof.ir.core import Loc
from gradof.tracer.core.pytree import FIXED, take_apart
from gradof.tracer.core.refill import contents
from gradof.tracer.core.result import GivenOut, OutputLeaf, Store
from gradof.tracer.state.places import Place

_Seen = tuple[Any, tuple[Any, ...], tuple[Any, ...], Any, frozenset[str]]


class GivenContainers:
    """The containers that a traced call was given, as they were at entry.

    `arguments` is the pair of positional arguments and those by name, built for the trace.
    """

    def __init__(self, arguments: Any) -> None:
        self._found: list[tuple[tuple[int, ...], Any, _Seen]] = []
        self._changed: list[tuple[tuple[int, ...], Any]] = []
        self._paths: dict[int, tuple[int, ...]] = {}  # of all, by id, where one is changed
        self._arrays: dict[int, tuple[int, ...]] = {}
        self._leaves: dict[int, tuple[int, ...]] = {}  # what they hold, by id
        for part, argument in enumerate(arguments):
            children = argument.values() if isinstance(argument, dict) else argument
            for i, child in enumerate(children):
                self._note(child, (part, i))

    def _note(self, value: Any, path: tuple[int, ...]) -> None:
        seen = _look(value)
        if seen is None:
            self._leaves.setdefault(id(value), path)
            return
        if hasattr(type(value), "gradof_node"):  # an array of a torch function
            self._arrays[id(value)] = path
            return
        if seen[0] not in FIXED:
            self._found.append((path, value, seen))
        for i, part in enumerate(seen[2]):
            self._note(part, (*path, i))

    def look(self, loc: Loc | None) -> None:
        """Find those that the function has changed; TraceError for one of another kind."""
        self._changed = [(path, c) for path, c, seen in self._found if not _is_same(c, seen)]
        for _, container in self._changed:
            if contents(container) is None:
                raise TraceError(
                    f"a {type(container).__qualname__} among the arguments is changed", loc=loc,
                    hint="return what is new, or change tensors in place (copy_)",
                )  # fmt: skip
        self._paths = dict(self._arrays)
        if self._changed:
            self._paths.update({id(container): path for path, container, _ in self._found})

    def owns(self, container: Any) -> bool:
        """Whether it is one of the containers, or what one keeps its attributes in."""
        own = (c for _, c, _ in self._found)
        return any(container is c or container is getattr(c, "__dict__", self) for c in own)

    def holds(self, value: Any) -> bool:
        """Whether it is one of the containers, to be handed on as the caller's own."""
        return id(value) in self._paths

    def output(self, value: Any) -> GivenOut | None:
        """How a call gets it; None for all but these containers."""
        path = self._paths.get(id(value))
        return None if path is None else GivenOut(path)

    def stores(
        self, flatten: Callable[[Any], tuple[list[Any], Any]], output: Callable[[Any], OutputLeaf]
    ) -> tuple[Store, ...]:
        """What each call writes to the caller's containers; what they had stays the caller's."""
        def own(leaf: Any) -> OutputLeaf:
            path = self._leaves.get(id(leaf))
            return output(leaf) if path is None else GivenOut(path)

        found = []
        for path, container in self._changed:
            leaves, tree = flatten(contents(container))
            place = Place("given", path, None)
            found.append(Store("fill", place, tree, tuple(map(own, leaves))))
        return tuple(found)


def _look(value: Any) -> _Seen | None:
    parts = take_apart(value)
    if parts is None:
        return None
    kind, keys, children, context = parts
    return kind, keys, tuple(children), context, frozenset(getattr(value, "__dict__", ()))


def _is_same(value: Any, seen: _Seen) -> bool:
    now = _look(value)
    if now is None or now[:2] != seen[:2] or now[3:] != seen[3:] or len(now[2]) != len(seen[2]):
        return False
    return all(a is b for a, b in zip(now[2], seen[2], strict=True))
