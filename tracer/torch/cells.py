"""Cells of recurrent networks, written out: torch's own write into their gates in place.

    h = torch.gru_cell(x, h, w_ih, w_hh, b_ih, b_hh)     →     two products, and ops on their parts

The ops are those of torch's kernels for the CPU, one by one, on values instead of memory. Of each
write in place a trace asks torch's meta kernel, in Python, whether the shapes fit: half of what a
loop over a cell took to trace, and the first one imports sympy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gradof.tracer.state.unheard import unheard
from gradof.tracer.torch.overrides import OVERRIDES

Tensor = torch.Tensor
_linear: Any = torch.nn.functional.linear


def _gru(x: Tensor, h: Tensor, w: Tensor, u: Tensor, b: Any, c: Any) -> Tensor:
    given = _linear(x, w, b).unsafe_chunk(3, 1)
    hidden = _linear(h, u, c).unsafe_chunk(3, 1)
    reset = (hidden[0] + given[0]).sigmoid()
    update = (hidden[1] + given[1]).sigmoid()
    new = (given[2] + hidden[2] * reset).tanh()
    result: Tensor = (h - new) * update + new
    return result


def _lstm(
    x: Tensor, states: tuple[Tensor, Tensor], w: Tensor, u: Tensor, b: Any, c: Any
) -> tuple[Tensor, Tensor]:
    h, cell = states
    gates = (_linear(h, u, c) + _linear(x, w, b)).unsafe_chunk(4, 1)
    enter, forget = gates[0].sigmoid(), gates[1].sigmoid()
    new, out = gates[2].tanh(), gates[3].sigmoid()
    made = forget * cell + enter * new
    return out * made.tanh(), made


def _rnn(act: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    def run(x: Tensor, h: Tensor, w: Tensor, u: Tensor, b: Any, c: Any) -> Tensor:
        return act(_linear(h, u, c) + _linear(x, w, b))

    return run


# The function of torch, its gates, and what is written out.
_CELLS: tuple[tuple[Any, int, Callable[..., Any]], ...] = (
    (torch.gru_cell, 3, _gru), (torch.lstm_cell, 4, _lstm),
    (torch.rnn_tanh_cell, 1, _rnn(torch.tanh)), (torch.rnn_relu_cell, 1, _rnn(torch.relu)),
)  # fmt: skip


def fits(gates: int, x: Any, states: Any, w: Any, u: Any, b: Any = None, c: Any = None) -> bool:
    """Whether a call is one that torch's kernel for the CPU takes without a cast."""
    held = list(states) if isinstance(states, (list, tuple)) else [states]
    biases = [t for t in (b, c) if t is not None]
    tensors = [x, *held, w, u, *biases]
    if len(held) != (2 if gates == 4 else 1) or len(biases) == 1:
        return False
    if not all(isinstance(t, Tensor) and t.is_cpu for t in tensors):
        return False
    if len({t.dtype for t in tensors}) > 1 or not x.is_floating_point():
        return False
    if any(t.dim() != 2 for t in (x, *held, w, u)):
        return False
    (rows, wide), size = x.shape, held[0].shape[1]
    return (
        all(tuple(t.shape) == (rows, size) for t in held)
        and tuple(w.shape) == (gates * size, wide) and tuple(u.shape) == (gates * size, size)
        and all(tuple(t.shape) == (gates * size,) for t in biases)
    )  # fmt: skip


def _instead_of(function: Any, gates: int, written: Callable[..., Any]) -> Callable[..., Any]:
    @unheard
    def run(*args: Any, **kwargs: Any) -> Any:
        if kwargs or not 4 <= len(args) <= 6 or not fits(gates, *args):
            return function(*args, **kwargs)
        return written(*args, *[None] * (6 - len(args)))

    return run


for _function, _gates, _written in _CELLS:
    OVERRIDES[_function] = _instead_of(_function, _gates, _written)
