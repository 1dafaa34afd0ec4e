"""What rules of other packages take from autograd's rules for numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def unbroadcast(x: Any, shape: tuple[int, ...]) -> Any:
    """A gradient summed over the dims that were broadcast from `shape`."""
    added = np.ndim(x) - len(shape)
    dims = (*range(added), *(added + i for i, n in enumerate(shape) if n == 1))
    return np.reshape(np.sum(x, axis=dims), shape) if dims else x


def unbroadcast_f(target: Any, f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A vjp whose gradient has the shape of its argument, `target`."""
    shape = np.shape(target)
    return lambda g: unbroadcast(f(g), shape)


__all__ = ["unbroadcast", "unbroadcast_f"]
