"""Loops that a value ends, over traced arrays of numpy's: `gradof.tracer.core.whiles`.

Note [Numbers that vary]
A number of Python's that a step changes, and an array that is a constant at first, would make each
step another one. They are noted (`Varying`), and in the next run they vary from the first step on:
a number is a `TracedNumber` then, put into the variable. If the loop is recorded no better for it,
or if that run fails, they are numbers again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from gradof.ir.core import Value
from gradof.ops.expr import Expr, F
from gradof.passes.roll.ways import LARGEST_COUNT
from gradof.tracer.core.heads import Arrays, Head, is_number, number_of, number_varies
from gradof.tracer.core.number import TracedNumber
from gradof.tracer.core.standing import Standing, are_known
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.recorder import Recorder
from gradof.tracer.numpy.standing import ArrayStanding
from gradof.tracer.numpy.steps import marks

_DTYPES: Mapping[Any, Any] = {int: np.int64, float: np.float64}  # of numbers that vary
_NARROW = (np.dtype(np.float32), np.dtype(np.float16))  # beside which the two differ


class ArrayLoops(Arrays):
    """See the module docstring."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder: Recorder = recorder

    def records(self) -> bool:
        """Not where each call is performed, or within a body."""
        recorder = self.recorder
        if recorder.loops.evaluate is None or recorder.builder.block is not recorder.graph.block:
            return False
        return recorder.told.performs is None and recorder.loops.reads.performs is None

    def standing(self) -> Standing:
        """See `standing`."""
        return ArrayStanding(self.recorder)

    def marks(self) -> tuple[Any, ...]:
        """All but the Guards."""
        return marks(self.recorder)[1:]

    def are_known(self, called: Iterable[Any]) -> bool:
        """See `core.standing`."""
        return are_known(called)

    def evaluate(self, first: Head, wanted: Sequence[Value]) -> Sequence[Any]:
        """By the graph so far."""
        assert self.recorder.loops.evaluate is not None
        return self.recorder.loops.evaluate(self.recorder, wanted)

    # --- after the loops ------------------------------------------------------------------------

    def may_make(self, array: Any) -> bool:
        """Where memory of the same strides can be had."""
        memory = array.memory
        return bool(np.empty_like(memory).strides == memory.strides)

    def may_change(self, array: Any, fresh: bool) -> bool:
        """Always in place; what is fresh has memory as another would have."""
        return not fresh or self.may_make(array)

    def made(self, array: Any, final: Expr, value: Any) -> Any:
        """An array, or a scalar as it was one."""
        made = np.array(value, array.dtype)
        return self.recorder.wrap(made[()] if array.is_scalar else made, final)

    def change(self, array: Any, final: Expr, value: Any) -> None:
        """The elements, and what they stand for."""
        self.recorder.deferred.before_write(array.memory)
        array.memory[...] = value
        array.assign(final)

    # --- what varies ----------------------------------------------------------------------------

    def varied(self, value: Any, dtype: Any) -> Any:
        """Note [Numbers that vary]."""
        kind, recorder = type(value), self.recorder
        if kind is int and abs(value) > LARGEST_COUNT:
            return None
        if kind is TracedArray:
            if value.link is None and value.is_constant:
                value.assign(self._free(value.expr))
        elif dtype is None and kind in _DTYPES:
            expr = self._free(recorder.constant(np.asarray(value, _DTYPES[kind])))
            return recorder.numbers.element(value, expr.value)
        elif dtype is not None and (kind in _DTYPES or isinstance(value, np.generic)):
            scalar = np.dtype(dtype).type(value)
            return recorder.wrap(scalar, self._free(recorder.constant(np.asarray(scalar))))
        elif dtype is not None and kind is np.ndarray and value.dtype == dtype:
            return recorder.wrap(np.array(value), self._free(recorder.traced(value).expr))
        return None

    def _free(self, expr: Expr) -> Expr:
        """A copy of a constant that is none: it stands for others."""
        made = F.copy(expr)
        self.recorder.note_varying(made.value)
        return made

    def varies(self, before: Head, now: Head, name: str) -> tuple[Any] | None:
        """By what the variable was at two heads."""
        was: Any = before.standing.variables.get(name)
        value = now.standing.variables[name]
        kind, then = type(value), type(was)
        if is_number(was) and is_number(value):
            return number_varies(was, value)
        scalar = isinstance(value, np.generic) if kind is not TracedArray else value.is_scalar
        if is_number(was) and scalar:
            narrow = any(getattr(x, "dtype", None) in _NARROW for x in before.standing.arrays)
            fits = not narrow and value.dtype == _DTYPES[type(number_of(was))]
            return (value.dtype,) if fits else None
        if isinstance(was, np.generic) and kind is not TracedNumber and scalar:
            return None if was is value or was.dtype != value.dtype else (value.dtype,)
        if then is np.ndarray and kind is TracedArray:
            fits = was.dtype == value.dtype and was.shape == value.shape
            return (value.dtype,) if fits else None
        if then is kind is TracedArray and was.link is None and was.is_constant:
            return (value.dtype,) if was.kind == value.kind and was is not value else None
        return None
