"""Ufuncs: `__array_ufunc__` for calls, reductions, accumulations and outer products.

A ufunc is found in the op registry by its name (`numpy.tanh`, `scipy.special.erf`); those that are not one op
are written out here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.ops.registry import find_by_api_name
from gradof.tracer.numpy_array import TracedArray
from gradof.tracer.numpy_recorder import Recorder, real

_ALIASES = {"divide": "div", "conjugate": "alias", "positive": "alias", "float_power": "pow",
            "fmax": "maximum", "fmin": "minimum"}  # fmt: skip
_REDUCE = {"add": np.sum, "multiply": np.prod, "maximum": np.max, "minimum": np.min,
           "logical_and": np.all, "logical_or": np.any}  # fmt: skip
_ACCUMULATE = {"add": np.cumsum, "multiply": np.cumprod}

# ufuncs that are compositions of others, on traced arrays
_COMPOSED: dict[str, Callable[..., Any]] = {
    "deg2rad": lambda x: x * (np.pi / 180), "radians": lambda x: x * (np.pi / 180),
    "rad2deg": lambda x: x * (180 / np.pi), "degrees": lambda x: x * (180 / np.pi),
    "hypot": lambda a, b: np.sqrt(a * a + b * b),
    "logaddexp2": lambda a, b: np.logaddexp(a * np.log(2.0), b * np.log(2.0)) / np.log(2.0),
    "heaviside": lambda x, h: np.where(x > 0, 1.0, np.where(x == 0, h, 0.0)),
    "ldexp": lambda x, n: x * np.exp2(n),
    "divmod": lambda a, b: (np.floor_divide(a, b), np.remainder(a, b)),
    "modf": lambda x: (x - np.trunc(x), np.trunc(x)),
    "copysign": lambda a, b: np.abs(a) * np.where(np.signbit(b), -1.0, 1.0),
    "vecdot": lambda a, b: np.sum(a * b, axis=-1),
}  # fmt: skip


def record_ufunc(
    recorder: Recorder, ufunc: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Record one use of a ufunc; UnsupportedOpError for one without an op."""
    recorder.enter()
    out = kwargs.pop("out", None)
    if kwargs.pop("where", True) is not True:
        raise recorder.unsupported(f"{ufunc.__name__}(where=...)", "use np.where")
    dtype = kwargs.pop("dtype", None)
    axis = {k: kwargs.pop(k) for k in ("axis", "keepdims", "initial") if k in kwargs}
    kwargs.pop("casting", None)
    kwargs.pop("subok", None)
    if kwargs:
        raise recorder.unsupported(f"{ufunc.__name__} with {sorted(kwargs)}")
    if method == "__call__":
        result = _call(recorder, ufunc, inputs)
    elif method == "reduce" and ufunc.__name__ in _REDUCE:
        if axis.pop("initial", None) is not None:
            raise recorder.unsupported(f"{ufunc.__name__}.reduce(initial=...)")
        axis.setdefault("axis", inputs[1] if len(inputs) > 1 else 0)
        result = _REDUCE[ufunc.__name__](inputs[0], **axis)
    elif method == "accumulate" and ufunc.__name__ in _ACCUMULATE:
        result = _ACCUMULATE[ufunc.__name__](inputs[0], axis=axis.get("axis", 0))
    elif method == "outer":
        a, b = (recorder.traced(x) for x in inputs)
        result = ufunc(a.reshape(a.shape + (1,) * b.ndim), b)
    else:
        raise recorder.unsupported(f"{ufunc.__name__}.{method}")
    if dtype is not None:
        result = result.astype(dtype)
    return result if out is None else _into(recorder, ufunc, result, out)


def _call(recorder: Recorder, ufunc: Any, inputs: tuple[Any, ...]) -> Any:
    name = ufunc.__name__
    if name == "matmul":
        return recorder.handlers.function(recorder, np.matmul, inputs, {})
    if name == "clip":
        return np.minimum(np.maximum(inputs[0], inputs[1]), inputs[2])
    if name in _COMPOSED:
        return _COMPOSED[name](*inputs)
    if name == "square" or (name == "power" and _is_two(inputs[1])):
        return _elementwise(recorder, np.square, "square", inputs[:1])
    if name in _ALIASES:
        return _elementwise(recorder, ufunc, _ALIASES[name], inputs)
    record = find_by_api_name(f"numpy.{name}") or find_by_api_name(f"scipy.special.{name}")
    if record is None:
        raise recorder.unsupported(f"the ufunc {name}", "`gradof ops` lists the supported ops")
    return _elementwise(recorder, ufunc, record.name, inputs)


def _is_two(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == 2


def _elementwise(recorder: Recorder, ufunc: Any, kind: str, inputs: tuple[Any, ...]) -> Any:
    with np.errstate(all="ignore"):
        result = ufunc(*(real(x) for x in inputs))
    return recorder.elementwise(kind, result, inputs)


def _into(recorder: Recorder, ufunc: Any, result: Any, out: Any) -> Any:
    """`out=` and in-place operators: the target now holds the result."""
    target = out[0] if isinstance(out, tuple) and len(out) == 1 else out
    if not isinstance(target, TracedArray):
        raise recorder.unsupported(
            f"{ufunc.__name__} into a plain array, where the gradient would be lost",
            "give `out` a traced array, such as np.zeros_like(x) of an argument, or drop it",
        )
    if not np.can_cast(result.dtype, target.dtype, "same_kind"):
        raise recorder.unsupported(
            f"{ufunc.__name__}: a {result.dtype} result into a {target.dtype} array"
        )
    recorder.handlers.set_item(target, ..., result)
    return target
