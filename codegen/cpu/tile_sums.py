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
>>> folded(np.add, x)
array([[3., 5., 7.]], dtype=float32)

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
NARROW = 32  # columns: it pays to lay them out as rows first
WIDE = 1024  # cells
_FEW = 8  # columns, too few for a call of BLAS


def dot(a: Any, b: Any) -> Any:
    """The sum of a * b over the last axis, which is kept; both vary along it."""
    n = a.shape[-1]
    if n <= _FEW or a.strides[-1] != a.itemsize or b.strides[-1] != b.itemsize:
        return along(np.add, np.multiply(a, b))
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
    if n <= _FEW or a.strides[-1] != a.itemsize:
        return along(np.add, a)
    ones = _ones(a.dtype)
    if n <= BLOCK:
        return np.vecdot(a, ones[:n])[..., None]
    even = n - n % BLOCK
    found = np.add.reduce(np.vecdot(_blocks(a, even), ones), axis=-1, keepdims=True)
    if even < n:
        found += np.vecdot(a[..., even:], ones[: n - even])[..., None]
    return found


def along(ufunc: Any, a: Any) -> Any:
    """`ufunc.reduce` over the last axis, which is kept."""
    if a.ndim == 2 and a.shape[1] <= NARROW < a.shape[0]:  # numpy's loops would be of a few cells
        return ufunc.reduce(np.ascontiguousarray(a.T), axis=0)[:, None]
    return ufunc.reduce(a, axis=-1, keepdims=True)


def folded(ufunc: Any, a: Any) -> Any:
    """`ufunc.reduce` over the rows, of which one is kept; in few and long loops."""
    n, columns = a.shape
    together = WIDE // max(1, columns)
    even = n - n % max(1, together)
    if together < 2 or not even or not a.flags.c_contiguous:
        return ufunc.reduce(a, axis=0, keepdims=True)
    wide = a[:even].reshape(even // together, together * columns)
    found = ufunc.reduce(ufunc.reduce(wide, axis=0).reshape(together, columns), axis=0)[None]
    return found if even == n else ufunc(found, ufunc.reduce(a[even:], axis=0, keepdims=True))


def _blocks(a: Any, even: int) -> Any:
    return a[..., :even].reshape(*a.shape[:-1], even // BLOCK, BLOCK)


@functools.cache
def _ones(dtype: Any) -> Any:
    return np.ones(BLOCK, dtype)
