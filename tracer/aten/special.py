"""Special functions whose aten op takes more than a tensor."""

from __future__ import annotations

from gradof.ops.expr import Expr, F
from gradof.tracer.aten.registry import Call, aten


@aten("polygamma.default")
def polygamma(c: Call, n: int, x: Expr) -> Expr:
    x = x.cast(c.type().dtype)
    return F.digamma(x) if n == 0 else F.polygamma(x, n=n)


@aten("round.decimals")
def round_decimals(c: Call, x: Expr, *, decimals: int) -> Expr:
    scale = 10.0 ** abs(decimals)
    if decimals == 0:
        return F.round(x)
    return F.round(x * scale) / scale if decimals > 0 else F.round(x / scale) * scale


@aten("frexp.Tensor")
def frexp(c: Call, x: Expr) -> tuple[Expr, ...]:
    mantissa, exponent = F.frexp.multiple(x)
    return mantissa, exponent.cast(c.type(1).dtype)
