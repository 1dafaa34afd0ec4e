"""What Python does at each call of a torch function beside computing, and a compiled one would not.

    print(x)                        # an effect: refused, with the user's line
    self.table[0] = 3.0             # so is a change of an array of numpy's, or of a data frame,
                                    # that was there before
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gradof.errors import TraceError
from gradof.tracer.state.effects import effect_error
from gradof.tracer.state.reads import Reads
from gradof.tracer.state.source import function_loc
from gradof.tracer.torch.array_sources import ArraySources
from gradof.tracer.torch.outcome import keys_error


def refuse_effects(fn: Callable[..., Any], reads: Reads, sources: ArraySources) -> None:
    """Raise where the run of a function has done such a thing."""
    reads.misses.refuse()
    for what, loc in reads.effects[:1]:
        raise effect_error(what, loc)
    if reads.hashed and reads.held.has_keys(torch.Tensor):
        raise keys_error(function_loc(fn))
    written = reads.held.buffers.written()
    if written and not sources.are_own(written):
        raise TraceError(
            "a numpy array is changed in place", loc=function_loc(fn),
            hint="change it outside, or make it a tensor",
        )
    reads.held.buffers.forget(written)
    for frame in reads.held.frames.changed()[:1]:
        raise TraceError(
            f"a {type(frame).__name__} is changed in place", loc=function_loc(fn),
            hint="change a copy of it",
        )
