"""Ops that carry structure: constants, symbolic zeros, run-time sizes, casts, devices, detachment.

`AutogradZero` is a gradient known to be zero; `AutogradAdd` adds gradients of which either may be
zero. `size`, `_size_if_not_equal` and `_grad_sum_to_size` undo broadcasting where shapes are only
known at run time: `_size_if_not_equal(size(x), size(y))` is None when nothing is to be reduced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradof.errors import InferenceError
from gradof.ir.attrs import Attr, Dense
from gradof.ir.types import (
    BOOL,
    C32,
    C64,
    DType,
    ScalarType,
    SizeType,
    TensorType,
    Type,
    scalar_type_of,
)
from gradof.ops.expr import Expr, F, Like
from gradof.ops.families import ALL, int_tuple, same_as_first, tensor, unary
from gradof.ops.registry import Family, op

Array = NDArray[Any]
Size = tuple[int, ...]


def _infer_constant(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    value = attrs["value"]
    if isinstance(value, Dense):
        return (value.type,)
    if isinstance(value, (bool, int, float, complex)):
        return (scalar_type_of(value),)
    raise InferenceError(f"a Constant is a number or a dense array, not {value!r}")


def typed_zero(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    """Type inference of ops whose result is told by their attributes."""
    dt, shape, device = attrs["dtype"], attrs["shape"], attrs["device"]
    if not isinstance(dt, DType) or not isinstance(device, str):
        raise InferenceError("AutogradZero needs a dtype and a device")
    dims = None if shape is None else int_tuple(shape, "shape")
    return (TensorType(dt, dims, device),)


def _infer_full(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    return typed_zero(inputs, attrs)


def _infer_size(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    tensor(inputs[0])
    return (SizeType(),)


def _infer_size_if_not_equal(
    inputs: Sequence[Type], attrs: Mapping[str, Attr]
) -> tuple[Type, ...]:
    if not all(isinstance(t, SizeType) for t in inputs):
        raise InferenceError("_size_if_not_equal takes two sizes")
    return (SizeType(),)


def _infer_resized(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    if not isinstance(inputs[1], SizeType):
        raise InferenceError(f"the second operand must be a size, not {inputs[1]}")
    return (tensor(inputs[0]).with_shape(None),)


def _infer_cast(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    dt = attrs["dtype"]
    if not isinstance(dt, DType):
        raise InferenceError(f"cast needs a dtype, not {dt!r}")
    if isinstance(inputs[0], ScalarType):
        return (TensorType(dt, ()),)
    x = tensor(inputs[0])
    if x.dtype.is_complex and not dt.is_complex and dt.kind != "bool":
        raise InferenceError(f"a cast of {x} to {dt} drops the imaginary part; take `real` first")
    return (x.with_dtype(dt),)


def _infer_to_device(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    x, device = tensor(inputs[0]), attrs["device"]
    if not isinstance(device, str):
        raise InferenceError(f"to_device needs a device, not {device!r}")
    return (TensorType(x.dtype, x.shape, device),)


def _infer_autograd_add(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    a, b = tensor(inputs[0]), tensor(inputs[1])
    if a.shape is None or b.shape is None:
        return (a.with_shape(None),)
    if a != b:
        raise InferenceError(f"AutogradAdd of {a} and {b}; it never broadcasts")
    return (a,)


def _infer_within(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    shape, dim, device = attrs["shape"], attrs["dim"], attrs["device"]
    if not isinstance(shape, tuple) or not isinstance(dim, int) or not isinstance(device, str):
        raise InferenceError(f"within takes a shape and a dim of it, not {shape!r} and {dim!r}")
    if any(n != 1 for k, n in enumerate(shape) if k != dim):
        raise InferenceError(f"within is of positions along one dim; {shape} has others")
    return (TensorType(BOOL, tuple(n for n in shape if isinstance(n, int)), device),)


def _np_within(*, shape: Size, dim: int, start: int, stop: int, device: str) -> Array:
    at = np.arange(shape[dim]).reshape(shape)
    result: Array = (at >= start) & (at < stop)
    return result


def sum_to_size(x: Array, size: Size | None) -> Array:
    """Sum `x` over the axes along which `size` was broadcast; `x` itself for None."""
    if size is None or x.shape == size:
        return x
    lead = x.ndim - len(size)
    axes = tuple(range(lead)) + tuple(
        i + lead for i, n in enumerate(size) if n == 1 and x.shape[i + lead] != 1
    )
    result: Array = np.sum(x, axis=axes, dtype=x.dtype, keepdims=True)
    return result.reshape(size)


def size_if_not_equal(a: Size, b: Size) -> Size | None:
    """`a`, or None if it equals `b`."""
    return None if a == b else a


op("Constant(; value) -> y", family=Family(_infer_constant), traits={"structural", "constant"})

op("AutogradZero(; dtype, shape, device) -> y", family=Family(typed_zero),
   traits={"structural"})  # fmt: skip

op("AutogradAdd(a, b) -> y", family=Family(_infer_autograd_add), numpy="np.add",
   traits={"structural", "linear", "commutative"},
   vjp={"a": lambda g: g, "b": lambda g: g})  # fmt: skip

op("full(; dtype, shape, device, value) -> y", family=Family(_infer_full),
   numpy="np.full({shape}, {value}, {dtype})", traits={"constant"},
   names=["numpy.full", "aten.full"])  # fmt: skip

op("within(; shape, dim, start, stop, device) -> y", family=Family(_infer_within),
   numpy=_np_within, traits={"constant"},
   doc="Whether start <= position < stop along a dim; in graphs that Triton runs.")

op("size(x) -> s", family=Family(_infer_size), vjp={"x": None}, numpy="{x}.shape")

op("_size_if_not_equal(a, b) -> s", family=Family(_infer_size_if_not_equal),
   vjp={"a": None, "b": None}, numpy=size_if_not_equal)  # fmt: skip


def _sum_to_size_vjp(g: Expr, x_like: Like) -> Expr:
    return x_like.expand(g)


op("_grad_sum_to_size(x, s) -> y", family=Family(_infer_resized), numpy=sum_to_size,
   vjp={"x": _sum_to_size_vjp, "s": None}, traits={"linear"})  # fmt: skip


def _expand_to_size_vjp(g: Expr, x_like: Like) -> Expr:
    size = g.emitter.forward.emit("size", x_like._value)
    return F._grad_sum_to_size(g, Expr(size, g.emitter))


op("expand_to_size(x, s) -> y", family=Family(_infer_resized),
   numpy="np.broadcast_to({x}, {s})", vjp={"x": _expand_to_size_vjp, "s": None},
   traits={"linear"})  # fmt: skip


def _cast_vjp(g: Expr, x_like: Like) -> Expr | None:
    if g.dtype.is_complex and x_like.dtype.is_float:
        whole = g.cast(C64) if g.dtype == C32 else g  # the parts of c32 are f16 in torch alone
        return F.real(whole).cast(x_like.dtype)
    return g.cast(x_like.dtype) if x_like.dtype.is_inexact else None


op("cast(x; dtype) -> y", family=Family(_infer_cast, frozenset({"elementwise"})),
   numpy="{x}.astype({dtype})", vjp={"x": _cast_vjp}, traits={"linear"},
   doc="Another dtype; the gradient is cast back.")  # fmt: skip

op("detach(x) -> y", family=same_as_first(), numpy="{x}", vjp={"x": None}, traits={"view"},
   names=["aten.detach"], doc="The value, cut off from the gradient.")  # fmt: skip

op("alias(x) -> y", family=same_as_first(), numpy="{x}", vjp={"x": lambda g: g},
   traits={"view", "linear"}, names=["aten.alias"])  # fmt: skip

op("copy(x) -> y", family=unary(ALL), numpy="{x}.copy()",
   vjp={"x": lambda g: g}, traits={"linear"}, names=["aten.clone", "numpy.copy"],
   doc="A fresh array.")  # fmt: skip

op("to_device(x; device) -> y", family=Family(_infer_to_device), numpy="{x}.copy()",
   vjp={"x": lambda g, x_like: g.to_device(x_like.type.device)}, traits={"linear"},
   doc="The same values on another device; the gradient goes back.")  # fmt: skip
