"""What emitted tiles call to choose cells: by a mask, or one of each row.

>>> x = np.arange(6, dtype=np.float32).reshape(2, 3)
>>> chosen(x > 2, x, 0, np.empty_like(x))
array([[0., 0., 0.],
       [3., 4., 5.]], dtype=float32)
>>> picked(x, np.array([[2], [0]]))
array([[2.],
       [3.]], dtype=float32)
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

_BITS = {4: np.int32, 8: np.int64}


def chosen(mask: Any, a: Any, b: Any, out: Any) -> Any:
    """`np.where(mask, a, b)` in `out`; a and b are of its dtype, or numbers.

    np.where branches for each cell, which for a random mask takes ten times as long as this:
    bitwise ops, with a mask of all bits.
    """
    bits = _BITS[out.itemsize]
    found = out.view(bits)
    if _is_zero(b) or _is_zero(a):
        np.copyto(found, mask)
        if _is_zero(a):
            np.subtract(found, 1, out=found)
            np.bitwise_and(found, _bits(b, out.dtype), out=found)
        else:
            np.negative(found, out=found)
            np.bitwise_and(found, _bits(a, out.dtype), out=found)
        return out
    every = np.negative(mask.view(np.int8)).astype(bits)
    other = _bits(b, out.dtype)
    np.bitwise_xor(_bits(a, out.dtype), other, out=found)
    np.bitwise_and(found, every, out=found)
    np.bitwise_xor(found, other, out=found)
    return out


def inside(index: Any, n: int) -> Any:
    """Positions that there are in `n` columns, for rows whose own is none of them: any."""
    return np.minimum(np.maximum(index, 0), n - 1)


def picked(a: Any, at: Any) -> Any:
    """The cell of each row at the position `at`, which has the row's axes and one of size 1."""
    return a[(*_rows(a.shape[:-1]), at)]


def place(cells: Any, index: Any, value: Any) -> Any:
    """`cells`, with `value` added in place to the cell of each row that `index` names, if any."""
    at = inside(index, cells.shape[-1])
    where = (*_rows(cells.shape[:-1]), at)
    cells[where] += np.where(at == index, value, 0)
    return cells


def _is_zero(value: Any) -> bool:
    """Whether it is a number of which all bits are 0."""
    return isinstance(value, (int, float)) and value == 0 and math.copysign(1, value) > 0


def _bits(value: Any, dtype: Any) -> Any:
    return np.asarray(value, dtype).view(_BITS[dtype.itemsize])


@functools.lru_cache(maxsize=64)
def _rows(shape: tuple[int, ...]) -> tuple[Any, ...]:
    """The positions along each axis of rows, to index with; 0 where there is but one."""
    n = len(shape) + 1
    return tuple(
        0 if size == 1 else np.arange(size).reshape([-1 if k == axis else 1 for k in range(n)])
        for axis, size in enumerate(shape)
    )
