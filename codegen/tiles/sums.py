"""What emitted tiles call for sums and other reductions.

>>> x = np.arange(6, dtype=np.float32).reshape(2, 3)
>>> dot(x, x)
array([[ 5.],
       [50.]], dtype=float32)
>>> total(x)
array([[ 3.],
       [12.]], dtype=float32)
>>> along(np.maximum, x)
array([[2.],
       [5.]], dtype=float32)
>>> folded(np.add, x, (0,), rows=1)
array([[0., 1., 2.],
       [3., 4., 5.]], dtype=float32)
>>> folded(np.add, x, (0,), rows=2)
array([[3., 5., 7.]], dtype=float32)

Note [Sums by BLAS]
`np.vecdot` is BLAS's dot product of each row: it reads two arrays once, where a product and its sum
are two calls and an array in between, and it is faster than `np.add.reduce` for a plain sum, too.
Two things need care. BLAS may start threads of its own for long vectors (OpenBLAS: over 10 000),
inside our threads and with results that depend on their number; and it adds in a few dozen running
sums, whose error grows with the length. So rows are cut into blocks of `SUM_COLUMNS`, whose sums
numpy adds in pairs. They are short, because numpy keeps Python's lock during a call of BLAS for 500
rows or less, however long they are: a tile of 2^17 cells has more blocks than that. Where columns
are not next to one another, numpy would not call BLAS but add one by one; then the product is
computed after all.

Note [Sums of tiles]
How large tiles are follows from how much their kernel computes. What they add up is to be the same
bits in every kernel, so a tile gives a partial result for each block: `SUM_COLUMNS` columns where
these are cut, `block_rows` rows of cells that are folded, one row where row values are. Tiles begin
and end with blocks, and the partial results of all tiles are added at once. Only the gradient of a
layer norm's weight is summed by torch, tile by tile (`tiles/rows`): by calls for blocks the kernel
would take 1.6 times as long. How large such tiles are follows from their sizes alone.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from gradof import tuning


def block_rows(cells: int) -> int:
    """The rows of a block, of so many cells each; numpy adds them one after the other."""
    return max(1, min(tuning.SUM_CELLS // max(1, cells), tuning.SUM_ROWS))


def dot(a: Any, b: Any) -> Any:
    """The sum of a * b over the last axis, which is kept; both vary along it."""
    n = a.shape[-1]
    if n > tuning.SUM_COLUMNS:
        return along(np.add, dot_blocks(a, b))
    if n <= tuning.SUM_FEW or not _adjacent(a, b):
        return along(np.add, np.multiply(a, b))
    return np.vecdot(a, b)[..., None]


def dot_blocks(a: Any, b: Any) -> Any:
    """The sum of a * b in each block of the last axis."""
    if not _adjacent(a, b):
        return along_blocks(np.add, np.multiply(a, b))
    n = a.shape[-1]
    even = n - n % tuning.SUM_COLUMNS
    if even == n:
        return np.vecdot(_blocks(a, n), _blocks(b, n))
    last = np.vecdot(a[..., even:], b[..., even:])[..., None]
    if not even:
        return last
    return np.concatenate([np.vecdot(_blocks(a, even), _blocks(b, even)), last], axis=-1)


def total(a: Any) -> Any:
    """The sum over the last axis, which is kept."""
    n = a.shape[-1]
    if n > tuning.SUM_COLUMNS:
        return along(np.add, total_blocks(a))
    if n <= tuning.SUM_FEW or not _adjacent(a):
        return along(np.add, a)
    return np.vecdot(a, _ones(a.dtype, tuning.SUM_COLUMNS)[:n])[..., None]


def total_blocks(a: Any) -> Any:
    """The sum of each block of the last axis."""
    if not _adjacent(a):
        return along_blocks(np.add, a)
    n, ones = a.shape[-1], _ones(a.dtype, tuning.SUM_COLUMNS)
    even = n - n % tuning.SUM_COLUMNS
    if even == n:
        return np.vecdot(_blocks(a, n), ones)
    last = np.vecdot(a[..., even:], ones[: n - even])[..., None]
    if not even:
        return last
    return np.concatenate([np.vecdot(_blocks(a, even), ones), last], axis=-1)


def along(ufunc: Any, a: Any) -> Any:
    """`ufunc.reduce` over the last axis, which is kept."""
    if a.ndim == 2 and a.shape[1] <= tuning.SUM_NARROW:  # numpy's loops would be of a few cells
        return ufunc.reduce(a.T.copy(), axis=0)[:, None]
    return ufunc.reduce(a, axis=-1, keepdims=True)


def along_blocks(ufunc: Any, a: Any, dtype: Any = None) -> Any:
    """`ufunc.reduce` over each block of the last axis."""
    n = a.shape[-1]
    parts = [ufunc.reduce(a[..., k : k + tuning.SUM_COLUMNS], axis=-1, keepdims=True, dtype=dtype)
             for k in range(0, n, tuning.SUM_COLUMNS)]  # fmt: skip
    return np.concatenate(parts, axis=-1)


def folded(ufunc: Any, a: Any, axes: tuple[int, ...], rows: int) -> Any:
    """`ufunc.reduce` over the rows of each block: over `axes`, and so many of the first."""
    even = len(a) - len(a) % rows
    parts = []
    if even:
        parts.append(_folded(ufunc, a[:even].reshape(even // rows, rows, *a.shape[1:]), axes))
    if even < len(a):
        parts.append(_folded(ufunc, a[even:][None], axes))
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=0)


def _folded(ufunc: Any, a: Any, axes: tuple[int, ...]) -> Any:
    """`ufunc.reduce` over the rows, of which one is kept, in few and long loops; blocks first."""
    if a.ndim != 3:
        return ufunc.reduce(a, axis=tuple(k + 1 for k in axes), keepdims=True)[:, 0]
    blocks, n, columns = a.shape
    together = tuning.SUM_WIDE // max(1, columns)
    even = n - n % max(1, together)
    if together < 2 or not even or not a.flags.c_contiguous:
        return ufunc.reduce(a, axis=1)
    wide = a[:, :even].reshape(blocks, even // together, together * columns)
    found = ufunc.reduce(ufunc.reduce(wide, axis=1).reshape(blocks, together, columns), axis=1)
    return found if even == n else ufunc(found, ufunc.reduce(a[:, even:], axis=1))


def _adjacent(a: Any, b: Any = None) -> bool:
    """Whether columns are next to one another."""
    return a.strides[-1] == a.itemsize and (b is None or b.strides[-1] == b.itemsize)


def _blocks(a: Any, even: int) -> Any:
    *rows, n = a.shape
    cut = a if even == n else a[..., :even]
    return cut.reshape(*rows, even // tuning.SUM_COLUMNS, tuning.SUM_COLUMNS)


@functools.cache
def _ones(dtype: Any, n: int) -> Any:
    return np.ones(n, dtype)
