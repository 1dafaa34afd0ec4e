"""numpy's floating-point errors, where they are raised: `np.errstate`, `np.seterr(all="raise")`.

    with np.errstate(divide="raise"):
        try:
            y = 1.0 / x               # a branch by value: is there a zero in x?
        except FloatingPointError:
            y = np.zeros_like(x)

Whether numpy would raise is computed from operands and results, and decided as an `if` of the
user's: the trace raises where numpy does, and a call that goes the other way has a path of its own.
Which kinds are raised when a call begins is part of its key.

Note [One Guard for all]
That nothing was raised is one decision for all functions up to an error, or to the end: where it
turns out otherwise, the call is traced, and raises where numpy does. Each step of a loop runs.

numpy goes by flags of the processor. By values: an infinite result of finite operands is a division
by zero where the function has a pole there, and an overflow elsewhere; a nan of operands that are
none is invalid; a product, quotient, power or exponential that is smaller than the least normal
number, of operands that are not, is an underflow. What underflows within other functions, such as
the sine of 1e-308, numpy raises and this does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from operator import and_, or_
from typing import Any

import numpy as np

from gradof.tracer.core.numpy_errors import KINDS, raised
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.recorder import Recorder, contains_traced

_TEXTS = dict(zip(KINDS, (
    "divide by zero", "overflow", "underflow", "invalid value"), strict=True))  # fmt: skip
# Where a function of finite operands has a pole.
_POLES: Mapping[Any, Callable[..., Any]] = {
    np.divide: lambda a, b: b == 0, np.floor_divide: lambda a, b: b == 0,
    np.divmod: lambda a, b: b == 0,
    np.reciprocal: lambda x: x == 0, np.log: lambda x: x == 0, np.log2: lambda x: x == 0,
    np.log10: lambda x: x == 0, np.log1p: lambda x: x == -1, np.arctanh: lambda x: abs(x) == 1,
    np.power: lambda a, b: a == 0, np.float_power: lambda a, b: a == 0,
}  # fmt: skip
_SHRINK = frozenset({
    np.multiply, np.divide, np.power, np.float_power, np.square, np.reciprocal,
})  # fmt: skip
_EXPONENTIALS = frozenset({np.exp, np.exp2})
_BY_ELEMENT = ("__call__", "outer", "at")  # methods of ufuncs
_OF_WHOLE = frozenset({np.floor_divide, np.remainder, np.fmod, np.divmod})  # errors by zero
# Functions of whole arrays: by their results alone.
SUMS = frozenset({
    np.sum, np.prod, np.mean, np.average, np.var, np.std, np.cumsum, np.cumprod, np.nansum,
    np.nanprod, np.nanmean, np.dot, np.vdot, np.inner, np.outer, np.tensordot, np.einsum, np.trace,
    np.linalg.norm,
})  # fmt: skip


def of_ufunc(
    recorder: Recorder, ufunc: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any],
    record: Callable[[], Any],
) -> Any:  # fmt: skip
    """What `record` gives; FloatingPointError where numpy would raise it."""
    if not _is_numpys(ufunc):  # scipy's set no flags
        with np.errstate(all="ignore"):
            return record()
    kinds = raised()
    each = method in _BY_ELEMENT and ufunc.signature is None
    where = kwargs.get("where", True)
    with np.errstate(all="ignore"):
        operands = _operands(method, inputs)
        result = record()
        made = inputs[0][inputs[1]] if method == "at" else result
        for y in made if isinstance(made, tuple) else (made,):
            found = _of_elements(ufunc, operands, y) if each else _of_all(operands, y)
            found = ((kind, bad & where) for kind, bad in found)
            _note(recorder, kinds, found, ufunc.__name__ if method in _BY_ELEMENT else method)
    return result


def _operands(method: str, inputs: tuple[Any, ...]) -> list[Any]:
    """What a ufunc computes each of its results of, before it may write into it."""
    if method == "at":
        target, places, *others = inputs
        return [target[places], *others]
    if method == "outer":
        a, b = inputs
        return [np.reshape(a, (*np.shape(a), *[1] * np.ndim(b))), b]
    return [np.copy(x) if isinstance(x, np.ndarray) else x for x in inputs]


def _is_numpys(ufunc: Any) -> bool:
    return getattr(np, ufunc.__name__, None) is ufunc


def of_function(
    recorder: Recorder, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any],
    record: Callable[[], Any],
) -> Any:  # fmt: skip
    """The same of a function of numpy that is no ufunc, such as a sum.

    Only sums are looked at: what others compute within is not what numpy's own code does.
    """
    kinds = raised()
    with np.errstate(all="ignore"):
        result = record()
        if func not in SUMS:
            return result
        operands = [x for x in (*args, *kwargs.values()) if contains_traced(x)]
        if all(isinstance(x, np.ndarray | np.generic) for x in operands):
            for y in result if isinstance(result, tuple) else (result,):
                _note(recorder, kinds, _of_all(operands, y), "reduce")
    return result


def _note(
    recorder: Recorder, kinds: Sequence[str], found: Iterator[tuple[str, Any]], name: str
) -> None:
    """Raise what numpy would, and keep where it would not: Note [One Guard for all]."""
    recorder.loops.raises = True
    if recorder.builder.block is not recorder.graph.block:
        return  # in a loop, of which every step runs in the next try
    errors = recorder.told.errors
    for kind, bad in found:
        if kind not in kinds or bad is False:
            continue
        if np.any(bad.concrete if isinstance(bad, TracedArray) else bad):
            settle(recorder)
            if bool(np.any(bad)):
                raise FloatingPointError(f"{_TEXTS[kind]} encountered in {name}")
        elif type(bad) is TracedArray:
            known = errors.get(bad.shape)
            errors[bad.shape] = bad if known is None else known | bad


def settle(recorder: Recorder) -> None:
    """Decide, by one Guard, that numpy has raised nothing so far."""
    errors, recorder.told.errors = recorder.told.errors, {}
    with np.errstate(all="ignore"):
        if errors and bool(reduce(or_, [np.any(bad) for bad in errors.values()])):
            raise AssertionError("each of them was looked at")


def _of_elements(ufunc: Any, operands: list[Any], y: Any) -> Iterator[tuple[str, Any]]:
    """By kind, in numpy's order, the elements at which a ufunc has an error."""
    dtype = np.result_type(y)
    if dtype.kind in "iu" and ufunc in _OF_WHOLE:
        yield "divide", np.equal(operands[1], 0)
    if dtype.kind not in "fc":
        return
    finite = reduce(and_, [np.isfinite(x) for x in operands])
    infinite = np.isinf(y) & finite
    pole = _POLES[ufunc](*operands) if ufunc in _POLES else False
    yield "divide", infinite & pole
    yield "over", infinite & np.logical_not(pole)
    if dtype.kind == "f" and (ufunc in _SHRINK or ufunc in _EXPONENTIALS):
        least = np.finfo(dtype).tiny
        small = reduce(or_, [np.abs(x) < least for x in operands])
        loses = finite if ufunc in _EXPONENTIALS else finite & np.logical_not(small)
        yield "under", (np.abs(y) < least) & loses
    nan = reduce(or_, [np.isnan(x) for x in operands])
    yield "invalid", np.isnan(y) & np.logical_not(nan)


def _of_all(operands: Sequence[Any], y: Any) -> Iterator[tuple[str, Any]]:
    """The same of what is computed of whole arrays: whether there is one."""
    if np.result_type(y).kind not in "fc":
        return
    finite = reduce(and_, [np.all(np.isfinite(x)) for x in operands])
    yield "over", np.any(np.isinf(y)) & finite
    nan = reduce(or_, [np.any(np.isnan(x)) for x in operands])
    yield "invalid", np.any(np.isnan(y)) & np.logical_not(nan)
