"""Where a free tensor comes from: a path from the traced function, to be read at every call.

>>> W = np.ones(3)
>>> def model(x):
...     return x * W
>>> origin = Origins(model, lambda o: isinstance(o, np.ndarray)).find(W)
>>> str(origin)
"global 'W'"
>>> origin.read(model) is W
True

The walk goes, breadth first, through: the object behind a bound method, `functools.partial`,
closures, defaults, the globals that the code names (nested functions and called helpers included),
attributes of instances, parameters, buffers and submodules of `torch.nn.Module`, and items of
tuples, lists and dicts. It is neutral: which objects are tensors is the caller's question.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Literal, NamedTuple

from gradof.tracer.state.caches import read_cached
from gradof.tracer.state.frames import arrays_of, attributes_of, is_frame
from gradof.tracer.state.items import items_of
from gradof.tracer.state.kinds import MODULE_TABLES, applied_by
from gradof.tracer.state.libraries import from_library, is_library, is_set
from gradof.tracer.state.places import read_place

StepKind = Literal[
    "attr", "item", "closure", "global", "default", "kwdefault", "self", "function",
    "partial", "partial_arg", "partial_kw", "method", "module", "closed", "class", "import", "type",
    "refers", "cached", "given", "handed", "block", "hook",
]  # fmt: skip

MISSING = object()
_MAX_OBJECTS = 200_000
ATOMS = (
    type(None), bool, int, float, complex, str, bytes, range, slice, CodeType, CellType,
    BuiltinFunctionType,
)  # fmt: skip
# Of a torch.nn.Module: what follows from its hooks, and what only its state_dict reads.
_MODULE_BOOKS = frozenset({
    "_forward_hooks_always_called", "_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs",
    "_is_full_backward_hook", "_non_persistent_buffers_set",
})  # fmt: skip
# Of a class: what says how it was written, and no method reads to compute.
_CLASS_BOOKS = frozenset({
    "__annotations__", "__dataclass_fields__", "__dataclass_params__", "__dict__", "__doc__",
    "__firstlineno__", "__match_args__", "__module__", "__qualname__", "__slots__",
    "__static_attributes__", "__weakref__",
})  # fmt: skip


class Step(NamedTuple):  # there are as many as references that are followed
    """One step of a path: how an object is reached from the one before it."""

    kind: StepKind
    key: Any = None

    def read(self, obj: Any) -> Any:
        """Take the step; raises LookupError or AttributeError where it leads nowhere any more."""
        return _READ[self.kind](obj, self.key)


def _read_closure(fn: Any, name: str) -> Any:
    cell = fn.__closure__[fn.__code__.co_freevars.index(name)]
    try:
        return cell.cell_contents
    except ValueError:
        raise LookupError(f"the closure variable {name!r} is not set") from None


def _read_default(fn: Any, name: str) -> Any:
    names = fn.__code__.co_varnames[: fn.__code__.co_argcount]
    return fn.__defaults__[names.index(name) - len(names)]


def _read_method(obj: Any, name: str) -> Any:
    """As it is stored: a property itself, not what it gives."""
    for base in type(obj).__mro__:
        if name in vars(base):
            return vars(base)[name]
    raise AttributeError(name)


def _referent(obj: Any) -> Any:
    found = obj() if isinstance(obj, weakref.ref) else None
    if found is not None:
        return found
    raise LookupError(f"what a {type(obj).__name__} leads to is not read again")


def _read_attribute(obj: Any, name: str) -> Any:
    """As it is stored, not what a class's own `__getattr__` or a property makes of it."""
    space = getattr(obj, "__dict__", None)
    if type(space) is not dict:
        return getattr(obj, name)
    if "_modules" not in space:
        return space[name] if name in space else getattr(obj, name)
    for table in (*(space.get(t) for t in MODULE_TABLES), space):
        if isinstance(table, dict) and name in table:
            return table[name]
    return getattr(obj, name)


_READ: dict[StepKind, Callable[[Any, Any], Any]] = {
    "attr": _read_attribute,
    "item": lambda obj, key: obj[key],
    "closure": _read_closure,
    "global": lambda fn, name: fn.__globals__[name],
    "default": _read_default,
    "kwdefault": lambda fn, name: (fn.__kwdefaults__ or {})[name],
    "self": lambda fn, _: fn.__self__,
    "function": lambda fn, _: getattr(fn, "__func__", fn),  # a class gives static ones unwrapped
    "partial": lambda fn, _: applied_by(fn),
    "partial_arg": lambda fn, i: fn.args[i],
    "partial_kw": lambda fn, name: fn.keywords[name],
    "method": _read_method,
    "module": lambda fn, key: getattr(fn.__globals__[key[0]], key[1]),
    "closed": lambda fn, key: getattr(_read_closure(fn, key[0]), key[1]),  # of a module, too
    "class": lambda _, key: vars(key[0])[key[1]],
    "import": lambda _, name: sys.modules[name],
    "type": lambda obj, _: type(obj),
    "refers": lambda obj, _: _referent(obj),
    "hook": lambda module, key: vars(module)[key[0]][key[1]],
    "cached": read_cached,
    "given": lambda _, obj: obj,  # an object among the arguments, which the signature names
    "handed": lambda _, place: read_place(place),
    "block": lambda frame, i: arrays_of(frame)[i],
}
_SHOWN = {
    "closure": "closure {key!r}", "global": "global {key!r}", "default": "default of {key!r}",
    "kwdefault": "default of {key!r}", "partial_arg": "partial argument {key}",
    "partial_kw": "partial argument {key!r}", "self": "self", "function": "", "partial": "",
    "method": "method {key!r}", "module": "global '{key[0]}.{key[1]}'", "import": "module {key!r}",
    "closed": "closure '{key[0]}.{key[1]}'", "class": "{key[0].__name__}.{key[1]}", "type": "",
    "cached": "what is cached", "given": "an argument", "handed": "{key.key}", "refers": "",
    "block": "a column", "hook": "a hook",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Origin:
    """A path from the traced function to a free tensor; hashable, and equal for equal paths."""

    steps: tuple[Step, ...]
    place: Any = field(default=None, compare=False)  # of its last step (tracer.places)

    def read(self, fn: Any) -> Any:
        """The object at the end of the path now; LookupError or AttributeError if it is gone."""
        for step in self.steps:
            fn = step.read(fn)
        return fn

    @property
    def name(self) -> str:
        """A short name for the IR value: the last name on the path, such as `weight`."""
        return next((s.key for s in reversed(self.steps) if isinstance(s.key, str)), "free")

    def __str__(self) -> str:
        text = ""
        for step in self.steps:
            if step.kind == "item":
                text = f"{text or 'self'}[{step.key!r}]"
            elif step.kind == "attr":
                key = f"[{step.key}]" if step.key.isdigit() else f".{step.key}"
                text = (text or "self") + key
            else:
                shown = _SHOWN[step.kind].format(key=step.key)
                text = f"{shown} of {text}" if shown and text else shown or text
        return text or "the function itself"


class Trail(NamedTuple):
    """A step with the trail before it; paths share their beginnings."""

    before: Trail | None
    step: Step
    place: Any = None

    def origin(self) -> Origin:
        """The whole path."""
        steps: list[Step] = []
        trail: Trail | None = self
        while trail is not None:
            steps.append(trail.step)
            trail = trail.before
        return Origin(tuple(reversed(steps)), self.place)


class Origins:
    """An index of every tensor that can be reached from `fn`, built once, at the first question.

    With `remember`, `held(obj, step)` says what an object held when the index was built.
    """

    def __init__(
        self, fn: Any, is_tensor: Callable[[Any], bool], *, remember: bool = False
    ) -> None:
        self.fn = fn
        self._held: dict[int, dict[Step, Any]] | None = {} if remember else None
        self.is_tensor = is_tensor
        self._keep: list[Any] = []  # so that the ids in `_held` stay theirs
        self.complete = True
        self._trails: dict[int, tuple[Any, Trail]] | None = None

    def find(self, tensor: Any) -> Origin | None:
        """The shortest path to `tensor` (by identity), or None."""
        found = self._index().get(id(tensor))
        return None if found is None else found[1].origin()

    def paths(self, wanted: Iterable[Any]) -> dict[int, tuple[Any, Origin]]:
        """By id, the shortest paths to these tensors; the search ends when it has all."""
        self._walk(found := dict[int, tuple[Any, Trail]](), {id(tensor) for tensor in wanted})
        return {key: (tensor, trail.origin()) for key, (tensor, trail) in found.items()}

    def any(self) -> bool:
        """Whether there is a tensor; the search ends at the first."""
        self._walk(found := dict[int, tuple[Any, Trail]](), limit=1)
        return bool(found)

    def tensors(self) -> dict[Origin, Any]:
        """Every tensor that was found, by its shortest path."""
        return {trail.origin(): obj for obj, trail in self._index().values()}

    def held(self, obj: Any, step: Step, missing: Any) -> Any:
        """What the step led to from `obj` when the index was built, or `missing`."""
        assert self._held is not None, "this index does not remember"
        return self._held.get(id(obj), {}).get(step, missing)

    def _index(self) -> dict[int, tuple[Any, Trail]]:
        if self._trails is None:
            self._trails = {}
            self._walk(self._trails)
        return self._trails

    def all(self) -> list[tuple[Any, Origin]]:
        """Every tensor that was found, with its shortest path."""
        return [(tensor, trail.origin()) for tensor, trail in self._index().values()]

    def _walk(
        self, found: dict[int, Any], wanted: Collection[int] | None = None, limit: int = 0
    ) -> None:
        # `seen` keeps its objects alive: those made on the fly must not give their id to others.
        seen: dict[int, Any] = {}
        queue: deque[tuple[Any, Trail | None]] = deque([(self.fn, None)])
        while queue:
            obj, trail = queue.popleft()
            if issubclass(type(obj), ATOMS) or id(obj) in seen:
                continue
            if len(seen) >= _MAX_OBJECTS:
                self.complete = False
                return
            seen[id(obj)] = obj
            if self.is_tensor(obj):
                if trail is not None and (wanted is None or id(obj) in wanted):
                    found[id(obj)] = (obj, trail)
                    if len(found) == (limit if wanted is None else len(wanted)):
                        return
                continue
            children = list(children_of(obj, trail is None))
            if self._held is not None:
                self._held[id(obj)] = dict(children)
                self._keep.append(obj)
            for step, child in children:
                queue.append((child, Trail(trail, step)))


def children_of(obj: Any, root: bool) -> Iterator[tuple[Step, Any]]:
    """What an object leads to, by one step each; of a library's function only if it is the root."""
    if isinstance(obj, FunctionType):
        yield from _of_function(obj, root)
    elif isinstance(obj, MethodType):
        yield Step("self"), obj.__self__
        yield Step("function"), obj.__func__
    elif isinstance(obj, (staticmethod, classmethod)):
        yield Step("function"), obj.__func__
    elif isinstance(obj, property):
        yield Step("attr", "fget"), obj.fget
    elif isinstance(obj, functools.partial):
        yield Step("partial"), applied_by(obj)
        yield from ((Step("partial_arg", i), v) for i, v in enumerate(obj.args))
        yield from ((Step("partial_kw", k), v) for k, v in obj.keywords.items())
    elif isinstance(obj, dict):
        yield from ((Step("item", k), v) for k, v in list(dict.items(obj)))
    elif isinstance(obj, (list, tuple)):
        yield from ((Step("item", i), v) for i, v in enumerate(items_of(obj)))
    elif isinstance(obj, type):
        if not from_library(obj):
            yield from (
                (Step("attr", k), v) for k, v in list(vars(obj).items()) if k not in _CLASS_BOOKS
            )
    elif is_frame(type(obj)):
        yield from ((Step("block", i), array) for i, array in enumerate(arrays_of(obj)))
        yield from ((Step("attr", k), v) for k, v in attributes_of(obj).items())
    elif not isinstance(obj, ModuleType):
        yield from _of_instance(obj)


def _of_function(fn: FunctionType, root: bool) -> Iterator[tuple[Step, Any]]:
    library = from_library(fn)
    if not root and library and fn.__closure__ is None:
        return
    code = fn.__code__
    used = frozenset[str]() if library else _names(code)
    for name, cell in zip(code.co_freevars, fn.__closure__ or (), strict=True):
        if is_set(cell):
            yield Step("closure", name), cell.cell_contents
            yield from _of_module("closed", name, cell.cell_contents, used)
    names = code.co_varnames[: code.co_argcount]
    defaults = fn.__defaults__ or ()
    if len(defaults) > len(names):  # its code is swapped for the time of a trace
        defaults = ()
    yield from (
        (Step("default", name), value)
        for name, value in zip(names[len(names) - len(defaults) :], defaults, strict=True)
    )
    yield from ((Step("kwdefault", k), v) for k, v in (fn.__kwdefaults__ or {}).items())
    wrapped = fn.__dict__.get("__wrapped__")
    if wrapped is not None:
        yield Step("attr", "__wrapped__"), wrapped
    for name in used:
        if name in fn.__globals__:
            value = fn.__globals__[name]
            yield Step("global", name), value
            yield from _of_module("module", name, value, used)


def _of_module(
    kind: StepKind, alias: str, module: Any, used: frozenset[str]
) -> Iterator[tuple[Step, Any]]:
    # `config.W` in the code: only names that the code spells out are looked up in a module.
    if not isinstance(module, ModuleType) or is_library(module.__name__):
        return
    for name in used:
        if name in vars(module):
            yield Step(kind, (alias, name)), vars(module)[name]


def _of_instance(obj: Any) -> Iterator[tuple[Step, Any]]:
    cls = type(obj)
    if getattr(cls, "_gradof_opaque", False):  # a plan, say: its guards name all that they check
        return
    attributes = getattr(obj, "__dict__", None)
    if isinstance(attributes, dict):
        tables = all(name in attributes for name in MODULE_TABLES)  # a torch.nn.Module
        private = getattr(cls, "_gradof_private", ())  # our own bookkeeping on compiled functions
        for name, value in list(attributes.items()):
            if name in private or (tables and name in _MODULE_BOOKS):
                continue
            if tables and name in MODULE_TABLES:
                yield from ((Step("attr", k), v) for k, v in value.items())
            elif not (tables and name.endswith("_hooks") and not value):
                yield Step("attr", name), value
    for base in cls.__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if not name.startswith("__") and hasattr(obj, name):
                yield Step("attr", name), getattr(obj, name)
        if base is object or from_library(base):
            continue
        for name, value in base.__dict__.items():
            if name in _CLASS_BOOKS:
                continue
            if isinstance(value, (FunctionType, property, staticmethod, classmethod)):
                # What the object's own methods refer to: their globals, closures and defaults.
                yield Step("method", name), value
            else:
                yield Step("attr", name), value


@functools.lru_cache(maxsize=4096)
def _names(code: CodeType) -> frozenset[str]:
    """Global and attribute names that the code and the functions nested in it spell out."""
    names = set(code.co_names)
    for const in code.co_consts:
        if isinstance(const, CodeType):
            names |= _names(const)
    return frozenset(names)
