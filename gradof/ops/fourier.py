"""Fourier transforms over `dims`, of complex (c2c), from real (r2c) and to real (c2r) numbers.

`scale` says what the sum is divided by: "none", "root_n" or "n", where n is the number of points.
The last of `dims` is the one that r2c cuts in half where `onesided`, and that c2r completes to
`last` points: of its spectrum only the first half is read, its mirror image is implied.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gradof.errors import InferenceError
from gradof.ir.attrs import Attr
from gradof.ir.types import TensorType, Type
from gradof.ops.complex_numbers import complex_dtype, real_dtype
from gradof.ops.expr import Expr, F, Like
from gradof.ops.families import check_dims, known_shape, tensor
from gradof.ops.registry import Family, op

Array = NDArray[Any]
Dims = tuple[int, ...]
_Norm = Literal["backward", "ortho", "forward"]
# numpy's names
_FORWARD: dict[str, _Norm] = {"none": "backward", "root_n": "ortho", "n": "forward"}
_BACKWARD: dict[str, _Norm] = {"none": "forward", "root_n": "ortho", "n": "backward"}


def _operand(inputs: Sequence[Type], attrs: Mapping[str, Attr], kind: str) -> TensorType:
    x = tensor(inputs[0])
    if x.dtype.kind != kind:
        raise InferenceError(f"a {kind} tensor is due, not {x}")
    if attrs["scale"] not in _FORWARD:
        raise InferenceError(f"scale is one of {sorted(_FORWARD)}, not {attrs['scale']!r}")
    if not check_dims(attrs["dims"], len(known_shape(x))):
        raise InferenceError("a transform needs a dim")
    return x


def _resized(shape: tuple[int, ...], dim: int, size: int) -> tuple[int, ...]:
    return (*shape[:dim], size, *shape[dim + 1 :])


def _infer_c2c(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    return (_operand(inputs, attrs, "complex"),)


def _infer_r2c(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    x = _operand(inputs, attrs, "float")
    dim = check_dims(attrs["dims"], len(known_shape(x)))[-1]
    shape = known_shape(x)
    if attrs["onesided"]:
        shape = _resized(shape, dim, shape[dim] // 2 + 1)
    return (TensorType(complex_dtype(x.dtype), shape, x.device),)


def _infer_c2r(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    z = _operand(inputs, attrs, "complex")
    shape, last = known_shape(z), attrs["last"]
    dim = check_dims(attrs["dims"], len(shape))[-1]
    if type(last) is not int or shape[dim] != last // 2 + 1:
        raise InferenceError(f"half a spectrum of {last} points is {z} not, along dim {dim}")
    return (TensorType(real_dtype(z.dtype), _resized(shape, dim, last), z.device),)


def _np_c2c(x: Array, dims: Dims, scale: str, forward: bool) -> Array:
    transform, norms = (np.fft.fftn, _FORWARD) if forward else (np.fft.ifftn, _BACKWARD)
    result: Array = transform(x, axes=dims, norm=norms[scale])
    return result.astype(x.dtype, copy=False)


def _np_r2c(x: Array, dims: Dims, scale: str, onesided: bool) -> Array:
    transform = np.fft.rfftn if onesided else np.fft.fftn
    result: Array = transform(x, axes=dims, norm=_FORWARD[scale])
    return result.astype(np.result_type(x.dtype, np.complex64), copy=False)


def _np_c2r(x: Array, dims: Dims, scale: str, last: int) -> Array:
    sizes = [*(x.shape[d] for d in dims[:-1]), last]
    result: Array = np.fft.irfftn(x, s=sizes, axes=dims, norm=_BACKWARD[scale])
    return result.astype(x.real.dtype, copy=False)


def _c2c_vjp(g: Expr, dims: Dims, scale: str, forward: bool) -> Expr:
    return F.fft_c2c(g, dims=dims, scale=scale, forward=not forward)


def _r2c_vjp(g: Expr, x_like: Like, dims: Dims, scale: str, onesided: bool) -> Expr:
    missing = x_like.shape[dims[-1]] - g.shape[dims[-1]]
    if missing:
        rest = F.full.with_emitter(g.emitter)(
            dtype=g.dtype, shape=_resized(g.shape, dims[-1], missing), device=g.type.device,
            value=0.0,
        )
        g = F.cat(g, rest, dim=dims[-1])
    return F.real(F.fft_c2c(g, dims=dims, scale=scale, forward=False))


def _c2r_vjp(g: Expr, dims: Dims, scale: str, last: int) -> Expr:
    # Every point but those that are their own mirror image was read twice.
    half = F.fft_r2c(g, dims=dims, scale=scale, onesided=True)
    size = half.shape[dims[-1]]
    twice = last - size
    parts = [
        F.slice(half, dim=dims[-1], start=start, stop=stop, step=1)
        for start, stop in ((0, 1), (1, 1 + twice), (1 + twice, size))
    ]
    return F.cat(parts[0], parts[1] * 2.0, parts[2], dim=dims[-1])


_MODES = "{{'none': 0, 'root_n': 1, 'n': 2}}[{scale}]"

op("fft_c2c(x; dims, scale, forward) -> y", family=Family(_infer_c2c), numpy=_np_c2c,
   torch=f"torch.ops.aten._fft_c2c({{x}}, {{dims}}, {_MODES}, {{forward}})",
   vjp={"x": _c2c_vjp}, traits={"linear"})
op("fft_r2c(x; dims, scale, onesided) -> y", family=Family(_infer_r2c), numpy=_np_r2c,
   torch=f"torch.ops.aten._fft_r2c({{x}}, {{dims}}, {_MODES}, {{onesided}})",
   vjp={"x": _r2c_vjp}, traits={"linear"})
op("fft_c2r(x; dims, scale, last) -> y", family=Family(_infer_c2r), numpy=_np_c2r,
   torch=f"torch.ops.aten._fft_c2r({{x}}, {{dims}}, {_MODES}, {{last}})",
   vjp={"x": _c2r_vjp}, traits={"linear"})
