"""What triton's interpreter lacks: rounding to bfloat16, and libdevice.

Note [The interpreter's bfloat16]
Hardware rounds float32 to bfloat16 to the nearest, ties to even. triton's interpreter (3.6 to 3.9)
cuts the low bits off instead, and misreads subnormal bfloat16 numbers. `complete` replaces both
conversions in this process, which is one that interprets: nothing compiled is touched. Products of
bfloat16 are of float32 there: exact, as the hardware's are before they are summed.

Note [The interpreter's libdevice]
libdevice is machine code of NVIDIA's, so interpreted kernels compute its functions by numpy, as the
op that they are is computed on the CPU. That tests which function a kernel calls, with which
operands; how accurate libdevice is NVIDIA says.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.codegen.lowering.half import round_bf16
from gradof.codegen.lowering.numpy import call, lowering
from gradof.codegen.triton.ops import LIBDEVICE_BINARY, LIBDEVICE_UNARY
from gradof.ops.registry import get_op

# A tensor as the bound of a loop: triton 3.6 makes an int of an array with an axis, which numpy 2.4
# no longer allows. triton 3.7 does it right. Source, for processes that cannot import gradof, too.
COUNT_BY_TENSORS = """
from triton.runtime import interpreter

def patched(plain):
    def patch(tensor, scope):
        plain(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.reshape(())))
    return patch

interpreter._patch_lang_tensor = patched(interpreter._patch_lang_tensor)
"""


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
    splat = InterpreterBuilder.create_splat

    def splat_bits(self: Any, to: Any, source: Any) -> Any:
        if source.data.dtype != np.bool_:
            return splat(self, to, source)
        # a comparison's handle has the dtype of its operands, as which its bits would be stored
        return TensorHandle(np.full(to.shape, source.data[0], np.bool_), source.dtype.scalar)

    InterpreterBuilder.create_splat = splat_bits
    dot = InterpreterBuilder.create_dot

    def wide_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        if a.dtype.scalar == tl.bfloat16:  # its bits would be multiplied as whole numbers
            a, b = (cast(self, x, tl.float32) for x in (a, b))
        return dot(self, a, b, *rest)

    InterpreterBuilder.create_dot = wide_dot
    exec(COUNT_BY_TENSORS, {})
    if not hasattr(InterpreterBuilder, "get_bf16"):  # a number beside bfloat16, in triton 3.6
        InterpreterBuilder.get_bf16 = lambda self, x: cast(self, self.get_fp32(x), tl.bfloat16)

    from triton.language.extra import libdevice

    for op, name in {**LIBDEVICE_UNARY, **LIBDEVICE_BINARY}.items():
        setattr(libdevice, name, _stand_in(op))


def _stand_in(op: str) -> Callable[..., Any]:
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    record = get_op(op)
    low = lowering(record, "numpy")
    names = [f"_{k}" for k in range(len(record.inputs))]
    space = {"np": np} if low.function is None else {"np": np, low.text: low.function}
    text = call(record, low, names, {})

    def compute(*operands: Any) -> Any:
        arrays = [t.handle.data for t in operands]
        found = np.asarray(eval(text, {**space, **dict(zip(names, arrays, strict=True))}))
        dtype = operands[0].dtype
        block = any(t.type.is_block() for t in operands)  # a scalar is an array of one element
        kind = tl.block_type(dtype, list(found.shape)) if block else dtype
        return tl.tensor(TensorHandle(found.astype(arrays[0].dtype), dtype), kind)

    return compute
