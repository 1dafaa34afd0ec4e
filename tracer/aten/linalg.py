"""Matrix products of aten."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

from gradof.ir.types import F16
from gradof.ops.expr import Expr, F, Number
from gradof.tracer.aten.half import in_float32, rounded_number
from gradof.tracer.aten.registry import Call, aten, scalar_for


def _scaled(x: Expr, by: Number) -> Expr:
    return x if by == 1 else x * scalar_for(by, x.type)


def _plus(x: Expr, product: Expr, beta: Number, alpha: Number) -> Expr:
    # With beta = 0 torch ignores x, nan and all.
    product = _scaled(product, alpha)
    return product if beta == 0 else _scaled(x, beta) + product


def _summed_in_float32(adaptor: Callable[..., Expr]) -> Callable[..., Expr]:
    """A product and what is added to it, rounded once where that may be another number.

    bfloat16 has the range of float32: of a plain sum only last bits differ, and its product stays
    one of bfloat16, which takes a quarter of the time.
    """
    wide = in_float32(adaptor)

    @functools.wraps(adaptor)
    def run(c: Call, *args: Expr, beta: Number = 1, alpha: Number = 1) -> Expr:
        is_wide = (beta, alpha) != (1, 1) or (c.type().dtype == F16 and c.type().device == "cpu")
        return (wide if is_wide else adaptor)(c, *args, beta=beta, alpha=alpha)

    return run


@aten("mm.default")
def mm(c: Call, a: Expr, b: Expr) -> Expr:
    return F.mm(a, b)


@aten("bmm.default", "matmul.default")
def bmm(c: Call, a: Expr, b: Expr) -> Expr:
    return F.bmm(a, b)


@aten("addmm.default")
@_summed_in_float32
def addmm(c: Call, x: Expr, a: Expr, b: Expr, *, beta: Number = 1, alpha: Number = 1) -> Expr:
    return _broadcast(c, _plus(x, F.mm(a, b), beta, alpha))


@aten("baddbmm.default")
@_summed_in_float32
def baddbmm(c: Call, x: Expr, a: Expr, b: Expr, *, beta: Number = 1, alpha: Number = 1) -> Expr:
    return _broadcast(c, _plus(x, F.bmm(a, b), beta, alpha))


@aten("addbmm.default")
@_summed_in_float32
def addbmm(c: Call, x: Expr, a: Expr, b: Expr, *, beta: Number = 1, alpha: Number = 1) -> Expr:
    return _plus(x, F.sum(F.bmm(a, b), dims=(0,), keepdims=False), beta, alpha)


@aten("mv.default")
def mv(c: Call, a: Expr, v: Expr) -> Expr:
    return F.mv(a, v)


@aten("addmv.default")
@_summed_in_float32
def addmv(c: Call, x: Expr, a: Expr, v: Expr, *, beta: Number = 1, alpha: Number = 1) -> Expr:
    beta, alpha = rounded_number(c, beta), rounded_number(c, alpha)
    return _broadcast(c, _plus(x, F.mv(a, v), beta, alpha))


@aten("dot.default", "vdot.default")
def dot(c: Call, a: Expr, b: Expr) -> Expr:
    conjugated = a.dtype.is_complex and c.func.name() == "aten::vdot"
    return F.dot(F.conj(a) if conjugated else a, b)


@aten("addr.default")
def addr(c: Call, x: Expr, a: Expr, b: Expr, *, beta: Number = 1, alpha: Number = 1) -> Expr:
    # step by step in half precision, too, in torch's order: it may overflow in another
    beta, alpha = rounded_number(c, beta), rounded_number(c, alpha)
    outer = _scaled(a, alpha).reshape((*a.shape, 1)) * b.reshape((1, *b.shape))
    return _broadcast(c, _plus(x, outer, beta, 1))


@aten("_trilinear.default")
def trilinear(
    c: Call, a: Expr, b: Expr, d: Expr, expand1: Any, expand2: Any, expand3: Any, sumdim: Any,
    unroll_dim: int = 1,
) -> Expr:  # fmt: skip
    rank = len(a.shape) + len(expand1)
    places = [sorted(set(range(rank)) - set(dims)) for dims in (expand1, expand2, expand3)]
    joint, summed = {*places[0]} & {*places[1]}, set(sumdim)
    if joint and joint <= summed - {*places[2]}:
        a = _contracted(a, b, places[0], places[1])
        places = [sorted({*places[0], *places[1]} - joint), places[2]]
        summed -= joint
        parts = [a, d]
    else:
        parts = [a, b, d]
    shapes = [[1] * rank for _ in parts]
    for x, mine, shape in zip(parts, places, shapes, strict=True):
        for dim, n in zip(mine, x.shape, strict=True):
            shape[dim] = n
    first, *others = (x.reshape(tuple(n)) for x, n in zip(parts, shapes, strict=True))
    product = first
    for other in others:
        product = product * other
    if not sumdim:
        return product
    left = F.sum(product, dims=tuple(sorted(summed)), keepdims=True) if summed else product
    return left.reshape(tuple(n for dim, n in enumerate(left.shape) if dim not in set(sumdim)))


def _contracted(a: Expr, b: Expr, mine: Sequence[int], others: Sequence[int]) -> Expr:
    """The sum of a * b over the dims that both have, as a matrix product.

    Dims of the result are in order; `mine` and `others` are the places of those of a and b.
    """
    joint = [dim for dim in mine if dim in others]
    rows = [dim for dim in mine if dim not in joint]
    columns = [dim for dim in others if dim not in joint]
    left = F.permute(a, dims=tuple(mine.index(dim) for dim in (*rows, *joint)))
    right = F.permute(b, dims=tuple(others.index(dim) for dim in (*joint, *columns)))
    n, k = math.prod(left.shape[: len(rows)]), math.prod(left.shape[len(rows) :])
    product = F.mm(left.reshape((n, k)), right.reshape((k, math.prod(right.shape[len(joint) :]))))
    wide = product.reshape((*left.shape[: len(rows)], *right.shape[len(joint) :]))
    order = [*rows, *columns]
    return F.permute(wide, dims=tuple(order.index(dim) for dim in sorted(order)))


def _broadcast(c: Call, y: Expr) -> Expr:
    shape = c.type().shape
    assert shape is not None
    return y.expand(shape)
