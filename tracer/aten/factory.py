"""Tensors made from nothing: constants, ranges, identity matrices.

Uniform tensors become `full` and ranges `arange`; the others become dense constants of their
result, which depends on no input.
"""

from __future__ import annotations

from typing import Any

from gradof.ops.expr import Expr, F, Number
from gradof.tracer.aten.registry import Call, Operand, aten, scalar_for
from gradof.tracer.aten.types import dense_of


@aten("zeros.default", "zeros_like.default", "new_zeros.default", "empty.memory_format",
      "empty_like.default", "new_empty.default", "empty_strided.default",
      "new_empty_strided.default")  # fmt: skip
def zeros(c: Call, *_: Any, **__: Any) -> Expr:
    # An empty tensor may hold anything; zeros are as good.
    return c.full(0)


@aten("ones.default", "ones_like.default", "new_ones.default")
def ones(c: Call, *_: Any, **__: Any) -> Expr:
    return c.full(1)


@aten("full.default", "full_like.default", "new_full.default")
def full(c: Call, _: Any, *args: Operand, fill_value: Operand | None = None, **__: Any) -> Expr:
    value = args[-1] if args else fill_value
    return _filled(c, value)


@aten("scalar_tensor.default")
def scalar_tensor(c: Call, value: Number, **_: Any) -> Expr:
    return c.full(value)


def _filled(c: Call, value: Any) -> Expr:
    if isinstance(value, Expr):
        shape = c.type().shape
        assert shape is not None
        return value.cast(c.type().dtype).to_device(c.type().device).expand(shape)
    return c.full(value)


@aten("arange.default", "arange.start", "arange.start_step")
def arange(c: Call, *args: Number, **_: Any) -> Expr:
    type_ = c.type()
    start: Number = 0 if len(args) == 1 else args[0]
    step: Number = args[2] if len(args) == 3 else 1
    assert type_.shape is not None
    return F.arange.with_emitter(c.emitter)(
        n=type_.shape[0], start=scalar_for(start, type_), step=scalar_for(step, type_),
        dtype=type_.dtype, device=type_.device,
    )  # fmt: skip


@aten("eye.default", "eye.m", "linspace.default", "logspace.default", "tril_indices.default",
      "triu_indices.default", "hann_window.default", "hann_window.periodic",
      "hamming_window.default", "hamming_window.periodic", "blackman_window.default",
      "blackman_window.periodic", "bartlett_window.default", "bartlett_window.periodic",
      "kaiser_window.default", "kaiser_window.periodic", "kaiser_window.beta",
      "fft_fftfreq.default", "fft_rfftfreq.default", "range.default", "range.step")  # fmt: skip
def table(c: Call, *_: Any, **__: Any) -> Expr:
    constant = c.constant(dense_of(c.results[0]))
    return constant.cast(c.type().dtype).to_device(c.type().device)
