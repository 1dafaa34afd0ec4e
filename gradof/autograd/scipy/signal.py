"""`scipy.signal`, under the name that code for autograd imports."""

import string as _string
from collections.abc import Sequence as _Sequence
from typing import Any as _Any

import numpy as _np
import scipy.signal as _module

globals().update({n: v for n, v in vars(_module).items() if not n.startswith("__")})

_Axes = _Sequence[_Sequence[int]]


def convolve(
    A: _Any, B: _Any, axes: _Axes | None = None, dot_axes: _Axes = ((), ()), mode: str = "full"
) -> _Any:
    """A convolution over pairs of axes, and sums of products over other pairs, as autograd has it.

    The result has the axes of A in no pair, then those of B, then one for each pair of `axes`.
    """
    if mode not in ("valid", "full"):
        raise ValueError(f"mode {mode!r} is not among 'valid' and 'full'")
    if axes is None:
        axes = (range(A.ndim), range(B.ndim))
    excess = [B.shape[b] - A.shape[a] for a, b in zip(*axes, strict=True)]
    larger = min(excess, default=0) >= 0
    moving = int(larger or (mode == "full" and B.size > A.size))  # the one that has windows
    if mode == "valid" and not larger and max(excess) > 0:
        raise ValueError("one array must be the larger along all axes that are convolved")
    labels = [list(_string.ascii_letters[: A.ndim]), list(_string.ascii_letters[-B.ndim :])]
    for a, b in zip(*dot_axes, strict=True):
        labels[1][b] = labels[0][a]
    left = [
        label for i in (0, 1) for axis, label in enumerate(labels[i])
        if axis not in axes[i] and axis not in dot_axes[i]
    ]  # fmt: skip
    operands = [A, B]
    steps, cells = [int(i) for i in axes[moving]], [int(i) for i in axes[1 - moving]]
    positions = [labels[moving][axis] for axis in steps]
    sizes = tuple(operands[1 - moving].shape[axis] for axis in cells)
    if mode == "full":
        widths = [(0, 0)] * operands[moving].ndim
        for axis, size in zip(steps, sizes, strict=True):
            widths[axis] = (size - 1, size - 1)
        operands[moving] = _np.pad(operands[moving], widths)
    if steps:
        windows = _np.lib.stride_tricks.sliding_window_view
        operands[moving] = windows(operands[moving], sizes, tuple(steps))
        operands[1 - moving] = _np.flip(operands[1 - moving], tuple(cells))
    inner = [labels[1 - moving][axis] for axis in cells]
    labels[moving] += inner
    sides = ",".join(map("".join, labels))
    return _np.einsum(f"{sides}->{''.join([*left, *positions])}", *operands)
