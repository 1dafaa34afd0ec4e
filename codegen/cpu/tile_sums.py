"""What emitted tiles call for sums over the columns, and for one cell a row.

>>> x = np.arange(6, dtype=np.float32).reshape(2, 3)
>>> dot(x, x)
array([[ 5.],
       [50.]], dtype=float32)
>>> total(x)
array([[ 3.],
       [12.]], dtype=float32)
>>> picked(x, np.array([[2], [0]]))
array([[2.],
       [3.]], dtype=float32)

Note [Sums by BLAS]
`np.vecdot` is BLAS's dot product of each row: it reads two arrays once, where a product and its sum
are two calls and an array in between, and it is faster than `np.add.reduce` for a plain sum, too.
Two things need care. BLAS may start threads of its own for long vectors (OpenBLAS: over 10 000),
inside our threads and with results that depend on their number; and it adds in a few dozen running
sums, whose error grows with the length. So rows are cut into blocks of `BLOCK`, whose sums numpy
adds in pairs. Where columns are not next to one another, numpy would not call BLAS but add one by
one; then the product is computed after all.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

BLOCK = 4096  # columns


def dot(a: Any, b: Any) -> Any:
    """The sum of a * b over the last axis, which is kept; both vary along it."""
    n = a.shape[-1]
    if a.strides[-1] != a.itemsize or b.strides[-1] != b.itemsize:
        return np.add.reduce(np.multiply(a, b), axis=-1, keepdims=True)
    if n <= BLOCK:
        return np.vecdot(a, b)[..., None]
    even = n - n % BLOCK
    parts = np.vecdot(_blocks(a, even), _blocks(b, even))
    found = np.add.reduce(parts, axis=-1, keepdims=True)
    if even < n:
        found += np.vecdot(a[..., even:], b[..., even:])[..., None]
    return found


def total(a: Any) -> Any:
    """The sum over the last axis, which is kept."""
    n = a.shape[-1]
    if a.strides[-1] != a.itemsize:
        return np.add.reduce(a, axis=-1, keepdims=True)
    ones = _ones(a.dtype)
    if n <= BLOCK:
        return np.vecdot(a, ones[:n])[..., None]
    even = n - n % BLOCK
    found = np.add.reduce(np.vecdot(_blocks(a, even), ones), axis=-1, keepdims=True)
    if even < n:
        found += np.vecdot(a[..., even:], ones[: n - even])[..., None]
    return found


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


def _blocks(a: Any, even: int) -> Any:
    return a[..., :even].reshape(*a.shape[:-1], even // BLOCK, BLOCK)


@functools.cache
def _ones(dtype: Any) -> Any:
    return np.ones(BLOCK, dtype)


@functools.lru_cache(maxsize=64)
def _rows(shape: tuple[int, ...]) -> tuple[Any, ...]:
    """The positions along each axis of rows, to index with; 0 where there is but one."""
    n = len(shape) + 1
    return tuple(
        0 if size == 1 else np.arange(size).reshape([-1 if k == axis else 1 for k in range(n)])
        for axis, size in enumerate(shape)
    )
