"""Where the arrays come from that a traced torch function makes of numpy's.

    torch.from_numpy(np.triu(np.ones((n, n)), 1))      # of numbers: the same at every call
    torch.from_numpy(self.table * 2)                   # of an array whose elements are guarded
    torch.from_numpy(camera.read())                    # of code in C that is not known: of anything

What Python's code reads is guarded, so an array is the same at every call unless code in C gave it.
That is known by what the traced code calls, and, as the profile hook sees not all of it (functions
of Cython's and nanobind's), by what the names that it mentions stand for.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Iterator
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from gradof.tracer.state.in_c import has_items_in_c, methods_in_c, names_in_c
from gradof.tracer.state.kinds import module_of
from gradof.tracer.state.reads import WRITES, Reads
from gradof.tracer.torch.state import OuterState

# Packages whose functions give the same for the same arguments. What numpy draws or reads of files
# is refused elsewhere.
_KNOWN = frozenset({"numpy", "scipy", "torch", "gradof", "sympy", "pandas"})
# Modules of the standard library that give memory which others may write to.
_SHARE = frozenset({
    "mmap", "ctypes", "_ctypes", "array", "multiprocessing", "_multiprocessing", "_posixshmem",
    "socket", "_socket", "sqlite3", "_sqlite3", "subprocess", "_posixsubprocess", "shelve", "dbm",
})  # fmt: skip
_OVER_MEMORY = frozenset({"frombuffer", "from_dlpack", "from_file", "memoryview"})


class _Heard(set[Any]):
    """Is told of what the traced code calls (`Reads.called`); keeps what may give any array."""

    def add(self, called: Any, /) -> None:
        """A function in C, or the name of a module with code that is not the user's."""
        if type(called) is str:
            if called != WRITES and not _is_known(called):
                super().add(called)
        elif (unknown := _unknown(called)) is not None:
            super().add(unknown)


class ArraySources:
    """What may have given the arrays of a run.

    To hear of all calls takes a fifth of a trace's time: it is done from the moment when the first
    run asks for it, which has then `missed` some, and is to be done again.
    """

    def __init__(self, reads: Reads, state: OuterState) -> None:
        self._reads, self._state, self.missed = reads, state, False
        self._looked_at = -1  # what had been read when nothing unknown was found
        self._heard = next((each for each in reads.called if isinstance(each, _Heard)), None)

    def unknown(self) -> str | None:
        """What may have given an array that is another one at the next call, if anything."""
        if self._heard is None:
            if not self.missed:
                self._reads.called.append(_Heard())
            self.missed = True
            return "code in C"
        for called in self._heard:
            return str(called)
        if self._looked_at == self._reads.progress():
            return None
        found = next(self._named(), None) or next(map(anything, self._state.find(anything)), None)
        if found is None:
            self._looked_at = self._reads.progress()
        return found

    def are_own(self, arrays: Iterable[Any]) -> bool:
        """Whether the function has made these arrays itself, in memory of their own."""
        arrays, known = [*arrays], [array for array, _ in self._state.arrays()]
        if not all(isinstance(_base(array), np.ndarray) for array in arrays):
            return False
        if any(np.may_share_memory(a, b) for a in arrays for b in known):
            return False
        return self.unknown() is None

    def _named(self) -> Iterator[str]:
        """Code in C that names of the code which ran stand for, and that is not known."""
        for code, space in self._reads.codes.items():
            facts = self._reads.facts_at(code)
            if facts is None:
                continue
            for name in facts.globals_read & space.keys():
                yield from _in_c(space[name], facts.reads)


def _base(array: Any) -> Any:
    """What the memory of an array belongs to."""
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array


def _in_c(obj: Any, names: frozenset[str]) -> Iterator[str]:
    if not isinstance(obj, ModuleType):
        yield from filter(None, (anything(obj),))
    elif not _is_known(obj.__name__):
        for name in names & vars(obj).keys():
            yield from _in_c(vars(obj)[name], names - {name})


def anything(obj: Any) -> str | None:
    """The name of a function, a class or an object in C that may give any array, or None."""
    if isinstance(obj, (FunctionType, MethodType, ModuleType, np.random.BitGenerator)):
        return None
    cls: Any = obj if isinstance(obj, type) else type(obj)
    if cls is not obj and callable(obj) and not isinstance(cls.__call__, FunctionType):
        return _unknown(obj)
    if methods_in_c(cls) or (cls is not obj and (names_in_c(cls) or has_items_in_c(cls))):
        return f"{module_of(cls)}.{cls.__name__}"
    return None


def _unknown(called: Any) -> str | None:
    """The name of a function or class in C that may give any array; None for others."""
    kind, name = module_of(type(called)), getattr(called, "__name__", "")
    module, owner = getattr(called, "__module__", None), getattr(called, "__self__", None)
    if kind != "builtins" and _is_known(kind):  # what `functools.lru_cache` makes of a function
        module = kind
    elif type(module) is not str:
        module = owner.__name__ if isinstance(owner, ModuleType) else _home(type(owner), name)
    if _is_known(module) and name not in _OVER_MEMORY:
        return None
    return f"{module}.{name}"


def _home(cls: type, name: str) -> str:
    """The module of the class that a method in C is of: of a list, in a subclass of the user's."""
    found = (base for base in cls.__mro__ if name in vars(base))
    in_c = (base for base in found if not isinstance(vars(base)[name], FunctionType))
    return module_of(next(in_c, cls))


@functools.lru_cache(maxsize=4096)
def _is_known(module: str) -> bool:
    top = module.partition(".")[0]
    return top in _KNOWN or (top in sys.stdlib_module_names and top not in _SHARE)
