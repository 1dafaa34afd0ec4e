"""exp of float32 as straight code, where the processor scales by powers of two (AVX-512).

    e = exp_f32(code, x)        # x, e: names of <16 x float>; within 1 ulp, subnormals included

A call saves and restores every vector register around itself, which costs as much as the function.
x = n ln 2 + r with |r| <= ln 2 / 2; exp(r) is a polynomial of degree 6 (S. Moshier's Cephes,
expf.c), and `scalef` multiplies it by 2^n, rounding once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradof.ir.types import F32

if TYPE_CHECKING:
    from gradof.codegen.cpu.native.vectors import Vectors

LANES = 16
_HIGH, _LOW = 89.0, -105.0  # infinity above, 0 below
_LOG2E = 1.44269504088896341
_LN2 = (0.693359375, -2.12194440e-4)  # in two parts: the first has few bits
_POLYNOMIAL = (
    1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1,
    5.0000001201e-1, 1.0, 1.0,
)  # fmt: skip
_SCALEF = "llvm.x86.avx512.mask.scalef.ps.512"


def exp_f32(code: Vectors, x: str) -> str:
    """The exponential of a vector; nan stays nan."""
    for bound, how in ((_HIGH, "ogt"), (_LOW, "olt")):
        limit = code.constant(bound, F32)
        beyond = code.emit(f"fcmp {how} {code.vector(F32)} {x}, {limit}")
        x = code.emit(code.select(F32, beyond, limit, x))
    scaled = code.binary("fmul", F32, [x, code.constant(_LOG2E, F32)])
    n = code.intrinsic("roundeven", F32, [scaled])
    minus = code.emit(f"fneg {code.vector(F32)} {n}")
    r = x
    for part in _LN2:
        r = code.intrinsic("fma", F32, [minus, code.constant(part, F32), r])
    e = code.constant(_POLYNOMIAL[0], F32)
    for coefficient in _POLYNOMIAL[1:]:
        e = code.intrinsic("fma", F32, [e, r, code.constant(coefficient, F32)])
    v = code.vector(F32)
    code.declared[_SCALEF] = f"declare {v} @{_SCALEF}({v}, {v}, {v}, i16, i32)"
    return code.emit(f"call {v} @{_SCALEF}({v} {e}, {v} {n}, {v} {e}, i16 -1, i32 4)")
