"""Numbers and constants that the steps of a loop change, as values of the graph.

Note [Numbers that vary]
A number of Python's that a step changes, and an array that is a constant at first, would make each
step another one. They are noted (`Varying`), and in the next run they vary from the first step on:
a number is a `TracedNumber` then, put into the variable. If the loop is recorded no better for it,
or if that run fails, they are numbers again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gradof.ops.expr import Expr, F
from gradof.passes.roll.ways import LARGEST_COUNT
from gradof.tracer.core.number import TracedNumber
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.heads import BranchStanding

if TYPE_CHECKING:
    from gradof.tracer.numpy.recorder import Recorder

_DTYPES: Mapping[Any, Any] = {int: np.int64, float: np.float64}  # of numbers that vary
_NARROW = (np.dtype(np.float32), np.dtype(np.float16))  # beside which the two differ


def varied(recorder: Recorder, value: Any, dtype: Any) -> Any:
    """A number or an array that varies, in place of one that does not; None where it does."""
    kind = type(value)
    if kind is int and abs(value) > LARGEST_COUNT:
        return None
    if kind is TracedArray:
        if value.link is None and value.is_constant:
            value.assign(_free(recorder, value.expr))
    elif dtype is None and kind in _DTYPES:
        expr = _free(recorder, recorder.constant(np.asarray(value, _DTYPES[kind])))
        return recorder.numbers.element(value, expr.value)
    elif dtype is not None and (kind in _DTYPES or isinstance(value, np.generic)):
        scalar = np.dtype(dtype).type(value)
        return recorder.wrap(scalar, _free(recorder, recorder.constant(np.asarray(scalar))))
    elif dtype is not None and kind is np.ndarray and value.dtype == dtype:
        traced = recorder.traced(value)
        return recorder.wrap(np.array(value), _free(recorder, traced.expr))
    return None


def _free(recorder: Recorder, expr: Expr) -> Expr:
    """A copy of a constant that is none: it stands for others."""
    made = F.copy(expr)
    recorder.note_varying(made.value)
    return made


def varies(before: BranchStanding, was: Any, value: Any) -> tuple[Any] | None:
    """As what a variable is to vary: a number, or an array of a dtype; None where it is not."""
    kind, then = type(value), type(was)
    numbers = (*_DTYPES, TracedNumber)
    if then in numbers and kind in numbers:
        may = type(_number(was)) is type(_number(value)) and (
            then is not int or abs(was) <= LARGEST_COUNT
        )
        return (None,) if may and repr(_number(was)) != repr(_number(value)) else None
    scalar = isinstance(value, np.generic) if kind is not TracedArray else value.is_scalar
    if then in numbers and scalar:
        narrow = any(getattr(x, "dtype", None) in _NARROW for x in before.leaves)
        return None if narrow or value.dtype != _DTYPES[type(_number(was))] else (value.dtype,)
    if isinstance(was, np.generic) and kind is not TracedNumber and scalar:
        return None if was is value or was.dtype != value.dtype else (value.dtype,)
    if then is np.ndarray and kind is TracedArray:
        fits = was.dtype == value.dtype and was.shape == value.shape
        return (value.dtype,) if fits else None
    if then is kind is TracedArray and was.link is None and was.is_constant:
        return (value.dtype,) if was.kind == value.kind and was is not value else None
    return None


def _number(value: Any) -> Any:
    return value.value if type(value) is TracedNumber else value
