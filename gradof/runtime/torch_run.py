"""A plan on the values of tensors, without autograd."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gradof.ir.types import DType
from gradof.runtime.plan import GraphPlan
from gradof.runtime.torch_arrays import from_raw, resolved, to_arrays

Tensor = torch.Tensor


def run(plan: GraphPlan, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Run `plan` on the values of tensors; no autograd."""
    return results(plan, tensors, computed(plan, tensors))


def computed(plan: GraphPlan, operands: Sequence[Any]) -> Sequence[Any]:
    """What the emitted code of `plan` gives: arrays, or tensors if it takes tensors.

    Operands are tensors, or what emitted code has given.
    """
    if plan.executable.takes_tensors:
        return plan(*map(resolved, operands))
    return plan(*to_arrays(operands))


def consumed(plan: GraphPlan, operands: list[Any]) -> Sequence[Any]:
    """As `computed`; the list is the run's own, and may be emptied: see `Executable.consume`."""
    if plan.executable.takes_tensors:
        arrays = [*map(resolved, operands)]
    else:
        arrays = [*to_arrays(operands)]
    operands.clear()
    return plan.consume(arrays)


def results(
    plan: GraphPlan, tensors: Sequence[Tensor], made: Sequence[Any]
) -> tuple[Tensor, ...]:
    """The tensors of a run on `tensors`, of which emitted code has made these, or the first few."""
    found = as_tensors(made, plan.held)
    for i, view in plan.views:
        found[i] = view.result(tensors, found[i])
    return tuple(found)


def as_tensors(made: Sequence[Any], held: Sequence[DType | None]) -> list[Tensor]:
    """What emitted code has given, as tensors over the same memory; `held` as of `GraphPlan`."""
    return [
        value if isinstance(value, Tensor) else from_raw(value, dtype)
        for value, dtype in zip(made, held, strict=False)
    ]
