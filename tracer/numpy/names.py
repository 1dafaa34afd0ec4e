"""The names by which traced code knows numpy, scipy and math, and what they stand for meanwhile.

    from numpy import array                     def f(x, xp=np): ...
    TABLE = {"lse": logsumexp}                  class Layer: act = staticmethod(np.tanh)
    import numpy as npx  # in a function        functools.partial(np.full, 3)

Note [Only names in the traced code]
numpy itself is left alone: C and Cython code takes what np.empty returns for a plain array without
asking, so it must never see another. What is replaced are references, wherever what the traced
function can reach holds them: globals, closures, defaults, items, attributes, parts of partials.
Modules are such references, too: a proxy stands for each, and for what the code imports while it
runs. The replacements ask whether the calling thread is tracing, and if not, call the original:
other threads see no difference. The state at entry that is noted (`tracer.held`) has the originals.
"""

from __future__ import annotations

import builtins
import functools
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from gradof.ir import forks
from gradof.tracer.state.held import Held
from gradof.tracer.state.libraries import LIBRARY_FOLDERS
from gradof.tracer.state.origins import ATOMS, Step, children_of

Wrap = Callable[[Any], Any]
# Of objects of C code: each gives a value as it was and what stands for it, or None.
STAND_INS: list[Callable[[Any], tuple[Any, Any] | None]] = []


def stand_in(value: Any) -> tuple[Any, Any] | None:
    """A value as it was and what stands for it while a trace runs; None of all others."""
    for known in STAND_INS:
        found = known(value)
        if found is not None:
            return found
    return None


def seen(value: Any) -> Any:
    """An argument as traced code sees it."""
    found = stand_in(value)
    return value if found is None else found[1]



class Proxy(ModuleType):
    """A module with some functions wrapped; all else is the module's own."""

    def __init__(self, module: ModuleType, replaced: dict[str, Any]) -> None:
        super().__init__(module.__name__, module.__doc__)
        vars(self).update(vars(module))
        vars(self).update(replaced)
        vars(self)["_proxied"] = module

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["_proxied"], name)

    # Equal to the module: code for several libraries compares it, or has it as a dict's key.
    def __eq__(self, other: object) -> bool:
        mine = vars(self)["_proxied"]
        return (vars(other)["_proxied"] if isinstance(other, Proxy) else other) is mine

    def __hash__(self) -> int:
        return hash(vars(self)["_proxied"])


@dataclass(eq=False)
class Names:
    """What is replaced: by module, each name's wrapper. Tables are made for what is loaded.

    `stand_in` knows what else is replaced: it gives a value as it was and its replacement, or None.
    """

    wraps: dict[str, dict[str, Wrap]]
    stand_in: Callable[[Any], tuple[Any, Any] | None]

    def __post_init__(self) -> None:
        self._made = functools.lru_cache(maxsize=4)(self._make)

    def table(self) -> Table:
        """The replacements for the libraries that are loaded."""
        return self._made(tuple(path for path in self.wraps if path in sys.modules))

    def _make(self, loaded: tuple[str, ...]) -> Table:
        by_id: dict[int, tuple[Any, Any]] = {}
        proxies: dict[str, Proxy] = {}
        for path in sorted(loaded, key=lambda p: -p.count(".")):  # submodules first
            module = sys.modules[path]
            replaced: dict[str, Any] = {
                sub.rpartition(".")[2]: proxy for sub, proxy in proxies.items()
                if sub.rpartition(".")[0] == path
            }  # fmt: skip
            for name, wrap in self.wraps[path].items():
                original = getattr(module, name)
                known = by_id.get(id(original))
                replaced[name] = wrap(original) if known is None else known[1]
                _enter(by_id, original, replaced[name])
            proxies[path] = Proxy(module, replaced)
            _enter(by_id, module, proxies[path])
        return Table(by_id, proxies, self.stand_in)


@dataclass(eq=False, frozen=True)
class Table:
    """Originals and their replacements, by the ids of both, and the proxies by path."""

    by_id: dict[int, tuple[Any, Any]]
    proxies: dict[str, Proxy]
    stand_in: Callable[[Any], tuple[Any, Any] | None]

    def pair(self, value: Any) -> tuple[Any, Any]:
        """A value as it was before any trace, and what stands for it meanwhile."""
        found = self.by_id.get(id(value)) or self.stand_in(value)
        return found or (value, self.replacement(value))

    def replacement(self, value: Any) -> Any:
        """What stands for a value meanwhile; the value itself if nothing does."""
        found = self.by_id.get(id(value)) or self.stand_in(value)
        if found is not None:
            return found[1]
        if type(value) in (tuple, list) and len(value) <= 64:
            items = [self.replacement(v) for v in value]
            if type(value) is tuple and any(a is not b for a, b in zip(items, value, strict=True)):
                return tuple(items)
        if isinstance(value, staticmethod):
            inner = self.replacement(value.__func__)
            return value if inner is value.__func__ else staticmethod(inner)
        if type(value) is functools.partial:
            func = self.replacement(value.func)
            args = self.replacement(value.args)
            named = {k: self.replacement(v) for k, v in value.keywords.items()}
            changed = any(named[k] is not v for k, v in value.keywords.items())
            if func is not value.func or args is not value.args or changed:
                return functools.partial(func, *args, **named)
        return value


def _enter(by_id: dict[int, tuple[Any, Any]], original: Any, replacement: Any) -> None:
    # under the replacement too: a trace in another thread may have put it there already
    by_id[id(original)] = by_id[id(replacement)] = (original, replacement)


# --- places ---------------------------------------------------------------------------------------


@dataclass(eq=False)
class Place:
    """A reference: how it is written, and what was there."""

    kind: str  # "item", "attr", "cell", "defaults" or "kwdefaults"
    holder: Any
    key: Any
    original: Any
    replacement: Any

    @property
    def id(self) -> tuple[str, int, Any]:
        """What tells the place from others."""
        return self.kind, id(self.holder), self.key

    def write(self, value: Any) -> None:
        """Let the place refer to a value."""
        if self.kind == "item":
            self.holder[self.key] = value
        elif self.kind == "cell":
            self.holder.cell_contents = value
        elif self.kind == "defaults":
            self.holder.__defaults__ = value
        else:
            setattr(self.holder, self.key, value)

    def read(self) -> Any:
        """What it refers to."""
        if self.kind == "item":
            return self.holder[self.key]
        if self.kind == "cell":
            return self.holder.cell_contents
        if self.kind == "defaults":
            return self.holder.__defaults__
        return vars(self.holder)[self.key]


def _place(obj: Any, step: Step, now: Any, old: Any, new: Any) -> Place | None:
    """The place a step leads through, where `now` is found."""
    if step.kind == "item" and type(obj) in (dict, list):
        return Place("item", obj, step.key, old, new)
    if step.kind == "closure":
        cell = obj.__closure__[obj.__code__.co_freevars.index(step.key)]
        return Place("cell", cell, None, old, new)
    if step.kind == "kwdefault":
        return Place("item", obj.__kwdefaults__, step.key, old, new)
    if step.kind in ("attr", "method"):
        held = getattr(obj, "__dict__", None)
        if type(held) is dict and step.kind == "attr" and held.get(step.key) is now:
            return Place("item", held, step.key, old, new)
        owners = obj.__mro__ if isinstance(obj, type) else type(obj).__mro__
        for owner in owners:
            if vars(owner).get(step.key) is now and isinstance(now, staticmethod):
                return Place("attr", owner, step.key, old, new)
            if vars(owner).get(step.key) is now:  # C functions are not bound, ours would be
                return Place("attr", owner, step.key, old, staticmethod(new))
    return None


def _is_library(space: dict[str, Any]) -> bool:
    """Whether a module is installed or gradof's own: it may hand its arrays to C."""
    if "__name__" not in space:
        return False
    top = str(space.get("__name__", "")).partition(".")[0]
    file = str(space.get("__file__") or "")
    return top in ("gradof", "numpy", "scipy") or file.startswith(LIBRARY_FOLDERS)


# --- while a trace runs ---------------------------------------------------------------------------

_LOCK = forks.lock()
_counts: dict[tuple[str, int, Any], int] = {}
_THREAD = threading.local()  # .table: of the trace this thread runs
_theirs = builtins.__import__
_importing = 0  # traces that run


def _is_ours(obj: Any) -> bool:
    """Whether it is a function of the tracer's, whatever module it says that it is of."""
    space = obj.__globals__ if isinstance(obj, FunctionType) else {}
    return str(space.get("__name__", "")).startswith("gradof.tracer.")


class Replacing:
    """Replacements in what a run can reach, from when it is first seen until the run ends.

    See Note [Only names in the traced code].
    """

    def __init__(self, names: Names, held: Held) -> None:
        self._names = names
        self._held = held
        self._table: Table | None = None  # while a run is on
        self._places: dict[tuple[str, int, Any], Place] = {}
        self._spaces: dict[int, Any] = {}

    def at(self, obj: Any, root: bool = False) -> bool:
        """Replace what an object refers to, before code of the run sees it.

        False of what is replaced itself, and of the replacements, which refer to the originals.
        """
        table = self._table
        if table is None or issubclass(type(obj), ATOMS):
            return True
        if id(obj) in table.by_id or _is_ours(obj):
            return False
        found: list[Place | None] = []
        if isinstance(obj, FunctionType):
            found += self._in_globals(obj.__globals__, table)
            if obj.__defaults__:
                new = table.replacement(obj.__defaults__)
                if new is not obj.__defaults__:
                    found.append(Place("defaults", obj, None, obj.__defaults__, new))
        for step, child in children_of(obj, root):
            old, new = table.pair(child)
            if new is not old:
                found.append(_place(obj, step, child, old, new))
        for place in found:
            if place is None or place.id in self._places:
                continue
            if place.kind == "item" and _is_library(place.holder):
                continue
            self._places[place.id] = place
            with _LOCK:
                _write(place)
        return True

    def _in_globals(self, space: dict[str, Any], table: Table) -> Iterator[Place]:
        if id(space) in self._spaces:
            return
        self._spaces[id(space)] = space
        for name, value in list(space.items()):
            pair = table.by_id.get(id(value)) or table.stand_in(value)
            if pair is not None:
                yield Place("item", space, name, *pair)

    def __enter__(self) -> Replacing:
        self._imports = _imports(self._names.table())
        self._table = self._imports.__enter__()
        with _LOCK:
            for place in self._places.values():  # of a run before
                _write(place)
        return self

    def __exit__(self, *raised: Any) -> None:
        self._table = None
        self._imports.__exit__(*raised)
        with _LOCK:
            _put_back(list(self._places.values()))
        for place in self._places.values():
            self._held.correct(place.kind, place.holder, place.key, place.original)
            if place.id in _counts:
                self._held.stand_ins[id(place.replacement)] = place.replacement


def _write(place: Place) -> None:
    place.write(place.replacement)
    _counts[place.id] = _counts.get(place.id, 0) + 1


def _put_back(places: Sequence[Place]) -> None:
    # the last trace to end puts back what was there
    for place in places:
        _counts[place.id] -= 1
        if not _counts[place.id]:
            del _counts[place.id]
            try:
                now = place.read()
            except (LookupError, ValueError, AttributeError):
                continue  # the run has taken it away
            if now is place.replacement:
                place.write(place.original)


@contextmanager
def _imports(table: Table) -> Iterator[Table]:
    """Imports of the traced thread's, in the user's code, give proxies."""
    global _importing, _theirs
    outer = getattr(_THREAD, "table", None)
    with _LOCK:
        _importing += 1
        if _importing == 1:
            _theirs, builtins.__import__ = builtins.__import__, _import
    _THREAD.table = table
    try:
        yield table
    finally:
        _THREAD.table = outer
        with _LOCK:
            _importing -= 1
            if not _importing:
                builtins.__import__ = _theirs


def _import(
    name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
) -> Any:
    module = _theirs(name, globals, locals, fromlist, level)
    table: Table | None = getattr(_THREAD, "table", None)
    if table is None or globals is None or _is_library(globals):
        return module
    return table.proxies.get(getattr(module, "__name__", ""), module)
