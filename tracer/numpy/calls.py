"""The calls that go through `templates`: which of their arguments are the key, which are operands.

    np.tanh(x) * 1.01     key: tanh, kind of x; multiply, kind of tanh's result, float; open: 1.01
    x[t]                  key: kind of x, an element; open: t
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gradof.ops.expr import Expr
from gradof.tracer.numpy import templates
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.deferred import real
from gradof.tracer.numpy.lengths import OPEN
from gradof.tracer.numpy.view import View

if TYPE_CHECKING:
    from gradof.tracer.numpy.recorder import Recorder

# Functions whose record depends on types, and on arguments that are no arrays.
BY_TYPES = frozenset({
    np.sum, np.prod, np.mean, np.var, np.std, np.max, np.min, np.cumsum, np.dot, np.vdot, np.inner,
    np.outer, np.where, np.stack, np.concatenate, np.clip, np.linalg.norm, np.cross, np.diff,
    np.trace,
})  # fmt: skip
VIEWS = frozenset({np.transpose, np.swapaxes})  # so do these, and which views they are
SMALL = 512  # bytes of a plain array that is compared to others
_CONSTANT = frozenset(map(np.dtype, (np.float64, np.float32, np.int64, np.int32, np.bool_)))
_PLAIN = frozenset({int, float, bool, type(None), str})


def ufunc_call(
    recorder: Recorder, ufunc: Any, inputs: tuple[Any, ...], record: Callable[..., Any]
) -> Any:
    """`ufunc(*inputs)`; `record(recorder, ufunc, "__call__", inputs, {})` records it in full."""
    key: list[Any] = [ufunc]
    operands: list[TracedArray] = []
    numbers: list[Any] = []
    given = inputs
    if type(inputs[-1]) is np.ndarray or type(inputs[0]) is np.ndarray:
        inputs = tuple([_constant(recorder, x) if type(x) is np.ndarray else x for x in inputs])
    for x in inputs:
        kind = type(x)
        if kind is TracedArray and x.recorder is recorder:
            key.append(x.kind)
            operands.append(x)
        elif kind is float or kind is int:
            key.append(kind)
            if x != x:
                return record(recorder, ufunc, "__call__", given, {})
            if ufunc in OPEN:
                numbers.append(x)
            else:
                key.append(_told(x))
        else:
            return record(recorder, ufunc, "__call__", given, {})
    return templates.through(
        recorder, tuple(key), operands, numbers,
        lambda: record(recorder, ufunc, "__call__", inputs, {}),
        lambda: recorder.numpy(ufunc, *inputs),
    )  # fmt: skip


def function_call(
    recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any],
    record: Callable[..., Any],
) -> Any:  # fmt: skip
    """`func(*args, **kwargs)`; `record(recorder, func, args, kwargs)` records it in full."""
    key: list[Any] = [func]
    operands: list[TracedArray] = []
    views = func in VIEWS
    if (
        not (views or func in BY_TYPES) or kwargs.get("out") is not None
        or not _signature(recorder, args, key, operands)
        or not _signature(recorder, tuple(kwargs.values()), key, operands)
    ):  # fmt: skip
        return record(recorder, func, args, kwargs)
    return templates.through(
        recorder, (tuple(key), *kwargs), operands, (),
        lambda: record(recorder, func, args, dict(kwargs)),
        lambda: recorder.numpy(func, *args, **kwargs), views=views,
    )


def item_call(
    array: TracedArray, index: Any, record: Callable[..., Any],
    link: Callable[[tuple[Any, ...], Any], View | None],
) -> Any:  # fmt: skip
    """`array[index]`; `record(array, index)` records it in full."""
    recorder = array.recorder
    items = index if type(index) is tuple else (index,)
    operands = [array]
    found = _index(array, items, operands)
    if found is None:
        return record(array, index)
    key, numbers, dims = found
    if len(operands) == 1:
        return templates.through(
            recorder, ("item", key), operands, numbers, lambda: record(array, index),
            lambda: recorder.deferred.item(array, items), lambda value: link(items, value), dims,
        )
    recorder.varying = tuple([x.expr.value for x in operands])  # `_index` has asked
    try:
        return templates.through(
            recorder, ("item", key), operands, (), lambda: record(array, index),
            lambda: recorder.deferred.item(array, tuple(map(real, items))),
            lambda value: link(items, value),
        )
    finally:
        recorder.varying = ()


def write_call(
    array: TracedArray, index: Any, source: TracedArray, record: Callable[..., Any],
    assign: Callable[..., Any],
) -> None:  # fmt: skip
    """`array[index] = source`; `record(array, index, source)` records it in full.

    `assign(memory, items, values)` is what numpy does.
    """
    recorder = array.recorder
    items = index if type(index) is tuple else (index,)
    found = None if array.link is not None or array.is_scalar else _index(array, items, None)
    if found is None:
        record(array, index, source)
        return
    values = [array.expr.value, source.expr.value]
    key = ("write", found[0], source.kind, values[0] is values[1])
    call = templates.Call(key, values, found[1], found[2])
    template = templates.found(key)
    if template is templates.NEW:
        templates.keep(
            recorder, call, lambda: record(array, index, source), lambda _: array.expr.value
        )
        return
    if template is None:
        record(array, index, source)
        return
    recorder.deferred.before_write(array.memory)
    recorder.numpy(assign, array.memory, items, source)
    array.assign(Expr(templates.emit(recorder, template, values, found[1]), recorder.emitter))


def _index(
    array: TracedArray, items: tuple[Any, ...], operands: list[TracedArray] | None
) -> tuple[Any, list[int], list[int]] | None:
    """An index of numbers and slices as a key; the places of single elements are open.

    So a loop over `x[t]` has one template. With the places come their dims. Traced whole numbers
    among slices are added to `operands`.
    """
    memory = array.memory
    key: list[Any] = [array.kind]
    numbers: list[int] = []
    dims: list[int] = []
    dim = 0
    for item in items:
        kind = type(item)
        if kind is int and dim < memory.ndim:
            n = memory.shape[dim]
            at = item + n if item < 0 else item
            if not 0 <= at < n:
                return None
            numbers.append(at)
            dims.append(dim)
            key.append(int)
            dim += 1
        elif kind is slice and {type(item.start), type(item.stop), type(item.step)} <= _BOUNDS:
            key.append((item.start, item.stop, item.step))
            dim += 1
        elif item is None:
            key.append(None)
        elif kind is TracedArray and item.is_scalar and operands is not None:
            if item.memory.dtype.kind not in "iu" or item.recorder is not array.recorder:
                return None
            if item.is_constant:
                return None
            key.append((TracedArray, item.kind))
            operands.append(item)
            dim += 1
        else:
            return None
    if numbers and operands is not None and len(operands) > 1:
        return None  # beside traced numbers they are arrays
    return tuple(key), numbers, dims


def _constant(recorder: Recorder, array: Any) -> Any:
    """A small plain array that cannot be read again as a traced constant; others as they are.

    Of equal ones there is one constant.
    """
    flags = array.flags
    if array.nbytes > SMALL or not (flags.c_contiguous or flags.f_contiguous):
        return array
    owner = array if array.base is None else array.base
    if array.dtype not in _CONSTANT or recorder.is_old(array) or recorder.is_old(owner):
        return array
    key = array.dtype, array.shape, array.strides, array.tobytes()
    known = recorder.constants.get(key)
    if known is None:
        recorder.enter()
        recorder.baked = True
        known = recorder.constants[key] = recorder.own(array.copy("K"))
    return known


_BOUNDS = frozenset({int, type(None)})


def _signature(
    recorder: Recorder, args: Sequence[Any], key: list[Any], operands: list[TracedArray]
) -> bool:
    """Add what an adaptor can ask of the arguments; False where that is not known."""
    for x in args:
        kind = type(x)
        if kind is TracedArray and x.recorder is recorder:
            key.append(x.kind)
            operands.append(x)
        elif kind in _PLAIN:
            if x != x:
                return False
            key += (kind, _told(x))
        elif kind is tuple or kind is list:
            key += (kind, len(x))
            if not _signature(recorder, x, key, operands):
                return False
        else:
            return False
    return True


def _told(x: Any) -> Any:
    """A number as part of a key: 0.0 and -0.0 are two."""
    return (x, math.copysign(1.0, x)) if x == 0 and type(x) is float else x
