"""Ops without an adaptor that torch itself can write in simpler ops.

torch keeps such programs for its own compiler. They run on the real tensors in place of the op,
seen by the recorder, so an op they use that gradof does not know is still an UnsupportedOpError.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from gradof.tracer.torch import programs as torch_programs
from gradof.tracer.torch import programs_losses as torch_programs_losses
from gradof.tracer.torch import programs_matrix as torch_programs_matrix
from gradof.tracer.torch import programs_order as torch_programs_order
from gradof.tracer.torch import programs_resize as torch_programs_resize

_TABLES = (
    torch_programs.PROGRAMS, torch_programs_losses.PROGRAMS, torch_programs_matrix.PROGRAMS,
    torch_programs_order.PROGRAMS, torch_programs_resize.PROGRAMS,
)  # fmt: skip

# Of these torch's programs draw other numbers than its kernels on the CPU, from the same seed.
_OTHER_DRAWS = frozenset({"cauchy", "geometric", "log_normal"})


@cache
def refuses_by_itself(func: Any) -> bool:
    """Whether the op has checks of its own, and can be run for them and nothing else."""
    name: str = func.name()
    return (
        not torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")
        and not func._schema.is_mutable
        and torch.Tag.nondeterministic_seeded not in func.tags
    )


@cache
def decomposition(func: Any) -> Callable[..., Any] | None:
    """The program for one op overload, or None if torch has none."""
    if not isinstance(func, torch._ops.OpOverload):
        return None
    for programs in _TABLES:
        if func in programs:
            return programs[func]
    name: str = func.name()  # type: ignore[no-untyped-call]
    if torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd"):
        return func.decompose
    if name.removeprefix("aten::").partition(".")[0].rstrip("_") in _OTHER_DRAWS:
        return None
    from torch._decomp import decomposition_table

    program: Callable[..., Any] | None = decomposition_table.get(func)
    return program
