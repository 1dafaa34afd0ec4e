"""Thousands of places of Python's state compared in one native call: is each as it was?

    places.add_item(vars(model), "scale", v)
    holds = same_objects(places)
    holds()                                # True where every place has the very object it had

A table has the addresses of all objects, which the function keeps alive. A dict is asked by
Python's C interface, and passed by where it has not been written to since; of other objects words
are read, by Note [Layout of objects] in `python_entry`. Where that does not hold, or there is no
native code, there is no such function.
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
from gradof.codegen.machine.python_entry import MethodDef, function_of

_TYPE, _DATA = 8, 16  # offsets: of an object, of a ctypes array
_USED, _VERSION = 16, 24  # of a dict: how many items, and a number that no dict had before
_NO_ARGUMENTS = 0x4  # METH_NOARGS
_DICTS = (dict, OrderedDict)
_SIZED = (*_DICTS, list, set)
_ABSENT = object()  # the value of a key that is not there


@dataclass
class Places:
    """What is compared; `add_*` refuse, with False, what is not of these kinds."""

    dicts: dict[int, _OfDict] = field(default_factory=dict)  # by id
    sizes: list[tuple[Any, int]] = field(default_factory=list)  # of lists and sets
    types: list[tuple[Any, type]] = field(default_factory=list)
    codes: list[tuple[FunctionType, CodeType]] = field(default_factory=list)
    defaults: list[tuple[FunctionType, Any]] = field(default_factory=list)

    def add_item(self, container: Any, key: Any, value: Any) -> bool:
        """`container[key] is value`, of a plain dict with a name or a number as key."""
        fits = type(container) in _DICTS and type(key) in (str, int)
        if fits:
            self._of(container).items.append((key, value))
        return fits

    def add_absent(self, container: dict[str, Any], key: str) -> None:
        """`key not in container`, of a plain dict."""
        self._of(container).items.append((key, _ABSENT))

    def add_order(self, container: Any, keys: Any) -> bool:
        """`tuple(container) == keys`, of a plain dict with names as keys."""
        if type(keys) is not tuple or (keys and type(container) is not dict):
            return False  # the order of an OrderedDict is not that of the dict within
        if not keys:
            return type(container) in _DICTS and self.add_size(container, 0)
        fits = set(map(type, keys)) == {str}
        if fits:
            self._of(container).keys = keys
        return fits

    def add_size(self, container: Any, size: int) -> bool:
        """`len(container) == size`, of a dict, a list or a set."""
        if type(container) in _DICTS:
            self._of(container).size = size
        elif type(container) in _SIZED:
            self.sizes.append((container, size))
        return type(container) in _SIZED

    def _of(self, container: Any) -> _OfDict:
        return self.dicts.setdefault(id(container), _OfDict(container))

    def __len__(self) -> int:
        inside = sum(len(d.items) + (d.size >= 0) + (d.keys != ()) for d in self.dicts.values())
        return inside + sum(map(len, self._pairs()))

    def table(self) -> list[int]:
        """The numbers of rows of each kind, and their addresses."""
        numbers = [len(self.dicts), *map(len, self._pairs())]
        for held in self.dicts.values():
            numbers += held.record()
        numbers += [x for container, size in self.sizes for x in (id(container), size)]
        pairs: Sequence[Any] = (*self.types, *self.codes, *self.defaults)
        return numbers + [id(x) for row in pairs for x in row]

    def _pairs(self) -> tuple[list[Any], ...]:
        return self.sizes, self.types, self.codes, self.defaults


@dataclass
class _OfDict:
    """What is compared of one dict: its size where it is not negative, items, keys in order."""

    of: Any
    size: int = -1
    items: list[tuple[Any, Any]] = field(default_factory=list)
    keys: tuple[str, ...] = ()

    def record(self) -> list[int]:
        """As the native code reads it; the version is none that a dict has."""
        size = len(self.keys) if self.keys else self.size
        numbers = [id(self.of), -1, size, len(self.items), len(self.keys)]
        numbers += [n for key, value in self.items for n in (id(key), _number(value))]
        return [*numbers, *map(id, self.keys)]


def _number(value: Any) -> int:
    return 0 if value is _ABSENT else id(value)


def same_objects(places: Places) -> Callable[[], bool] | None:
    """The function that compares them; None where there is no native code for it."""
    if not is_known():
        return None
    numbers = places.table()
    table = type("Table", (ctypes.c_int64 * len(numbers),), {})(*numbers)
    table.kept = places
    return function_of(_method(has_versions()), table)


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
def has_versions() -> bool:
    """Whether a dict has a number that changes whenever it is written to: up to Python 3.12.

    From then on an attribute that is set leaves the number of its object's dict as it was.
    """
    probe: dict[str, Any] = {"a": 1}
    owner = _Owner()
    seen, owned = [], []
    for at, change in enumerate(((), (("a", 2),), (("a", 1),), (("b", 3),), ())):
        probe.update(change)
        owner.a = at
        seen.append(ctypes.c_int64.from_address(id(probe) + _VERSION).value)
        owned.append(ctypes.c_int64.from_address(id(vars(owner)) + _VERSION).value)
    used = ctypes.c_int64.from_address(id(probe) + _USED).value
    moves = seen[3] == seen[4] and len(set(seen)) == 4 and len(set(owned)) == len(owned)
    return used == len(probe) and moves


class _Owner:
    a = 0


@functools.cache
def _method(versions: bool) -> MethodDef:
    code = address_of(text(versions), "same", "plain")
    return MethodDef(b"same_objects", code, _NO_ARGUMENTS, None)  # never freed: see the cache


def text(versions: bool) -> str:
    """The function of Python's C interface; `versions`: dicts not written to are passed by.

    A version is noted when all of a dict was found to be as it was.
    """
    groups = (
        ("size", "call i64 @PyObject_Size(ptr %size_a)"),
        ("type", "load ptr, ptr %type_field"),
        ("code", "call ptr @PyFunction_GetCode(ptr %code_a)"),
        ("defaults", "call ptr @PyFunction_GetDefaults(ptr %defaults_a)"),
    )
    body, before = "", "dict"
    for k, (name, found) in enumerate(groups):
        after = groups[k + 1][0] if k + 1 < len(groups) else "same"
        body += _pairs(name, found, k + 1, before, after)
        before = name
    return f"""
declare ptr @PyDict_GetItem(ptr, ptr)
declare i64 @PyObject_Size(ptr)
declare ptr @PyFunction_GetCode(ptr)
declare ptr @PyFunction_GetDefaults(ptr)
declare ptr @PyBool_FromLong(i64)
declare i32 @PyDict_Next(ptr, ptr, ptr, ptr)

define ptr @same(ptr %self, ptr %nothing) {{
entry:
  %at = alloca i64
  %key_at = alloca ptr
  %table_at = getelementptr i8, ptr %self, i64 {_DATA}
  %table = load ptr, ptr %table_at
  %first = getelementptr i64, ptr %table, i64 {len(groups) + 1}
  %dict_count = load i64, ptr %table
  br label %dict

{_dicts(versions)}{body}same:
  %yes = call ptr @PyBool_FromLong(i64 1)
  ret ptr %yes

other:
  %no = call ptr @PyBool_FromLong(i64 0)
  ret ptr %no
}}
"""


def _dicts(versions: bool) -> str:
    """The loop over dicts: address, version, size, numbers of items and keys, items, keys."""
    known = "icmp eq i64 %version, %version_seen" if versions else "icmp ne i64 0, 0"
    fields = "".join(
        f"  %{name}_of = getelementptr i64, ptr %dict_row, i64 {i}\n"
        f"  %{name} = load i64, ptr %{name}_of\n"
        for i, name in ((1, "version_seen"), (2, "wanted"), (3, "items"), (4, "keys"))
    )
    return f"""dict:
  %dict_i = phi i64 [ 0, %entry ], [ %dict_next, %dict_well ]
  %dict_row = phi ptr [ %first, %entry ], [ %beyond, %dict_well ]
  %dict_more = icmp slt i64 %dict_i, %dict_count
  br i1 %dict_more, label %dict_look, label %size

dict_look:
  %the_dict = load ptr, ptr %dict_row
{fields}  %item_rows = getelementptr i64, ptr %dict_row, i64 5
  %item_words = shl i64 %items, 1
  %key_rows = getelementptr i64, ptr %item_rows, i64 %item_words
  %beyond = getelementptr i64, ptr %key_rows, i64 %keys
  %version_at = getelementptr i8, ptr %the_dict, i64 {_VERSION}
  %version = load i64, ptr %version_at
  %unwritten = {known}
  br i1 %unwritten, label %dict_well, label %dict_size

dict_size:
  %sized = icmp sge i64 %wanted, 0
  br i1 %sized, label %dict_count_items, label %item

dict_count_items:
  %there = call i64 @PyObject_Size(ptr %the_dict)
  %fits = icmp eq i64 %there, %wanted
  br i1 %fits, label %item, label %other

{_ROWS}dict_same:
  store i64 %version, ptr %version_seen_of
  br label %dict_well

dict_well:
  %dict_next = add i64 %dict_i, 1
  br label %dict

"""


# Of one dict: its items, then its keys in order.
_ROWS = """item:
  %item_i = phi i64 [ 0, %dict_size ], [ 0, %dict_count_items ], [ %item_next, %item_well ]
  %item_more = icmp slt i64 %item_i, %items
  br i1 %item_more, label %item_look, label %order

item_look:
  %item_word = shl i64 %item_i, 1
  %item_row = getelementptr i64, ptr %item_rows, i64 %item_word
  %item_key = load ptr, ptr %item_row
  %item_value_at = getelementptr i64, ptr %item_row, i64 1
  %item_value = load ptr, ptr %item_value_at
  %item_found = call ptr @PyDict_GetItem(ptr %the_dict, ptr %item_key)
  %item_same = icmp eq ptr %item_found, %item_value
  br i1 %item_same, label %item_well, label %other

item_well:
  %item_next = add i64 %item_i, 1
  br label %item

order:
  store i64 0, ptr %at
  br label %key

key:
  %key_i = phi i64 [ 0, %order ], [ %key_next, %key_well ]
  %key_more = icmp slt i64 %key_i, %keys
  br i1 %key_more, label %key_look, label %dict_same

key_look:
  %key_there = call i32 @PyDict_Next(ptr %the_dict, ptr %at, ptr %key_at, ptr null)
  %key_found = load ptr, ptr %key_at
  %key_expected_at = getelementptr i64, ptr %key_rows, i64 %key_i
  %key_expected = load ptr, ptr %key_expected_at
  %key_same = icmp eq ptr %key_found, %key_expected
  br i1 %key_same, label %key_well, label %other

key_well:
  %key_next = add i64 %key_i, 1
  br label %key

"""


def _pairs(name: str, found: str, k: int, before: str, after: str) -> str:
    """The loop over the rows of one kind; it ends with `%NAME_row` beyond the last."""
    n = name
    kind = "i64" if name == "size" else "ptr"
    field = (
        f"  %type_field = getelementptr i8, ptr %type_a, i64 {_TYPE}\n" if name == "type" else ""
    )
    return f"""{n}:
  %{n}_i = phi i64 [ 0, %{before} ], [ %{n}_next, %{n}_well ]
  %{n}_row = phi ptr [ %{before}_row, %{before} ], [ %{n}_beyond, %{n}_well ]
  %{n}_count_at = getelementptr i64, ptr %table, i64 {k}
  %{n}_count = load i64, ptr %{n}_count_at
  %{n}_more = icmp slt i64 %{n}_i, %{n}_count
  br i1 %{n}_more, label %{n}_look, label %{after}

{n}_look:
  %{n}_a = load ptr, ptr %{n}_row
  %{n}_b_at = getelementptr i64, ptr %{n}_row, i64 1
  %{n}_b = load {kind}, ptr %{n}_b_at
{field}  %{n}_found = {found}
  %{n}_same = icmp eq {kind} %{n}_found, %{n}_b
  br i1 %{n}_same, label %{n}_well, label %other

{n}_well:
  %{n}_next = add i64 %{n}_i, 1
  %{n}_beyond = getelementptr i64, ptr %{n}_row, i64 2
  br label %{n}

"""
