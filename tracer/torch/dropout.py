"""Dropout by a probability that varies, as where it is annealed.

    F.dropout(x, p)      →      %kept : f32[4,3] = bernoulli_by(1.0 - %p); x * (kept / (1.0 - p))

The op's own probability is an attribute, one trace for each of its values. Steps and draws are
those of torch on the CPU; on other devices, and in half precision, the number is pinned.
"""

from __future__ import annotations

from typing import Any

import torch

from gradof.ir.types import F64
from gradof.ops.expr import F
from gradof.tracer.aten.types import from_torch_dtype
from gradof.tracer.core.number import TracedNumber
from gradof.tracer.state.source import user_loc
from gradof.tracer.torch.functional import inner, plainly, wrap
from gradof.tracer.torch.recorder import Recorder

DROPS = frozenset({torch.nn.functional.dropout, torch.dropout})


def dropped(
    recorder: Recorder, input: torch.Tensor, p: Any = 0.5, training: Any = True,
    inplace: bool = False, **others: Any,
) -> Any:  # fmt: skip
    """`F.dropout(input, p, training)`, or NotImplemented for what it does not cover.

    torch.dropout has `train` for `training`.
    """
    training = others.pop("train", training)
    if others:
        return NotImplemented
    covered = input.device.type == "cpu" and input.dtype in (torch.float32, torch.float64)
    if type(p) is not TracedNumber or type(training) is not bool or inplace or not covered:
        return NotImplemented
    number: Any = p  # its comparisons are conditions of the trace
    if not input.is_contiguous() or not input.numel() or not 0.0 < number < 1.0:
        return NotImplemented
    if not training:
        return input
    share = 1.0 - number
    return input * (_kept(recorder, input, share) / share)


def _kept(recorder: Recorder, like: torch.Tensor, share: TracedNumber) -> torch.Tensor:
    """1 where an element is kept, with the probability `share`, else 0."""
    with recorder.pause():
        with plainly():
            kept = torch.empty(like.shape, dtype=like.dtype).bernoulli_(share.value)
        wrapper = wrap(kept)
    recorder.builder.loc = user_loc()
    drawn = F.bernoulli_by(
        share.cast(F64), shape=tuple(like.shape), dtype=from_torch_dtype(like.dtype)
    )
    recorder.varying.add(drawn.value)
    recorder.bind(inner(wrapper), drawn.value)
    return wrapper
