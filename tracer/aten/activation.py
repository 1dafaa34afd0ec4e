"""Activations, softmax and convolution of aten: attributes written out, dtypes made explicit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gradof.errors import InferenceError
from gradof.ops.expr import Expr, F, Number
from gradof.tracer.aten.half import rounded_number
from gradof.tracer.aten.reduction import all_dims
from gradof.tracer.aten.registry import Call, aten
from gradof.tracer.aten.shape import wrap_dim

Ints = Sequence[int]


@aten("gelu.default")
def gelu(c: Call, x: Expr, *, approximate: str = "none") -> Expr:
    return F.gelu(x, approximate=approximate)


@aten("elu.default")
def elu(
    c: Call, x: Expr, alpha: Number = 1.0, scale: Number = 1.0, input_scale: Number = 1.0
) -> Expr:
    return F.elu(x, alpha=_real(alpha), scale=_real(scale), input_scale=_real(input_scale))


@aten("celu.default")
def celu(c: Call, x: Expr, alpha: Number = 1.0) -> Expr:
    return F.celu(x, alpha=_real(alpha))


@aten("leaky_relu.default")
def leaky_relu(c: Call, x: Expr, negative_slope: Number = 0.01) -> Expr:
    return F.leaky_relu(x, negative_slope=_real(negative_slope))


@aten("softplus.default")
def softplus(c: Call, x: Expr, beta: Number = 1.0, threshold: Number = 20.0) -> Expr:
    return F.softplus(x, beta=_real(beta), threshold=_real(threshold))


@aten("hardtanh.default")
def hardtanh(c: Call, x: Expr, low: Number = -1.0, high: Number = 1.0) -> Expr:
    return F.hardtanh(x, low=_real(low), high=_real(high))


@aten("threshold.default")
def threshold(c: Call, x: Expr, limit: Number, value: Number) -> Expr:
    return F.threshold(x, threshold=_real(limit), value=_real(value))


@aten("hardshrink.default")
def hardshrink(c: Call, x: Expr, lambd: Number = 0.5) -> Expr:
    return F.hardshrink(x, lambd=_real(rounded_number(c, lambd)))


@aten("softshrink.default")
def softshrink(c: Call, x: Expr, lambd: Number = 0.5) -> Expr:
    return F.softshrink(x, lambd=_real(lambd))


@aten("_prelu_kernel.default")
def prelu(c: Call, x: Expr, weight: Expr) -> Expr:
    return F.prelu(x, weight)


@aten("glu.default")
def glu(c: Call, x: Expr, dim: int = -1) -> Expr:
    return F.glu(x, dim=wrap_dim(dim, x.rank))


@aten("rrelu_with_noise_functional.default")
def rrelu(
    c: Call, x: Expr, noise: Expr, lower: Number = 1 / 8, upper: Number = 1 / 3,
    training: bool = False, generator: Any = None,
) -> tuple[Expr, Expr]:  # fmt: skip
    if generator is not None:
        raise InferenceError("a generator of its own for one op", hint="use torch.manual_seed")
    low, high = _real(lower), _real(upper)
    if not training:
        return F.leaky_relu(x, negative_slope=(low + high) / 2.0), noise
    slope = F.rrelu_noise(x, lower=low, upper=high)
    return x * slope, slope


@aten("log_sigmoid_forward.default")
def log_sigmoid(c: Call, x: Expr) -> tuple[Expr, Expr]:
    # What torch keeps for its own backward: nothing on a GPU.
    buffer = F.exp(-F.abs(x)) if c.type(1).size else c.full(0, c.type(1))
    return F.log_sigmoid(x), buffer


def _real(value: Number) -> float:
    assert not isinstance(value, complex)
    return float(value)


@aten("_softmax.default", "_safe_softmax.default", "softmax.int")
def softmax(c: Call, x: Expr, dim: int, half_to_float: Any = None, **_: Any) -> Expr:
    x = x.cast(c.type().dtype)
    if x.rank == 0:
        return F.where(F.isnan(x), x, 1.0)
    dim = wrap_dim(dim, x.rank)
    if "safe" not in c.func.name():
        return F.softmax(x, dim=dim)
    # A row that is masked out altogether gives zeros, not nan, and gradient zero.
    masked = F.all(x == -math.inf, dims=(dim,), keepdims=True)
    return F.where(masked, 0.0, F.softmax(F.where(masked, 0.0, x), dim=dim))


@aten("_log_softmax.default", "log_softmax.int")
def log_softmax(c: Call, x: Expr, dim: int, half_to_float: Any = None) -> Expr:
    x = x.cast(c.type().dtype)
    if x.rank == 0:
        return F.where(F.isnan(x), x, 0.0)
    return F.log_softmax(x, dim=wrap_dim(dim, x.rank))


@aten("logsumexp.default")
def logsumexp(c: Call, x: Expr, dim: int | Ints, keepdim: bool = False) -> Expr:
    x = x.cast(c.type().dtype)
    return F.logsumexp(x, dims=all_dims(x, dim), keepdims=keepdim)


@aten("convolution.default")
def convolution(
    c: Call, x: Expr, w: Expr, bias: Expr | None, stride: Ints, padding: Ints, dilation: Ints,
    transposed: bool, output_padding: Ints, groups: int,
) -> Expr:  # fmt: skip
    rank = w.rank - 2
    # torch takes one number for all dims, and inputs without the batch dim come with it added
    wide = [tuple(v) * (rank if len(v) == 1 else 1) for v in (stride, padding, dilation)]
    extra = tuple(output_padding) * (rank if len(output_padding) == 1 else 1)
    y = F.convolution(
        x, w, stride=wide[0], padding=wide[1], dilation=wide[2], transposed=transposed,
        output_padding=extra, groups=groups,
    )  # fmt: skip
    return y if bias is None else y + bias.reshape((1, bias.shape[0], *(1,) * rank))
