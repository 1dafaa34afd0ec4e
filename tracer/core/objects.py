"""Objects of any class in results: a cache of keys and values, a distribution, a record.

    class Cache: ...                       # no dataclass, and not in torch's registry

    def step(x):
        cache = Cache()
        cache.keys = [x @ w]               # a traced tensor, in an object made by the call
        return x.sum(), cache

The object is taken apart into its attributes, and every call gives a new one, with `__new__` and
without `__init__`, as copying does. So are objects without tensors that the function has made:
Python would make new ones as well. Those it only passes on, such as a config, are the same objects.
A function that closes over traced tensors is made anew, too, over those of the call.
"""

from __future__ import annotations

import enum
import functools
import inspect
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType, MemberDescriptorType, ModuleType
from typing import Any

from gradof.errors import TraceError
from gradof.ir.core import Loc
from gradof.tracer.core.enclosed import is_enclosing, is_filled, why_not_again
from gradof.tracer.core.pytree import (
    PARTIAL,
    Item,
    Members,
    Referent,
    TreeDef,
    closed,
    flatten,
)
from gradof.tracer.state.code_facts import facts_of
from gradof.tracer.state.items import items_of

_VALUES = (
    type(None), bool, int, float, complex, str, bytes, range, slice, enum.Enum, type, ModuleType,
)  # fmt: skip
_DICTS = frozenset({object.__new__, dict.__new__})
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement, or while a module is loaded
_WORD = object.__basicsize__ // 2


@functools.lru_cache(maxsize=1024)
def can_be_made(cls: type) -> bool:
    """Whether `__new__` makes an instance that attributes and items complete.

    An object of C's that has more memory than these take (as those that `copyreg` refuses, and the
    functions of f2py) keeps there what no attribute says.
    """
    if cls.__new__ not in _DICTS:
        return False
    base = next(b for b in cls.__mro__ if not b.__flags__ & _HEAP_TYPE)
    if base not in (object, dict, OrderedDict):
        return False
    slots = sum(isinstance(m, MemberDescriptorType) for b in cls.__mro__ for m in vars(b).values())
    places = slots + (cls.__dictoffset__ > 0) + (cls.__weakrefoffset__ > 0)
    return cls.__basicsize__ <= base.__basicsize__ + _WORD * places



def flatten_result(
    result: Any, was_there: Callable[[Any], bool], given: Sequence[Any],
    is_traced: Callable[[Any], bool], is_value: Callable[[Any], bool], loc: Loc | None,
    is_whole: Callable[[Any], bool] | None = None,
) -> tuple[list[Any], TreeDef]:  # fmt: skip
    """The leaves of what a function returned or stored, and its structure.

    `was_there` tells which objects it could reach before the call. `given` are the leaves of the
    arguments, `is_traced` tells tensors of the trace, `is_value` what is a leaf for the library,
    `is_whole` containers that are leaves (`gradof.tracer.core.given`).
    Raises TraceError for an object that holds traced tensors where no copy of it could be made.
    """
    objects = _Objects(was_there, given, is_traced, is_value, loc)
    return flatten(result, objects.members, is_whole, loc)


class _Objects:
    def __init__(
        self, was_there: Callable[[Any], bool], given: Sequence[Any],
        is_traced: Callable[[Any], bool], is_value: Callable[[Any], bool], loc: Loc | None,
    ) -> None:  # fmt: skip
        self.was_there = was_there
        self.given = given
        self.is_traced = is_traced
        self.is_value = is_value
        self.loc = loc

    def members(self, obj: Any) -> Members | None:
        """Attributes and items of an object that each call makes anew; None for all others."""
        if is_enclosing(obj):
            if self._is_remade(obj):
                return closed(obj)
            self._refuse_enclosing(obj)
        if self._is_leaf(obj):
            return None
        if type(obj) is not weakref.ref and self._was_before(obj):
            return None  # the same object; what is set in it is stored
        if not self._holds_traced(obj, set()) and not self._is_new(obj):
            return None
        if type(obj) is functools.partial and not vars(obj):
            return PARTIAL, [obj.func, obj.args, obj.keywords]
        if type(obj) is weakref.ref:
            if obj.__callback__ is not None:
                raise self._error(obj, "has a callback")
            return (Referent(),), [obj()]
        cls: type = type(obj)
        if not can_be_made(cls):
            raise self._error(obj, "cannot be made without its constructor")
        found: dict[Any, Any] = dict(_attributes(obj))
        if isinstance(obj, dict):
            found.update({Item(key): dict.__getitem__(obj, key) for key in dict.keys(obj)})
        return tuple(found), list(found.values())

    def _refuse_enclosing(self, obj: Any) -> None:
        if self.was_there(obj) or any(obj is leaf for leaf in self.given):
            return
        why = why_not_again(obj, self.was_there, self.is_traced)
        if why is not None:
            raise TraceError(
                f"a {type(obj).__qualname__} of the result {why}", loc=self.loc,
                hint="return tensors, in a tuple, a dict or a dataclass",
            )  # fmt: skip

    def _is_remade(self, obj: Any) -> bool:
        """Whether a function that the call has made holds what each call makes, and just that.

        What several could change, as a list that it closes over, or a name, would be two.
        """
        if type(obj) is not FunctionType or vars(obj):
            return False
        if self.was_there(obj) or facts_of(obj.__code__).cells_stored:
            return False
        stack: list[Any] = [obj]
        seen, holds = set[int](), False
        while stack:
            found = stack.pop()
            if self.is_traced(found):
                holds = True
            elif id(found) not in seen and not isinstance(found, _VALUES):
                seen.add(id(found))
                if self.was_there(found):
                    continue
                if type(found) is FunctionType and not vars(found) and _is_whole(found):
                    if facts_of(found.__code__).cells_stored:
                        return False
                    stack += [part for each in closed(found)[1] for part in _items(each)]
                elif type(found) is tuple:
                    stack += found
                elif not self.is_value(found):
                    return False
        return holds

    def _is_leaf(self, obj: Any) -> bool:
        return (
            isinstance(obj, _VALUES) or self.is_value(obj) or inspect.isroutine(obj)
            or hasattr(obj, "_modules")
        )  # fmt: skip

    def _holds_traced(self, obj: Any, seen: set[int]) -> bool:
        if self.is_traced(obj):
            return True
        if id(obj) in seen or self._is_leaf(obj):
            return False
        seen.add(id(obj))
        return any(self._holds_traced(part, seen) for part in _parts(obj))

    def _is_new(self, obj: Any) -> bool:
        """Whether the function made it: what it has been given or can reach was there before."""
        if type(obj) is weakref.ref:
            return obj() is not None and self._is_new(obj())
        cls: type = type(obj)
        if not can_be_made(cls) or not hasattr(obj, "__dict__"):
            return False
        return not self._was_before(obj)

    def _was_before(self, obj: Any) -> bool:
        return any(obj is leaf for leaf in self.given) or self.was_there(obj)

    def _error(self, obj: Any, what: str) -> TraceError:
        return TraceError(
            f"a {type(obj).__qualname__} of the result, with traced tensors in it, {what}",
            loc=self.loc, hint="return its tensors, in a tuple, a dict or a dataclass",
        )  # fmt: skip


def _is_whole(fn: FunctionType) -> bool:
    """Whether all names that it closes over have values."""
    return all(map(is_filled, fn.__closure__ or ()))


def _items(part: Any) -> list[Any]:
    return list(part.values()) if isinstance(part, dict) else list(part or ())


def _attributes(obj: Any) -> Iterator[tuple[str, Any]]:
    for base in reversed(type(obj).__mro__):
        for name, member in vars(base).items():
            if isinstance(member, MemberDescriptorType) and hasattr(obj, name):
                yield name, getattr(obj, name)
    yield from getattr(obj, "__dict__", {}).items()


def _parts(obj: Any) -> Iterator[Any]:
    if type(obj) is weakref.ref:
        yield obj()
    if type(obj) is functools.partial:
        yield from (obj.func, obj.args, obj.keywords)
    if isinstance(obj, dict):
        yield from dict.values(obj)
    elif isinstance(obj, (list, tuple, set, frozenset)):
        yield from items_of(obj)
    yield from (value for _, value in _attributes(obj))
