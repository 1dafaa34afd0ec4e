"""What a function alone leads to, and the same of another function of its code.

    class Model:
        def __init__(self, scale): self.scale = scale
        def loss(self, p): return np.sum(p * p) * self.scale

    found = own_objects(Model(2.0).loss)       # the method, its instance, the instance's dict
    found.of(Model(3.0).loss)                  # the same of another instance, in the same order

Own are closure variables, the instance of a method, defaults, parts of a partial, and what these
lead to by attributes and items; not globals, modules and classes, which functions of one code
share.
"""

from __future__ import annotations

import functools
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, NamedTuple

import numpy as np

from gradof.runtime.state_values import checksum, is_plain, is_same
from gradof.tracer.state.frames import is_frame
from gradof.tracer.state.heard import is_heard
from gradof.tracer.state.items import items_of
from gradof.tracer.state.kinds import HEAP, applied_by, module_of

LIMIT = 2000  # objects; a function that leads to more is traced by itself
_ATOMS = (type(None), bool, int, float, complex, str, bytes, range, slice, CodeType)
_SHARED = (*_ATOMS, ModuleType, type, np.generic, np.ndarray, np.ufunc, np.dtype)
_CONTAINERS = (dict, list, tuple, set, frozenset, deque, bytearray)
_BOOKS = ("__gradof_compiled__", "__gradof_autograd__", "__wrapped__")


class Address(NamedTuple):
    """How an own object is reached: by a step from one before it."""

    parent: int
    kind: str
    key: Any
    type: Any
    like: Any  # what another must share: see `_likeness`


GONE = (LookupError, AttributeError, ValueError, TypeError)


class OwnObjects:
    """Addresses of own objects, and their numbers by id."""

    def __init__(self, addresses: list[Address], numbers: dict[int, int]) -> None:
        self.addresses, self.numbers = addresses, numbers

    def of(self, root: Any) -> list[Any] | None:
        """The objects that another function leads to at these addresses; None if they differ."""
        found: list[Any] = []
        try:
            for address in self.addresses:
                parent, kind, key, cls, like = address
                obj = root if parent < 0 else _read(found[parent], kind, key)
                if type(obj) is not cls or not _is_like(obj, like):
                    return None
                found.append(obj)
        except (*GONE, _Unlike):
            return None
        return found if len({*map(id, found)}) == len(found) else None


def _is_like(obj: Any, like: Any) -> bool:
    if type(obj) is FunctionType:
        same = obj.__code__ is like[0] and obj.__globals__ is like[1]
        return same and (like[2] is None or is_same(_contents(obj), like[2]))
    if type(obj) is tuple:
        return is_same(_items(obj), like)
    return like is None or like() is obj


# A guard leaves out what cannot change: items of some tuples, what functions close over that are
# not heard (`gradof.tracer.state.heard`). Of another function it may be something else.


class _Unlike(Exception):  # a signal within this module
    """What is there tells nothing by its value."""


def _items(obj: tuple[Any, ...]) -> tuple[Any, ...]:
    """The plain items of a tuple, and the types of others."""
    return tuple(
        x if is_plain(x) else (type(x).__name__, str(getattr(x, "dtype", "")), np.shape(x))
        if isinstance(x, np.ndarray) else (type(x).__name__,) for x in obj
    )


def _contents(fn: FunctionType) -> tuple[Any, ...]:
    """The values that a function closes over, and its defaults; raises _Unlike."""
    cells = [cell.cell_contents for cell in fn.__closure__ or ()]
    return _values([*cells, fn.__defaults__, fn.__kwdefaults__])


def _values(objects: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(map(_value, objects))


def _value(obj: Any) -> Any:
    if is_plain(obj):
        return obj
    if isinstance(obj, (np.ndarray, np.generic)):
        return str(checksum(np.asarray(obj)))
    if type(obj) in (tuple, list):
        return type(obj).__name__, _values(obj)
    if type(obj) is dict:
        return "dict", _values(obj), _values(obj.values())
    if isinstance(obj, _FOLLOWED) or isinstance(obj, (ModuleType, type)):
        return type(obj).__name__  # it is looked at by itself
    raise _Unlike


_FOLLOWED = (FunctionType, MethodType, functools.partial)


def _is_heard(fn: FunctionType) -> bool:
    return is_heard(str(fn.__globals__.get("__name__")))


def own_objects(root: Any, wanted: set[int]) -> OwnObjects | None:
    """Of the own objects those with an id in `wanted`, and what leads to them.

    None where there are too many, or where one has state that Python does not show.
    """
    seen: dict[int, int] = {id(root): 0}
    reached: list[tuple[Any, int, str, Any]] = [(root, -1, "", None)]
    at = 0
    while at < len(reached):
        for kind, key, child in _steps(reached[at][0]):
            if id(child) not in seen and not isinstance(child, _SHARED):
                seen[id(child)] = len(reached)
                reached.append((child, at, kind, key))
        at += 1
        if len(reached) > LIMIT:
            return None
    needed = {0}
    for n in range(len(reached) - 1, 0, -1):
        obj = reached[n][0]
        fixed = type(obj) is tuple or (type(obj) is FunctionType and not _is_heard(obj))
        if fixed or id(obj) in wanted or n in needed:
            needed |= {n, reached[n][1]}
    places = {old: new for new, old in enumerate(sorted(needed))}
    addresses: list[Address] = []
    for old in sorted(needed):
        obj, parent, kind, key = reached[old]
        try:
            like = _likeness(obj)
        except _Unlike:
            return None
        addresses.append(Address(places.get(parent, -1), kind, key, type(obj), like))
    return OwnObjects(addresses, {id(reached[old][0]): new for old, new in places.items()})


def _likeness(obj: Any) -> Any:
    """What another object must share with this one to stand for it, beside its type."""
    cls: Any = type(obj)
    if cls is FunctionType:
        fixed = None if _is_heard(obj) else _contents(obj)
        return obj.__code__, obj.__globals__, fixed
    if cls is tuple:
        return _items(obj)
    if cls in (object, MethodType, CellType, functools.partial) or cls in _CONTAINERS:
        return None
    if is_frame(cls):
        return None  # it is compared by what it holds
    if cls is BuiltinFunctionType or not _shows_all(cls) or not is_heard(module_of(cls)):
        try:
            return weakref.ref(obj)
        except TypeError:
            raise _Unlike from None
    return None


@functools.lru_cache(maxsize=1024)
def _shows_all(cls: Any) -> bool:
    """Whether all state of instances is in attributes, slots and items: no C code keeps some."""
    for base in cls.__mro__[:-1]:
        if base in _CONTAINERS:
            continue
        if not base.__flags__ & HEAP:
            return False
        for name, member in vars(base).items():
            hidden = isinstance(member, GetSetDescriptorType)
            if hidden and name not in ("__dict__", "__weakref__"):
                return False
    return True


def _steps(obj: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(obj, FunctionType):
        yield from (("cell", i, cell) for i, cell in enumerate(obj.__closure__ or ()))
        yield from (("default", i, v) for i, v in enumerate(obj.__defaults__ or ()))
        if obj.__kwdefaults__:
            yield "kwdefaults", None, obj.__kwdefaults__
        yield "dict", None, obj.__dict__
        return
    if is_frame(type(obj)):
        return
    if isinstance(obj, CellType):
        try:
            yield "content", None, obj.cell_contents
        except ValueError:
            return
    elif isinstance(obj, MethodType):
        yield from (("self", None, obj.__self__), ("function", None, obj.__func__))
    elif isinstance(obj, functools.partial):
        yield from (("func", None, applied_by(obj)), ("args", None, obj.args))
        yield "keywords", None, obj.keywords
        yield "dict", None, obj.__dict__
    elif isinstance(obj, BuiltinFunctionType):
        return
    elif isinstance(obj, dict):
        yield from (
            ("item", k, v) for k, v in list(dict.items(obj))
            if isinstance(k, (str, int, tuple)) and k not in _BOOKS
        )
    elif isinstance(obj, (list, tuple)):
        yield from (("index", i, v) for i, v in enumerate(items_of(obj)))
    cls: Any = type(obj)
    if cls in _CONTAINERS or isinstance(obj, (CellType, MethodType, functools.partial)):
        return
    if not getattr(cls, "_gradof_opaque", False) and not getattr(cls, "_gradof_private", ()):
        yield from _attributes(obj, cls)


def _attributes(obj: Any, cls: Any) -> Iterator[tuple[str, Any, Any]]:
    attributes = getattr(obj, "__dict__", None)
    if type(attributes) is dict:
        yield "dict", None, attributes
    for base in cls.__mro__[:-1]:
        for member in vars(base).values():
            if type(member) is MemberDescriptorType:
                try:
                    yield "slot", member, member.__get__(obj)
                except AttributeError:
                    continue


def _read(obj: Any, kind: str, key: Any) -> Any:
    """Take a step; raises one of GONE."""
    if kind == "item":
        return dict.__getitem__(obj, key)
    if kind == "index":
        return obj[key]
    if kind == "slot":
        return key.__get__(obj)
    if kind == "cell":
        return obj.__closure__[key]
    if kind == "default":
        return obj.__defaults__[key]
    return getattr(obj, _NAMES[kind])


_NAMES = {
    "content": "cell_contents", "dict": "__dict__", "self": "__self__", "function": "__func__",
    "func": "func", "args": "args", "keywords": "keywords", "kwdefaults": "__kwdefaults__",
}  # fmt: skip
