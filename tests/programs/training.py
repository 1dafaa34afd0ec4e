"""What a training loop of tests/programs hands back, and how two runs of one are compared."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from gradof import differentiate

STEPS = 20
Wrap = Callable[[Any], Any]


@dataclass
class Trained:
    """Modules and tensors after the last step, logged numbers, counters, and what was wrapped."""

    parameters: list[Any]
    logs: dict[str, list[float]]
    counters: dict[str, float]
    wrapped: list[Any]

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        for i, owner in enumerate(self.parameters):
            if isinstance(owner, nn.Module):
                for name, value in owner.state_dict().items():
                    yield f"{i}.{name}", value
            else:
                yield str(i), owner.detach()


def train(loop: Callable[[Wrap], Trained], *, compiled: bool) -> tuple[Trained, list[str]]:
    """Run a loop from one seed; also the warnings that something ran eagerly."""
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trained = loop(differentiate if compiled else lambda f: f)
    return trained, [str(w.message) for w in caught if w.category.__name__ == "EagerWarning"]


def difference(want: Trained, have: Trained, rtol: float, atol: float) -> str | None:
    """Where two runs differ first; counters are equal but for rounding."""
    for (name, a), (_, b) in zip(want.tensors(), have.tensors(), strict=True):
        if not torch.allclose(a, b, rtol=rtol, atol=atol):
            far = (a - b).abs().max().item()
            return f"{name} differs by {far:.3g}"
    for name, numbers in want.logs.items():
        others = have.logs[name]
        if len(numbers) != len(others):
            return f"log {name} has {len(others)} entries, eager's has {len(numbers)}"
        if not np.allclose(numbers, others, rtol=rtol, atol=atol):
            return f"log {name} differs: {others[:4]} and {numbers[:4]}"
        if any(type(a) is not type(b) for a, b in zip(numbers, others, strict=True)):
            return f"log {name} holds other types"
    for name, number in want.counters.items():
        if not np.isclose(number, have.counters[name], rtol=1e-12):
            return f"counter {name} is {have.counters[name]}, eager's {number}"
    return None
