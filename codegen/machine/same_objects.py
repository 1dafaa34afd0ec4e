"""Thousands of places of Python's state compared in one native call: is each as it was?

    holds = same_objects(Places(items=[(vars(model), "scale", v)], sizes=[(layers, 6)], ...))
    holds()                                # True where every place has the very object it had

A table has the addresses of all objects, which the function keeps alive. A dict is asked by
Python's C interface; of other objects words are read, by Note [Layout of objects] in
`python_entry`. Where that does not hold, or there is no native code, there is no such function.
"""

from __future__ import annotations

import ctypes
import functools
import sysconfig
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any

from gradof.codegen.machine.engine import address_of, vector_bits
from gradof.codegen.machine.python_entry import MethodDef

_TYPE, _DATA = 8, 16  # offsets: of an object, of a ctypes array
_NO_ARGUMENTS = 0x4  # METH_NOARGS
_DICTS = (dict, OrderedDict)
_SIZED = (*_DICTS, list, set)


@dataclass
class Places:
    """What is compared; `add_*` refuse, with False, what is not of these kinds."""

    items: list[tuple[Any, Any, Any]] = field(default_factory=list)  # dict, key, value
    sizes: list[tuple[Any, int]] = field(default_factory=list)
    types: list[tuple[Any, type]] = field(default_factory=list)
    codes: list[tuple[FunctionType, CodeType]] = field(default_factory=list)
    defaults: list[tuple[FunctionType, Any]] = field(default_factory=list)

    def add_item(self, container: Any, key: Any, value: Any) -> bool:
        """`container[key] is value`, of a plain dict with a name or a number as key."""
        fits = type(container) in _DICTS and type(key) in (str, int)
        if fits:
            self.items.append((container, key, value))
        return fits

    def add_size(self, container: Any, size: int) -> bool:
        """`len(container) == size`, of a dict, a list or a set."""
        fits = type(container) in _SIZED
        if fits:
            self.sizes.append((container, size))
        return fits

    def __len__(self) -> int:
        return sum(map(len, self._groups()))

    def table(self) -> list[int]:
        """The numbers of rows of each kind, and their addresses."""
        numbers = [len(rows) for rows in self._groups()]
        # those of one dict one after the other, which the caches like
        items = sorted(self.items, key=lambda row: id(row[0]))
        numbers += [id(x) for row in items for x in row]
        numbers += [x for container, size in self.sizes for x in (id(container), size)]
        pairs: Sequence[Any] = (*self.types, *self.codes, *self.defaults)
        return numbers + [id(x) for row in pairs for x in row]

    def _groups(self) -> tuple[list[Any], ...]:
        return self.items, self.sizes, self.types, self.codes, self.defaults


def same_objects(places: Places) -> Callable[[], bool] | None:
    """The function that compares them; None where there is no native code for it."""
    if not is_known():
        return None
    numbers = places.table()
    table = type("Table", (ctypes.c_int64 * len(numbers),), {})(*numbers)
    table.kept = places
    make = ctypes.PYFUNCTYPE(
        ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p
    )(("PyCFunction_NewEx", ctypes.pythonapi))
    made: Callable[[], bool] = make(ctypes.addressof(_method()), table, None)
    return made


@functools.cache
def is_known() -> bool:
    """Whether this Python has the layout that is read, and there is native code."""
    if sysconfig.get_config_var("Py_GIL_DISABLED") or not vector_bits():
        return False
    table = (ctypes.c_int64 * 1)()
    word: Callable[[int], int] = lambda at: ctypes.c_int64.from_address(at).value  # noqa: E731
    return (
        word(id(table) + _TYPE) == id(type(table))
        and word(id(table) + _DATA) == ctypes.addressof(table)
    )


@functools.cache
def _method() -> MethodDef:
    return MethodDef(b"same_objects", address_of(text(), "same", "plain"), _NO_ARGUMENTS, None)


def text() -> str:
    """The function of Python's C interface."""
    groups = (
        ("item", 3, "call ptr @PyDict_GetItem(ptr %item_a, ptr %item_b)"),
        ("size", 2, "call i64 @PyObject_Size(ptr %size_a)"),
        ("type", 2, "load ptr, ptr %type_field"),
        ("code", 2, "call ptr @PyFunction_GetCode(ptr %code_a)"),
        ("defaults", 2, "call ptr @PyFunction_GetDefaults(ptr %defaults_a)"),
    )
    body, before = "", "entry"
    for k, (name, width, found) in enumerate(groups):
        after = groups[k + 1][0] if k + 1 < len(groups) else "same"
        start = f"%{groups[k - 1][0]}_row" if k else "%first"
        body += _group(name, width, found, k, before, start, after)
        before = name
    return f"""
declare ptr @PyDict_GetItem(ptr, ptr)
declare i64 @PyObject_Size(ptr)
declare ptr @PyFunction_GetCode(ptr)
declare ptr @PyFunction_GetDefaults(ptr)
declare ptr @PyBool_FromLong(i64)

define ptr @same(ptr %self, ptr %nothing) {{
entry:
  %table_at = getelementptr i8, ptr %self, i64 {_DATA}
  %table = load ptr, ptr %table_at
  %first = getelementptr i64, ptr %table, i64 {len(groups)}
  br label %item

{body}same:
  %yes = call ptr @PyBool_FromLong(i64 1)
  ret ptr %yes

other:
  %no = call ptr @PyBool_FromLong(i64 0)
  ret ptr %no
}}
"""


def _group(
    name: str, width: int, found: str, k: int, before: str, start: str, after: str
) -> str:
    """The loop over the rows of one kind; it ends with `%NAME_row` beyond the last."""
    n = name
    kind = "i64" if name == "size" else "ptr"
    reads = "".join(
        f"  %{n}_{c}_at = getelementptr i64, ptr %{n}_row, i64 {i}\n"
        f"  %{n}_{c} = load {kind if i == width - 1 else 'ptr'}, ptr %{n}_{c}_at\n"
        for i, c in enumerate("abc"[:width])
    )
    if name == "type":
        reads += f"  %type_field = getelementptr i8, ptr %type_a, i64 {_TYPE}\n"
    return f"""{n}:
  %{n}_i = phi i64 [ 0, %{before} ], [ %{n}_next, %{n}_well ]
  %{n}_row = phi ptr [ {start}, %{before} ], [ %{n}_beyond, %{n}_well ]
  %{n}_count_at = getelementptr i64, ptr %table, i64 {k}
  %{n}_count = load i64, ptr %{n}_count_at
  %{n}_more = icmp slt i64 %{n}_i, %{n}_count
  br i1 %{n}_more, label %{n}_look, label %{after}

{n}_look:
{reads}  %{n}_found = {found}
  %{n}_same = icmp eq {kind} %{n}_found, %{n}_{"abc"[width - 1]}
  br i1 %{n}_same, label %{n}_well, label %other

{n}_well:
  %{n}_next = add i64 %{n}_i, 1
  %{n}_beyond = getelementptr i64, ptr %{n}_row, i64 {width}
  br label %{n}

"""
