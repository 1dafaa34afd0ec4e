"""Kinds of objects: which hold state, what hands out others, and what they hold, to be compared.

    slot(obj, member)       what a slot holds, MISSING if it is not set
    REFERENCES[type(ref)]   what a weak reference or a cached function leads to
"""

from __future__ import annotations

import functools
import gc
import operator
import sys
import weakref
from collections.abc import Callable, Iterator
from types import CodeType, MappingProxyType, MemberDescriptorType, ModuleType
from typing import Any

from gradof.tracer.state.caches import LRU, entries
from gradof.tracer.state.changes import MISSING

ATOMS = frozenset({
    type(None), bool, int, float, complex, str, bytes, range, slice, CodeType,
    type(Ellipsis), type(NotImplemented),
})  # fmt: skip
MODULE_TABLES = ("_parameters", "_buffers", "_modules")
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def private(cls: type) -> frozenset[str]:
    """Attributes of compiled functions that are our own bookkeeping."""
    return getattr(cls, "_gradof_private", frozenset())


def module_of(cls: type) -> str:
    """The module of a class; "" where a metaclass makes something else of the attribute.

    One that a metaclass of the user's makes is said to be of `abc`: it is where its base is.
    """
    name = cls.__module__
    if name == "abc" and cls.__name__ != "ABC":
        return module_of(cls.__mro__[1])
    return name if isinstance(name, str) else ""


@functools.lru_cache(maxsize=4096)
def is_ours(cls: Any) -> bool:
    """Whether it is a class of traced arrays and numbers."""
    return module_of(cls).startswith("gradof.tracer")


def is_of_trace(obj: Any) -> bool:
    """Whether a value is the trace's own: a traced array or number."""
    kind: Any = type(obj)
    return is_ours(kind)


def content(cell: Any) -> Any:
    """What a closure cell holds; MISSING if it is not set."""
    try:
        return cell.cell_contents
    except ValueError:  # not set
        return MISSING


def slot(obj: Any, member: MemberDescriptorType) -> Any:
    """What a slot of an object holds; MISSING if it is not set."""
    try:
        return member.__get__(obj)
    except AttributeError:  # not set
        return MISSING


_FUNC: Any = vars(functools.partial)["func"]


def applied_by(obj: functools.partial[Any]) -> Any:
    """The function that a partial calls; a subclass may have another `func`, or none yet."""
    return _FUNC.__get__(obj)


def led_to(obj: Any, limit: int = 1000) -> list[Any]:
    """The objects that attributes of attributes lead to: `functools.reduce(getattr, path, obj)`."""
    found: dict[int, Any] = {}
    stack = [obj]
    while stack and len(found) < limit:
        obj = stack.pop()
        attributes = getattr(obj, "__dict__", None)
        if type(attributes) is dict and id(obj) not in found:
            found[id(obj)] = obj
            stack += attributes.values()
            for table in MODULE_TABLES:
                stack += (attributes.get(table) or {}).values()
    return list(found.values())


# Objects of C's that show another one: that one, for as long as they live.
VIEWS: dict[type, Callable[[Any], Any]] = dict.fromkeys(
    (MappingProxyType, type({}.keys()), type({}.values()), type({}.items())), gc.get_referents
)
# Objects of C's that hand out others: what they lead to.
REFERENCES: dict[type, Callable[[Any], Any]] = {
    weakref.ref: lambda ref: (ref(),), weakref.KeyedRef: lambda ref: (ref(),),
    LRU: lambda cached: [value for _, value in entries(cached)],
    **VIEWS,
}  # fmt: skip
# Objects of C's that read attributes under names they hold.
GETTERS = (operator.attrgetter, operator.itemgetter, operator.methodcaller)
HEAP = 1 << 9  # Py_TPFLAGSHEAPTYPE: a class made by a class statement


def names_of(getter: Any) -> Iterator[str]:
    """The names that an attrgetter, itemgetter or methodcaller was made with."""
    made_by, args = getter.__reduce__()[:2]
    for arg in (*getattr(made_by, "args", ()), *args):
        if isinstance(arg, str):
            yield from arg.split(".")


def global_hooks() -> list[tuple[str, dict[Any, Any]]]:
    """torch's hooks of all modules: by name, the tables that they are registered in."""
    module = sys.modules.get("torch.nn.modules.module")
    names = ("_global_forward_pre_hooks", "_global_forward_hooks", "_global_backward_pre_hooks",
             "_global_backward_hooks")  # fmt: skip
    return [] if module is None else [(name, getattr(module, name)) for name in names]


def is_users(module: Any) -> bool:
    """Whether it is a module that may hold the user's state."""
    return isinstance(module, ModuleType) and module.__name__.partition(".")[0] not in (
        "torch", "numpy", "math", "sys", "os", "scipy", "gradof",
    )


WITH_ATTRIBUTES: set[type] = set()
LEAVES: set[type] = set()  # types whose instances are not looked into, such as tensors
WATCHED: dict[type, Callable[[Any], Any]] = {}  # types with a state of their own → a copy of it


def watch_type(cls: type, copy: Callable[[Any], Any]) -> None:
    """The state of instances of this class, as `copy` gives it, is kept at first sight."""
    WATCHED[cls] = copy


def leaf_type(cls: type, has_attributes: bool = False) -> None:
    """Instances of this class are data, not state: of them attributes count at most."""
    LEAVES.add(cls)
    if has_attributes:
        WITH_ATTRIBUTES.add(cls)
