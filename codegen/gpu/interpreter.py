"""What triton's interpreter lacks: rounding to bfloat16.

Note [The interpreter's bfloat16]
Hardware rounds float32 to bfloat16 to the nearest, ties to even. triton's interpreter (3.6 to 3.9)
cuts the low bits off instead, and misreads subnormal bfloat16 numbers. `complete` replaces both
conversions in this process, which is one that interprets: nothing compiled is touched.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from gradof.codegen.cpu.half import round_bf16


def is_interpreting() -> bool:
    """Whether triton runs kernels in its interpreter: TRITON_INTERPRET=1 when it was imported."""
    from triton import knobs

    return bool(knobs.runtime.interpret)


@functools.cache
def complete() -> None:
    """Make the interpreter of this process whole; see the module docstring. Once is enough."""
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    plain = InterpreterBuilder.cast_impl

    def cast(self: Any, source: Any, to: Any) -> Any:
        pair = (source.dtype.scalar, to.scalar)
        if pair == (tl.float32, tl.bfloat16):
            bits = round_bf16(source.data).view(np.uint32) >> np.uint32(16)
            return TensorHandle(np.asarray(bits, np.uint16), tl.bfloat16)
        if pair == (tl.bfloat16, tl.float32):
            wide = source.data.astype(np.uint32) << np.uint32(16)
            return TensorHandle(np.asarray(wide).view(np.float32), tl.float32)
        return plain(self, source, to)

    InterpreterBuilder.cast_impl = cast
