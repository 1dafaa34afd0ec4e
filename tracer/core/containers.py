"""Containers of the standard library beside tuple, list and dict; subclasses of dict; attrs.

    flatten(SimpleNamespace(w=x))       # `attributes_of`: the attributes are the children
    flatten(defaultdict(list, w=x))     # `node_of`: as if torch's registry had the class

What is made again has the class, its items and attributes; it is not initialised anew.
"""

from __future__ import annotations

from collections import ChainMap, OrderedDict, UserDict, UserList, defaultdict, deque
from collections.abc import Callable
from functools import lru_cache
from types import MappingProxyType, MemberDescriptorType, SimpleNamespace
from typing import Any

from gradof.tracer.core.exact import exact
from gradof.tracer.core.sparse_matrices import Node

STANDARD = frozenset({deque, defaultdict})  # which torch's registry has, too
OPEN = (SimpleNamespace, UserDict, UserList, ChainMap)  # an instance has attributes of its own
_MAKERS = frozenset({dict.__new__, OrderedDict.__new__, defaultdict.__new__})


def attributes_of(cls: type) -> Callable[[Any], tuple[str, ...]] | None:
    """The names of an instance's attributes, where these are all there is of it."""
    if issubclass(cls, OPEN):
        return lambda instance: tuple(vars(instance))
    fields = getattr(cls, "__attrs_attrs__", None)
    if fields is None or issubclass(cls, dict):
        return None
    names = tuple(field.name for field in fields)
    return lambda _: names


def put_attribute(instance: Any, name: str, value: Any) -> None:
    """Set an attribute where it is kept: a property of the class may have its name, too."""
    kept: dict[str, Any] | None = getattr(instance, "__dict__", None)
    if kept is None or isinstance(getattr(type(instance), name, None), MemberDescriptorType):
        object.__setattr__(instance, name, value)
    else:
        kept[name] = value


def drop_attribute(instance: Any, name: str) -> None:
    """Delete an attribute from where it is kept."""
    kept: dict[str, Any] = getattr(instance, "__dict__", {})
    if name in kept:
        del kept[name]
    else:
        object.__delattr__(instance, name)


def is_size(cls: type) -> bool:
    """Whether it is `torch.Size`, whose instances are values, as numbers are; torch stays out."""
    return cls.__name__ == "Size" and cls.__module__ == "torch"


@lru_cache(maxsize=1024)
def node_of(cls: type) -> Node | None:
    """How a container is taken apart and put together; None for every other class."""
    own: Node | None = vars(cls).get("gradof_node")
    if own is not None:
        return own
    if cls is deque:
        return Node(lambda d: (list(d), d.maxlen), deque)
    if cls is slice:
        return Node(lambda s: ([s.start, s.stop, s.step], None), lambda parts, _: slice(*parts))
    if cls is MappingProxyType:
        return Node(_of_mapping, lambda parts, of: MappingProxyType(dict(zip(of[0], parts))))  # noqa: B905
    if issubclass(cls, dict) and cls not in (dict, OrderedDict) and cls.__new__ in _MAKERS:
        return Node(of_dict, lambda parts, of: dict_of(cls, parts, *of[:3]))
    return None


def _of_mapping(mapping: Any) -> tuple[list[Any], Any]:
    return list(mapping.values()), (tuple(mapping), tuple(map(exact, mapping)))


def of_dict(mapping: Any) -> tuple[list[Any], Any]:
    """Items, then attributes; how exactly the keys are to be equal comes last."""
    keys, held = tuple(dict.keys(mapping)), getattr(mapping, "__dict__", {})
    factory = mapping.default_factory if isinstance(mapping, defaultdict) else None
    parts = [*(dict.__getitem__(mapping, key) for key in keys), *held.values()]
    return parts, (keys, tuple(held), factory, tuple(map(exact, keys)))


def dict_of(cls: Any, parts: list[Any], keys: Any, names: Any, factory: Any) -> Any:
    """A dict of a class, of what `of_dict` has told of one."""
    made = cls.__new__(cls)
    if isinstance(made, defaultdict):
        made.default_factory = factory
    put: Any = OrderedDict.__setitem__ if isinstance(made, OrderedDict) else dict.__setitem__
    for key, part in zip(keys, parts[: len(keys)], strict=True):
        put(made, key, part)
    if names:
        vars(made).update(zip(names, parts[len(keys) :], strict=True))
    return made
