"""exp and tanh of float32 as straight code, where the processor scales by powers of two (AVX-512).

    e = exp_f32(code, x)        # x, e: names of <16 x float>; within 1 ulp, subnormals included
    t = tanh_f32(code, x)       # within 3 ulps, never beyond 1

A call saves and restores every vector register around itself, which costs as much as the function.
x = n ln 2 + r with |r| <= ln 2 / 2; exp(r) is a polynomial of degree 6 (S. Moshier's Cephes,
expf.c), and `scalef` multiplies it by 2^n, rounding once.

tanh is odd, and -e / (2 + e) of |x|, where e = exp(-2 |x|) - 1. With p = exp(r) - 1, which is the
polynomial without its last term, e is p 2^n + (2^n - 1), so that nothing is lost near 0 or near 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gradof.ir.types import F32

if TYPE_CHECKING:
    from gradof.codegen.llvm.vectors import Vectors

LANES = 16
_HIGH, _LOW = 89.0, -105.0  # infinity above, 0 below
_TANH_IS_1 = -20.0  # of -2 |x|
_LOG2E = 1.44269504088896341
_LN2 = (0.693359375, -2.12194440e-4)  # in two parts: the first has few bits
_POLYNOMIAL = (
    1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1,
    5.0000001201e-1, 1.0, 1.0,
)  # fmt: skip
_SCALEF = "llvm.x86.avx512.mask.scalef.ps.512"


def exp_f32(code: Vectors, x: str) -> str:
    """The exponential of a vector; nan stays nan."""
    x = _limited(code, _limited(code, x, "ogt", _HIGH), "olt", _LOW)
    n, r = _reduced(code, x)
    return _scaled(code, _polynomial(code, r, _POLYNOMIAL), n)


def tanh_f32(code: Vectors, x: str) -> str:
    """The hyperbolic tangent of a vector; nan stays nan, and a zero its sign."""
    size = code.intrinsic("fabs", F32, [x])
    double = code.binary("fmul", F32, [size, code.constant(-2.0, F32)])
    n, r = _reduced(code, _limited(code, double, "olt", _TANH_IS_1))
    square = code.binary("fmul", F32, [r, r])
    p = code.intrinsic("fma", F32, [_polynomial(code, r, _POLYNOMIAL[:-2]), square, r])
    one = code.constant(1.0, F32)
    power = _scaled(code, one, n)
    e = code.intrinsic("fma", F32, [p, power, code.binary("fsub", F32, [power, one])])
    below = code.binary("fadd", F32, [e, code.constant(2.0, F32)])
    return code.intrinsic("copysign", F32, [code.binary("fdiv", F32, [e, below]), x])


def _limited(code: Vectors, x: str, how: str, bound: float) -> str:
    """The bound where x is beyond it."""
    limit = code.constant(bound, F32)
    beyond = code.emit(f"fcmp {how} {code.vector(F32)} {x}, {limit}")
    return code.emit(code.select(F32, beyond, limit, x))


def _reduced(code: Vectors, x: str) -> tuple[str, str]:
    """n and r."""
    scaled = code.binary("fmul", F32, [x, code.constant(_LOG2E, F32)])
    n = code.intrinsic("roundeven", F32, [scaled])
    minus = code.emit(f"fneg {code.vector(F32)} {n}")
    r = x
    for part in _LN2:
        r = code.intrinsic("fma", F32, [minus, code.constant(part, F32), r])
    return n, r


def _polynomial(code: Vectors, r: str, coefficients: Sequence[float]) -> str:
    p = code.constant(coefficients[0], F32)
    for coefficient in coefficients[1:]:
        p = code.intrinsic("fma", F32, [p, r, code.constant(coefficient, F32)])
    return p


def _scaled(code: Vectors, x: str, n: str) -> str:
    """x 2^n"""
    v = code.vector(F32)
    code.declare(_SCALEF, f"declare {v} @{_SCALEF}({v}, {v}, {v}, i16, i32)")
    return code.emit(f"call {v} @{_SCALEF}({v} {x}, {v} {n}, {v} {x}, i16 -1, i32 4)")
