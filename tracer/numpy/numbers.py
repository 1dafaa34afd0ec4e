"""Traced numbers that meet arrays: scalars of the dtype NEP 50 gives a Python number there.

    x * lr      lr : f64[] of the graph, x float32      →      mul(%x, cast[f32](%lr))

Ufuncs, `np.where`, `np.clip`, `np.full`, `np.full_like` and assignment take them so. Every other
function pins them (Note [Pinned numbers] in `tracer.number`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradof.tracer.core.number import TracedNumber
from gradof.tracer.core.number_trees import has_number, plain
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.recorder import Recorder

MIXED = frozenset({np.where, np.clip})  # functions whose arguments meet each other
_MAKES = frozenset({np.array, np.asarray, np.asanyarray})


def as_scalar(recorder: Recorder, number: TracedNumber, dtype: Any) -> Any:
    """The number as a traced scalar of a dtype; pinned where the dtype may not hold it."""
    dtype = np.dtype(dtype)
    if dtype.kind in "iu" and dtype.itemsize < 4:
        return number.pin()
    expr = number.cast(recorder.ir_dtype(dtype))
    return TracedArray(recorder, dtype.type(number.value), expr)


def scalars_of(recorder: Recorder, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments of a function of floats, numbers among them as traced scalars."""
    return tuple(
        as_scalar(recorder, x, np.float64) if type(x) is TracedNumber else x for x in args
    )


def as_operands(recorder: Recorder, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Operands that meet each other, numbers among them as scalars of the common dtype."""
    if not any(type(x) is TracedNumber for x in operands):
        return operands
    arrays = [x.dtype for x in operands if type(x) is not TracedNumber and hasattr(x, "dtype")]

    def scalar(x: Any) -> Any:
        if type(x) is not TracedNumber:
            return x
        return as_scalar(recorder, x, np.result_type(*arrays, x.value))

    return tuple(scalar(x) for x in operands)


def in_ufunc(
    recorder: Recorder, inputs: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a ufunc without traced numbers."""
    if not recorder.numbers.active:
        return inputs, kwargs
    return plain(as_operands(recorder, inputs)), plain(kwargs)


def in_function(
    recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a numpy function without traced numbers."""
    if not recorder.numbers.active or not (has_number(args) or has_number(kwargs)):
        return args, kwargs
    if func in MIXED and args:
        first = args[:1] if func is np.where else ()  # the condition has no say in the dtype
        args = (*first, *as_operands(recorder, args[len(first) :]))
    elif func in _MAKES and args:
        args = (strong(recorder, args[0]), *args[1:])
    elif func is np.full and len(args) == 2 and type(args[1]) is TracedNumber:
        args = (args[0], strong(recorder, args[1]))
    elif func is np.full_like and len(args) == 2 and type(args[1]) is TracedNumber:
        dtype = kwargs.get("dtype") or args[0].dtype
        args = (args[0], as_scalar(recorder, args[1], dtype))
    return plain(args), plain(kwargs)


def strong(recorder: Recorder, tree: Any) -> Any:
    """Numbers in a nest as scalars of the dtype numpy makes of a Python number."""
    if type(tree) in (list, tuple):
        return type(tree)([strong(recorder, x) for x in tree])
    if type(tree) is not TracedNumber:
        return tree
    return as_scalar(recorder, tree, np.result_type(type(tree.value)))


def in_index(recorder: Recorder, index: Any) -> Any:
    """An index without traced numbers: whole ones that stand alone as traced scalars."""
    if not recorder.numbers.active:
        return index
    items = index if isinstance(index, tuple) else (index,)
    scalars = tuple(
        as_scalar(recorder, i, np.int64)
        if type(i) is TracedNumber and type(i.value) is int else plain(i) for i in items
    )
    return scalars if isinstance(index, tuple) else scalars[0]


def in_assignment(array: TracedArray, index: Any, value: Any) -> tuple[Any, Any]:
    """Index and value of `array[index] = value` without traced numbers."""
    recorder = array.recorder
    if not recorder.numbers.active:
        return index, value
    if type(value) is TracedNumber:
        value = as_scalar(recorder, value, array.dtype)
    return in_index(recorder, index), plain(value)
