"""Where a run of Python stands: all that the next step of a loop can depend on, but for numbers.

    standing.key          equal at two steps: Python does the same from there on, op by op
    standing.arrays       the traced arrays in reach, in order: what the ops are of

Note [Steps that are alike]
What a step of a loop does follows from what its code can read. Where that is the same at two steps
in a row, up to the elements of traced arrays, which Python has not asked for (that would have been
a Guard), and what the first of them did leads from one to the other, each further step does the
same: by induction. So the walk here knows all of what it finds, or gives up (`Unknown`): numbers
and texts by value, containers by what they hold, plain arrays by their elements, objects of
Python classes by their attributes, and which of all these are one and the same object. Traced
arrays are their types, whether they are constants (then Python may have read them), and which of
them have one value. What was written to what was there before the run is told by `held`; what code
in C was called, by `reads`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import (
    BuiltinFunctionType,
    FrameType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

import numpy as np

from gradof.ir.core import Value
from gradof.tracer.core.counted import Counted
from gradof.tracer.core.number import TracedNumber
from gradof.tracer.state.branch_code import Branch
from gradof.tracer.state.held import Held
from gradof.tracer.state.kinds import HEAP, content, slot

_MOST = 2000  # objects that are looked at
_BY_VALUE = frozenset({int, float, complex, bool, str, bytes, type(None), type(...), range})

# Functions in C whose work is seen in what they return, or in what is compared.
_KNOWN_OWNERS = (list, dict, tuple, set, frozenset, str, np.ndarray, np.generic)
_KNOWN = frozenset({
    len, abs, min, max, sum, isinstance, issubclass, getattr, hasattr, callable, round,
    divmod, pow, all, any, sorted, repr,
})  # fmt: skip
_KNOWN_MODULES = frozenset({"math", "numpy", "gradof", "_operator", "functools", "collections"})


class Unknown(Exception):  # a signal to those who ask where a run stands
    """Something is in reach whose state cannot be told."""


class Alive(list[Any]):
    """What a standing has seen, kept so that ids stay theirs; none of it is read or written."""


class Standing:
    """See the module docstring; each library says what its arrays are."""

    def __init__(self, is_constant: Callable[[Value], bool]) -> None:
        self._is_constant = is_constant
        self._key: list[Any] = []
        self._seen: dict[int, int] = {}
        self._values: dict[Value, int] = {}
        self._alive = Alive()
        self._constant: list[bool] = []
        self.arrays: list[Any] = []
        self.values: list[Value] = []  # what they were
        self.variables: Mapping[str, Any] = {}  # of a branch, those that are read from there
        self.held: set[int] = set()  # ids of what containers and objects hold
        self.firm: list[Any] = []  # what the code does not ask for, and is kept up at the end
        self._numbers = False  # whether numbers that vary are values, too

    def at_branch(
        self, frame: FrameType, branch: Branch, held: Held, counters: Sequence[Counted]
    ) -> None:
        """Take down where the run stands as a branch is decided; may raise Unknown."""
        found, self._numbers = frame.f_locals, True
        self.variables = {name: found[name] for name in sorted(branch.live) if name in found}
        for name, value in self.variables.items():
            self._key.append(name)
            self._visit(value)
        for counter in counters:
            self.add(counter, counter.place.value)
            self._key.append((counter.count, *map(_span, counter.sources)))
            self._alive += counter.sources
        self.changes(held)

    @property
    def key(self) -> tuple[Sequence[Any], Sequence[bool]]:
        """All of it."""
        return self._key, self._constant

    def is_constant(self, k: int) -> bool:
        """Whether no input takes part in an array."""
        return self._constant[k]

    def changes(self, held: Held) -> None:
        """What the run has written to what was there before it."""
        for change in held.changes():
            self._key.append((change.kind, id(change.container), repr(change.key)))
            self._alive.append(change.container)
            self._visit(change.after)
            self.held.add(id(change.after))

    def add(self, leaf: Any, value: Value) -> None:
        """Something whose value is one of the graph."""
        self._key.append(self._values.setdefault(value, len(self._values)))
        self._constant.append(self._is_constant(value))
        self.arrays.append(leaf)
        self.values.append(value)

    def _visit(self, root: Any) -> None:
        stack = [root]
        while stack:
            obj = stack.pop()
            kind: Any = type(obj)
            if kind in _BY_VALUE:
                self._key.append((kind, repr(obj)))
                continue
            known = self._seen.get(id(obj))
            self._key.append(known)
            if known is None:
                self._seen[id(obj)] = len(self._seen)
                self._alive.append(obj)
                if len(self._seen) > _MOST:
                    raise Unknown("more objects than are looked at")
                inside = self._inside(obj, kind)
                self.held.update(map(id, inside))
                stack.extend(reversed(inside))

    def _own(self, obj: Any, kind: Any) -> list[Any] | None:
        """What an object of the library's leads to; None for any other object."""
        raise NotImplementedError

    def _inside(self, obj: Any, kind: Any) -> list[Any]:
        """What an object leads to; notes what it is itself."""
        note = self._key.append
        if kind is TracedNumber and self._numbers:
            note((kind, type(obj.value)))
            self.add(obj, obj.expr.value)
            return []
        if kind is TracedNumber:  # the same object gives the same in every step
            note(id(obj))
            return []
        own = self._own(obj, kind)
        if own is not None:
            return own
        if kind in (list, tuple) or (issubclass(kind, tuple) and kind.__flags__ & HEAP):
            note((kind, len(obj)))
            return list(obj)
        if kind is dict:
            note((kind, len(obj)))
            return [part for item in obj.items() for part in item]
        if isinstance(obj, (ModuleType, type)):
            note(id(obj))
            return []
        return self._code(obj, kind)

    def _code(self, obj: Any, kind: Any) -> list[Any]:
        """What functions and objects of Python classes lead to."""
        self._key.append(id(obj))
        if kind is FunctionType:
            if str(obj.__module__).startswith("gradof."):
                return []  # a stand-in
            cells = [content(cell) for cell in obj.__closure__ or ()]
            return [*cells, obj.__defaults__, obj.__kwdefaults__, obj.__dict__]
        if kind is MethodType:
            return [obj.__self__, obj.__func__]
        if kind is BuiltinFunctionType:
            return [obj.__self__]
        if kind is functools.partial:
            return [obj.func, obj.args, obj.keywords]
        private = getattr(kind, "_gradof_private", None)
        if private is not None:  # compiled functions: what they have derived is no state of theirs
            return [value for name, value in vars(obj).items() if name not in private]
        slots = _slots(kind)
        if slots is None:
            raise Unknown(f"a {kind.__qualname__}")
        return [*(slot(obj, member) for member in slots), getattr(obj, "__dict__", None)]


@functools.lru_cache(maxsize=4096)
def _slots(cls: Any) -> tuple[Any, ...] | None:
    """The slots of a Python class, which hold all of an instance beside its `__dict__`.

    None for a class whose instances may have state in C: they are larger than that.
    """
    if str(cls.__module__).startswith("gradof."):
        return None
    if not all(base is object or base.__flags__ & HEAP for base in cls.__mro__):
        return None
    found = tuple(
        member for base in cls.__mro__ for member in vars(base).values()
        if type(member) is MemberDescriptorType
    )  # fmt: skip
    parts = len(found) + (cls.__dictoffset__ > 0) + (cls.__weakrefoffset__ > 0)
    word = object.__basicsize__ // 2
    return found if cls.__basicsize__ == object.__basicsize__ + word * parts else None


def are_known(called: Iterable[Any]) -> bool:
    """Whether functions in C, and modules of what is not heard, have no state of their own."""
    for each in called:
        if isinstance(each, str):
            if not each.startswith("namedtuple_") and each.partition(".")[0] not in _KNOWN_MODULES:
                return False
            continue
        owner = getattr(each, "__self__", None)
        named = getattr(owner, "__name__", None) or getattr(each, "__module__", None)
        if each not in _KNOWN and not isinstance(owner, _KNOWN_OWNERS) and (
            named not in _KNOWN_MODULES
        ):
            return False
    return True


def _span(source: Any) -> Any:
    """What the items of a counted loop follow from, beside their number."""
    return source if type(source) is range else id(source)
