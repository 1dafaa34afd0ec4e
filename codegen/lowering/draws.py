"""A torch caller's masks of dropout, by machine code where they are large (`machine/mersenne`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradof import tuning
from gradof.codegen.machine.mersenne import bernoulli, is_torchs
from gradof.ir.core import Node
from gradof.ir.types import F32, F64, TensorType


def native_draw(node: Node) -> Callable[..., Any] | None:
    """What draws as torch does; None where torch does it, or there are few."""
    drawn, p = node.output.type, node.attrs.get("p", 0.5)
    assert isinstance(drawn, TensorType) and isinstance(p, (int, float))
    if drawn.dtype not in (F32, F64) or drawn.size < tuning.DRAWN_NATIVELY or not 0 <= p <= 1:
        return None
    if not is_torchs():
        return None
    return _bernoulli if node.kind == "bernoulli" else _bernoulli_by


def _bernoulli(*, p: float, shape: Sequence[int], dtype: Any, device: str) -> Any:
    return bernoulli(p, shape, dtype)


def _bernoulli_by(p: Any, *, shape: Sequence[int], dtype: Any) -> Any:
    share = float(p)
    if 0.0 <= share <= 1.0:
        return bernoulli(share, shape, dtype)
    import torch

    return torch.empty(shape).bernoulli_(share)  # which is an error of torch's
