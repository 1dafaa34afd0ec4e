"""Classes that are written in C: what of their instances may change where no place of Python's is.

>>> import sqlite3
>>> "total_changes" in names_in_c(sqlite3.Connection), "execute" in methods_in_c(sqlite3.Connection)
(True, True)

What an attribute or an item gives is asked for again at each call (`gradof.runtime.state_in_c`).
What a method gives cannot be: it may change the object. So no trace runs code that may call one.
Classes of modules in `_KNOWN` have no such state, or are looked at elsewhere.
"""

from __future__ import annotations

import functools
from types import FunctionType, GetSetDescriptorType, MemberDescriptorType
from typing import Any

import numpy as np

from gradof.tracer.state.kinds import module_of

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
