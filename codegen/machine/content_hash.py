"""A hash of the bytes of a buffer as native code: as fast as memory is read, and without a copy.

    of = content_hash()
    of(array)                            # a number of 64 bits; None instead of `of`: no native code

The words of a block go to 32 lanes, which take turns: h = (rotate(h) ^ word) * ODD. Each step is
one-to-one in the word and in h, so a change of one word is always another hash; the turn brings
what a product has in its high bits, where signs and exponents are, down to where the next product
spreads it. What is left of a last block is filled up with zeros; the length is where lanes begin.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from gradof.codegen.machine.engine import address_of, vector_bits
from gradof.codegen.machine.python_entry import MethodDef, function_of

_ONE_ARGUMENT = 0x8  # METH_O
_LANES, _VECTORS = 8, 4
_BLOCK = 8 * _LANES * _VECTORS  # bytes
_ODD, _TURN = -7046029254386353131, 27  # of 2**64 by the golden ratio
_WORDS = f"<{_LANES} x i64>"
_VIEW = 80  # bytes of a Py_buffer: where its memory is, its object, its length


@functools.cache
def content_hash() -> Callable[[Any], int] | None:
    """The function; None where there is no native code."""
    if not vector_bits():
        return None
    return function_of(_method(), None)


@functools.cache
def _method() -> MethodDef:
    """Never freed: the function reads it last of all, when it is freed itself."""
    return MethodDef(b"content_hash", address_of(text(), "of_object"), _ONE_ARGUMENT, None)


def text() -> str:
    """The hash of bytes, and the function of Python's C interface around it."""
    return f"""
declare i32 @PyObject_GetBuffer(ptr, ptr, i32)
declare void @PyBuffer_Release(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i64 @llvm.fshl.i64(i64, i64, i64)
declare {_WORDS} @llvm.fshl.v{_LANES}i64({_WORDS}, {_WORDS}, {_WORDS})
{_of_bytes()}
define ptr @of_object(ptr %self, ptr %object) {{
  %view = alloca [{_VIEW} x i8], align 8
  %refused = call i32 @PyObject_GetBuffer(ptr %object, ptr %view, i32 0)
  %there = icmp eq i32 %refused, 0
  br i1 %there, label %read, label %raised

read:
  %data = load ptr, ptr %view
  %length_at = getelementptr i8, ptr %view, i64 16
  %length = load i64, ptr %length_at
  %hash = call i64 @of_bytes(ptr %data, i64 %length)
  call void @PyBuffer_Release(ptr %view)
  %number = call ptr @PyLong_FromLongLong(i64 %hash)
  ret ptr %number

raised:
  ret ptr null
}}
"""


def _of_bytes() -> str:
    return f"""
define internal i64 @of_bytes(ptr %data, i64 %length) {{
entry:
  %last = alloca [{_BLOCK} x i8], align 64
  %sums = alloca [{_BLOCK} x i8], align 64
  %whole = and i64 %length, -{_BLOCK}
  %rest = sub i64 %length, %whole
  call void @llvm.memset.p0.i64(ptr %last, i8 0, i64 {_BLOCK}, i1 false)
  %rest_at = getelementptr i8, ptr %data, i64 %whole
  call void @llvm.memcpy.p0.p0.i64(ptr %last, ptr %rest_at, i64 %rest, i1 false)
  %one = insertelement {_WORDS} poison, i64 %length, i64 0
  %start = shufflevector {_WORDS} %one, {_WORDS} poison, <{_LANES} x i32> zeroinitializer
  br label %block

block:
  %at = phi i64 [ 0, %entry ], [ %next, %inside ]
{_phis()}  %more = icmp ult i64 %at, %whole
  br i1 %more, label %inside, label %end

inside:
  %from = getelementptr i8, ptr %data, i64 %at
{_steps("from", "h", "n", 1)}  %next = add i64 %at, {_BLOCK}
  br label %block

end:
{_steps("last", "h", "e", 64)}{_stores()}  br label %lane

lane:
  %i = phi i64 [ 0, %end ], [ %i2, %lane ]
  %total = phi i64 [ %length, %end ], [ %total2, %lane ]
  %lane_at = getelementptr i64, ptr %sums, i64 %i
  %sum = load i64, ptr %lane_at
  %turned = call i64 @llvm.fshl.i64(i64 %total, i64 %total, i64 {_TURN})
  %mixed = xor i64 %turned, %sum
  %total2 = mul i64 %mixed, {_ODD}
  %i2 = add i64 %i, 1
  %done = icmp eq i64 %i2, {_LANES * _VECTORS}
  br i1 %done, label %out, label %lane

out:
  %high = lshr i64 %total2, 32
  %hash = xor i64 %total2, %high
  ret i64 %hash
}}
"""


def _phis() -> str:
    return "".join(
        f"  %h{k} = phi {_WORDS} [ %start, %entry ], [ %n{k}, %inside ]\n" for k in range(_VECTORS)
    )


def _steps(source: str, before: str, after: str, alignment: int) -> str:
    """The step of all lanes with the block at `source`."""
    turn, odd = (f"<{', '.join([f'i64 {n}'] * _LANES)}>" for n in (_TURN, _ODD))
    rotate, text = f"call {_WORDS} @llvm.fshl.v{_LANES}i64", ""
    for k in range(_VECTORS):
        a, h = after, f"{_WORDS} %{before}{k}"
        text += f"""  %{a}{k}_at = getelementptr {_WORDS}, ptr %{source}, i64 {k}
  %{a}{k}_word = load {_WORDS}, ptr %{a}{k}_at, align {alignment}
  %{a}{k}_turned = {rotate}({h}, {h}, {_WORDS} {turn})
  %{a}{k}_mixed = xor {_WORDS} %{a}{k}_turned, %{a}{k}_word
  %{a}{k} = mul {_WORDS} %{a}{k}_mixed, {odd}
"""
    return text


def _stores() -> str:
    return "".join(
        f"  %s{k} = getelementptr {_WORDS}, ptr %sums, i64 {k}\n"
        f"  store {_WORDS} %e{k}, ptr %s{k}, align 64\n" for k in range(_VECTORS)
    )  # fmt: skip
