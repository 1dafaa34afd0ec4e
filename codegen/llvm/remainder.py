"""fmod in LLVM, exactly.

    r = fmod(code, F32, [a, b])     # names of vectors

Note [Remainders]
`fmod` is exact. Where the quotient is small, its whole part t is found by a division, which may
have rounded up to it, but not by more than that. Then a - t*b is a number of its dtype, or that
less b, and a fused multiply-add computes it without rounding (where t is 0 it is a, of an infinite
b, too). Vectors with a large quotient, and
with none (zero, infinity, nan), are left to the C library, one number after another. That is a
branch, which the straight-line code of kernels has none of, so that it is a function of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gradof.ir.types import BOOL, F32, DType

if TYPE_CHECKING:
    from gradof.codegen.llvm.vectors import Vectors

_SMALL = {"float": 2.0**22, "double": 2.0**51}  # quotients whose rounding is less than a half


def fmod(code: Vectors, own: DType, args: Sequence[str]) -> str:
    """The remainder that has the sign of the dividend."""
    element, kind = ("float", "f32") if own is F32 else ("double", "f64")
    suffix = f"v{code.lanes}{kind}"
    name = f"fmod_{suffix}"
    v = code.vector(own)
    for function, n in (("trunc", 1), ("fabs", 1), ("copysign", 2), ("fma", 3)):
        symbol = f"llvm.{function}.{suffix}"
        code.declare(symbol, f"declare {v} @{symbol}({', '.join([v] * n)})")
    symbol = f"llvm.vector.reduce.and.v{code.lanes}i1"
    code.declare(symbol, f"declare i1 @{symbol}({code.vector(BOOL)})")
    code.declare(name, _fmod_text(name, element, code.lanes, suffix))
    return code.emit(f"call {v} @{name}({', '.join(f'{v} {a}' for a in args)})")


def _fmod_text(name: str, element: str, lanes: int, suffix: str) -> str:
    """The function of Note [Remainders]."""
    v, mask = f"<{lanes} x {element}>", f"<{lanes} x i1>"
    limit, zero, one = (
        "<" + ", ".join([f"{element} {number:.1f}"] * lanes) + ">"
        for number in (_SMALL[element], 0.0, 1.0)
    )
    return f"""define internal {v} @{name}({v} %a, {v} %b) noinline {{
  %q = fdiv {v} %a, %b
  %size = call {v} @llvm.fabs.{suffix}({v} %q)
  %small = fcmp olt {v} %size, {limit}
  %all = call i1 @llvm.vector.reduce.and.v{lanes}i1({mask} %small)
  br i1 %all, label %near, label %far
near:
  %t = call {v} @llvm.trunc.{suffix}({v} %q)
  %minus = fneg {v} %t
  %less = call {v} @llvm.fma.{suffix}({v} %minus, {v} %b, {v} %a)
  %none = fcmp oeq {v} %t, {zero}
  %r = select {mask} %none, {v} %a, {v} %less
  %sign = call {v} @llvm.copysign.{suffix}({v} {one}, {v} %a)
  %rest = fmul {v} %r, %sign
  %step = call {v} @llvm.fabs.{suffix}({v} %b)
  %more = fadd {v} %rest, %step
  %low = fcmp olt {v} %rest, {zero}
  %found = select {mask} %low, {v} %more, {v} %rest
  %signed = call {v} @llvm.copysign.{suffix}({v} %found, {v} %a)
  ret {v} %signed
far:
  %slow = frem {v} %a, %b
  ret {v} %slow
}}"""
