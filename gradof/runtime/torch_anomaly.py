"""A compiled backward in anomaly mode, which asks of every node whether it returns a NaN.

    with torch.autograd.detect_anomaly():
        loss(x).backward()      an error where the gradient of one op of the function has a NaN

A compiled function is one node. In eager its ops are one each, and gradients that only add up to a
NaN (inf - inf, where a value is used twice) are no error: nobody asks between nodes. So where a
gradient has a NaN, df runs once more, op by op, and torch is asked not to look where no op's own
gradient has one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gradof.codegen.host.evaluate import ZERO, interpret
from gradof.errors import CodegenError

if TYPE_CHECKING:
    from gradof.ir.core import Node
    from gradof.runtime.plan import GradientPlan

Tensor = torch.Tensor
_private: Any = torch._C
_torch: Any = torch


def is_watched() -> bool:
    """Whether torch looks for NaN in what nodes return."""
    return bool(_torch.is_anomaly_enabled() and _torch.is_anomaly_check_nan_enabled())


def has_nan(gradients: Sequence[Tensor | None]) -> bool:
    """Whether one of the gradients has a NaN."""
    return any(g is not None and bool(g.isnan().any()) for g in gradients)


def only_adds_up(plan: GradientPlan, operands: Sequence[Any]) -> bool:
    """Whether no op's own gradient has a NaN; `operands` are df's, arrays, None for zeros.

    False where an op is run by torch alone: then torch's error stands.
    """
    found = False

    def observe(node: Node, results: Sequence[Any]) -> None:
        nonlocal found
        if node.kind == "GradOf" and not found:
            arrays = [np.asarray(r) for r in results if r is not ZERO]
            found = any(a.dtype.kind in "fc" and bool(np.isnan(a).any()) for a in arrays)

    given = [ZERO if x is None else x for x in operands]
    try:
        interpret(plan.gradient.df, given, library="torch", observe=observe)
    except CodegenError:
        return False
    return not found


def let_pass(ctx: Any) -> None:
    """Let torch not look at what the node of `ctx` returns now; from the next one on it does."""
    handles: list[Any] = []
    run = _private._current_graph_task_id()

    def again(*_: Any) -> None:
        if handles and run == _private._current_graph_task_id():  # not of a run that has failed
            _torch.set_anomaly_enabled(True, True)
        while handles:
            handles.pop().remove()

    handles += [node.register_prehook(again) for node, _ in ctx.next_functions if node is not None]
    _torch.set_anomaly_enabled(False, True)
    torch.autograd.Variable._execution_engine.queue_callback(again)
