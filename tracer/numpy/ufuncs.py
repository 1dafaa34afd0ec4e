"""Ufuncs: `__array_ufunc__` for calls, reductions, accumulations and outer products.

A ufunc is found in the op registry by its name (`numpy.tanh`, `scipy.special.erf`); those that are
not one op are written out here in others.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import numpy as np

from gradof.errors import DtypeError, GradofError
from gradof.ops.registry import find_by_api_name
from gradof.tracer.core.numpy_errors import raised
from gradof.tracer.numpy import raising
from gradof.tracer.numpy.active import OVERRIDES
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.black_box import call as call_black_box
from gradof.tracer.numpy.calls import ufunc_call
from gradof.tracer.numpy.deferred import memories
from gradof.tracer.numpy.floats import give_way
from gradof.tracer.numpy.functions import conform
from gradof.tracer.numpy.numbers import in_ufunc
from gradof.tracer.numpy.recorder import Recorder, contains_traced, is_weak, real
from gradof.tracer.numpy.special import UFUNCS
from gradof.tracer.numpy.ufunc_methods import record_at, record_method

Function = Callable[..., Any]
_OF_WHOLE = frozenset({"absolute", "floor", "ceil", "trunc"})  # which leave truths as they are
_ALIASES = {"divide": "div", "sign": "sgn", "positive": "alias", "float_power": "pow"}


def _fmax(a: Any, b: Any) -> Any:
    return np.where((a >= b) | np.isnan(b), a, b)  # a tie is the first operand's, as in torch


def _fmin(a: Any, b: Any) -> Any:
    return np.where((a <= b) | np.isnan(b), a, b)


def _heaviside(x: Any, h: Any) -> Any:
    return np.where(np.isnan(x), x, np.where(x == 0, h, np.where(x > 0, 1.0, 0.0)))


def _modf(x: Any) -> Any:
    whole = np.trunc(x)
    return np.where(np.isinf(x), np.copysign(0.0, x), x - whole), whole


# ufuncs that are compositions of others
_OWN: dict[str, Function] = {
    "deg2rad": lambda x: x * (math.pi / 180), "radians": lambda x: x * (math.pi / 180),
    "rad2deg": lambda x: x * (180 / math.pi), "degrees": lambda x: x * (180 / math.pi),
    "heaviside": _heaviside, "fmax": _fmax, "fmin": _fmin, "modf": _modf,
    "ldexp": lambda x, n: x * np.exp2(n),
    "divmod": lambda a, b: (np.floor_divide(a, b), np.remainder(a, b)),
    "copysign": lambda a, b: np.abs(np.multiply(a, 1.0)) * np.where(np.signbit(b), -1.0, 1.0),
    "vecdot": lambda a, b: np.sum(np.conj(a) * b, axis=-1),
    "matvec": lambda a, b: np.matmul(a, b[..., None])[..., 0],
    "vecmat": lambda a, b: np.matmul(np.conj(a)[..., None, :], b)[..., 0, :],
}  # fmt: skip
def _after(a: Any, b: Any, or_equal: bool = False) -> Any:
    """Whether one complex number comes after another: by the real parts, then the imaginary."""
    a, b = (np.asarray(x) if is_weak(x) else x for x in (a, b))
    orders = a.imag >= b.imag if or_equal else a.imag > b.imag
    known = ~(np.isnan(a.imag) | np.isnan(b.imag))
    return ((a.real > b.real) & known) | ((a.real == b.real) & orders)


def _is_nan(x: Any) -> Any:
    return np.isnan(np.real(x)) | np.isnan(np.imag(x))


# ufuncs of real numbers in the IR which numpy has for complex ones, too
_OF_COMPLEX: dict[str, Function] = {
    "greater": _after, "greater_equal": lambda a, b: _after(a, b, or_equal=True),
    "less": lambda a, b: _after(b, a), "less_equal": lambda a, b: _after(b, a, or_equal=True),
    "maximum": lambda a, b: np.where(_after(a, b, or_equal=True) | _is_nan(a), a, b),
    "minimum": lambda a, b: np.where(_after(b, a, or_equal=True) | _is_nan(a), a, b),
}  # fmt: skip
# By library; others on top of numpy register theirs here.
COMPOSED: dict[str, dict[str, Function]] = {"numpy": _OWN, "scipy.special": UFUNCS}


def record_ufunc(
    recorder: Recorder, ufunc: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Record one use of a ufunc; UnsupportedOpError for one without an op."""
    if raised():
        again = partial(record_ufunc, recorder, ufunc, method, inputs, kwargs)
        return raising.of_ufunc(recorder, ufunc, method, inputs, kwargs, again)
    if recorder.told.floats:
        inputs = give_way(recorder, inputs)
    if OVERRIDES and ufunc in OVERRIDES and method == "__call__":
        return OVERRIDES[ufunc](*inputs, **kwargs)
    if method == "__call__" and not kwargs:
        return ufunc_call(recorder, ufunc, inputs, _record)
    return _record(recorder, ufunc, method, inputs, kwargs)


def _record(
    recorder: Recorder, ufunc: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    recorder.enter()
    inputs, kwargs = in_ufunc(recorder, inputs, kwargs)
    out = kwargs.pop("out", None)
    where = kwargs.pop("where", True)
    for name in ("casting", "subok", "order"):  # of the result's memory, not of its elements
        kwargs.pop(name, None)
    if method == "at":
        return record_at(recorder, ufunc, inputs)
    if method == "__call__":
        result = _whole_call(recorder, ufunc, inputs, kwargs)
    else:
        if where is not True:
            kwargs["where"] = where
            where = True
        result = record_method(recorder, ufunc, method, inputs, kwargs)
    if out is None:
        if where is not True:
            raise recorder.unsupported(
                f"{ufunc.__name__}(where=...) without out, which leaves elements undefined",
                "use np.where(mask, result, other)",
            )
        return result
    return _into(recorder, ufunc, result, out, where)


def _whole_call(
    recorder: Recorder, ufunc: Any, inputs: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    dtype = kwargs.pop("dtype", None)
    if ufunc is np.vecdot and "axis" in kwargs:
        axis = kwargs.pop("axis")
        inputs = tuple(np.moveaxis(cast(Any, recorder.traced(x)), axis, -1) for x in inputs)
    if kwargs:
        raise recorder.unsupported(f"{ufunc.__name__} with {sorted(kwargs)}")
    if dtype is not None and not (np.dtype(dtype) == bool and _is_predicate(ufunc)):
        inputs = tuple(
            x if is_weak(x) else recorder.cast(recorder.traced(x), np.dtype(dtype)) for x in inputs
        )
    inputs = tuple(recorder.traced(x) if contains_traced(x) else x for x in inputs)
    return _call(recorder, ufunc, inputs)


def _is_predicate(ufunc: Any) -> bool:
    """Whether it gives truths of whatever operands: `dtype=bool` is of its result, not of these."""
    return all(loop.endswith("->?") for loop in ufunc.types if loop != "OO->O" and loop != "O->O")


def _call(recorder: Recorder, ufunc: Any, inputs: tuple[Any, ...]) -> Any:
    name = ufunc.__name__
    if name in _OF_WHOLE and inputs[0].dtype == bool:
        name = "positive"
    if name == "conjugate" and inputs[0].dtype.kind != "c":  # else no loop is native
        name, inputs = "positive", (inputs[0] + np.int8(0),) if inputs[0].dtype == bool else inputs
    if name == "clip":  # of a plain array between traced bounds
        return np.minimum(np.maximum(inputs[0], inputs[1]), inputs[2])
    library = _library(ufunc)
    if name == "matmul":
        return recorder.handlers.function(recorder, np.matmul, inputs, {})
    composition = COMPOSED.get(library or "", {}).get(name)
    if name in _OF_COMPLEX and any(np.iscomplexobj(memories(x)) for x in inputs):
        composition = _OF_COMPLEX[name]
    if composition is not None:
        want = recorder.numpy(ufunc, *inputs)
        try:
            made = composition(*inputs)
        except TypeError as error:  # numpy took these arguments; so the composition lacks one
            if isinstance(error, GradofError) or "argument" not in str(error):
                raise
            raise recorder.unsupported(f"{library}.{name}: {error}") from error
        return conform(recorder, f"{library}.{name}", made, want)
    is_square = name == "square" or (name == "power" and is_weak(inputs[1]) and inputs[1] == 2)
    if is_square and np.result_type(memories(inputs[0])).kind != "b":
        return _elementwise(recorder, np.square, "square", inputs[:1])
    if name in ("power", "square", "reciprocal") and _are_whole(inputs):
        return _whole_power(recorder, ufunc, inputs)
    if library == "numpy" and name in _ALIASES:
        return _elementwise(recorder, ufunc, _ALIASES[name], inputs)
    record = find_by_api_name(f"{library}.{name}")
    if record is None:
        if all(x.is_constant for x in inputs if isinstance(x, TracedArray)):
            recorder.baked = True
            return ufunc(*map(real, inputs))
        if _are_whole(inputs):
            return call_black_box(recorder, name, ufunc, inputs, None, None)
        raise recorder.unsupported(f"the ufunc {name}", "`gradof ops` lists the supported ops")
    return _elementwise(recorder, ufunc, record.name, inputs)


def _are_whole(inputs: tuple[Any, ...]) -> bool:
    """Whether all are whole numbers or truths: what is made of them has no gradient."""
    return all(np.result_type(memories(x)).kind in "biu" for x in inputs)


_MOST_FACTORS = 8  # of a power that is multiplied out; others numpy computes as the graph runs


def _whole_power(recorder: Recorder, ufunc: Any, inputs: tuple[Any, ...]) -> Any:
    base, exponent = inputs if ufunc is np.power else (inputs[0], 2)
    if ufunc is not np.reciprocal and is_weak(exponent) and 0 < exponent <= _MOST_FACTORS:
        base = recorder.cast(recorder.traced(base), recorder.numpy(ufunc, *inputs).dtype)
        made: Any = base
        for _ in range(int(exponent) - 1):
            made = made * base
        return made
    return call_black_box(recorder, ufunc.__name__, ufunc, inputs, None, None)


def _library(ufunc: Any) -> str | None:
    """Where a ufunc is at home; others may share its name (numba's, `np.frompyfunc`'s)."""
    name = ufunc.__name__
    for library in COMPOSED:
        found = getattr(sys.modules.get(library), name, None)
        # scipy's functions with derivatives on request: the first is without one
        several = getattr(found, "_ufunc_or_ufuncs", None)
        if ufunc in (found, several[0] if isinstance(several, tuple) else found):
            return library
    return None


def _elementwise(recorder: Recorder, ufunc: Any, kind: str, inputs: tuple[Any, ...]) -> Any:
    result = recorder.numpy(ufunc, *inputs)
    if isinstance(result, tuple):
        return recorder.elementwise_several(kind, result, inputs)
    return recorder.elementwise(kind, result, inputs)


def _into(recorder: Recorder, ufunc: Any, result: Any, out: Any, where: Any) -> Any:
    """`out=` and in-place operators: the target now holds the result."""
    targets = out if isinstance(out, tuple) else (out,)
    results = result if isinstance(result, tuple) else (result,)
    if any(t is None for t in targets) or len(targets) != len(results):
        raise recorder.unsupported(f"{ufunc.__name__} with some of its outputs given")
    done = [
        _into_one(recorder, ufunc, r, t, where) for r, t in zip(results, targets, strict=True)
    ]
    return done[0] if len(done) == 1 else tuple(done)


def _into_one(recorder: Recorder, ufunc: Any, result: Any, target: Any, where: Any) -> Any:
    if not isinstance(target, TracedArray):
        raise recorder.into_plain(f"{ufunc.__name__} into a plain array")
    if target.is_scalar:  # see Note [Scalars are rebound]
        return result
    if not np.can_cast(cast(Any, result).dtype, target.dtype, "same_kind"):
        raise DtypeError(
            f"{ufunc.__name__}: a {result.dtype} result into a {target.dtype} array",
            loc=recorder.loc, hint="convert the array first: a.astype(float)",
        )
    if where is not True:
        result = np.where(where, result, target)
    recorder.handlers.set_item(target, ..., result)
    return target
