"""What is guarded of an object beside the values in its places, each by a function of its own.

    extras = Extras(reads)
    extras.see(torch, "torch")           # and every other object that is reached
    for holds, text in extras.checks(fn): ...

Functions of libraries under the names that the code mentions, so that a patched one is seen; what
`functools.lru_cache` has given; the bases of classes; names and docs of functions, where they are
read; arrays, memoryviews and locks; which modules are loaded.
"""

from __future__ import annotations

import copy
import functools
import sys
import weakref
from collections.abc import Callable, Container, Iterable, Iterator
from operator import attrgetter, is_, itemgetter
from types import FunctionType, ModuleType
from typing import Any

from gradof.runtime.state_in_c import OfC
from gradof.tracer.state.buffers import LOCK, elements, is_buffer
from gradof.tracer.state.caches import LRU, CacheGuard, used_since
from gradof.tracer.state.edges import Edge
from gradof.tracer.state.frames import Frame, is_frame
from gradof.tracer.state.heard import is_heard
from gradof.tracer.state.in_c import has_items_in_c, names_in_c
from gradof.tracer.state.kinds import HEAP, applied_by, module_of
from gradof.tracer.state.places import Place, read_place
from gradof.tracer.state.reads import Reads
from gradof.tracer.state.surroundings import is_installed

More = tuple[Callable[[], bool], str]  # whether it is as it was, and what it is

_LABELS = ("__name__", "__qualname__", "__doc__", "__module__", "__code__", "__defaults__")
_TABLES = ("__annotations__", "__kwdefaults__")  # dicts, which change in place
_mro = attrgetter("__mro__")


class Extras:
    """See the module docstring."""

    def __init__(self, reads: Reads, renewed: Container[int] = ()) -> None:
        self._reads = reads
        self._renewed = renewed  # ids of objects that are others at each call
        self.weakly: set[int] = set()  # ids of what weak references lead to, which may go
        self._labels = [name for name in (*_LABELS, *_TABLES) if name in reads.names]
        self._found: list[More] = []
        self._classes: dict[type, None] = {}
        self._named: list[Any] = []
        self._modules: dict[str, ModuleType] = {}

    def see(self, obj: Any, path: str) -> None:
        """Note one object."""
        if isinstance(obj, FunctionType):
            if self._labels and not is_installed(obj.__code__) and is_heard(
                str(obj.__globals__.get("__name__"))
            ):
                self._named.append(obj)
        elif isinstance(obj, type):
            if obj.__flags__ & HEAP and is_heard(module_of(obj)):
                self._classes[obj] = None
        elif isinstance(obj, ModuleType):
            if not is_heard(obj.__name__) or obj.__name__.startswith("torch"):
                self._modules[obj.__name__] = obj
        elif isinstance(obj, functools.partial):
            self._found.append((_Applied(obj), path))
        elif isinstance(obj, weakref.ref) and id(obj) not in self._renewed:
            if (there := obj()) is not None:
                self.weakly.add(id(there))
                self._found.append((_Alive(obj), f"what {path} refers to"))
        elif is_frame(type(obj)):
            self._found.append((Frame(obj), path or "a data frame"))
        elif type(obj) is LRU:
            _, before = self._reads.held.caches.get(id(obj), (None, obj.cache_info()))
            if used := used_since(obj, before):
                self._found.append((CacheGuard(obj, used), f"what {path} has cached"))
        elif is_buffer(type(obj)) and (type(obj) is not LOCK or self._asks_locks()):
            self._found.append((_Same(obj, self._entry(obj)), path))
        elif not isinstance(obj, type):
            self._see_in_c(obj, path)

    def _see_in_c(self, obj: Any, path: str) -> None:
        cls: Any = type(obj)
        names = names_in_c(cls) & self._reads.names
        if (names or has_items_in_c(cls)) and (of_c := OfC(obj, names)):
            self._found.append((of_c, f"what {path or 'an object'} says"))

    def refers(self, edge: Edge, path: str) -> bool:
        """Whether it is what a weak reference in a place leads to, which is then looked at here."""
        if edge.place.kind != "refer":
            return False
        self.weakly.add(id(edge.child))
        self._found.append((_Refers(edge.place, edge.child), path))
        return True

    def checks(self, fn: Any) -> Iterator[More]:
        """All that is to be compared."""
        yield from self._found
        if self._classes:
            yield Each(_mro, [*self._classes]), "the bases of a class"
        for name in self._labels:
            classes = (cls for cls in self._classes if not _is_installed(cls))
            labelled = [obj for obj in (*self._named, *classes) if hasattr(obj, name)]
            if labelled and name in _TABLES:
                yield _Table(name, labelled), f"an item of {name}"
            elif labelled:
                yield Each(attrgetter(name), labelled), f"a {name}"
        if self._modules:
            yield Functions(self._modules.values(), self._reads.names), "a function of a library"
        if self._reads.module_names:
            yield Loaded(self._reads.module_names), "what is in sys.modules"

    def _asks_locks(self) -> bool:
        return not self._reads.names.isdisjoint(("locked", "acquire"))

    def _entry(self, obj: Any) -> Any:
        return self._reads.held.buffers.entry(obj)


def _is_installed(cls: type) -> bool:
    module = sys.modules.get(module_of(cls))
    return "site-packages" in str(getattr(module, "__file__", None))


class _Applied:
    """What a partial calls and is given by name, but not the values, which are looked at apart."""

    def __init__(self, obj: functools.partial[Any]) -> None:
        self._obj, self._entry = obj, self._now(obj)

    def _now(self, obj: functools.partial[Any]) -> tuple[Any, ...]:
        return applied_by(obj), obj.keywords, *obj.args, *obj.keywords

    def __call__(self) -> bool:
        now = self._now(self._obj)
        return len(now) == len(self._entry) and all(map(is_, now, self._entry))


class _Alive:
    """A weak reference to an object that the entry does not keep."""

    def __init__(self, obj: weakref.ref[Any]) -> None:
        self._obj = obj

    def __call__(self) -> bool:
        return self._obj() is not None


class _Refers:
    """What a weak reference in a place leads to, which the entry does not keep."""

    def __init__(self, place: Place, obj: Any) -> None:
        self._place, self._then = place, weakref.ref(obj)

    def __call__(self) -> bool:
        return read_place(self._place) is self._then()


class _Same:
    def __init__(self, obj: Any, entry: Any) -> None:
        self._obj, self._entry = obj, entry

    def __call__(self) -> bool:
        return bool(elements(self._obj) == self._entry)


class Each:
    """One attribute of many objects, by identity, or as equal text."""

    def __init__(self, read: Callable[[Any], Any], objects: list[Any]) -> None:
        self._read, self._objects = read, objects
        self._values = [*map(read, objects)]

    def of(self, other: Callable[[Any], Any]) -> Each:
        """The same values of other objects."""
        made = copy.copy(self)
        made._objects = [*map(other, self._objects)]
        return made

    def __call__(self) -> bool:
        """Whether they are as they were."""
        return all(map(is_, map(self._read, self._objects), self._values))


class _Table:
    """A dict that many objects have under a name, by its items."""

    def __init__(self, name: str, objects: list[Any]) -> None:
        self._name, self._objects = name, objects
        self._keys, self._values = self._now()

    def __call__(self) -> bool:
        keys, values = self._now()
        return keys == self._keys and all(map(is_, values, self._values))

    def _now(self) -> tuple[list[tuple[str, ...]], list[Any]]:
        found = (getattr(obj, self._name, None) for obj in self._objects)
        tables = [t if isinstance(t, dict) else {} for t in found]  # a class of C's has none
        return [tuple(table) for table in tables], [v for table in tables for v in table.values()]


class Functions:
    """The functions and modules that modules have under some names."""

    def __init__(self, modules: Iterable[ModuleType], names: set[str]) -> None:
        self._read: list[tuple[Any, Any, Any]] = []
        self.items: list[tuple[Any, str, Any]] = []  # the same, one by one: dict, name, value
        for module in modules:
            space = vars(module)
            found = [name for name in names & space.keys() if _is_function(space[name])]
            if found:
                read = itemgetter(*found)
                self._read.append((read, space, read(space)))
                self.items += [(space, name, space[name]) for name in found]

    def __call__(self) -> bool:
        """Whether they are as they were."""
        for read, space, values in self._read:  # the quickest way
            if read(space) != values:
                return False
        return True


def _is_function(value: Any) -> bool:
    return callable(value) or isinstance(value, ModuleType)


class Loaded:
    """Which modules there are under some names."""

    def __init__(self, names: set[str]) -> None:
        self._names = [*names]
        self._values = [*map(sys.modules.get, self._names)]

    def __call__(self) -> bool:
        """Whether they are as they were."""
        return all(map(is_, map(sys.modules.get, self._names), self._values))
