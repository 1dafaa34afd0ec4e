"""State that a backward of the user's reads, compared when the compiled backward runs.

    class Scaled(torch.autograd.Function):
        @staticmethod
        def backward(ctx, g): return g * Config.scale

    loss = compiled(x)          the gradient has Config.scale as it is now
    Config.scale = 0.5
    loss.backward()             TraceError: eager would have read 0.5; from the next call on it does

See Note [State of a backward] in `gradof.tracer.state.backward_reads`.
"""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable, Container, Mapping, Sequence
from types import FrameType, FunctionType, ModuleType
from typing import Any

from gradof.errors import TraceError
from gradof.ir.core import Loc
from gradof.runtime.arrays import is_data, is_tensor
from gradof.runtime.state import StateGuard
from gradof.tracer.core.result import Traced
from gradof.tracer.state.kinds import module_of
from gradof.tracer.state.places import Place, place_key, read_place
from gradof.tracer.state.reads import Reads
from gradof.tracer.state.source import function_loc

_MOST = 100_000  # objects that a context is searched through
_GONE = (LookupError, AttributeError, ValueError)
Snapshot = tuple[tuple[Any, int], ...]


class Late:
    """What the backwards of one trace read; `tell` is called with the error of a change."""

    def __init__(
        self, guards: list[StateGuard], places: list[Place], loc: Loc | None,
        tell: Callable[[TraceError], None],
    ) -> None:  # fmt: skip
        self._guards, self._places, self._loc, self._tell = guards, places, loc, tell

    def snapshot(self) -> Snapshot:
        """The tensors and the numbers that are inputs, as they are at a call."""
        return tuple([_seen(place) for place in self._places])

    def check(self, then: Snapshot) -> None:
        """Raise TraceError where eager's backward would read something else than the call had."""
        change = next((g.first_change() for g in self._guards if not g.check()), None)
        if change is None:
            for place, (value, version) in zip(self._places, then, strict=True):
                now, count = _seen(place)
                same = now is value if is_tensor(value) else now == value
                if not same or count != version:
                    change = f"{place.key} is another"
                    break
        if change is None:
            return
        error = TraceError(
            f"{change}, which a backward reads, and was changed between the call and its backward",
            loc=self._loc, hint="give it to the forward, and keep it on ctx",
        )  # fmt: skip
        self._tell(error)
        raise error


def _seen(place: Place) -> tuple[Any, int]:
    """What a place holds, and how often it was written to."""
    try:
        value = read_place(place)
    except _GONE:
        return None, -1
    return value, value._version if is_tensor(value) and not value.is_inference() else 0


def read_late(reads: Reads) -> set[int]:
    """The ids of the objects that the backwards of a trace may read."""
    found, walked, there = _of_backwards(reads), set[int](), reads.misses.reached()
    for backward, kept in found.of_backwards.rules:
        given = _old_parts(kept, there)
        StateGuard(backward, found, is_data, by_content=True, given=given, walked=walked)
    return walked


def _of_backwards(reads: Reads) -> Reads:
    """The same, of what the code of backwards reads alone."""
    found, only = reads.of_backwards, copy.copy(reads)
    only.codes, only.names, only.probes = found.codes, found.names, found.probes
    only.handed = {}  # a backward gets the objects among the arguments from its context
    return only


def _old_parts(kept: Mapping[str, Any], there: Container[int]) -> dict[str, Any]:
    """What a context keeps that was `there` before the call: itself, or in what the call made.

        ctx.box = model.box;  ctx.pair = (1, model.box);  ctx.scale = model.box.scale_of
    """
    found: dict[str, Any] = {}
    for name, value in kept.items():
        todo, seen = [value], set[int]()
        while todo:
            part = todo.pop()
            if id(part) in seen:
                continue
            seen.add(id(part))
            if len(seen) > _MOST:
                raise TraceError(
                    f"ctx.{name} leads to more than {_MOST} objects, which a backward may read",
                    hint="keep on ctx what the backward needs",
                )
            if id(part) in there:
                kind = "" if part is value else f" ({type(part).__name__} {len(seen)} in it)"
                found[f"ctx.{name}{kind}"] = part
            elif isinstance(part, weakref.ref):
                todo.append(part())
            elif isinstance(part, FunctionType):  # not its globals
                todo += (*(part.__closure__ or ()), part.__defaults__, part.__kwdefaults__)
            elif _has_parts(part):
                todo += gc.get_referents(part)
    return found


def _has_parts(obj: Any) -> bool:
    """Whether an object may lead to the user's: not modules, classes, frames, tensors, and what is
    traced.
    """
    if module_of(type(obj)).startswith("gradof."):  # what is asked of a number is noted
        return False
    return not isinstance(obj, (type, ModuleType, FrameType)) and not hasattr(obj, "dtype")


def late_reads(
    reads: Reads, traced: Traced, inputs: Sequence[Any], varying: Mapping[Any, Place],
    tell: Callable[[TraceError], None],
) -> Late | None:  # fmt: skip
    """What the backwards of a trace read; None without any. TraceError if the call writes it."""
    found = reads.of_backwards
    if not found.rules:
        return None
    loc = function_loc(found.rules[0][0])
    only = _of_backwards(reads)
    there = reads.misses.reached()

    def guards_of(varying: frozenset[Any]) -> list[StateGuard]:
        return [
            StateGuard(
                backward, only, is_data, (), varying, by_content=True,
                given=_old_parts(kept, there),
            )
            for backward, kept in found.rules
        ]  # fmt: skip

    guards = guards_of(frozenset(varying))
    stores = [store.place for store in traced.stores]
    if varying or stores:
        read = {key for guard in guards_of(frozenset()) for key in _places_of(guard)}
        stores = [p for p in stores if p.kind == "class" or place_key(p) in read]
        varying = {key: place for key, place in varying.items() if key in read}
    places = {place_key(place): place for guard in guards for place, _, _ in guard.arrays}
    places |= varying
    changed = [inputs[back.input] for back in traced.writebacks]
    for place in [
        *(p for p in stores if p.key in found.names),
        *(p for p in places.values() if _holds_any(p, changed)),
    ]:
        raise TraceError(
            f"a backward reads {place.key}, which the call writes", loc=loc,
            hint="keep what the backward needs on ctx",
        )
    return Late(guards, list(places.values()), loc, tell)


def _places_of(guard: StateGuard) -> set[Any]:
    """The keys of the places that a guard compares, but for those of classes."""
    items = [Place("item", container, key) for container, key, *_ in guard.items]
    cells = [Place("cell", container, key) for container, key, *_ in guard.cells]
    arrays = [place for place, *_ in guard.arrays]
    return {*guard.numbers, *map(place_key, (*items, *cells, *arrays))}


def _holds_any(place: Place, tensors: Sequence[Any]) -> bool:
    there, _ = _seen(place)
    return any(there is tensor for tensor in tensors)
