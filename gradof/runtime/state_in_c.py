"""What objects of C's say of themselves: state that no place of Python's holds.

    self.simulation.time        # of a class in C: each read may give another number
    self.simulation.step()      # each call may give another one, and change what the next gives

Attributes of Python's objects are compared where they are kept. Those of a class that is written in
C, a library's simulator or connection, are asked for again (`OfC`): of the names that the code
mentions, each that gives a plain value, an array, or one and the same object; and the items of one
that has some, if they are as plain, and few. Other values, made anew at each read, are not
compared. What a method gives cannot be asked for again: the code that
may call one runs itself (`methods_in_c`). Classes of modules in `_KNOWN` have no such state, or are
looked at elsewhere.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from types import FunctionType, GetSetDescriptorType, MemberDescriptorType
from typing import Any, cast

import numpy as np

from gradof import tuning
from gradof.ir.contents import checksum
from gradof.tracer.state.kinds import module_of

_PLAIN = frozenset({int, float, complex, bool, str, bytes, type(None)})
# Classes of which nothing that can be read changes, or which are looked at by what they are.
_KNOWN = frozenset({
    "builtins", "functools", "types", "typing", "torch", "numpy", "gradof", "triton", "datetime",
    "fractions", "re", "operator", "_operator", "itertools", "collections",
    "_thread", "threading", "weakref", "_weakref", "pathlib", "enum", "abc", "_abc", "contextlib",
    "contextvars", "_contextvars", "io", "_io", "random", "_random", "logging", "ctypes", "_ctypes",
    "array", "zoneinfo", "uuid", "ipaddress", "asyncio", "_asyncio", "concurrent", "queue",
    "_queue", "pandas", "pyarrow", "jax", "jaxlib", "inspect", "string", "dataclasses", "numbers",
    "time", "ast", "_ast", "llvmlite", "numba", "scipy", "sklearn", "_struct", "pydantic_core",
    "tokenizers", "safetensors", "shapely", "pyproj",
})  # fmt: skip
# Types of methods of C's: those of CPython's API, of pybind11, of Cython.
_METHODS = frozenset({"method_descriptor", "instancemethod", "cython_function_or_method"})
_NOTHING = object()
_ITEMS = "its items"
_MANY = 1000  # items


@functools.lru_cache(maxsize=4096)
def names_in_c(cls: Any) -> frozenset[str]:
    """The names of a class's attributes that are read by code in C and may change."""
    found: dict[str, bool] = {}
    for base in cls.__mro__:
        is_known = _is_known(base)
        for name, attribute in vars(base).items():
            found.setdefault(name, not is_known and _is_in_c(base, attribute))
    return frozenset(name for name, is_in_c in found.items() if is_in_c and name[:2] != "__")


@functools.lru_cache(maxsize=4096)
def has_items_in_c(cls: Any) -> bool:
    """Whether code in C gives the items of instances."""
    owner = next((base for base in cls.__mro__ if "__getitem__" in vars(base)), None)
    if owner is None or _is_known(owner):
        return False
    return not isinstance(vars(owner)["__getitem__"], FunctionType)


def _is_known(base: Any) -> bool:
    if issubclass(base, np.random.BitGenerator):
        return False  # what it says of its state moves with each draw
    return module_of(base).partition(".")[0] in _KNOWN


def _is_in_c(base: Any, attribute: Any) -> bool:
    if isinstance(attribute, property):
        return not isinstance(attribute.fget, (FunctionType, functools.partial, type(None)))
    if isinstance(attribute, MemberDescriptorType):
        return "__slots__" not in vars(base)
    return isinstance(attribute, GetSetDescriptorType)


@functools.lru_cache(maxsize=4096)
def methods_in_c(cls: Any) -> frozenset[str]:
    """The names of a class's methods that are code in C, and may read and change what it holds."""
    found: dict[str, bool] = {}
    for base in cls.__mro__:
        is_known = _is_known(base) or issubclass(base, np.random.BitGenerator)
        for name, attribute in vars(base).items():
            found.setdefault(name, not is_known and type(attribute).__name__ in _METHODS)
    return frozenset(name for name, is_in_c in found.items() if is_in_c and name[:2] != "__")


class OfC:
    """Whether an object in C says what it said."""

    def __init__(self, obj: Any, names: Iterable[str]) -> None:
        self._obj, cls = obj, cast(Any, type(obj))
        asked = [*sorted(names), *([_ITEMS] if has_items_in_c(cls) else ())]
        self._then = {name: self._now(name) for name in asked}
        self._then = {
            name: value for name, value in self._then.items()
            if value is not _NOTHING and _same(value, self._now(name))
        }  # fmt: skip

    def _now(self, name: str) -> Any:
        try:
            found = _items(self._obj) if name is _ITEMS else getattr(self._obj, name)
        except Exception:  # a closed connection's; what raises raised in the trace, too
            return _NOTHING
        if type(found) is dict:  # of a bit generator
            return repr(found)
        if type(found) is np.ndarray and found.nbytes <= tuning.CHECKED_BYTES:
            return found.dtype, found.shape, checksum(found)
        return found

    def __bool__(self) -> bool:
        return bool(self._then)

    def __call__(self) -> bool:
        """Whether it does."""
        return all(_same(value, self._now(name)) for name, value in self._then.items())


def _items(obj: Any) -> Any:
    return tuple(obj[k] for k in range(len(obj))) if len(obj) <= _MANY else _NOTHING


def _same(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if type(a) is tuple:
        return len(a) == len(b) and all(map(_same, a, b))
    return (type(a) in _PLAIN or isinstance(a, np.dtype)) and repr(a) == repr(b)
