"""Activation functions, with torch's conventions at the kinks.

At a kink the gradient is that of the side torch names: leaky_relu, elu and prelu take the negative
side at 0, hardtanh, relu6 and hardsigmoid give 0 at their bounds, threshold is strict (>). The
branch that is not taken never overflows, so that 0 * inf cannot make a nan of the gradient.

>>> F.elu(x, alpha=1.0, scale=1.0, input_scale=1.0)   # x = 1000: value 1000, gradient 1
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradof.errors import InferenceError
from gradof.ops.cost import CALL
from gradof.ops.elementwise import logistic
from gradof.ops.expr import Expr, F
from gradof.ops.families import composite, unary
from gradof.ops.registry import op

Array = NDArray[Any]
SQRT_HALF = math.sqrt(0.5)
SQRT_TWO_OVER_PI = math.sqrt(2.0 / math.pi)
SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946

# --- smooth ones --------------------------------------------------------------------------------


def _gelu(x: Expr, approximate: str) -> Expr:
    # Hendrycks & Gimpel 2016: x Phi(x), or its tanh approximation.
    if approximate == "none":
        return x * ((F.erf(x * SQRT_HALF) + 1.0) * 0.5)
    if approximate == "tanh":
        inner = x * (x * x * (0.044715 * SQRT_TWO_OVER_PI) + SQRT_TWO_OVER_PI)
        return x * ((F.tanh(inner) + 1.0) * 0.5)
    raise InferenceError(f"gelu knows approximate='none' and 'tanh', not {approximate!r}")


# The cotangent is multiplied by a whole slope: g * x overflows before the slope of Phi is 0.
# Composites, as torch's kernels are, so that in half precision they are rounded once.
def _gelu_grad(g: Expr, x: Expr, approximate: str) -> Expr:
    if approximate == "none":
        density = F.exp(x * x * -0.5) * (0.5 * SQRT_TWO_OVER_PI)
        return g * ((F.erf(x * SQRT_HALF) + 1.0) * 0.5 + x * density)
    t = F.tanh(x * (x * x * (0.044715 * SQRT_TWO_OVER_PI) + SQRT_TWO_OVER_PI))
    inner = x * x * (3 * 0.044715 * SQRT_TWO_OVER_PI) + SQRT_TWO_OVER_PI
    return g * ((t + 1.0) * 0.5 + x * 0.5 * (1.0 - t * t) * inner)


def _silu_grad(g: Expr, x: Expr) -> Expr:
    s = F.sigmoid(x)
    return g * (s * (x * (1.0 - s) + 1.0))


op("gelu_grad(g, x; approximate) -> y", family=composite(_gelu_grad, elementwise=True),
   expand=_gelu_grad, domain=((-2, 2), (-3, 3)), doc="g times the slope of gelu.",
   formula="g*((1 + erf(x/sqrt(2)))/2 + x*exp(-x**2/2)/sqrt(2*pi))")
op("silu_grad(g, x) -> y", family=composite(_silu_grad, elementwise=True), expand=_silu_grad,
   domain=((-2, 2), (-3, 3)), doc="g times the slope of silu.",
   formula="g*(1 + x/(1 + exp(x)))/(1 + exp(-x))")
op("gelu(x; approximate) -> y", family=unary(), expand=_gelu, cost=CALL, domain=(-3, 3),
   vjp={"x": lambda g, x, approximate: F.gelu_grad(g, x, approximate=approximate)},
   formula="x*(1 + erf(x/sqrt(2)))/2")
op("silu(x) -> y", family=unary(), expand=lambda x: x * F.sigmoid(x), cost=CALL,
   vjp={"x": lambda g, x: F.silu_grad(g, x)},
   names=["aten.silu"], formula="x/(1 + exp(-x))", domain=(-3, 3))


def _np_softplus(x: Array, *, beta: float, threshold: float) -> Array:
    z = x * x.dtype.type(beta)
    result: Array = np.where(z > threshold, x, np.logaddexp(z, 0) / x.dtype.type(beta))
    return result


def _softplus_vjp(g: Expr, x: Expr, beta: float, threshold: float) -> Expr:
    z = x * float(beta)
    return F.where(z > float(threshold), g, g * F.sigmoid(z))


def _softplus(x: Expr, beta: float, threshold: float) -> Expr:
    z = x if beta == 1 else x * float(beta)
    if threshold <= 80:  # beyond it, where exp may overflow, is the identity
        soft = F.log1p(F.exp(z))
    else:
        soft = F.maximum(z, 0.0) + F.log1p(F.exp(-F.abs(z)))
    return F.where(z > float(threshold), x, soft if beta == 1 else soft / float(beta))


# Not composites: log(1 + exp z) would need a guarded branch, and its derivative by the chain rule
# loses sigmoid's small tail.
op("softplus(x; beta, threshold) -> y", family=unary(), cost=CALL, numpy=_np_softplus,
   torch="torch.nn.functional.softplus({x}, {beta}, {threshold})", scalar=_softplus,
   vjp={"x": _softplus_vjp},
   formula="log(1 + exp(beta*x))/beta", doc="The identity where beta * x > threshold.")


def _np_log_sigmoid(x: Array) -> Array:
    result: Array = np.minimum(x, 0) - np.log1p(np.exp(-np.abs(x)))
    return result


def _log_sigmoid(x: Expr) -> Expr:
    return F.where(x < 0.0, x, 0.0) - F.log1p(F.exp(-F.abs(x)))


op("log_sigmoid(x) -> y", family=unary(), cost=CALL, numpy=_np_log_sigmoid,
   torch="torch.nn.functional.logsigmoid", scalar=_log_sigmoid,
   vjp={"x": lambda g, x: g * logistic(-x)},
   names=["scipy.special.log_expit"], formula="log(1/(1 + exp(-x)))")

# Unlike softplus it overflows, as torch's soft_margin_loss does; the gradient does not.
op("log1p_exp(x) -> y", family=unary(), cost=CALL, numpy="np.log1p(np.exp({x}))",
   scalar=lambda x: F.log1p(F.exp(x)),
   vjp={"x": lambda g, x: g * logistic(x)}, formula="log(1 + exp(x))")


def _mish(x: Expr) -> Expr:
    return x * F.tanh(F.softplus(x, beta=1.0, threshold=20.0))


def _mish_grad(g: Expr, x: Expr) -> Expr:
    t = F.tanh(F.softplus(x, beta=1.0, threshold=20.0))
    return g * (t + x * ((1.0 - t * t) * F.sigmoid(x)))


op("mish_grad(g, x) -> y", family=composite(_mish_grad, elementwise=True), expand=_mish_grad,
   domain=((-2, 2), (-3, 3)), doc="g times the slope of mish.",
   formula="g*(tanh(log(1 + exp(x))) + x*(1 - tanh(log(1 + exp(x)))**2)/(1 + exp(-x)))")
op("mish(x) -> y", family=unary(), expand=_mish, cost=CALL,
   vjp={"x": lambda g, x: F.mish_grad(g, x)}, names=["aten.mish"],
   formula="x*tanh(log(1 + exp(x)))")
op("softsign(x) -> y", family=unary(), expand=lambda x: x / (F.abs(x) + 1.0),
   formula="x/(1 + Abs(x))", domain=(0.1, 2))
op("tanhshrink(x) -> y", family=unary(), expand=lambda x: x - F.tanh(x), formula="x - tanh(x)")

# --- piecewise ones -----------------------------------------------------------------------------


def _elu(x: Expr, alpha: float, scale: float, input_scale: float) -> Expr:
    low = F.expm1(_negative_part(x) * float(input_scale)) * float(alpha * scale)
    return F.where(x > 0.0, x if scale == 1 else x * float(scale), low)


def _negative_part(x: Expr) -> Expr:
    # zero on the positive side, where its gradient is masked as well; nan stays nan
    return F.where(x > 0.0, 0.0, x)


def _elu_vjp(g: Expr, x: Expr, alpha: float, scale: float, input_scale: float) -> Expr:
    # at 0 the slope is that of the negative side, and has none itself, as in torch
    low = F.exp(F.where(x >= 0.0, 0.0, x) * float(input_scale))
    return g * F.where(x > 0.0, float(scale), low * float(alpha * scale * input_scale))


op("elu(x; alpha, scale, input_scale) -> y", family=unary(), expand=_elu, domain=(-2, -0.1),
   cost=CALL, vjp={"x": _elu_vjp},
   formula="scale*alpha*(exp(input_scale*x) - 1)",
   doc="scale*x where x > 0, else scale*alpha*expm1(input_scale*x); the formula is of x < 0.")


def _selu(x: Expr) -> Expr:
    return F.elu(x, alpha=SELU_ALPHA, scale=SELU_SCALE, input_scale=1.0)


def _celu(x: Expr, alpha: float) -> Expr:
    if alpha == 0:
        raise InferenceError("celu divides by alpha, which is 0")
    return F.elu(x, alpha=float(alpha), scale=1.0, input_scale=1.0 / float(alpha))


op("selu(x) -> y", family=unary(), expand=_selu, domain=(0.1, 2), names=["aten.selu"],
   formula=f"{SELU_SCALE}*x", doc="The formula is of x > 0.")
op("celu(x; alpha) -> y", family=unary(), expand=_celu, domain=(-2, -0.1),
   formula="alpha*(exp(x/alpha) - 1)", doc="The formula is of x < 0.")


def _leaky_relu(x: Expr, negative_slope: float) -> Expr:
    return F.where(x > 0.0, x, x * float(negative_slope))


op("leaky_relu(x; negative_slope) -> y", family=unary(), expand=_leaky_relu, domain=(-2, -0.1),
   formula="negative_slope*x", doc="The formula is of x < 0.")


def _prelu(x: Expr, weight: Expr) -> Expr:
    # The weight broadcasts as any operand; an adaptor puts a channel's weight in its dim.
    return F.where(x > 0.0, x, _negative_part(x) * weight)


op("prelu(x, weight) -> y", family=composite(_prelu, elementwise=True), expand=_prelu,
   domain=((-2, -0.1), (0.1, 1)), formula="x*weight", doc="The formula is of x < 0.")


def _hardtanh(x: Expr, low: float, high: float) -> Expr:
    # Unlike clamp's, the gradient is 0 at the bounds; at nan it is, too.
    inside = (x > float(low)) & (x < float(high))
    return F.where(inside, x, F.clamp(F.detach(x), low=float(low), high=float(high)))


op("hardtanh(x; low, high) -> y", family=unary(), expand=_hardtanh)
op("relu6(x) -> y", family=unary(), expand=lambda x: F.hardtanh(x, low=0.0, high=6.0),
   names=["aten.relu6"])


def _hardsigmoid(x: Expr) -> Expr:
    return F.where(x <= -3.0, 0.0, F.where(x >= 3.0, 1.0, (x + 3.0) / 6.0))


def _hardsigmoid_vjp(g: Expr, x: Expr) -> Expr:
    return F.where((x > -3.0) & (x < 3.0), g * (1.0 / 6.0), 0.0)  # 0 at nan, as in eager


op("hardsigmoid(x) -> y", family=unary(), expand=_hardsigmoid, names=["aten.hardsigmoid"],
   vjp={"x": _hardsigmoid_vjp}, formula="(x + 3)/6")


def _hardswish(x: Expr) -> Expr:
    low, high = x <= -3.0, x >= 3.0
    middle = F.where(low | high, 0.0, x)  # infinity times a gradient of zero would be nan
    nothing = F.detach(x) * 0.0  # -0, and nan at -inf
    return F.where(low, nothing, F.where(high, x, middle * ((middle + 3.0) / 6.0)))


op("hardswish(x) -> y", family=unary(), expand=_hardswish, names=["aten.hardswish"],
   formula="x*(x + 3)/6")


def _threshold(x: Expr, threshold: float, value: float) -> Expr:
    # At the threshold itself the result is `value`, and so the gradient zero.
    return F.where(x <= float(threshold), float(value), x)


op("threshold(x; threshold, value) -> y", family=unary(), expand=_threshold)


def _hardshrink(x: Expr, lambd: float) -> Expr:
    outside = (x < -float(lambd)) | (x > float(lambd))
    return F.where(outside, x, F.where(x == x, 0.0, F.detach(x)))


def _softshrink(x: Expr, lambd: float) -> Expr:
    # 0 and no product with 0: infinity times a gradient of zero would be nan
    inside = (x >= -float(lambd)) & (x <= float(lambd))
    nothing = F.detach(x) * 0.0  # -0 below zero, as in torch
    return F.where(inside, nothing, F.where(x > 0.0, x - float(lambd), x + float(lambd)))


op("hardshrink(x; lambd) -> y", family=unary(), expand=_hardshrink)
op("softshrink(x; lambd) -> y", family=unary(), expand=_softshrink)


def _glu(x: Expr, dim: int) -> Expr:
    n = x.shape[dim]
    if n % 2:
        raise InferenceError(f"glu halves dim {dim}, which has the odd size {n}")
    value = F.slice(x, dim=dim, start=0, stop=n // 2, step=1)
    return value * F.sigmoid(F.slice(x, dim=dim, start=n // 2, stop=n, step=1))


def _glu_vjp(g: Expr, x: Expr, dim: int) -> Expr:
    # in torch's order: g times the value may overflow where the slope of the gate is 0
    n = x.shape[dim]
    value = F.slice(x, dim=dim, start=0, stop=n // 2, step=1)
    gate = F.sigmoid(F.slice(x, dim=dim, start=n // 2, stop=n, step=1))
    return F.cat(g * gate, (1.0 - gate) * gate * g * value, dim=dim)


op("glu(x; dim) -> y", family=composite(_glu), expand=_glu, vjp={"x": _glu_vjp})
