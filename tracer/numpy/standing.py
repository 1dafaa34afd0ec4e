"""Where a run of Python stands: all that the next step of a loop can depend on, but for numbers.

    standing = Standing.of(frame, loop, recorder)
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
from collections.abc import Sequence
from types import (
    BuiltinFunctionType,
    FrameType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import TYPE_CHECKING, Any

import numpy as np

from gradof.ir.core import Value
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.index import Index
from gradof.tracer.numpy.lengths import Length
from gradof.tracer.numpy.places import checksum
from gradof.tracer.state.kinds import HEAP, content, slot
from gradof.tracer.state.loop_code import LoopCode

if TYPE_CHECKING:
    from gradof.tracer.numpy.recorder import Recorder

_MOST = 2000  # objects that are looked at
_LARGEST = 1 << 20  # bytes of a plain array that is compared
_BY_VALUE = frozenset({int, float, complex, bool, str, bytes, type(None), type(...), range})
_BY_NAME = (ModuleType, type, np.ufunc, np.dtype)


class Unknown(Exception):  # a signal to `steps`
    """Something is in reach whose state cannot be told."""


class Standing:
    """See the module docstring."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._key: list[Any] = []
        self._seen: dict[int, int] = {}
        self._values: dict[Value, int] = {}
        self._alive: list[Any] = []  # ids stay theirs
        self._constant: list[bool] = []
        self.arrays: list[TracedArray] = []
        self.values: list[Value] = []  # what they were
        self.local = 0, 0  # how much of the key, and of the arrays, the variables are
        self.left: dict[str, Any] = {}  # variables that are read outside of the loop alone

    @classmethod
    def of(cls, frame: FrameType, loop: LoopCode, recorder: Recorder) -> Standing:
        """Where the run stands as a loop of this frame asks for an item; may raise Unknown."""
        made = cls(recorder)
        for name, value in frame.f_locals.items():
            if name in loop.set_first:
                if name in loop.read_outside:
                    made.left[name] = value
            else:
                made._key.append(name)
                made._visit(value)
        made.local = len(made._key), len(made.arrays)
        for change in recorder.loops.reads.held.changes():
            made._key.append((change.kind, id(change.container), repr(change.key)))
            made._alive.append(change.container)
            made._visit(change.after)
        return made

    def fits(self, later: Standing) -> bool:
        """Whether the variables stand as they do later, but for which arrays are constants."""
        count, arrays = later.local
        if arrays < len(later.arrays):
            count = len(later._key)
        return self._key[:count] == later._key[:count] and len(self.arrays) == len(later.arrays)

    @property
    def key(self) -> tuple[Sequence[Any], Sequence[bool]]:
        """All of it."""
        return self._key, self._constant

    def is_constant(self, k: int) -> bool:
        """Whether no input takes part in an array."""
        return self._constant[k]

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
                stack.extend(reversed(self._inside(obj, kind)))

    def _inside(self, obj: Any, kind: Any) -> list[Any]:
        """What an object leads to; notes what it is itself."""
        note = self._key.append
        if kind is TracedArray:
            return self._traced(obj)
        if isinstance(obj, np.generic):
            note((kind, obj.tobytes()))
            return []
        if kind is np.ndarray and not obj.dtype.hasobject and obj.nbytes <= _LARGEST:
            note((id(obj), checksum(obj)))
            return []
        if kind in (list, tuple) or (issubclass(kind, tuple) and kind.__flags__ & HEAP):
            note((kind, len(obj)))
            return list(obj)
        if kind is dict:
            note((kind, len(obj)))
            return [part for item in obj.items() for part in item]
        if kind is Length:
            note(repr(obj.form))
            return []
        if kind is Index or isinstance(obj, _BY_NAME):  # an index of a loop around this one
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

    def _traced(self, array: TracedArray) -> list[Any]:
        """A traced array: its type and place among the others; of a view, what it is a view of."""
        if array.recorder is not self._recorder:
            raise Unknown("an array of another trace")
        if array.link is not None:  # read anew from where it is a view of, by rules of its own
            behind = array.link.version != array.version
            self._key.append((array.kind, id(array), id(array.link), behind))
            return [array.link.parent]
        value = array.expr.value
        self._key.append((array.kind, self._values.setdefault(value, len(self._values))))
        self._constant.append(self._recorder.is_constant(value))
        self.arrays.append(array)
        self.values.append(value)
        return []


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
