"""Connectionist temporal classification as a recursion over time steps (Graves et al. 2006).

    alpha[t, s] = log sum of alpha[t-1, s], alpha[t-1, s-1] and, past a blank, alpha[t-1, s-2]
                  + log_probs[t, label s]

over the labels with a blank before, between and after them; the loss is the log sum of the last two
at the last step, negated. torch's own recursion has a gradient and no second one; this has all. It
is unrolled, so where steps are many the loss is one call of torch's, and has what that has.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes

from gradof import tuning
from gradof.tracer.torch.by_value import BY_VALUE
from gradof.tracer.torch.programs import constant

Tensor = torch.Tensor
_ATEN = torch.ops.aten
_library: Any = torch.library.Library
_OPS = _library("gradof", "FRAGMENT")
_OPS.define("ctc_loss(Tensor log_probs, Tensor targets, int[] input_lengths, int[] target_lengths, "
            "int blank, bool zero_infinity) -> (Tensor, Tensor)")  # fmt: skip
_OPS.impl("ctc_loss", lambda *args: _ATEN._ctc_loss.default(*args), "CompositeExplicitAutograd")


def _ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int = 0,
    zero_infinity: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    with _disable_current_modes():  # for what torch refuses
        func: Any = _ATEN._ctc_loss
        func(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity)
    # Numbers in tensors are guarded: the trace holds for calls with the same lengths.
    steps = [int(n) for n in input_lengths]
    lengths = [int(n) for n in target_lengths]
    if len(log_probs) > tuning.CTC_STEPS:
        whole: Any = torch.ops.gradof.ctc_loss
        found: tuple[Tensor, Tensor] = whole(
            log_probs, targets, steps, lengths, blank, zero_infinity
        )
        return found
    device = log_probs.device
    labels = _with_blanks(_rows(targets.to(device), lengths), blank)
    alpha = _recursion(log_probs, labels, _numbers(steps, device))
    ends = _numbers(lengths, device).unsqueeze(1) * 2
    last = alpha[-1].gather(1, ends)
    label = alpha[-1].gather(1, (ends - 1).clamp(min=0))
    label = torch.where(ends > 0, label, -math.inf)
    loss = -_log_sum([last, label]).squeeze(1)
    # torch's gradient is that of normalised probabilities: it has exp(log_probs) more.
    places = torch.arange(log_probs.shape[0], device=device)
    live = places.unsqueeze(1) < _numbers(steps, device)
    total = torch.where(live.unsqueeze(2), log_probs.exp(), 0.0).sum((0, 2))
    loss = loss + (total - total.detach())
    if zero_infinity:
        loss = torch.where(loss == math.inf, loss.detach(), loss)
    return loss, torch.stack(alpha, 1)


def _numbers(values: list[int], device: torch.device) -> Tensor:
    """A constant of the trace."""
    return constant(np.array(values, np.int64), device)


def _rows(targets: Tensor, lengths: list[int]) -> Tensor:
    """The labels of each sequence in a row, padded with whatever follows."""
    longest = max(lengths, default=0)
    if targets.dim() == 2:
        return targets[:, :longest]
    starts = [sum(lengths[:i]) for i in range(len(lengths))]
    device = targets.device
    places = _numbers(starts, device).unsqueeze(1) + torch.arange(longest, device=device)
    if targets.shape[0] == 0:
        return targets.new_zeros((len(lengths), 0))
    return targets[places.clamp(max=targets.shape[0] - 1)]


def _with_blanks(rows: Tensor, blank: int) -> Tensor:
    n, longest = rows.shape
    blanks = torch.full((n, longest + 1), blank, dtype=torch.int64, device=rows.device)
    if longest == 0:
        return blanks
    pairs = torch.stack([blanks[:, 1:], rows.to(torch.int64)], 2).reshape(n, 2 * longest)
    return torch.cat([pairs, blanks[:, :1]], 1)


def _recursion(log_probs: Tensor, labels: Tensor, steps: Tensor) -> list[Tensor]:
    """alpha of each step; past a sequence's last step it stays."""
    n, width = labels.shape
    emitted = log_probs.gather(2, labels.unsqueeze(0).expand(log_probs.shape[0], n, width))
    place = torch.arange(width, device=labels.device)
    alpha = [torch.where(place < 2, emitted[0], -math.inf)]
    other = torch.cat([labels[:, :2] < 0, labels[:, 2:] != labels[:, :-2]], 1)
    skips = other & (place % 2 == 1)  # blanks are not left out between equal labels
    for t in range(1, log_probs.shape[0]):
        before = alpha[-1]
        ways = [before]
        for by in range(1, min(3, width)):
            before_it = before.new_full((n, by), -math.inf)
            moved = torch.cat([before_it, before[:, :-by]], 1)
            ways.append(moved if by == 1 else torch.where(skips, moved, -math.inf))
        now = _log_sum(ways) + emitted[t]
        alpha.append(torch.where(t < steps.unsqueeze(1), now, before))
    return alpha


def _log_sum(terms: list[Tensor]) -> Tensor:
    """log of the sum of exponentials, -inf without a nan in its gradient where all are -inf."""
    top = torch.stack([t.detach() for t in terms]).amax(0)
    top = torch.where(top == -math.inf, 0.0, top)
    total = sum((t - top).exp() for t in terms)
    assert isinstance(total, Tensor)
    dead = total == 0
    return torch.where(dead, -math.inf, torch.where(dead, 1.0, total).log() + top)


BY_VALUE[_ATEN._ctc_loss.default] = BY_VALUE[_ATEN._ctc_loss.Tensor] = _ctc_loss
