"""Where the elements of a plain array are in another's memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradof.errors import TraceError
from gradof.ir.core import Loc

_MOST_WORK: Any = 10_000  # candidates that numpy tries; beyond, bounds that overlap count as shared


def check_apart(arrays: Sequence[Any], i: int, name: str, loc: Loc | None) -> None:
    """TraceError where array `i`, which is changed in place, has memory that is another's, too.

    A graph has values, no memory: its elements would not change with those that they share it with.
    """
    array = arrays[i]
    if _overlaps_itself(array):
        raise TraceError(
            f"%{name} is changed in place, and some of its elements share memory", loc=loc,
            hint="pass a copy of it",
        )  # fmt: skip
    if any(j != i and _share(array, other) for j, other in enumerate(arrays)):
        raise TraceError(
            f"%{name} is changed in place, and shares memory with another input", loc=loc,
            hint="pass a copy of one of them",
        )


def _overlaps_itself(array: NDArray[Any]) -> bool:
    if array.flags.c_contiguous or array.flags.f_contiguous:
        return False
    extent = array.itemsize
    for stride, n in sorted((abs(s), n) for s, n in zip(array.strides, array.shape, strict=True)):
        if n == 1:
            continue
        if stride < extent:  # it may: all offsets tell
            offsets = _byte_offsets(array).reshape(-1)
            return np.unique(offsets).size != offsets.size
        extent = stride * (n - 1) + extent
    return False


def _share(array: NDArray[Any], other: Any) -> bool:
    if not isinstance(other, np.ndarray) or not np.may_share_memory(array, other):
        return False
    try:
        return np.shares_memory(array, other, max_work=_MOST_WORK)
    except np.exceptions.TooHardError:
        return True


def _byte_offsets(array: NDArray[Any]) -> NDArray[Any]:
    """Where each element is, in bytes from the first."""
    offsets = np.zeros((), np.int64)
    for size, stride in zip(array.shape, array.strides, strict=True):
        offsets = offsets[..., None] + np.arange(size) * stride
    return offsets


def places_in(owner: NDArray[Any], view: NDArray[Any]) -> NDArray[Any] | None:
    """The flat positions in `owner` of the elements of `view`; None if it has others."""
    if owner.dtype != view.dtype or not np.may_share_memory(owner, view):
        return None
    begin = view.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
    mine = _byte_offsets(owner).reshape(-1)
    order = np.argsort(mine, kind="stable")
    wanted = _byte_offsets(view) + begin
    found = np.searchsorted(mine, wanted, sorter=order)
    places: NDArray[Any] = order[np.minimum(found, mine.size - 1)]
    return places if (mine[places] == wanted).all() else None
