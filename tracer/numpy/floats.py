"""Traced numbers that are Python's own: a float in double precision that gives way to arrays.

    h = float(x[0])       x : f32[3]; h is a float, as are x.item(), x.tolist()[0], math.sin(x[0])
    h * h, -h, 2 / h      floats, too, with Python's errors: a ZeroDivisionError, no infinity
    (h > 0) + (h < 1)     an int: of truths, too, as Python adds them
    h * x                 f32[3]: `mul(cast[f32](%h), %x)`, as NEP 50 has it
    np.exp(h)             a number of numpy's: float64

Only operators make numbers of Python's of others; to numpy's functions, and scipy's, they are
numbers of numpy's (`as_numpys`), so that what adaptors compute with them has no errors of Python's.
"""

from __future__ import annotations

import operator
import sys
from typing import Any

import numpy as np

from gradof.ops.expr import F
from gradof.tracer.core.number import TracedNumber
from gradof.tracer.numpy.array import Later, TracedArray
from gradof.tracer.numpy.recorder import Recorder, real
from gradof.tracer.state.loop_code import handles_errors
from gradof.tracer.state.source import user_frame

_NUMBERS = frozenset({float, int, bool, complex, TracedNumber})
# Operators that raise where numpy has a nan or an infinity: see `gradof.ops.python_math`.
_RAISES = {
    np.divide: "truediv", np.floor_divide: "floordiv", np.remainder: "mod", np.power: "float_pow",
}  # fmt: skip
_OF_NUMBERS = frozenset({
    np.add, np.subtract, np.multiply, np.divide, np.floor_divide, np.remainder, np.divmod, np.power,
    np.negative, np.positive, np.absolute, np.invert,
})  # fmt: skip
_PLAIN = {"truediv": operator.truediv, "floordiv": operator.floordiv, "mod": operator.mod,
          "float_pow": operator.pow}  # fmt: skip


def as_python(made: Any) -> Any:
    """This number, of which nobody else knows, as Python's own."""
    made.is_python = True
    made.lie_in(made.memory, made.expr)
    made.recorder.told.floats = True
    return made


def as_float(x: Any) -> Any:
    """One number as Python's own: another object, for x itself stays numpy's."""
    dtype = np.dtype(np.complex128 if x.dtype.kind == "c" else np.float64)
    mine = _as_numpys(x) if x.is_scalar else np.copy(x)[()]
    return as_python(mine if x.dtype == dtype else mine.astype(dtype))


def is_number(x: Any) -> bool:
    """Whether it is a number of Python's."""
    kind: Any = type(x)
    return kind in _NUMBERS or (kind is TracedArray and x.is_python)


# --- operators ------------------------------------------------------------------------------------


def before_operator(ufunc: Any, x: TracedArray) -> TracedArray:
    """An operand that is Python's own: a truth is a whole number where it is computed with."""
    if x.memory.dtype.kind == "b" and ufunc in _OF_NUMBERS:
        whole: TracedArray = as_python(_as_numpys(x).astype(np.int64))
        return whole
    return x


def of_operator(ufunc: Any, made: Any, inputs: tuple[Any, ...]) -> Any:
    """What an operator made of inputs, of which one is Python's own."""
    if type(made) is tuple:  # divmod's
        parts = zip((np.floor_divide, np.remainder), made, strict=True)
        return tuple(of_operator(each, part, inputs) for each, part in parts)
    if type(made) is not TracedArray or not all(map(is_number, inputs)):
        return made
    name = _RAISES.get(ufunc)
    if name is None or made.dtype.kind != "f":
        return as_python(made)
    return as_python(_or_error(name, made, inputs))


def _or_error(name: str, made: Any, inputs: tuple[Any, ...]) -> Any:
    """The result, where Python gives one; see Note [Errors of math] in `math_arrays`."""
    recorder, caught = made.recorder, may_be_caught()
    if caught:
        recorder.read_number(np.isfinite(made))
    plain = [x.value if type(x) is TracedNumber else _item(x) for x in inputs]
    if isinstance(_PLAIN[name](*plain), complex):  # raises what Python raises
        return _complex_power(recorder, *inputs)
    if caught:
        return recorder.wrap(real(made), F.alias(made.expr))
    operands = [_as_f64(recorder, x) for x in inputs]
    return recorder.wrap(real(made), F.math_result(made.expr, *operands, function=name))


def _complex_power(recorder: Recorder, base: Any, exponent: Any) -> Any:
    """Of a negative number, to the power of a fraction: the trace holds where it is one again."""
    if type(base) is TracedArray:
        recorder.read_number(as_numpys(base) < 0)
    if type(exponent) is TracedArray:
        recorder.read_number(np.trunc(as_numpys(exponent)) != as_numpys(exponent))
    return np.power(np.add(as_numpys(base), 0j), as_numpys(exponent))


def may_be_caught() -> bool:
    """Whether code of the user's that waits for this function handles errors."""
    frame = user_frame(sys._getframe(1))
    while frame is not None and frame.f_globals.get("__name__") != "gradof.tracer.numpy.tracer":
        if handles_errors(frame.f_code):
            return True
        frame = frame.f_back
    return False


def _item(x: Any) -> Any:
    return real(x).item() if type(x) is TracedArray else x


def _as_f64(recorder: Recorder, x: Any) -> Any:
    if type(x) is TracedNumber:
        return x.cast(recorder.ir_dtype(np.dtype(np.float64)))
    return recorder.traced(x if type(x) is TracedArray else np.float64(x)).expr


# --- beside arrays, and in functions --------------------------------------------------------------


def as_numpys(tree: Any) -> Any:
    """The same values as numbers of numpy's; tuples, lists and dicts are searched."""
    if type(tree) is TracedArray:
        return _as_numpys(tree) if tree.is_python else tree
    if type(tree) in (tuple, list):
        return type(tree)([as_numpys(x) for x in tree])
    if type(tree) is dict:
        return {k: as_numpys(v) for k, v in tree.items()}
    return tree


def _as_numpys(x: TracedArray) -> TracedArray:
    return TracedArray(x.recorder, Later(x.memory), x.expr)


def give_way(recorder: Recorder, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Operands that meet each other: Python's numbers as numpy's, of the dtype NEP 50 gives."""
    if not any(type(x) is TracedArray and x.is_python for x in operands):
        return operands
    arrays = [
        x.dtype for x in operands
        if hasattr(x, "dtype") and not (type(x) is TracedArray and x.is_python)
    ]  # fmt: skip

    def given(x: Any) -> Any:
        if type(x) is not TracedArray or not x.is_python:
            return x
        if not arrays:
            return _as_numpys(x)
        wanted = np.result_type(*arrays, x.dtype.type(0).item())
        real_only = wanted.kind == "c" and x.dtype.kind != "c"
        wanted = np.zeros((), wanted).real.dtype if real_only else wanted
        return recorder.cast(_as_numpys(x), wanted)

    return tuple(map(given, operands))
