"""Where the elements of a plain array are in another's memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


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
