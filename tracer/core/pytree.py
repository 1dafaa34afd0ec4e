"""Flattening of nested arguments and results into leaves, a hashable structure and key paths.

>>> leaves, tree = flatten(((1, {"w": 2}), [3]))
>>> leaves
[1, 2, 3]
>>> tree.paths()
('[0][0]', "[0][1]['w']", '[1][0]')
>>> tree.unflatten("abc")
(('a', {'w': 'b'}), ['c'])

Containers are exactly: tuple, list, dict, OrderedDict, namedtuples, struct sequences (such as
`torch.return_types.max`), classes of torch's pytree registry (`registered`), instances of
dataclasses, and what `containers` names. Anything else, `None` and other subclasses of the above
included, is a leaf; results may hold objects of other classes as well, see `objects`, and what can
be changed and is in a result twice is one object.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import CellType, CodeType, FunctionType
from typing import Any, Literal

from gradof.errors import InputError, TraceError
from gradof.ir.core import Loc
from gradof.ir.forks import cached_property
from gradof.tracer.core.containers import attributes_of, is_size, put_attribute
from gradof.tracer.core.exact import exact
from gradof.tracer.core.named_tuples import join_named, split_named
from gradof.tracer.core.registered import Context, join, node_of, split
from gradof.tracer.core.sparse_matrices import class_of

Kind = Literal[
    "leaf", "tuple", "list", "dict", "namedtuple", "structseq", "dataclass", "registered", "object",
    "again",
]


@dataclass(frozen=True)
class TreeDef:
    """The structure of a nested value; hashable, equal by kind, type, keys and children.

    `context` is what a registered class keeps beside its children, and of a dict how exactly its
    keys are to be equal. The keys of an object are the names of its attributes, and `Item`s. What
    is there "again" has one key: how many containers that can be changed were finished before it.
    """

    kind: Kind
    type: type | None
    keys: tuple[Any, ...]
    children: tuple[TreeDef, ...]
    context: Context | None = None

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:  # without the cached hash, another in each process
        return TreeDef, (self.kind, self.type, self.keys, self.children, self.context)

    @cached_property
    def _hash(self) -> int:
        return hash((self.kind, self.type, self.keys, self.children, self.context))

    @cached_property
    def num_leaves(self) -> int:
        """Number of leaves."""
        return 1 if self.kind == "leaf" else sum(c.num_leaves for c in self.children)

    @cached_property
    def has_again(self) -> bool:
        """Whether a container is in it twice: parts of it cannot be built by themselves."""
        return self.kind == "again" or any(child.has_again for child in self.children)

    def unflatten(self, leaves: Sequence[Any]) -> Any:
        """Rebuild a value of this structure; InputError for a wrong number of leaves."""
        if len(leaves) != self.num_leaves:
            raise InputError(f"this structure has {self.num_leaves} leaves, got {len(leaves)}")
        return self._build(iter(leaves), [])

    def _build(self, leaves: Iterator[Any], made: list[Any]) -> Any:
        """`made` are the containers that can be changed, in the order they were finished."""
        if self.kind == "leaf":
            return next(leaves)
        if self.kind == "again":
            return made[self.keys[0]]
        value = self._of([child._build(leaves, made) for child in self.children])
        if self.kind not in FIXED:
            made.append(value)
        return value

    def _of(self, parts: list[Any]) -> Any:
        if self.kind == "tuple":
            return tuple(parts)
        if self.kind == "list":
            return parts
        assert self.type is not None
        if self.kind == "dict":
            return self.type(zip(self.keys, parts, strict=True))
        if self.kind == "namedtuple":
            return join_named(self.type, self.keys, parts)
        if self.kind == "structseq":
            return self.type(parts)
        if self.kind == "registered":
            assert self.context is not None
            return join(self.type, parts, self.context)
        if self.type is weakref.ref:
            return self.type(parts[0])
        if self.type is functools.partial:
            return functools.partial(parts[0], *parts[1], **parts[2])
        if self.type is FunctionType:
            return self.keys[0].over(*parts)
        # Not through __init__: its defaults and checks ran when the user made the original.
        new: Any = self.type.__new__
        value = new(self.type)
        for name, part in zip(self.keys, parts, strict=True):
            if isinstance(name, Item):
                name.put(value, part)
            else:
                put_attribute(value, name, part)
        return value

    def paths(self, prefix: str = "") -> tuple[str, ...]:
        """One key path per leaf, such as `[0]['w']`, each after `prefix`."""
        if self.kind == "leaf":
            return (prefix,)
        dotted = self.kind in ("namedtuple", "dataclass", "object")
        parts = (
            child.paths(f"{prefix}.{key}" if dotted else f"{prefix}[{key!r}]")
            for key, child in zip(self.keys, self.children, strict=True)
        )
        return tuple(path for part in parts for path in part)


LEAF = TreeDef("leaf", None, (), ())
Members = tuple[tuple[Any, ...], Sequence[Any]]


@dataclass(frozen=True)
class Referent:
    """The key of what a weak reference refers to; the reference is an object for `flatten`."""


PARTIAL = ("func", "args", "keywords")  # the keys of a `functools.partial`


@dataclass(frozen=True, eq=False)
class Closed:
    """The first key of a function: all of it but what it closes over, and its defaults."""

    code: CodeType
    globals: dict[str, Any]
    told: tuple[tuple[str, Any], ...]  # attributes such as its qualified name

    def __eq__(self, other: object) -> bool:
        return (
            type(other) is Closed and other.code is self.code and other.globals is self.globals
        )

    def __hash__(self) -> int:
        return hash((self.code, id(self.globals)))

    def over(self, closure: tuple[Any, ...], defaults: Any, by_name: Any) -> FunctionType:
        """The function, closing over these."""
        cells = tuple(map(CellType, closure))
        made = FunctionType(self.code, self.globals, self.code.co_name, defaults, cells)
        made.__kwdefaults__ = by_name
        for name, value in self.told:
            setattr(made, name, value)
        return made

    def __str__(self) -> str:
        return "__closure__"


def closed(fn: FunctionType) -> Members:
    """Keys and values of a function; ValueError where it closes over a name without a value."""
    told = ("__name__", "__qualname__", "__doc__", "__module__", "__annotations__")
    key = Closed(fn.__code__, fn.__globals__, tuple((n, getattr(fn, n)) for n in told))
    closure = tuple(cell.cell_contents for cell in fn.__closure__ or ())
    return (key, "__defaults__", "__kwdefaults__"), [closure, fn.__defaults__, fn.__kwdefaults__]


@dataclass(frozen=True)
class Item:
    """The key of an item of an object that is a dict: `put` bypasses what its class overrides."""

    key: Any

    def put(self, holder: Any, value: Any) -> None:
        """Set the item."""
        plain: Any = OrderedDict if isinstance(holder, OrderedDict) else dict
        plain.__setitem__(holder, self.key, value)

    def __str__(self) -> str:
        return f"[{self.key!r}]"


FIXED = frozenset({"leaf", "tuple", "namedtuple", "structseq"})  # cannot be changed


def shares_containers(tree: Any) -> bool:
    """Whether a list, dict or other container that can be changed is in a nested value twice."""
    seen: set[int] = set()
    stack = [tree]
    while stack:
        value = stack.pop()
        taken_apart = take_apart(value)
        if taken_apart is None:
            continue
        if taken_apart[0] not in FIXED:
            if id(value) in seen:
                return True
            seen.add(id(value))
        stack += taken_apart[2]
    return False


def flatten(
    tree: Any, members: Callable[[Any], Members | None] | None = None,
    is_whole: Callable[[Any], bool] | None = None, loc: Loc | None = None,
) -> tuple[list[Any], TreeDef]:  # fmt: skip
    """The leaves of a nested value, left to right, and its structure.

    `members` takes apart what would be a leaf: keys and values of an object, or None; a container
    is then found again, and a TraceError if it leads to itself. One that `is_whole` is a leaf.
    """
    leaves: list[Any] = []
    begun, finished = dict[int, Any](), dict[int, int]()  # by id: kept alive; in which order

    def walk(value: Any) -> TreeDef:
        if id(value) in finished:
            return TreeDef("again", None, (finished[id(value)],), ())
        whole = is_whole is not None and is_whole(value)
        taken_apart = None if whole else take_apart(value, members)
        if taken_apart is None:
            leaves.append(value)
            return LEAF
        kind, keys, parts, context = taken_apart
        if (counts := members is not None and kind not in FIXED) and id(value) in begun:
            raise TraceError(
                f"a {type(value).__qualname__} of the result leads to itself", loc=loc,
                hint="return its tensors, in a tuple, a dict or a dataclass",
            )
        begun[id(value)] = value
        children = tuple(map(walk, parts))
        if counts:
            finished[id(value)] = len(finished)
        cls = class_of(value) if kind == "registered" else type(value)
        return TreeDef(kind, cls, keys, children, context)

    return leaves, walk(tree)


def take_apart(
    tree: Any, members: Callable[[Any], Members | None] | None = None
) -> tuple[Kind, tuple[Any, ...], Sequence[Any], Context | None] | None:
    """Kind, keys, children and context of a container; None for a leaf.

    `members` is as in `flatten`.
    """
    cls: type = type(tree)
    known = _SPLIT.get(cls)
    node = None if known is not None else _registered(cls)
    if node is not None:  # it may be a dataclass, too, whose fields are not all there is of it
        return "registered", *split(node, tree)
    known = known or _split_of_class(cls)
    if known is not None:
        kind, keys, parts = known(tree)
        named = kind != "dict" or all(type(key) is str for key in keys)
        return kind, keys, parts, None if named else Context(tuple(map(exact, keys)))
    found = None if members is None else members(tree)
    return None if found is None else ("object", *found, None)


def _registered(cls: type) -> Any:
    # torch.Size is registered, too: here it is a value like a number.
    return None if is_size(cls) else node_of(cls)


_Split = Callable[[Any], tuple[Kind, tuple[Any, ...], Sequence[Any]]]


def _split_dict(tree: dict[Any, Any]) -> tuple[Kind, tuple[Any, ...], Sequence[Any]]:
    return "dict", tuple(tree), list(tree.values())


_SPLIT: dict[type, _Split] = {
    tuple: lambda t: ("tuple", tuple(range(len(t))), t),
    list: lambda t: ("list", tuple(range(len(t))), t),
    dict: _split_dict,
    OrderedDict: _split_dict,
}


@lru_cache(maxsize=1024)
def _split_of_class(cls: type) -> _Split | None:
    if issubclass(cls, tuple):
        if (fields := getattr(cls, "_fields", None)) is not None:
            return lambda t: ("namedtuple", *split_named(tuple(fields), t))
        if hasattr(cls, "n_sequence_fields"):
            return lambda t: ("structseq", tuple(range(len(t))), t)
        return None
    names_of = attributes_of(cls)
    if names_of is not None:
        return lambda t: ("dataclass", names_of(t), [getattr(t, name) for name in names_of(t)])
    if dataclasses.is_dataclass(cls) and cls is not Static and not issubclass(cls, dict):
        names = tuple(f.name for f in dataclasses.fields(cls))
        return lambda t: ("dataclass", names, [getattr(t, name) for name in names])
    return None


@dataclass(frozen=True)
class Static:
    """A whole argument that the caller named in `static_argnames`: one leaf, never traced."""

    value: Any


def flatten_call(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    static_argnames: Sequence[str] = (),
) -> tuple[list[Any], TreeDef, tuple[str, ...]]:
    """Leaves, structure and paths (`args[0]['w']`, `kwargs['b']`) of one call.

    Arguments named in `static_argnames` become single `Static` leaves; `thaw` undoes that. Raises
    InputError if a name is no parameter of `fn`.
    """
    if not kwargs and not static_argnames and all(_is_leaf(type(arg)) for arg in args):
        return list(args), *_flat_call(len(args))
    if static_argnames:
        args, kwargs = _mark_static(fn, args, kwargs, static_argnames)
    leaves, tree = flatten((args, kwargs))
    first, second = tree.children
    return leaves, tree, first.paths("args") + second.paths("kwargs")


def _is_leaf(cls: type) -> bool:
    return cls not in _SPLIT and _split_of_class(cls) is None and _registered(cls) is None


@lru_cache(maxsize=256)
def _flat_call(n: int) -> tuple[TreeDef, tuple[str, ...]]:
    """Structure and paths of a call with `n` positional leaves: the common case, made once."""
    first, second = TreeDef("tuple", tuple, tuple(range(n)), (LEAF,) * n), flatten({})[1]
    tree = TreeDef("tuple", tuple, (0, 1), (first, second))
    return tree, first.paths("args") + second.paths("kwargs")


def thaw(leaf: Any) -> Any:
    """The value of a leaf of `flatten_call` that is not traced."""
    return leaf.value if isinstance(leaf, Static) else leaf


def parameters_of(fn: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters; none where a builtin or a ufunc has no signature."""
    try:
        return list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return []


def positional_names(fn: Callable[..., Any]) -> list[str]:
    """Of those that can be given by their place."""
    return [
        p.name for p in parameters_of(fn)
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]  # fmt: skip


def _mark_static(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], names: Sequence[str]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    parameters = inspect.signature(fn).parameters
    positions: dict[str, int] = {}
    for i, (name, parameter) in enumerate(parameters.items()):
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            positions[name] = i
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    marked, named = list(args), dict(kwargs)
    for name in names:
        if name not in parameters and not takes_any:
            raise InputError(
                f"static_argnames names {name!r}, which is no parameter of "
                f"{getattr(fn, '__qualname__', fn)}",
                hint=f"its parameters are {', '.join(parameters)}",
            )
        if name in named:
            named[name] = Static(named[name])
        elif positions.get(name, len(marked)) < len(marked):
            marked[positions[name]] = Static(marked[positions[name]])
    return tuple(marked), named
