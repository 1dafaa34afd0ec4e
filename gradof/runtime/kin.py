"""Traces that functions of one code share: methods of other instances, closures made anew.

    class Model:
        def loss(self, p): return np.sum((self.X @ p - self.y) ** 2) * self.scale

    grad(Model(X, y, 2.0).loss)(p)      traced and compiled
    grad(Model(Z, u, 2.0).loss)(p)      the same code, as X and Z are of one type and shape
    grad(Model(Z, u, 3.0).loss)(p)      traced: another scale

An entry's guard names the objects of one function. A `Likeness` is the entry with its own objects
(`gradof.runtime.own`) left out, and numbers in their places: the guard for another function of the
same code has the objects that this leads to, and is held against them as they are now. Where one is
of another build, or a value in it is another, there is a trace to be made.

What functions share (globals, classes, modules) is compared by identity, as ever. A container in
the guard that is neither own nor reached from what is shared could be of the first function alone,
so an entry that has one serves that function alone; so do entries that write to Python's state,
draw random numbers, or hold functions that are not traced and lead to own objects.
"""

from __future__ import annotations

import functools
import os
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from types import (
    CodeType,
    FunctionType,
    MappingProxyType,
    MethodType,
    ModuleType,
)
from typing import TYPE_CHECKING, Any, NamedTuple

from gradof import tuning
from gradof.ir import forks
from gradof.ops.python_call import used_by_calls
from gradof.runtime.arrays import FIRST_LEAF, Call, has_state
from gradof.runtime.cache import Entry
from gradof.runtime.numbers import lift, without_numbers
from gradof.runtime.own import GONE, OwnObjects, own_objects
from gradof.runtime.shared import is_free_of, shared_with_others
from gradof.runtime.state import StateGuard
from gradof.runtime.state_extras import Each, Functions, Loaded
from gradof.runtime.state_values import is_plain, reference
from gradof.tracer.core.exact import is_value
from gradof.tracer.core.number import NUMBERS
from gradof.tracer.core.objects import can_be_made
from gradof.tracer.core.place_numbers import NumberAt
from gradof.tracer.core.pytree import thaw
from gradof.tracer.core.result import ConstantOut
from gradof.tracer.state.frames import Frame
from gradof.tracer.state.origins import Origin, Step
from gradof.tracer.state.places import Place, place_key
from gradof.tracer.state.reads import Reads

if TYPE_CHECKING:
    from gradof.runtime.function import Differentiated

KEYS = 64  # signatures of codes that are kept; then the least recently used goes
EACH = 8  # likenesses of one signature
_LARGE = 1000  # places of a guard: the functions of data frames, whose state is not all Python's
_known: OrderedDict[Any, list[Likeness]] = OrderedDict()
_varying: OrderedDict[Any, frozenset[int]] = OrderedDict()  # arguments, by key without numbers
_lock = forks.rlock()


class _Own(NamedTuple):
    """The place of an own object in a guard."""

    number: int


class Likeness(NamedTuple):
    """An entry for all functions that lead to the like."""

    entry: Entry  # its guard has numbers for own objects, and is never asked
    own: OwnObjects
    code: CodeType  # kept, as the key has its id
    needed: frozenset[Any] = frozenset()  # numbers whose values were asked for, by own place

    def entry_of(self, fn: Any, call: Call) -> Entry | None:
        """The entry as that of another function; None where it is no other of this kind."""
        objects = self.own.of(_root(fn, call))
        if objects is None:
            return None
        placed = _placing(objects)
        try:
            guard = _mapped(self.entry.state, placed, placed)
            if guard is None or not guard.places_are_equal():
                return None
            origins = _origins(self.entry.traced.origins, placed)
            content = _content(self.entry, placed)
            arrays = [x for x in (origin.read(fn) for origin in origins) if not _is_number(x)]
        except GONE:
            return None
        if len({*map(id, arrays)}) != len(arrays):
            return None  # each input was an array of its own
        guard.compile()
        traced = replace(
            self.entry.traced, origins=origins, content=content,
            static_leaves=tuple(
                (i, thaw(call.leaves[i])) for i, _ in self.entry.traced.static_leaves
            ),
        )  # fmt: skip
        return replace(
            self.entry, traced=traced, state=guard, quick_made=False, quick_forms=set(),
            reason="another function of the same code was traced",
        )

    def varied(
        self, fn: Any, call: Call, needed: Collection[Any]
    ) -> dict[Any, tuple[Place, str]]:
        """The numbers of Python's state that another function has, and this one has not."""
        objects = self.own.of(_root(fn, call))
        if objects is None:
            return {}
        placed, numbers = _placing(objects), {id(obj): n for n, obj in enumerate(objects)}
        try:
            guard = _mapped(self.entry.state, placed, placed)
            changed = [] if guard is None else [number for _, number in guard.changes()]
        except GONE:
            return {}
        known = {} if guard is None else guard.numbers
        return {
            key: known[key] for key in changed
            if key in known and _own_key(key, numbers) not in needed
        }


def _placing(objects: list[Any]) -> Callable[[Any], Any]:
    """Puts the objects of one function in the places of own ones."""
    return lambda value: objects[value.number] if type(value) is _Own else value


def key_of(function: Differentiated, call: Call) -> Any:
    """What functions have in common that may share traces; None for a call that is its own."""
    if call.library != "numpy" or function.audit is not None:
        return None
    parts: list[Any] = []
    for leaf, part in zip(map(thaw, call.leaves), call.key[FIRST_LEAF:], strict=False):
        if isinstance(leaf, (FunctionType, MethodType, functools.partial)):
            parts.append(_code_of(leaf))
        elif has_state(leaf) and not is_value(leaf):
            cls: Any = type(leaf)
            if not can_be_made(cls):  # it may hold what no attribute says
                return None
            parts.append(cls)  # kept in the key, the leaf would live as long
        else:
            parts.append(part)
    code = _code_of(function.fn)
    settings = (function.static_argnames, function.nan_safe, function.memory_budget, _thresholds())
    rest = (*call.key[:FIRST_LEAF], *call.key[FIRST_LEAF + len(call.leaves) :])
    return code and (code, rest, *parts, settings, os.environ.get("GRADOF_BACKEND"))


def _root(fn: Any, call: Call) -> Any:
    """What leads to all that is a function's own, and to the objects among its arguments."""
    return (fn, *call.objects.values()) if call.objects else fn


def _thresholds() -> tuple[str, ...]:
    """What decides how a trace is rolled and compiled: another one is to be seen at once."""
    return tuple(repr(value) for name, value in vars(tuning).items() if name.isupper())


def _code_of(fn: Any, depth: int = 6) -> Any:
    """Which codes a function, and those in its closure, have."""
    if isinstance(fn, MethodType):
        return type(fn.__self__), _code_of(fn.__func__, depth)
    if not isinstance(fn, FunctionType):
        return None
    inner: list[Any] = [id(fn.__code__)]
    for cell in fn.__closure__ or () if depth else ():
        try:
            inner.append(_code_of(cell.cell_contents, depth - 1))
        except ValueError:
            inner.append(None)
    return tuple(inner)


def find(function: Differentiated, given: Call) -> Iterator[tuple[Entry, Call]]:
    """Entries that other functions of the same code have made, for this one, and the call of each.

    That has numbers as inputs which have varied for other functions.
    """
    lifted = _lifted(function, given)
    for call in (given,) if lifted is None else (given, lifted):
        key = key_of(function, call)
        with _lock:
            known = [] if key is None else _known.get(key, [])
            if known:
                _known.move_to_end(key)
        for likeness in known:
            entry = likeness.entry_of(function.fn, call)
            if entry is not None:
                yield entry, call


def varied(function: Differentiated, call: Call) -> dict[Any, tuple[Place, str]]:
    """Numbers of Python's state that are other ones in functions of the same code, by place."""
    with _lock:
        known = _known.get(key_of(function, call), [])
    found: dict[Any, tuple[Place, str]] = {}
    needed = frozenset[Any]().union(*(likeness.needed for likeness in known))
    for likeness in known:
        found.update(likeness.varied(function.fn, call, needed))
    return found


def _own_key(key: Any, numbers: Mapping[int, int]) -> Any:
    """A `place_key` with the number of the own object in the place of its id."""
    kind, container, name = key
    if isinstance(container, tuple):
        return kind, _own_key(container, numbers), name
    return kind, ("own", numbers[container]) if container in numbers else container, name


def _lifted(function: Differentiated, call: Call) -> Call | None:
    blank = without_numbers(call)
    varying = _varying.get(key_of(function, blank)) if blank.numbers else None
    return None if varying is None else lift(call, varying)


def note(
    function: Differentiated, call: Call, entry: Entry, reads: Reads, needed: Iterable[Any]
) -> None:
    """Keep an entry that was just made for other functions of the same code.

    `needed` are the places, by `place_key`, of numbers whose values the function asked for.
    """
    key = key_of(function, call)
    if key is None or not _is_shareable(entry):
        return
    fn = function.fn
    plain = isinstance(fn, FunctionType) and not fn.__closure__ and not fn.__defaults__
    if plain and not call.objects:
        return  # there is one
    made = _likeness(fn, entry, reads, call)
    if made is None:
        return
    asked = frozenset(_own_key(place, made.own.numbers) for place in needed)
    made = made._replace(needed=asked)
    with _lock:
        _known[key] = [made, *_known.get(key, [])][:EACH]
        _known.move_to_end(key)
        while len(_known) > KEYS:
            _known.popitem(last=False)
        if call.numbers:
            _varying[key_of(function, without_numbers(call))] = call.numbers
        while len(_varying) > KEYS:
            _varying.popitem(last=False)


def forget() -> None:
    """Let every function be traced for itself again."""
    with _lock:
        _known.clear()
        _varying.clear()


def _is_shareable(entry: Entry) -> bool:
    traced, guard = entry.traced, entry.state
    if traced.stores or traced.performs or traced.generators or guard.size > _LARGE:
        return False
    if guard.data or guard.variables:
        return False
    if not all(isinstance(origin, (Origin, NumberAt)) for origin in traced.origins):
        return False
    return all(
        is_plain(out.value) for out in traced.all_outputs if isinstance(out, ConstantOut)
    )


def _likeness(fn: Any, entry: Entry, reads: Reads, call: Call) -> Likeness | None:
    wanted: set[int] = set()

    def noted(value: Any) -> Any:
        wanted.add(id(value))
        return value

    if _mapped(entry.state, noted, noted) is None:
        return None
    _origins(entry.traced.origins, noted)
    _content(entry, noted)
    own = own_objects(_root(fn, call), wanted)
    if own is None:
        return None
    shared = shared_with_others(fn, reads, call)
    if any(not is_free_of(called, own, shared) for called in used_by_calls(entry.traced.graph)):
        return None

    def container(value: Any) -> Any:
        number = own.numbers.get(id(value))
        if number is not None:
            return _Own(number)
        if id(value) in shared or isinstance(value, (MappingProxyType, ModuleType, type)):
            return value
        raise _NotShared

    def held(value: Any) -> Any:
        number = own.numbers.get(id(value))
        return value if number is None else _Own(number)

    try:
        guard = _mapped(entry.state, container, held)
        traced = replace(
            entry.traced, origins=_origins(entry.traced.origins, container),
            content=_content(entry, container), static_leaves=tuple(
                (i, None if has_state(leaf) else leaf) for i, leaf in entry.traced.static_leaves
            ),
        )  # fmt: skip
    except _NotShared:
        return None
    if guard is None:
        return None
    function = fn.__func__ if isinstance(fn, MethodType) else fn
    return Likeness(replace(entry, traced=traced, state=guard), own, function.__code__)


def _is_number(value: Any) -> bool:
    return type(value) in NUMBERS


def _origins(origins: Iterable[Any], container: Callable[[Any], Any]) -> tuple[Any, ...]:
    """Where free inputs are, in other containers, and from other objects among the arguments."""
    return tuple(
        NumberAt(_placed(o.place, container)) if isinstance(o, NumberAt)
        else replace(o, place=o.place and _placed(o.place, container), steps=tuple(
            Step("given", container(s.key)) if s.kind == "given" else s for s in o.steps
        )) for o in origins
    )  # fmt: skip


def _content(entry: Entry, container: Callable[[Any], Any]) -> tuple[tuple[Any, int], ...]:
    """Where arrays are whose elements are baked in, in other containers."""
    content = entry.traced.content
    found = _origins((origin for origin, _ in content), container)
    return tuple(zip(found, (n for _, n in content), strict=True))


def _placed(given: Any, container: Callable[[Any], Any]) -> Any:
    if not isinstance(given, Place):
        return container(given)
    inside = _placed if given.kind == "index" else lambda c, f: f(c)
    return Place(given.kind, inside(given.container, container), given.key)


def _of_others(more: Any, container: Callable[[Any], Any]) -> Any:
    if isinstance(more, Frame):
        return more.of_other(container(more.of))
    return more.of(container) if isinstance(more, Each) else more


class _NotShared(Exception):  # a signal within this module
    """A container may be the first function's alone."""


def _mapped(
    guard: StateGuard, container: Callable[[Any], Any], held: Callable[[Any], Any]
) -> StateGuard | None:
    """The guard with other objects for containers, and for the values they hold.

    None where it has a check of its own that names them.
    """
    if any(not isinstance(more, (Each, Functions, Loaded, Frame)) for more, _ in guard.more):
        return None

    def place(given: Any) -> Any:
        return _placed(given, container)

    made = guard.rows()
    made.items = [(container(c), k, held(v), s) for c, k, v, s in guard.items]
    made.cells = [(container(c), k, held(v), s) for c, k, v, s in guard.cells]
    made.others = [(place(c), k, held(v), s) for c, k, v, s in guard.others]
    made.types = [(container(obj), cls) for obj, cls in guard.types]
    if guard.own_type is not None:
        read, cls = guard.own_type
        instance = container(read if type(read) is _Own else read())
        made.own_type = instance if type(instance) is _Own else reference(instance), cls
    made.codes = [(container(fn), code) for fn, code in guard.codes]
    made.lengths = [(container(c), n, s) for c, n, s in guard.lengths]
    made.contents = [(container(c), v, s) for c, v, s in guard.contents]
    made.absent = [(container(c), names, s) for c, names, s in guard.absent]
    made.empty = [container(hooks) for hooks in guard.empty]
    made.arrays = [(place(p), kind, s) for p, kind, s in guard.arrays]
    made.shared = [(place(a), place(b), s) for a, b, s in guard.shared]
    made.more = [(_of_others(more, container), s) for more, s in guard.more]
    numbers = [(place(p), s) for p, s in guard.numbers.values()]
    made.numbers = {place_key(p): (p, s) for p, s in numbers}
    return made
