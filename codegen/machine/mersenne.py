"""Draws from torch's generator of the CPU, by machine code: `tensor.bernoulli_(p)`.

    mask = bernoulli(0.8, (512, 512), "f4")     # as torch.empty(512, 512).bernoulli_(0.8)

The numbers are torch's, and its generator moves on as if torch had drawn them. An element takes two
outputs of the Mersenne Twister (Matsumoto and Nishimura, 1998), the upper and the lower half of 64
bits of which 53 are a number in [0, 1). torch makes them one by one, at 7 ns; here the twist, the
tempering and the comparison are vectors, at 0.6 ns. `is_torchs` draws some by both, once a process;
where they differ torch draws.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradof.codegen.machine.engine import address_of, vector_bits
from gradof.ir import forks
from gradof.ops.memory import empty

_BYTES, _LEFT, _NEXT, _WORDS = 5056, 8, 16, 24  # of torch's state: all, and where fields are
_N, _M, _LANES, _CHUNK = 624, 397, 16, 1024
_KINDS = {"f": "float", "d": "double"}
# It keeps Python's lock, so that no other thread of Python draws meanwhile.
_SIGNATURE = ctypes.PYFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
)
_LOCK = forks.lock()


def bernoulli(p: float, shape: Sequence[int], dtype: Any, generator: Any = None) -> Any:
    """An array of 1 with probability p, else 0, of `dtype` f4 or f8; drawn in order."""
    import torch

    made = empty(tuple(shape), np.dtype(dtype))
    source = torch.default_generator if generator is None else generator
    threshold = math.ceil(p * 2.0**53)  # below it a number is less than p, exactly
    draw = _function(made.dtype.char)
    with _LOCK:
        state = source.get_state()
        draw(state.data_ptr(), made.size, threshold, made.ctypes.data)
        source.set_state(state)
    return made


@functools.cache
def is_torchs() -> bool:
    """Whether torch's numbers, and its generator's state, are as here."""
    import torch

    if not vector_bits() or torch.default_generator.get_state().numel() != _BYTES:
        return False
    for seed, size in ((3, 5), (4, 700), (5, 3000)):
        mine, theirs = torch.Generator(), torch.Generator()
        for generator in (mine, theirs):
            generator.manual_seed(seed)
            torch.rand(seed, generator=generator)  # an odd number of outputs first
        for p, dtype in ((0.3, torch.float32), (0.9, torch.float64)):
            expected = torch.empty(size, dtype=dtype).bernoulli_(p, generator=theirs).numpy()
            if not np.array_equal(bernoulli(p, (size,), expected.dtype, mine), expected):
                return False
            if not torch.equal(mine.get_state(), theirs.get_state()):
                return False
    return True


@functools.cache
def _function(char: str) -> Any:
    return _SIGNATURE(address_of(_text(_KINDS[char]), "draw", "full"))


def _loop(name: str, before: str, after: str, count: str, step: int, body: str) -> str:
    """A loop over i64 %name, from 0 by `step` while it is less than `count`."""
    return f"""  br label %{name}_head
{name}_head:
  %{name} = phi i64 [ 0, %{before} ], [ %{name}_next, %{name}_body ]
  %{name}_more = icmp slt i64 %{name}, {count}
  br i1 %{name}_more, label %{name}_body, label %{after}
{name}_body:
{body}  %{name}_next = add i64 %{name}, {step}
  br label %{name}_head
{after}:
"""


def _splat(number: int, kind: str = "i32") -> str:
    return "<" + ", ".join([f"{kind} {number}"] * _LANES) + ">"


def _mixed(name: str, vector: bool, place: str, far: str, following: str) -> str:
    """s[place] = s[far] ^ twist(s[place], s[following]), of one word or of a vector of them."""
    kind = f"<{_LANES} x i32>" if vector else "i32"
    number = _splat if vector else (lambda n: str(n))
    return f"""  %{name}_p = getelementptr i32, ptr %s, i64 {place}
  %{name}_q = getelementptr i32, ptr %s, i64 {following}
  %{name}_r = getelementptr i32, ptr %s, i64 {far}
  %{name}_u = load {kind}, ptr %{name}_p, align 4
  %{name}_v = load {kind}, ptr %{name}_q, align 4
  %{name}_w = load {kind}, ptr %{name}_r, align 4
  %{name}_a = and {kind} %{name}_u, {number(-0x80000000)}
  %{name}_b = and {kind} %{name}_v, {number(0x7FFFFFFF)}
  %{name}_c = or {kind} %{name}_a, %{name}_b
  %{name}_d = lshr {kind} %{name}_c, {number(1)}
  %{name}_e = and {kind} %{name}_v, {number(1)}
  %{name}_f = sub {kind} {number(0)}, %{name}_e
  %{name}_g = and {kind} %{name}_f, {number(0x9908B0DF - (1 << 32))}
  %{name}_h = xor {kind} %{name}_d, %{name}_g
  %{name}_i = xor {kind} %{name}_h, %{name}_w
  store {kind} %{name}_i, ptr %{name}_p, align 4
"""


def _twist() -> str:
    """All 624 words anew."""
    first, second = _N - _M, _M - 1
    whole, rest = first - first % _LANES, first % _LANES
    wide, more = second - second % _LANES, second % _LANES
    steps = _loop("i", "twist", "ends", str(whole), _LANES, f"""  %i_far = add i64 %i, {_M}
  %i_one = add i64 %i, 1
{_mixed("va", True, "%i", "%i_far", "%i_one")}""")
    for k in range(whole, whole + rest):
        steps += _mixed(f"k{k}", False, str(k), str(k + _M), str(k + 1))
    steps += _loop("j", "ends", "later", str(wide), _LANES, f"""\
  %j_at = add i64 %j, {first}
  %j_one = add i64 %j, {first + 1}
{_mixed("vb", True, "%j_at", "%j", "%j_one")}""")
    for k in range(first + wide, first + wide + more):
        steps += _mixed(f"k{k}", False, str(k), str(k - first), str(k + 1))
    return steps + _mixed("last", False, str(_N - 1), str(_M - 1), "0")


def _read() -> str:
    """torch's words, of 64 bits, as words of 32."""
    vector, wide = f"<{_LANES} x i32>", f"<{_LANES} x i64>"
    return _loop("a", "entry", "ready", str(_N), _LANES, f"""\
  %a_at = getelementptr i64, ptr %words, i64 %a
  %a_64 = load {wide}, ptr %a_at, align 8
  %a_32 = trunc {wide} %a_64 to {vector}
  %a_to = getelementptr i32, ptr %s, i64 %a
  store {vector} %a_32, ptr %a_to, align 4
""")


def _temper() -> str:
    """Outputs of the next words."""
    vector = f"<{_LANES} x i32>"
    return _loop("t", "take", "taken", "%some", _LANES, f"""  %t_at = add i64 %next, %t
  %t_from = getelementptr i32, ptr %s, i64 %t_at
  %y0 = load {vector}, ptr %t_from, align 4
  %y1 = lshr {vector} %y0, {_splat(11)}
  %y2 = xor {vector} %y0, %y1
  %y3 = shl {vector} %y2, {_splat(7)}
  %y4 = and {vector} %y3, {_splat(0x9D2C5680 - (1 << 32))}
  %y5 = xor {vector} %y2, %y4
  %y6 = shl {vector} %y5, {_splat(15)}
  %y7 = and {vector} %y6, {_splat(0xEFC60000 - (1 << 32))}
  %y8 = xor {vector} %y5, %y7
  %y9 = lshr {vector} %y8, {_splat(18)}
  %y10 = xor {vector} %y8, %y9
  %t_place = add i64 %filled, %t
  %t_to = getelementptr i32, ptr %b, i64 %t_place
  store {vector} %y10, ptr %t_to, align 4
""")


def _compare(kind: str) -> str:
    """Vectors of pairs of outputs beside the threshold."""
    vector, wide = f"<{_LANES} x i32>", f"<{_LANES} x i64>"
    picked = [
        ", ".join(f"i32 {2 * k + one}" for k in range(_LANES)) for one in (0, 1)
    ]
    twice = f"<{2 * _LANES} x i32>"
    upper, lower = (f"{twice} %pairs, {twice} poison, {vector} <{each}>" for each in picked)
    return _loop("v", "convert", "rest", "%whole", _LANES, f"""  %v_two = shl i64 %v, 1
  %v_from = getelementptr i32, ptr %b, i64 %v_two
  %pairs = load {twice}, ptr %v_from, align 4
  %up = shufflevector {upper}
  %down = shufflevector {lower}
  %up_53 = and {vector} %up, {_splat(0x1FFFFF)}
  %up_64 = zext {vector} %up_53 to {wide}
  %up_high = shl {wide} %up_64, {_splat(32, "i64")}
  %down_64 = zext {vector} %down to {wide}
  %number = or {wide} %up_high, %down_64
  %less = icmp ult {wide} %number, %all_t
  %ones = uitofp <{_LANES} x i1> %less to <{_LANES} x {kind}>
  %v_place = add i64 %done, %v
  %v_to = getelementptr {kind}, ptr %out, i64 %v_place
  store <{_LANES} x {kind}> %ones, ptr %v_to, align 4
""")


def _compare_rest(kind: str) -> str:
    """The pairs that are no vector."""
    return _loop("r", "rest", "chunk_done", "%left_over", 1, f"""  %r_at = add i64 %whole, %r
  %r_two = shl i64 %r_at, 1
  %r_up_at = getelementptr i32, ptr %b, i64 %r_two
  %r_down_at = getelementptr i32, ptr %r_up_at, i64 1
  %r_up = load i32, ptr %r_up_at
  %r_down = load i32, ptr %r_down_at
  %r_up_53 = and i32 %r_up, {0x1FFFFF}
  %r_up_64 = zext i32 %r_up_53 to i64
  %r_high = shl i64 %r_up_64, 32
  %r_down_64 = zext i32 %r_down to i64
  %r_number = or i64 %r_high, %r_down_64
  %r_less = icmp ult i64 %r_number, %threshold
  %r_one = uitofp i1 %r_less to {kind}
  %r_place = add i64 %done, %r_at
  %r_to = getelementptr {kind}, ptr %out, i64 %r_place
  store {kind} %r_one, ptr %r_to
""")


def _write() -> str:
    """The words as torch has them."""
    vector, wide = f"<{_LANES} x i32>", f"<{_LANES} x i64>"
    return _loop("w", "written", "end", str(_N), _LANES, f"""\
  %w_at = getelementptr i32, ptr %s, i64 %w
  %w_32 = load {vector}, ptr %w_at, align 4
  %w_64 = zext {vector} %w_32 to {wide}
  %w_to = getelementptr i64, ptr %words, i64 %w
  store {wide} %w_64, ptr %w_to, align 8
""")


def _text(kind: str) -> str:
    """The function: state, how many, the threshold, where to."""
    wide = f"<{_LANES} x i64>"
    return f"""define void @draw(ptr %state, i64 %n, i64 %threshold, ptr %out) {{
entry:
  %s = alloca [{_N + 2 * _LANES} x i32], align 64
  %b = alloca [{2 * _CHUNK + 2 * _LANES} x i32], align 64
  %left_at = getelementptr i8, ptr %state, i64 {_LEFT}
  %next_at = getelementptr i8, ptr %state, i64 {_NEXT}
  %words = getelementptr i8, ptr %state, i64 {_WORDS}
  %left_0 = load i32, ptr %left_at
  %next_0 = load i64, ptr %next_at
  %left_1 = sext i32 %left_0 to i64
  %there_0 = sub i64 %left_1, 1
  %one_t = insertelement {wide} poison, i64 %threshold, i32 0
  %all_t = shufflevector {wide} %one_t, {wide} poison, <{_LANES} x i32> zeroinitializer
{_read()}  br label %chunk
chunk:
  %done = phi i64 [ 0, %ready ], [ %done_next, %chunk_done ]
  %next_c = phi i64 [ %next_0, %ready ], [ %next_f, %chunk_done ]
  %there_c = phi i64 [ %there_0, %ready ], [ %there_f, %chunk_done ]
  %ahead = sub i64 %n, %done
  %some_ahead = icmp sgt i64 %ahead, 0
  br i1 %some_ahead, label %size, label %written
size:
  %short = icmp slt i64 %ahead, {_CHUNK}
  %m = select i1 %short, i64 %ahead, i64 {_CHUNK}
  %need = shl i64 %m, 1
  br label %fill
{_chunk(kind)}"""


def _chunk(kind: str) -> str:
    """Outputs until there are two for each number of a chunk, then the numbers."""
    return f"""fill:
  %filled = phi i64 [ 0, %size ], [ %filled_next, %taken ]
  %next_f = phi i64 [ %next_c, %size ], [ %next_t, %taken ]
  %there_f = phi i64 [ %there_c, %size ], [ %there_t, %taken ]
  %lacks = sub i64 %need, %filled
  %full = icmp eq i64 %lacks, 0
  br i1 %full, label %filled_up, label %look
look:
  %none = icmp eq i64 %there_f, 0
  br i1 %none, label %twist, label %take_before
twist:
{_twist()}  br label %take
take_before:
  br label %take
take:
  %next = phi i64 [ 0, %later ], [ %next_f, %take_before ]
  %there = phi i64 [ {_N}, %later ], [ %there_f, %take_before ]
  %fewer = icmp slt i64 %there, %lacks
  %some = select i1 %fewer, i64 %there, i64 %lacks
{_temper()}  %next_t = add i64 %next, %some
  %there_t = sub i64 %there, %some
  %filled_next = add i64 %filled, %some
  br label %fill
filled_up:
  %whole = and i64 %m, {-_LANES}
  %left_over = sub i64 %m, %whole
  br label %convert
convert:
{_compare(kind)}{_compare_rest(kind)}  %done_next = add i64 %done, %m
  br label %chunk
written:
  %left_2 = add i64 %there_c, 1
  %left_3 = trunc i64 %left_2 to i32
  store i32 %left_3, ptr %left_at
  store i64 %next_c, ptr %next_at
{_write()}  ret void
}}
"""
