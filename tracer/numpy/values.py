"""What Python asks of a traced array: numbers, truth, texts.

    if x > 0: ...        guarded: the trace holds where it is so again
    x.item() * 2         a traced number, which keeps its gradient
    float(x)             so is this, where code calls it by name (`conversions`); C code that
                         wants the number is an error at the line: the gradient would be lost
    f"{x:.3f}"           the value; such a function is performed (Note [Performed calls])
    frame[x > 0]         guarded: the trace holds for the same mask
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import numpy as np

from gradof import tuning
from gradof.errors import DataDependentError, ShapeError
from gradof.tracer.numpy.instruction import formats
from gradof.tracer.state.source import user_loc

_BITS = 62  # of a whole number, so that its sum of powers of two stays below 2**63


class Told:
    """What Python was told of traced arrays that is not traced itself."""

    def __init__(self) -> None:
        self.texts = 0  # how many texts show traced values
        self.performs: tuple[str, Any] | None = None  # what each call has to do, and at which line
        self.files: dict[Any, Any] = {}  # that were read: their stamps, and what these said
        self.opened: list[Any] = []
        self.tensors: Any = None  # torch's, whose elements were read (`tracer.torch.in_numpy`)
        self.errors: dict[tuple[int, ...], Any] = {}  # where numpy would raise: `raising`
        self.floats = False  # whether there are numbers of Python's: see `floats`
        self.values: dict[int, tuple[Any, Any]] = {}  # by id, what `value_of` gave, and of what

    def of_tensors(self, *where: Any) -> tuple[Any, ...]:
        """The tensors of Python's state, and what they had: see `TensorsRead.content`."""
        found: tuple[Any, ...] = () if self.tensors is None else self.tensors.content(*where)
        return found

    def text(self, text: str) -> str:
        """A text that shows a traced value: Note [Performed calls]."""
        self.texts += 1
        self.perform("a text of a value", user_loc())
        return text

    def perform(self, what: str, loc: Any) -> None:
        """Each call is to do this; see Note [Performed calls] in `reports`."""
        if self.performs is None:
            self.performs = what, loc


class PythonValues:
    """The part of TracedArray that answers Python."""

    __slots__ = ()

    def __hash__(self: Any) -> int:
        if not self.is_scalar:
            raise TypeError("unhashable type: 'numpy.ndarray'")
        return hash(self._python_value("hash(), as of a set or the key of a dict,")[()])

    def _python_value(self: Any, what: str) -> Any:
        """The concrete value; DataDependentError where a gradient would be lost with it."""
        if self.is_constant:
            return self.concrete
        if self.size == 1 and self.dtype.kind in "biu":
            self.recorder.read_number(self)  # the trace holds for this number
            return self.concrete
        frame = sys._getframe(2)
        if self.size == 1 and self.dtype.kind == "f" and formats(frame):  # "%.3f" % x
            self.recorder.told.text("")
            return self.concrete
        self.recorder.adoptions.note(frame)
        raise DataDependentError(
            f"{what} needs the value of a traced array, and would lose its gradient",
            loc=user_loc(),
            hint="x is a number already: pass it to functions of numpy, or pass gradof.value_of(x) "
            "if no gradient is wanted",
        )

    def _bits(self: Any) -> np.ndarray[Any, Any]:
        """Booleans for code in C: the trace holds where they are the same again.

        Python reads them as whole numbers of 62 bits: one of the whole could be equal by accident.
        """
        flat = np.ravel(self)
        for start in range(0, self.size, _BITS):
            some = flat[start : start + _BITS]
            int(np.sum(np.where(some, 1 << np.arange(some.size), 0)))
        result: np.ndarray[Any, Any] = self.plain()
        return result

    def whole(self: Any) -> Any:
        """Whole numbers or booleans that decide a shape: the trace holds where they are the same.

        Raises DataDependentError for other numbers.
        """
        if self.is_constant or not self.size:
            return self.plain()
        if self.dtype.kind == "b" and self.size > 1:
            return self._bits()
        if self.dtype.kind in "iu" and 1 < self.size <= tuning.READ_NUMBERS:
            return np.reshape([int(x) for x in np.ravel(self)], self.memory.shape)
        return self._python_value("a shape or a place")

    def __bool__(self: Any) -> bool:
        if self.size != 1 and not self.is_constant:  # no number: numpy's own ValueError
            raise ShapeError(
                f"the truth value of an array of shape {self.shape} is ambiguous", loc=user_loc(),
                hint="ask for x.any(), x.all() or x.size, or choose by element with np.where",
            )
        if self.is_constant:
            return bool(self.concrete)
        truth = self if self.dtype.kind == "b" else self != 0
        frame = sys._getframe(1)
        return bool(truth.decided(frame, frame.f_lasti))

    def decided(self: Any, frame: FrameType, at: int) -> bool:
        """Which way Python goes by a boolean, at an instruction of a frame: a branch, or a Guard.

        A loop may have run to its end with it (`whiles`).
        """
        recorder = self.recorder
        value, outcome = recorder.loops.decide(frame, at, self.expr.value, bool(self.concrete))
        recorder.enter()
        recorder.loops.reads.decisions.decided(frame.f_code, at)
        if not recorder.is_constant(value):
            recorder.guard(value, outcome)
        return bool(outcome)

    def __float__(self: Any) -> float:
        return float(self._python_value("float()"))

    def __int__(self: Any) -> int:
        frame = sys._getframe(1)
        if self.size == 1 and self.dtype.kind == "f" and formats(frame):  # "%d" % x
            self.recorder.told.text("")
            return int(self.concrete)
        self.recorder.adoptions.note(frame)
        if self.dtype.kind == "f" and not self.is_constant:  # a step: its gradient is zero
            whole: Any = np.trunc(self).astype(np.int64)
            return int(whole._python_value("int()"))
        return int(self._python_value("int()"))

    def __round__(self: Any, ndigits: Any = None) -> Any:
        if not self.is_scalar:  # an array has no __round__
            raise TypeError("type numpy.ndarray doesn't define __round__ method")
        from gradof.tracer.numpy.conversions import as_int  # which stands above arrays
        if ndigits is not None:
            rounded = np.round(self, ndigits)
            return self.as_float(rounded) if self.is_python else rounded
        if self.is_constant:
            return round(self.concrete[()])
        return as_int(np.rint(self))

    def __complex__(self: Any) -> complex:
        return complex(self._python_value("complex()"))

    def __index__(self: Any) -> int:
        return int(self._python_value("an index").__index__())

    def __format__(self: Any, spec: str) -> str:
        return str(self.recorder.told.text(format(self._shown(), spec)))

    def __str__(self: Any) -> str:
        return str(self.recorder.told.text(str(self._shown())))

    def __repr__(self: Any) -> str:
        return str(self.recorder.told.text(repr(self._shown())))

    def _shown(self: Any) -> Any:
        """What is shown: the value that it has while the function is traced."""
        return self.concrete[()] if self.is_scalar else self.concrete

    def item(self: Any, *args: Any) -> Any:
        """One element: of floating-point arrays a traced number, which keeps its gradient."""
        if self.dtype.kind not in "fc" or self.is_constant:
            return self._python_value("item()").item(*args)
        if not args and self.size != 1:
            raise ValueError("can only convert an array of size 1 to a Python scalar")
        if len(args) == 1 and not isinstance(args[0], tuple):
            return self.as_float(np.reshape(self, -1)[args[0]])
        return self.as_float(
            self[args[0] if args and isinstance(args[0], tuple) else args] if args
            else np.reshape(self, -1)[0]
        )

    def is_integer(self: Any) -> bool:
        """Whether a number is whole; the trace holds where it is so again."""
        if not self.is_scalar:
            raise AttributeError("'numpy.ndarray' object has no attribute 'is_integer'")
        return bool(np.isfinite(self) & (self == np.trunc(self)))

    def as_integer_ratio(self: Any) -> Any:
        """Two whole numbers, which have no gradient: DataDependentError."""
        return self._python_value("as_integer_ratio()")[()].as_integer_ratio()

    def tolist(self: Any) -> Any:
        """Nested lists: of a floating-point array, of traced numbers."""
        if self.dtype.kind not in "fc" or self.is_constant:
            return self.whole().tolist()
        return [part.tolist() for part in self] if self.ndim else self.as_float(self[()])

    @staticmethod
    def as_float(number: Any) -> Any:
        """A number of Python's: see `floats`, which stands above arrays."""
        from gradof.tracer.numpy.floats import as_float

        return as_float(number)
