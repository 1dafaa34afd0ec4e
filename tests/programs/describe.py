"""A text of everything that can be reached from a value, so that two runs can be compared.

    describe({"a": [1, 2]}, "world")   →  [("world", "dict of 1"), ("world['a']", "list of 2"), ...]

A line is a path and what is there: the type and the value of an atom, an array with its dtype,
shape and strides, the number of items of a container. An object that is reached a second time is
described by the path on which it was first seen, so that aliasing is compared as well; so are
tensors that share memory. Lists of two runs are compared by `first_difference`.
"""

from __future__ import annotations

import contextlib
import io
import operator
import types
import weakref
from collections.abc import Iterator, Mapping
from datetime import timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePath
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.utils.hooks import RemovableHandle

from tests.runtime.compare import TOLERANCES

Line = tuple[str, Any]

_ATOMS = (type(None), bool, int, str, bytes, Enum, type(...), np.generic, torch.dtype,
          torch.device, torch.memory_format, torch.layout,
          range, slice, PurePath, Fraction, Decimal, timedelta)  # fmt: skip
_FLOATS = (float, complex, np.floating, np.complexfloating)
_SKIPPED = (types.ModuleType, types.BuiltinFunctionType, weakref.ref, RemovableHandle,
            types.CodeType, io.IOBase)  # fmt: skip
# What torch counts for itself: other numbers in every run.
_UNEQUAL_NAMES = frozenset({"__weakref__", "__dict__", "_abc_impl", "_version", "__doc__"})


class _Describer:
    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.seen: dict[int, tuple[str, Any]] = {}  # the object is kept: ids are not used again
        self.memory: dict[int, str] = {}

    def visit(self, value: Any, path: str) -> None:
        kind = type(value).__name__
        if isinstance(value, _FLOATS):
            self.lines.append((path, (kind, np.asarray(value))))
            return
        if isinstance(value, (*_ATOMS, *_SKIPPED)):
            shown = repr(value) if isinstance(value, _ATOMS) else ""
            self.lines.append((path, f"{kind} {shown}"))
            return
        known = self.seen.get(id(value))
        if known is not None:
            self.lines.append((path, f"the same object as {known[0]}"))
            return
        self.seen[id(value)] = path, value
        if isinstance(value, torch.Tensor):
            self.tensor(value, path)
        elif isinstance(value, np.ndarray):
            self.lines.append((path, ("ndarray", value.dtype.str, value.shape, value.copy())))
        elif isinstance(value, type):
            self.of_class(value, path)
        elif isinstance(value, types.FunctionType):
            self.function(value, path)
        elif isinstance(value, types.MethodType):
            self.lines.append((path, f"method {value.__name__}"))
            self.visit(value.__self__, f"{path}.__self__")
        else:
            self.other(value, path)

    def tensor(self, value: torch.Tensor, path: str) -> None:
        kind = f"{type(value).__name__} requires_grad={value.requires_grad} leaf={value.is_leaf}"
        if value.layout is not torch.strided:
            self.lines.append((path, f"{kind} {value.layout}"))
            self.visit(value.detach().to_dense(), f"{path}.dense")
            return
        if is_lazy(value):
            self.lines.append((path, f"{kind} without shape"))
            return
        strides = value.stride() if value.numel() > 1 else ()
        array = value.detach().clone().as_subclass(torch.Tensor)
        self.lines.append((path, (kind, str(value.dtype), value.shape, strides, array)))
        if value.numel():
            address = value.untyped_storage().data_ptr()
            first = self.memory.setdefault(address, path)
            self.lines.append((path, "its own memory" if first == path else f"memory of {first}"))
        if value.is_leaf and value.requires_grad:
            self.visit(value.grad, f"{path}.grad")
        self.attributes(vars(value), path)

    def of_class(self, value: type, path: str) -> None:
        self.lines.append((path, f"class {value.__qualname__}"))
        if value.__module__ == "program":
            plain = {k: v for k, v in vars(value).items() if not hasattr(v, "__get__")}
            self.attributes(plain, path)

    def function(self, value: types.FunctionType, path: str) -> None:
        self.lines.append((path, f"function {value.__qualname__}"))
        if value.__module__ != "program":
            return
        self.visit(value.__defaults__, f"{path}.__defaults__")
        self.visit(value.__kwdefaults__, f"{path}.__kwdefaults__")
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # an empty cell
                self.visit(cell.cell_contents, f"{path}.<{name}>")
        self.attributes(vars(value), path)

    def other(self, value: Any, path: str) -> None:
        kind = type(value).__name__
        items = _items(value, path)
        if items is None:
            hint = operator.length_hint(value, -1)
            self.lines.append((path, kind if hint < 0 else f"{kind} with {hint} to come"))
        else:
            found = list(items)
            self.lines.append((path, f"{kind} of {len(found)}"))
            for where, item in found:
                self.visit(item, where)
        self.attributes(getattr(value, "__dict__", {}), path)
        for cls in type(value).__mro__:
            slots = vars(cls).get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if name not in _UNEQUAL_NAMES and hasattr(value, name):
                    self.visit(getattr(value, name), f"{path}.{name}")

    def attributes(self, table: Any, path: str) -> None:
        for name, value in list(table.items()):
            if name in _UNEQUAL_NAMES or (name.startswith("__") and name.endswith("__")):
                continue
            if "hooks" in name and isinstance(value, dict):
                value = list(value.values())  # the keys are numbers that torch counts up
            self.visit(value, f"{path}.{name}")


def _items(value: Any, path: str) -> Iterator[tuple[str, Any]] | None:
    if isinstance(value, nn.Module):
        return None
    if isinstance(value, Mapping):
        pairs = enumerate(list(value.items()))
        return (
            (f"{path}[{key!r}]", item)
            if isinstance(key, _ATOMS)
            else (f"{path}[key {i}]", (key, item))
            for i, (key, item) in pairs
        )
    if isinstance(value, (set, frozenset)):
        return ((f"{path}{{{i}}}", item) for i, item in enumerate(sorted(value, key=repr)))
    if hasattr(type(value), "__getitem__") and hasattr(type(value), "__len__"):
        try:
            return ((f"{path}[{i}]", value[i]) for i in range(len(value)))
        except (TypeError, KeyError):
            return None
    return None


def describe(value: Any, name: str) -> list[Line]:
    """The lines of a value, see the module docstring."""
    describer = _Describer()
    describer.visit(value, name)
    return describer.lines


def first_difference(
    expected: list[Line], found: list[Line], rounding: float = 0.0
) -> str | None:
    """Where two descriptions differ first, or None; arrays up to rounding in their dtype."""
    for (path, want), (other, have) in zip(expected, found, strict=False):
        if path != other:
            return f"eager has {path}, gradof has {other}"
        if not _equal(want, have, rounding):
            return f"{path}: eager has {_short(want)}, gradof has {_short(have)}"
    if len(expected) != len(found):
        longer = (expected, found)[len(found) > len(expected)]
        who = "eager" if len(expected) > len(found) else "gradof"
        return f"only {who} has {longer[min(len(expected), len(found))]}"
    return None


def _short(line: Any) -> str:
    if isinstance(line, tuple):
        line = *(str(part) for part in line[:-1]), np.asarray(torch.as_tensor(line[-1])).tolist()
    return " ".join(str(line).split())[:160]


def _equal(want: Any, have: Any, rounding: float) -> bool:
    if isinstance(want, str) or isinstance(have, str):
        return bool(isinstance(want, str) and isinstance(have, str) and want == have)
    if want[:-1] != have[:-1]:
        return False
    a, b = torch.as_tensor(want[-1]), torch.as_tensor(have[-1])
    rtol, atol = TOLERANCES.get(a.dtype, (0.0, 0.0))
    return torch.allclose(a, b, rtol=max(rtol, rounding), atol=atol, equal_nan=True)
