"""What the tables of bad inputs share: the caller's arrays, and the decorator that adds a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from gradof.errors import GradofError

A = np.linspace(0.5, 2.0, 6).reshape(2, 3)
INDEX = np.array([0, 1, 1])
T = torch.linspace(0.5, 2.0, 6, dtype=torch.float64).reshape(2, 3).requires_grad_()
IMAGINARY = A + 1j
SWAPPED = A.astype(A.dtype.newbyteorder())



class Row(NamedTuple):
    """One bad input."""

    run: Callable[[], Any]
    error: type[GradofError]
    match: str


ROWS: list[Row] = []


def bad(error: type[GradofError], match: str) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    def register(run: Callable[[], Any]) -> Callable[[], Any]:
        ROWS.append(Row(run, error, match))
        return run

    return register


def total(x: Any, *rest: Any) -> Any:
    return (x * x).sum()
