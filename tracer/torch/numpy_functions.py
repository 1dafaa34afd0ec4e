"""What torch computes for numpy's functions of a traced array (`numpy_arrays`).

    (a - a.mean(0)) / (a.std(0) + 1e-8)      # preprocessing, before it becomes a tensor
    np.stack([b.obs for b in batch])

Sums and functions such as `exp` round as torch's do. What numpy and torch define differently is not
here: remainders, powers of whole numbers, `float16` that is summed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from gradof.tracer.torch.numpy_arrays import (
    FUNCTIONS,
    METHODS,
    UFUNCS,
    TracedNumpy,
    alike,
    cast,
    computed,
    dtype_of_operand,
    refuse_array,
    tensor_of,
)

Made = Callable[..., Any]


def _power(base: torch.Tensor, exponent: torch.Tensor) -> torch.Tensor:
    if not base.is_floating_point():
        refuse_array("power of whole numbers")
    return torch.pow(base, exponent)


UFUNCS.update({
    np.add: torch.add, np.subtract: torch.sub, np.multiply: torch.mul, np.divide: torch.div,
    np.negative: torch.neg, np.absolute: torch.abs, np.sqrt: torch.sqrt, np.square: torch.square,
    np.equal: torch.eq, np.not_equal: torch.ne, np.less: torch.lt, np.less_equal: torch.le,
    np.greater: torch.gt, np.greater_equal: torch.ge, np.logical_not: torch.logical_not,
    np.logical_and: torch.logical_and, np.logical_or: torch.logical_or,
    np.logical_xor: torch.logical_xor, np.invert: torch.bitwise_not,
    np.bitwise_and: torch.bitwise_and, np.bitwise_or: torch.bitwise_or,
    np.bitwise_xor: torch.bitwise_xor, np.isnan: torch.isnan, np.isfinite: torch.isfinite,
    np.isinf: torch.isinf, np.maximum: torch.maximum, np.minimum: torch.minimum,
    np.floor: torch.floor, np.ceil: torch.ceil, np.trunc: torch.trunc, np.rint: torch.round,
    np.exp: torch.exp, np.log: torch.log, np.expm1: torch.expm1, np.log1p: torch.log1p,
    np.log2: torch.log2, np.log10: torch.log10, np.exp2: torch.exp2, np.sin: torch.sin,
    np.cos: torch.cos, np.tan: torch.tan, np.tanh: torch.tanh, np.sinh: torch.sinh,
    np.cosh: torch.cosh, np.arctan: torch.arctan, np.arcsin: torch.arcsin, np.arccos: torch.arccos,
    np.arctan2: torch.arctan2, np.hypot: torch.hypot, np.power: _power,
})  # fmt: skip


# --- reductions -----------------------------------------------------------------------------------


def _axes(axis: Any, rank: int) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(rank))
    if not rank:
        refuse_array("an axis of an array without dims")
    return tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)


def _reduced(name: str, run: Callable[..., torch.Tensor], floats: str) -> Made:
    """A reduction over any axes; whole numbers are first cast as numpy does, to one of `floats`.

    That is "sum", for which they are int64, "mean" for float64, and "" where they stay.
    """

    def method(array: TracedNumpy, axis: Any = None, **kwargs: Any) -> TracedNumpy:
        keepdims, ddof = kwargs.pop("keepdims", False), kwargs.pop("ddof", 0)
        kind = array.dtype.kind
        unknown = array.dtype == np.float16 or kind == "c" or (kind == "u" and floats == "sum")
        if kwargs or unknown or not array.size or (ddof and name not in ("std", "var")):
            refuse_array(f"{name} of {array.dtype}, with {sorted(kwargs)}")
        tensor = array.tensor
        if kind != "f" and floats:
            tensor = tensor.to(torch.int64 if floats == "sum" else torch.float64)
        given = {"correction": ddof} if name in ("std", "var") else {}
        axes = _axes(axis, array.ndim)
        return computed(name, run, tensor, dim=axes, keepdim=bool(keepdims), **given)

    return method


def _logical(name: str, run: Callable[..., torch.Tensor]) -> Made:
    def method(array: TracedNumpy, axis: Any = None, *, keepdims: bool = False) -> TracedNumpy:
        axes = _axes(axis, array.ndim)
        return computed(name, run, array.tensor != 0, dim=axes, keepdim=bool(keepdims))

    return method


def _place(name: str, run: Callable[..., torch.Tensor]) -> Made:
    def method(array: TracedNumpy, axis: Any = None) -> TracedNumpy:
        if array.dtype.kind == "b" or not array.size or not array.ndim:
            refuse_array(f"{name} of {array.dtype}")
        return computed(name, run, array.tensor, dim=axis)

    return method


def _cumsum(array: TracedNumpy, axis: Any = None) -> TracedNumpy:
    if array.dtype.kind not in "fbi" or array.dtype == np.float16 or not array.ndim:
        refuse_array(f"cumsum of {array.dtype}")
    tensor = array.tensor if axis is not None else array.tensor.reshape(-1)
    return computed("cumsum", torch.cumsum, tensor, dim=0 if axis is None else axis)


def _clip(array: TracedNumpy, min: Any = None, max: Any = None) -> TracedNumpy:
    numbers = all(bound is None or type(bound) in (int, float) for bound in (min, max))
    if not numbers or array.dtype.kind != "f":
        refuse_array("clip of whole numbers, or by arrays")
    return TracedNumpy(array.tensor.clamp(min, max), is_scalar=array.is_scalar)


def _repeat(array: TracedNumpy, repeats: int, axis: int | None = None) -> TracedNumpy:
    return computed("repeat", torch.repeat_interleave, array.tensor, repeats, dim=axis)


METHODS.update({
    "sum": _reduced("sum", torch.sum, "sum"), "mean": _reduced("mean", torch.mean, "mean"),
    "std": _reduced("std", torch.std, "mean"), "var": _reduced("var", torch.var, "mean"),
    "max": _reduced("max", torch.amax, ""), "min": _reduced("min", torch.amin, ""),
    "all": _logical("all", torch.all), "any": _logical("any", torch.any),
    "argmax": _place("argmax", torch.argmax), "argmin": _place("argmin", torch.argmin),
    "cumsum": _cumsum, "clip": _clip, "repeat": _repeat,
})  # fmt: skip


# --- functions ------------------------------------------------------------------------------------


def _joined(join: Callable[..., torch.Tensor]) -> Made:
    def joined(arrays: Sequence[Any], axis: int = 0) -> TracedNumpy:
        return TracedNumpy(join(alike(list(arrays)), axis))

    return joined


def _joined_along(join: Callable[..., torch.Tensor]) -> Made:
    def joined(arrays: Sequence[Any]) -> TracedNumpy:
        return TracedNumpy(join(alike(list(arrays))))

    return joined


def _method(name: str) -> Made:
    def method(array: Any, *args: Any, **kwargs: Any) -> Any:
        if type(array) is not TracedNumpy:
            refuse_array(f"numpy.{name}")
        return getattr(array, name)(*args, **kwargs)

    return method


def _of_tensor(function: Callable[..., torch.Tensor]) -> Made:
    def of(array: Any, *args: Any, **kwargs: Any) -> TracedNumpy:
        if type(array) is not TracedNumpy:
            refuse_array(f"numpy.{function.__name__}")
        if not array.ndim and function is not _expand_dims:
            refuse_array(f"{function.__name__} of an array without dims")
        return array.moved(function(array.tensor, *args, **kwargs))

    return of


def _expand_dims(tensor: torch.Tensor, axis: Any) -> torch.Tensor:
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    rank = tensor.dim() + len(axes)
    for place in sorted(a % rank for a in axes):
        tensor = tensor.unsqueeze(place)
    return tensor


def _where(condition: Any, x: Any = None, y: Any = None) -> TracedNumpy:
    if x is None or y is None:
        refuse_array("numpy.where of a condition alone")
    weak = [v if type(v) in (int, float) else dtype_of_operand(v) for v in (x, y)]
    dtype = np.result_type(*weak)
    parts = [
        torch.tensor(v).to(cast(torch.empty(0), dtype).dtype) if type(v) in (int, float)
        else cast(tensor_of(v), dtype) for v in (x, y)
    ]  # fmt: skip
    found = computed("where", torch.where, tensor_of(condition) != 0, *parts)
    return TracedNumpy(found.tensor)  # numpy gives an array without dims, and no number


def _size(array: TracedNumpy, axis: int | None = None) -> int:
    return array.size if axis is None else array.shape[axis]


def _filled(value: int) -> Made:
    def filled(array: TracedNumpy, dtype: Any = None) -> TracedNumpy:
        like = torch.full_like(array.tensor, value)
        return TracedNumpy(like if dtype is None else cast(like, np.dtype(dtype)))

    return filled


FUNCTIONS.update({
    np.stack: _joined(torch.stack), np.concatenate: _joined(torch.cat),
    np.vstack: _joined_along(torch.vstack), np.hstack: _joined_along(torch.hstack),
    np.dstack: _joined_along(torch.dstack), np.column_stack: _joined_along(torch.column_stack),
    np.expand_dims: _of_tensor(_expand_dims),
    np.moveaxis: _of_tensor(torch.movedim),
    np.shape: lambda a: a.shape, np.ndim: lambda a: a.ndim,
    np.size: _size,
    np.where: _where, np.zeros_like: _filled(0), np.ones_like: _filled(1),
    **{getattr(np, name): _method(name) for name in (
        "reshape", "ravel", "squeeze", "transpose", "swapaxes", "copy", *METHODS
    )},
})  # fmt: skip
FUNCTIONS.update({np.amax: FUNCTIONS[np.max], np.amin: FUNCTIONS[np.min]})
