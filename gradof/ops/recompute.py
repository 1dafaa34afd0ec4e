"""What marks a computation that is done again for the gradient.

Equal nodes are merged; a value computed again so as not to be kept would be merged with the one
kept. `again` stands between: what is computed from `again[region=1](x)` equals nothing else.

`checkpoint_begin` and `checkpoint_end` stand around what `gradof.checkpoint` ran; they mean
something to `differentiate` alone, and are gone from code that is emitted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gradof.ir.attrs import Attr
from gradof.ir.types import Type
from gradof.ops.families import same_as_first
from gradof.ops.registry import Family, op

op("again(x; region) -> y", family=same_as_first(), numpy="{x}", vjp={"x": lambda g: g},
   traits={"view", "linear"},
   doc="The value, to compute from it again what was not saved.")  # fmt: skip


def _nothing(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    return ()


def _mark(*, region: int) -> tuple[()]:
    return ()


op("checkpoint_begin(; region) -> ", family=Family(_nothing), numpy=_mark, traits={"effect"},
   doc="What follows, up to the end, is not saved.")  # fmt: skip
op("checkpoint_end(; region) -> ", family=Family(_nothing), numpy=_mark, traits={"effect"},
   doc="The end of a checkpointed region.")  # fmt: skip
