"""The stores of a traced torch function: tensors are outputs, and torch's own types are shared."""

from __future__ import annotations

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
    outer: OuterState, flatten: Flatten, output: Output, loc: Loc | None
) -> tuple[Store, ...]:
    """The stores of a run; TraceError for a value that a call could not make again."""
    writer = Writer(outer.reads, outer.was_there, _is_value, flatten, output, loc)
    return writer.stores([change for change in outer.changes() if not is_bookkeeping(change)])


def _is_value(leaf: Any) -> bool:
    return isinstance(leaf, _VALUES)
