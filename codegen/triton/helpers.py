"""Functions that kernels call and Triton does not have, as Triton source.

>>> [line for line in needed("y = _expm1(x)")[0].splitlines() if "def" in line]
['def _tanh(x):']

They use what `triton.language` has only where they can, so that its interpreter runs them: an
exported kernel can be tried without a GPU. `tests/codegen/triton_ops.py` holds those to 4 ulps
there; on a GPU the errors of `tl.exp` and `tl.log` come on top.
"""

from __future__ import annotations

import re

HELPERS = {
    # tl.exp rounds x log2(e), an error that grows with x: 60 ulps at 80. Here x is taken apart
    # into n ln2 and a rest, with ln2 in two parts (W. Cody, W. Waite): the product is exact.
    # 1.5 2^23 rounds to whole numbers; 2^128 is no float32, therefore 2^(n-1). Results below
    # 1.7e-38 are zero.
    "_exp": '''@triton.jit
def _exp(x):
    if x.dtype == tl.float64:
        y = tl.exp(x)
    else:
        z = tl.maximum(x, -150.0, propagate_nan=tl.PropagateNan.ALL)
        z = tl.minimum(z, 150.0, propagate_nan=tl.PropagateNan.ALL)
        n = (z * 1.4426950408889634 + 12582912.0) - 12582912.0
        rest = (z - n * 0.693359375) + n * 2.12194440e-4
        y = tl.exp2(rest * 1.4426950408889634) * tl.exp2(n - 1.0) * 2.0
    return y
''',
    # Cephes' tanhf and tanh: a polynomial, or a quotient of two, near 0; exp elsewhere
    "_tanh": '''@triton.jit
def _tanh(x):
    z = x * x
    if x.dtype == tl.float64:
        p = (-9.64399179425052238628e-1 * z - 9.92877231001918586564e1) * z
        p -= 1.61468768441708447952e3
        q = ((z + 1.12811678491632931402e2) * z + 2.23548839060100448583e3) * z
        near = x + x * z * (p / (q + 4.84406305325125486048e3))
    else:
        p = (-5.70498872745e-3 * z + 2.06390887954e-2) * z - 5.37397155531e-2
        near = x + x * z * ((p * z + 1.33314422036e-1) * z - 3.33332819422e-1)
    far = 1.0 - 2.0 / (tl.exp(2.0 * tl.abs(x)) + 1.0)
    return tl.where(tl.abs(x) < 0.625, near, tl.where(x < 0, -far, far))
''',
    # exp(x) - 1 = 2 tanh(x / 2) / (1 - tanh(x / 2))
    "_expm1": '''@triton.jit
def _expm1(x):
    t = _tanh(0.5 * x)
    return tl.where(tl.abs(x) < 0.5, 2.0 * t / (1.0 - t), _exp(x) - 1.0)
''',
    # The rounding of 1 + x cancels in log(u) x / (u - 1); Kahan's
    "_log1p": '''@triton.jit
def _log1p(x):
    u = 1.0 + x
    exact = (u == 1.0) | (tl.abs(x) == float("inf"))
    small = tl.where(u == 1.0, x, tl.log(u))
    return tl.where(exact, small, tl.log(u) * (x / tl.where(exact, 1.0, u - 1.0)))
''',
    # C rounds to zero; nothing is divided by zero
    "_floor_quotient": '''@triton.jit
def _floor_quotient(a, b):
    safe = tl.where(b == 0, b + 1, b)
    quotient = a // safe
    rest = a - quotient * safe
    below = (rest != 0) & ((rest < 0) != (safe < 0))
    return tl.where(b == 0, b, tl.where(below, quotient - 1, quotient))
''',
    "_floor_rest": '''@triton.jit
def _floor_rest(a, b):
    return tl.where(b == 0, b, a - _floor_quotient(a, b) * b)
''',
    "_rest": '''@triton.jit
def _rest(a, b):
    safe = tl.where(b == 0, b + 1, b)
    return tl.where(b == 0, b, a % safe)
''',
    # a shift by the width or more has no meaning to LLVM; torch and numpy shift everything out
    "_left_shift": '''@triton.jit
def _left_shift(a, b, BITS: tl.constexpr):
    inside = (b >= 0) & (b < BITS)
    return tl.where(inside, a << tl.where(inside, b, b * 0), a * 0)
''',
    "_right_shift": '''@triton.jit
def _right_shift(a, b, BITS: tl.constexpr):
    return a >> tl.where((b >= 0) & (b < BITS), b, b * 0 + (BITS - 1))
''',
    # to the next number away from zero
    "_spacing": '''@triton.jit
def _spacing(x):
    far = tl.where(x < 0, float("-inf"), float("inf")).to(x.dtype)
    return libdevice.nextafter(x, far) - x
''',
    # Note [Philox] in gradof/ops/philox.py: the four words that one of torch's threads draws
    "_words": '''@triton.jit
def _words(at, seed, place, WIDTH: tl.constexpr, NARROW: tl.constexpr):
    threads = (place & 1048575) * 256
    if NARROW:
        at = at.to(tl.uint32)
        threads = threads.to(tl.uint32)
    group = at // WIDTH
    turn = group // threads
    thread = group - turn * threads
    number = (turn * (WIDTH // 4) + at % WIDTH // 4).to(tl.int64) + (place >> 20)
    high = (thread >> 16 >> 16).to(tl.uint32)
    return tl.philox(seed, number.to(tl.uint32), (number >> 32).to(tl.uint32),
                     thread.to(tl.uint32), high)
''',
    "_below": '''@triton.jit
def _below(word, BELOW: tl.constexpr):
    uniform = word.to(tl.float32) * 2.3283064365386963e-10 + 1.1641532182693481e-10
    return uniform < BELOW
''',
    # FOURS: elements are in fours that begin at a multiple of four, so that one asks for all
    "_kept": '''@triton.jit
def _kept(at, seed, place, BELOW: tl.constexpr, WIDTH: tl.constexpr, NARROW: tl.constexpr,
          FOURS: tl.constexpr):
    if FOURS:
        if len(at.shape) == 2:
            four = tl.reshape(at, (at.shape[0], at.shape[1] // 4, 2, 2))
        else:
            four = tl.reshape(at, (at.shape[0] // 4, 2, 2))
        pair, _ = tl.split(four)
        first, _ = tl.split(pair)
        a, b, c, d = _words(first, seed, place, WIDTH, NARROW)
        even = tl.join(_below(a, BELOW).to(tl.int8), _below(c, BELOW).to(tl.int8))
        odd = tl.join(_below(b, BELOW).to(tl.int8), _below(d, BELOW).to(tl.int8))
        kept = tl.reshape(tl.join(even, odd), at.shape) != 0
    else:
        a, b, c, d = _words(at, seed, place, WIDTH, NARROW)
        lane = at % 4
        word = tl.where(lane < 2, tl.where(lane == 0, a, b), tl.where(lane == 2, c, d))
        kept = _below(word, BELOW)
    return kept
''',
    "_max": '''@triton.jit
def _max(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
''',
    "_min": '''@triton.jit
def _min(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
''',
    "_prod": '''@triton.jit
def _prod(a, b):
    return a * b
''',
}  # fmt: skip
LIBDEVICE = "from triton.language.extra import libdevice\n"


def needed(text: str) -> list[str]:
    """The helpers that source calls, and those they call, in an order in which each is defined."""
    found: set[str] = set()
    todo = [text]
    while todo:
        source = todo.pop()
        new = [h for h in HELPERS if re.search(rf"\b{h}\b", source) and h not in found]
        found.update(new)
        todo += [HELPERS[h] for h in new]
    return [HELPERS[h] for h in HELPERS if h in found]
