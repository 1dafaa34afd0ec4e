"""The stores of a traced torch function: tensors are outputs, and torch's own types are shared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from gradof.ir.core import Loc
from gradof.tracer.core.result import Store
from gradof.tracer.core.stores import Flatten, Output, Writer, is_bookkeeping
from gradof.tracer.torch.state import OuterState

_VALUES = (
    torch.Tensor, torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size,
    torch.Generator, np.generic,
)  # fmt: skip


def stores_of(
    outer: OuterState, flatten: Flatten, output: Output, is_given: Callable[[Any], bool],
    loc: Loc | None,
) -> tuple[Store, ...]:  # fmt: skip
    """The stores of a run; TraceError for a value that a call could not make again.

    `is_given` tells containers of the caller's that are stored as they are.
    """
    def is_value(leaf: Any) -> bool:
        return isinstance(leaf, _VALUES) or is_given(leaf)

    writer = Writer(outer.reads, outer.was_there, is_value, flatten, output, loc)
    return writer.stores([change for change in outer.changes() if not is_bookkeeping(change)])

