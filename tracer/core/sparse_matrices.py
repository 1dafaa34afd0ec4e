"""Sparse matrices of scipy's among arguments and results: containers of their elements.

    f(S, x)      leaves: S.data, x;   structure: the places of the elements, format and shape

The elements are an input like any array, the places are constants of the trace: another matrix with
the same places is no other trace. A gradient with respect to a matrix is a matrix of these places.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from gradof.ir.contents import checksum

_PLACES = {
    "csr": ("indices", "indptr"), "csc": ("indices", "indptr"), "bsr": ("indices", "indptr"),
    "coo": ("row", "col"), "dia": ("offsets",),
}  # fmt: skip


@dataclass(eq=False)
class Places:
    """Where the elements of a matrix are: equal by what the arrays hold."""

    kind: str
    shape: tuple[int, ...]
    arrays: tuple[Any, ...]

    def __post_init__(self) -> None:
        self._check = tuple(map(checksum, self.arrays))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Places):
            return NotImplemented
        return (self.kind, self.shape, self._check) == (other.kind, other.shape, other._check)

    def __hash__(self) -> int:
        return hash((self.kind, self.shape, self._check))


@dataclass(frozen=True)
class Node:
    """How a class is taken apart and put together, as torch's registry has it."""

    flatten_fn: Callable[[Any], tuple[list[Any], Any]]
    unflatten_fn: Callable[[Any, Any], Any]


@lru_cache(maxsize=256)
def sparse_node(cls: type) -> Node | None:
    """The node of one of scipy's sparse classes of two axes; None for every other class."""
    sparse = sys.modules.get("scipy.sparse")
    if sparse is None or not str(cls.__module__).startswith("scipy.sparse"):
        return None
    if not issubclass(cls, (sparse.spmatrix, sparse.sparray)):
        return None
    own = cls.__mro__[1] if hasattr(cls, "with_arrays") else cls
    return Node(_taken_apart, lambda parts, places: _made(own, parts[0], places))


def class_of(value: Any) -> type:
    """The class of a value; of a sparse matrix with traced elements scipy's, as it was given."""
    cls = type(value)
    if not hasattr(cls, "with_arrays"):
        return cls
    given = value.__dict__.get("gradof_given")
    found: type = cls.__mro__[1] if given is None else given[0]
    return found


def _taken_apart(matrix: Any) -> tuple[list[Any], Places]:
    given = matrix.__dict__.get("gradof_given")
    if given is not None:  # made of arguments: as it was given
        return [given[1]], given[2]
    if hasattr(type(matrix), "with_arrays"):
        kind, rows = "rows", matrix.asformat("csr")
    else:
        kind, rows = matrix.format, matrix
        if kind not in _PLACES or len(matrix.shape) != 2:
            kind, rows = "rows", matrix.tocsr()  # lil, dok
    names = _PLACES["csr" if kind == "rows" else kind]
    arrays = tuple(np.asarray(getattr(rows, name)) for name in names)
    return [rows.data], Places(kind, tuple(map(int, matrix.shape)), arrays)


def _made(cls: Any, data: Any, places: Places) -> Any:
    if data is None:  # no gradient
        return None
    kind, arrays = places.kind, places.arrays
    if not isinstance(data, np.ndarray):  # a leaf of another kind, such as a type or a name
        return data
    sparse: Any = sys.modules["scipy.sparse"]
    if kind == "rows":
        rows = sparse.csr_array if issubclass(cls, sparse.sparray) else sparse.csr_matrix
        made = rows((data, *arrays), shape=places.shape)
        made = made.asformat(cls._format) if type(data) is np.ndarray else made
    elif kind == "coo":
        made = cls((data, arrays), shape=places.shape)
    elif kind in ("bsr", "dia"):
        made = _spread(cls, data, places)
    else:
        made = cls((data, *arrays), shape=places.shape)
    if hasattr(type(made), "with_arrays"):
        made.gradof_given = cls, data, places
    return made


def _spread(cls: Any, data: Any, places: Places) -> Any:
    """A matrix of blocks or diagonals: with traced elements, of these one by one."""
    if type(data) is np.ndarray:
        return cls((data, *places.arrays), shape=places.shape)
    sparse: Any = sys.modules["scipy.sparse"]
    numbers = np.arange(1, data.size + 1, dtype=np.int64).reshape(data.shape)
    base = sparse.dia_array if places.kind == "dia" else sparse.bsr_array
    spread = base((numbers, *places.arrays), shape=places.shape).tocoo()
    there = spread.data != 0
    row, column, at = spread.row[there], spread.col[there], spread.data[there] - 1
    like = sparse.coo_array if issubclass(cls, sparse.sparray) else sparse.coo_matrix
    return like((np.reshape(data, -1)[at], (row, column)), shape=places.shape)
