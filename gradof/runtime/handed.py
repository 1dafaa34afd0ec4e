"""Objects that are among the arguments of a torch call, and may be others at each call.

    for batch in loader:
        loss(model, batch).backward()     # one trace: what code reads of `batch` is read anew

See Note [Renewed objects] in `gradof.runtime.state_renewed`. An object that has to count as who it
is, as it is found in Python's state as well, or a backward of the user's may read it, is as any
other static argument: the first call with it runs eagerly (`gradof.runtime.shapes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gradof.runtime.arrays import FIRST_LEAF, HANDED, Call
from gradof.runtime.cache import Cache, free_keys, read_free
from gradof.tracer.core.exact import Same
from gradof.tracer.core.pytree import thaw
from gradof.tracer.core.result import Traced
from gradof.tracer.state.places import Place, place_key
from gradof.tracer.state.renewable import has_attributes_alone


class CountsItself(Exception):
    """A trace has found that an object among the arguments counts as who it is."""


def with_handed(cache: Cache, call: Call) -> Call:
    """The call, whose objects are in places if they can be; its key has their classes alone."""
    if call.library != "torch":
        return call
    parts, found, first = list(call.key), [], dict[int, int]()
    for i, (leaf, path) in enumerate(zip(call.leaves, call.paths, strict=True)):
        part = call.key[FIRST_LEAF + i]
        if type(part[-1]) is not Same:
            continue
        obj = thaw(leaf)
        if not _can_be(obj) or place_key(cache.handed.place(path)) in cache.kept:
            continue
        same = first.setdefault(id(obj), i)
        parts[FIRST_LEAF + i] = (type(obj), HANDED, None if same == i else same)
        found.append(i)
        cache.handed.put(path, obj)
    if not found:
        return call
    key = tuple(parts)
    return replace(call, key=key, plain_key=key, handed=frozenset(found), room=cache.handed)


def handed_of(call: Call) -> Mapping[int, tuple[Any, Place]]:
    """The objects of a call that are in places, by id."""
    found: dict[int, tuple[Any, Place]] = {}
    if call.room is not None:
        for i in sorted(call.handed):
            obj = thaw(call.leaves[i])
            found.setdefault(id(obj), (obj, call.room.place(call.paths[i])))
    return found


def count_themselves(cache: Cache, call: Call) -> bool:
    """Whether of the objects of a call that are in places some count as who they are by now."""
    return any(place_key(cache.handed.place(call.paths[i])) in cache.kept for i in call.handed)


def other_tensors(fn: Any, cache: Cache, call: Call) -> tuple[Any, ...] | None:
    """The types of the tensors in objects, where these alone are others than traces have had."""
    entries = cache.entries.get(call.key, ()) if call.handed else ()
    apart = [entry for entry in entries if entry.is_told_apart(fn)]
    if apart and len(apart) == len(entries):
        return tuple(
            (i, free_keys([entry.traced.origins[i].read(fn)]))
            for entry in apart if (i := entry.telling) is not None
        )  # fmt: skip
    found = None
    for entry in entries:
        free = read_free(fn, entry.traced) if entry.state.check() else None
        if free is not None:
            found = free_keys(free)
            if entry.has_keys(found):  # something else is another
                return None
    return found


def without_handed(traced: Traced, call: Call) -> Traced:
    """The trace, which does not keep the objects of its call alive."""
    if not call.handed:
        return traced
    kept = tuple((i, leaf) for i, leaf in traced.static_leaves if i not in call.handed)
    return replace(traced, static_leaves=kept)


def _can_be(obj: Any) -> bool:
    has_references = type(obj).__weakrefoffset__ != 0  # not with `__slots__ = ("__dict__",)`
    return has_references and has_attributes_alone(obj)

