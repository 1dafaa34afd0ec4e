"""How many items containers have that a run could read, or which."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from gradof.runtime.state_values import last_name
from gradof.tracer.state.reach import MANY
from gradof.tracer.state.reads import Reads

if TYPE_CHECKING:
    from gradof.runtime.state import StateGuard


def is_closed(reads: Reads, obj: Any, names: set[str]) -> bool:
    """Whether code looks at nothing that is in a container, under any of its names.

    It may append to it; of a set of classes it may ask which are in it.
    """
    if not isinstance(obj, (list, set, frozenset, deque)):
        return False
    if all(reads.is_only_grown(obj, name) for name in names):
        return True
    return isinstance(obj, (set, frozenset)) and all(map(reads.is_only_searched, names)) and all(
        isinstance(each, type) and type(each).__eq__ is type.__eq__ for each in reads.entry(obj)
    )


def note_contents(
    guard: StateGuard, reads: Reads, found: Iterable[tuple[Any, str]],
    called: Mapping[int, set[str]],
) -> None:  # fmt: skip
    """Guard what the containers have among objects that were found, each with its description.

    `called` are the names objects were found under, by id.
    """
    for obj, path in found:
        _note(guard, reads, obj, path, called.get(id(obj), {last_name(path)}))


def _note(guard: StateGuard, reads: Reads, obj: Any, path: str, names: set[str]) -> None:
    if not isinstance(obj, (dict, list, set, bytearray, deque)):
        return
    if all(reads.is_only_grown(obj, name) for name in names):
        return
    entry, path = reads.entry(obj), path or "the function"
    if isinstance(obj, dict):
        if len(entry) > MANY:
            guard.lengths.append((obj, len(entry), path))
        elif None in (keys := [reads.keys_of(name) for name in names]):
            guard.contents.append((obj, tuple(entry), path))
        elif missing := frozenset().union(*filter(None, keys)) - entry.keys():
            guard.absent.append((obj, missing, path))
    elif isinstance(obj, (list, deque)):
        guard.lengths.append((obj, len(entry), path))
    else:
        guard.contents.append((obj, entry if obj is not entry else obj.copy(), path))
