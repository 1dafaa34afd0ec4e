"""Ops made of several functions, in LLVM: soft maxima of two numbers, and remainders.

    y = COMPOSED["logaddexp"](code, F32, [a, b], {})     # names of vectors
    r = COMPOSED["fmod"](code, F32, [a, b], {})

Note [Remainders]
`fmod` is exact. Where the quotient is small, its whole part t is found by a division, which may
have rounded up to it, but not by more than that. Then a - t*b is a number of its dtype, or that
less b, and a fused multiply-add computes it without rounding (where t is 0 it is a, of an infinite
b, too). Vectors with a large quotient, and
with none (zero, infinity, nan), are left to the C library, one number after another. That is a
branch, which the straight-line code of kernels has none of, so that it is a function of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gradof.ir.types import BOOL, F32, DType

if TYPE_CHECKING:
    from gradof.codegen.llvm.vectors import Vectors

_LN2 = 0.6931471805599453
_SMALL = {"float": 2.0**22, "double": 2.0**51}  # quotients whose rounding is less than a half

Compose = Callable[["Vectors", DType, Sequence[str], Mapping[str, Any]], str]


def _log1p_exp(code: Vectors, own: DType, args: Sequence[str], _: Mapping[str, Any]) -> str:
    return code.library("log1p", own, [code.library("exp", own, args)])


def _tail(code: Vectors, own: DType, x: str) -> str:
    """log(1 + exp(-|x|))"""
    size = code.intrinsic("fabs", own, [x])
    return _log1p_exp(code, own, [code.emit(f"fneg {code.vector(own)} {size}")], {})


def _logaddexp(code: Vectors, own: DType, args: Sequence[str], _: Mapping[str, Any]) -> str:
    a, b = args
    v = code.vector(own)
    top = code.emit(code.select(own, code.emit(f"fcmp oge {v} {a}, {b}"), a, b))
    sum_ = code.binary("fadd", own, [top, _tail(code, own, code.binary("fsub", own, [a, b]))])
    equal = code.emit(f"fcmp oeq {v} {a}, {b}")  # infinite ones have no difference
    twice = code.binary("fadd", own, [a, code.constant(_LN2, own)])
    return code.emit(code.select(own, equal, twice, sum_))


def _softplus(code: Vectors, own: DType, args: Sequence[str], attrs: Mapping[str, Any]) -> str:
    (x,) = args
    beta = code.constant(attrs["beta"], own)
    z = code.binary("fmul", own, [x, beta])
    soft = code.binary("fdiv", own, [_log1p_exp(code, own, [z], {}), beta])
    limit = code.constant(attrs["threshold"], own)
    above = code.emit(f"fcmp ogt {code.vector(own)} {z}, {limit}")
    return code.emit(code.select(own, above, x, soft))


def _log_sigmoid(code: Vectors, own: DType, args: Sequence[str], _: Mapping[str, Any]) -> str:
    (x,) = args
    zero = code.constant(0, own)
    kept = code.emit(f"fcmp uge {code.vector(own)} {x}, {zero}")
    low = code.emit(code.select(own, kept, zero, x))
    return code.binary("fsub", own, [low, _tail(code, own, x)])


def _xlogy(code: Vectors, own: DType, args: Sequence[str], _: Mapping[str, Any]) -> str:
    zero = code.constant(0, own)
    at_zero = code.emit(f"fcmp oeq {code.vector(own)} {args[0]}, {zero}")
    no_nan = code.emit(f"fcmp ord {code.vector(own)} {args[1]}, {args[1]}")
    both = code.binary("and", BOOL, [at_zero, no_nan])
    product = code.binary("fmul", own, [args[0], code.library("log", own, [args[1]])])
    return code.emit(code.select(own, both, zero, product))


def _fmod(code: Vectors, own: DType, args: Sequence[str], _: Mapping[str, Any]) -> str:
    name = f"fmod_{'f32' if own is F32 else 'f64'}"
    found = code.call(name, own, args)
    v, suffix = code.vector(own), f"v{code.lanes}{'f32' if own is F32 else 'f64'}"
    for function, n in (("trunc", 1), ("fabs", 1), ("copysign", 2), ("fma", 3)):
        symbol = f"llvm.{function}.{suffix}"
        code.declared[symbol] = f"declare {v} @{symbol}({', '.join([v] * n)})"
    symbol = f"llvm.vector.reduce.and.v{code.lanes}i1"
    code.declared[symbol] = f"declare i1 @{symbol}({code.vector(BOOL)})"
    code.declared[name] = _fmod_text(name, "float" if own is F32 else "double", code.lanes, suffix)
    return found


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


def _remainder(code: Vectors, own: DType, args: Sequence[str], _: Mapping[str, Any]) -> str:
    """As Python has it, of the sign of the divisor."""
    v, zero = code.vector(own), code.constant(0, own)
    r = _fmod(code, own, args, {})
    signs = [code.emit(f"fcmp olt {v} {x}, {zero}") for x in (r, args[1])]
    differs = code.binary("xor", BOOL, signs)
    some = code.emit(f"fcmp une {v} {r}, {zero}")
    other = code.binary("and", BOOL, [differs, some])
    return code.emit(code.select(own, other, code.binary("fadd", own, [r, args[1]]), r))


COMPOSED: dict[str, Compose] = {
    "log1p_exp": _log1p_exp, "logaddexp": _logaddexp, "softplus": _softplus,
    "log_sigmoid": _log_sigmoid, "xlogy": _xlogy, "fmod": _fmod, "remainder": _remainder,
}  # fmt: skip
