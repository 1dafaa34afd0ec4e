"""Complex numbers and Fourier transforms of aten."""

from __future__ import annotations

from gradof.ops.expr import Expr, F
from gradof.tracer.aten.registry import Call, aten

_SCALES = ("none", "root_n", "n")


@aten("real.default")
def real(c: Call, x: Expr) -> Expr:
    return F.real(x) if x.dtype.is_complex else x


@aten("imag.default")
def imag(c: Call, x: Expr) -> Expr:
    return F.imag(x)


@aten("complex.default")
def complex_(c: Call, a: Expr, b: Expr) -> Expr:
    return F.complex(a, b)


@aten("polar.default")
def polar(c: Call, a: Expr, b: Expr) -> Expr:
    return F.polar(a, b)


@aten("angle.default")
def angle(c: Call, x: Expr) -> Expr:
    return F.angle(x.cast(c.type().dtype) if x.dtype.kind not in ("float", "complex") else x)


@aten("abs.default")
def abs_(c: Call, x: Expr) -> Expr:
    return F.abs(x)


@aten("_neg_view.default", "_neg_view_copy.default")
def neg_view(c: Call, x: Expr) -> Expr:
    return F.neg(x)


@aten("_conj.default", "_conj_copy.default")
def conj(c: Call, x: Expr) -> Expr:
    return F.conj(x)


@aten("resolve_conj.default", "resolve_neg.default")
def resolved(c: Call, x: Expr) -> Expr:
    return x


def _dims(x: Expr, dims: list[int]) -> tuple[int, ...]:
    return tuple(d % x.rank for d in dims)


@aten("_fft_c2c.default")
def fft_c2c(c: Call, x: Expr, dim: list[int], normalization: int, forward: bool) -> Expr:
    if not dim:
        return F.copy(x)
    return F.fft_c2c(x, dims=_dims(x, dim), scale=_SCALES[normalization], forward=forward)


@aten("_fft_r2c.default")
def fft_r2c(c: Call, x: Expr, dim: list[int], normalization: int, onesided: bool) -> Expr:
    return F.fft_r2c(x, dims=_dims(x, dim), scale=_SCALES[normalization], onesided=onesided)


@aten("_fft_c2r.default")
def fft_c2r(c: Call, x: Expr, dim: list[int], normalization: int, last_dim_size: int) -> Expr:
    dims = _dims(x, dim)
    half = last_dim_size // 2 + 1
    if x.shape[dims[-1]] > half:  # torch reads no more than that
        x = F.slice(x, dim=dims[-1], start=0, stop=half, step=1)
    return F.fft_c2r(x, dims=dims, scale=_SCALES[normalization], last=last_dim_size)
