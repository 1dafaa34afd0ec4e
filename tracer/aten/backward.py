"""Backward ops of aten, which a gradient within a traced function calls.

    def penalty(x, w):                                      convolution, then for the gradient
        y = conv2d(x, w)                                    convolution_backward, which is
        (gx,) = autograd.grad(y.sum(), x, create_graph=True)  the pullback of convolution again
        return gx.square().sum()

Each is the pullback of the forward op's IR by the rules of our own (`gradof.passes.pullback`), so
that it has derivatives of any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradof.ops.expr import Expr, F, Number
from gradof.passes.pullback import pullback
from gradof.tracer.aten.activation import convolution
from gradof.tracer.aten.norm import adaptive_avg_pool, avg_pool
from gradof.tracer.aten.registry import Call, aten, scalar_for

Ints = Sequence[int]


def _pulled(c: Call, forward: Callable[[], Expr], g: Expr, *wanted: Expr) -> list[Expr]:
    before = c.emitter.body.anchor._prev
    return pullback(c.emitter, before, forward(), g, wanted)


@aten("convolution_backward.default")
def convolution_backward(
    c: Call, g: Expr, x: Expr, w: Expr, bias_sizes: Ints | None, stride: Ints, padding: Ints,
    dilation: Ints, transposed: bool, output_padding: Ints, groups: int, mask: Sequence[bool],
) -> list[Expr]:  # fmt: skip
    def forward() -> Expr:
        return convolution(
            c, x, w, None, stride, padding, dilation, transposed, output_padding, groups
        )

    wanted = [operand for operand, asked in zip((x, w), mask, strict=False) if asked]
    found = _pulled(c, forward, g, *wanted) if wanted else []
    if mask[2]:
        found.append(g.sum(dims=(0, *range(2, g.rank)), keepdims=False))
    return found


@aten("avg_pool2d_backward.default", "avg_pool3d_backward.default")
def avg_pool_backward(
    c: Call, g: Expr, x: Expr, kernel: Ints, stride: Ints, padding: Ints, ceil_mode: bool,
    count_include_pad: bool, divisor_override: int | None,
) -> Expr:  # fmt: skip
    options = (kernel, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return _pulled(c, lambda: avg_pool(c, x, *options), g, x)[0]


@aten("_adaptive_avg_pool2d_backward.default", "_adaptive_avg_pool3d_backward.default")
def adaptive_avg_pool_backward(c: Call, g: Expr, x: Expr) -> Expr:
    rank = 3 if "3d" in c.func.name() else 2
    return _pulled(c, lambda: adaptive_avg_pool(c, x, g.shape[-rank:]), g, x)[0]


@aten("max_pool3d_with_indices_backward.default", "adaptive_max_pool2d_backward.default",
      "adaptive_max_pool3d_backward.default", "fractional_max_pool2d_backward.default",
      "fractional_max_pool3d_backward.default")  # fmt: skip
def max_pool_backward(c: Call, g: Expr, x: Expr, *rest: Any) -> Expr:
    rank = 3 if "3d" in c.func.name() else 2
    return F.scatter_maxima(g, rest[-1], space=x.shape[-rank:])


@aten("hardshrink_backward.default", "softshrink_backward.default")
def shrink_backward(c: Call, g: Expr, x: Expr, lambd: Number) -> Expr:
    bound = scalar_for(lambd, x.type)
    return F.where((x >= -bound) & (x <= bound), 0.0, g)
