"""Programs for losses; see `torch_programs`."""

from __future__ import annotations

import torch

from gradof.tracer.torch.programs import Programs

Tensor = torch.Tensor
_ATEN = torch.ops.aten
PROGRAMS = Programs()


@PROGRAMS.of(_ATEN.multi_margin_loss.default)
def _multi_margin_loss(
    x: Tensor, target: Tensor, p: float = 1, margin: float = 1, weight: Tensor | None = None,
    reduction: int = 1,
) -> Tensor:  # fmt: skip
    """Its slope at a margin of 0 is 0, as in eager; torch's own program has 1 there."""
    rows, labels = torch.atleast_2d(x), torch.atleast_1d(target).unsqueeze(1)  # type: ignore[no-untyped-call]
    short = rows - rows.gather(1, labels) + margin
    kept = torch.where(short > 0, short, 0.0)  # nothing of nan
    cells = kept if p == 1 else kept * kept
    if weight is not None:
        cells = cells * weight[labels]
    others = torch.arange(rows.shape[1], device=x.device) != labels
    losses = torch.where(others, cells, 0.0).mean(1)
    if reduction == 0:
        return losses if x.dim() > 1 else losses[0]
    return losses.mean() if reduction == 1 else losses.sum()
