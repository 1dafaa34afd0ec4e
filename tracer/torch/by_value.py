"""Ops that Python or shapes depend on by value, as programs of torch over ops that are recorded.

Each reads the numbers it depends on with `int(...)` or `bool(...)`, which the recorder guards: the
trace holds for calls with the same numbers. Shapes depend on counts only, so a mask that selects
as many elements elsewhere takes the same path.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from gradof.tracer.torch.programs import Programs

Tensor = torch.Tensor
BY_VALUE = Programs()
_ATEN = torch.ops.aten
_UNIQUE = frozenset({_ATEN.unique_consecutive.default, _ATEN._unique2.default})
_MASKS = (torch.bool, torch.uint8)


def reads_values(func: Any, args: Sequence[Any]) -> bool:
    """Whether the op has a program here, and these arguments need it."""
    if func not in BY_VALUE:
        return False
    if func is _ATEN.index.Tensor or func is _ATEN.index_put.default:
        masks = any(i is not None and i.dtype in _MASKS for i in args[1])
        alone = sum(i is not None for i in args[1]) == 1
        one = func is not _ATEN.index.Tensor and args[2].numel() == 1 and alone
        return masks and not one  # one value is selected by the mask itself, and no shape read
    if func is _ATEN.bincount.default:
        return _may_be_counted(*args)
    if func in _UNIQUE:  # eager has no gradient for floats, and rows are compared as a whole
        along = args[3] if func is _ATEN.unique_consecutive.default and len(args) > 3 else None
        return not args[0].is_floating_point() and (along is None or args[0].dim() == 1)
    return True


@BY_VALUE.of(_ATEN.equal.default)
def _equal(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool((a == b).all())


@BY_VALUE.of(_ATEN.allclose.default)
def _allclose(
    a: Tensor, b: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    return bool(torch.isclose(a, b, rtol, atol, equal_nan).all())


@BY_VALUE.of(_ATEN.nonzero.default)
def _nonzero(x: Tensor) -> Tensor:
    flat = (x != 0).reshape(-1)
    places = _true_places(flat)
    if x.dim() == 0:
        return places.new_zeros((places.shape[0], 0))
    columns = []
    for size in reversed(x.shape):
        columns.append(places % max(size, 1))
        places = places // max(size, 1)
    return torch.stack(columns[::-1]).t()  # in columns, as torch has it


def _true_places(flat: Tensor) -> Tensor:
    """Where a flat mask is true, in order: a stable sort puts these places first."""
    count = int(flat.sum())
    return torch.argsort(flat.logical_not().to(torch.int64), stable=True)[:count]


@BY_VALUE.of(_ATEN.masked_select.default)
def _masked_select(x: Tensor, mask: Tensor) -> Tensor:
    x, mask = torch.broadcast_tensors(x, mask)  # type: ignore[no-untyped-call]
    return x.reshape(-1).index_select(0, _true_places(mask.reshape(-1)))


@BY_VALUE.of(_ATEN.index.Tensor)
def _index(x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    result: Tensor = _ATEN.index.Tensor(x, _without_masks(x, indices))
    return result


@BY_VALUE.of(_ATEN.index_put.default)
def _index_put(
    x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    result: Tensor = _ATEN.index_put.default(x, _without_masks(x, indices), values, accumulate)
    return result


def _without_masks(x: Tensor, indices: Sequence[Tensor | None]) -> list[Tensor | None]:
    """The index with masks as the places they select, of which there are as many."""
    plain: list[Tensor | None] = []
    for index in indices:
        if index is not None and index.dtype in _MASKS:
            if tuple(index.shape) != tuple(x.shape[len(plain) : len(plain) + index.dim()]):
                raise IndexError(
                    f"The shape of the mask {list(index.shape)} at index 0 does not match the "
                    f"shape of the indexed tensor {list(x.shape)} at index {len(plain)}"
                )
            plain += _nonzero(index).unbind(1)
        else:
            plain.append(index)
    return plain


@BY_VALUE.of(_ATEN.repeat_interleave.Tensor)
def _repeat_interleave(repeats: Tensor, *, output_size: int | None = None) -> Tensor:
    ends = repeats.cumsum(0)
    count = int(ends[-1]) if len(repeats) else 0
    hits = torch.zeros(count + 1, dtype=torch.int64, device=repeats.device)
    # how many ends there are at or before each place
    return hits.scatter_add(0, ends.to(torch.int64), torch.ones_like(hits[:1]).expand(len(ends)))\
        .cumsum(0)[:count]  # fmt: skip


@BY_VALUE.of(_ATEN.unique_consecutive.default)
def _unique_consecutive(
    x: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    flat = x.reshape(-1)
    first = torch.cat([torch.ones_like(flat[:1], dtype=torch.bool), flat[1:] != flat[:-1]])
    places = _true_places(first)
    none = places[:0]
    inverse = (first.cumsum(0) - 1).reshape(x.shape) if return_inverse else none
    ends = torch.cat([places[1:], torch.full_like(places[:1], flat.shape[0])])
    return flat.index_select(0, places), inverse, ends - places if return_counts else none


@BY_VALUE.of(_ATEN._unique2.default)
def _unique(
    x: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    flat, order = torch.sort(x.reshape(-1), stable=True)
    values, inverse, counts = _unique_consecutive(flat, return_inverse, return_counts)
    if return_inverse:
        inverse = torch.zeros_like(order).scatter(0, order, inverse).reshape(x.shape)
    return values, inverse, counts


def _may_be_counted(x: Tensor, weights: Tensor | None = None, minlength: int = 0) -> bool:
    """Whether eager counts these; its error is left to an eager run."""
    whole = not x.is_floating_point() and x.dtype is not torch.bool
    fits = weights is None or weights.shape == x.shape
    return x.dim() == 1 and whole and fits and minlength >= 0


@BY_VALUE.of(_ATEN.bincount.default)
def _bincount(x: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    if bool((x < 0).any()):
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    size = minlength
    if len(x) and not bool((x < minlength).all()):  # else the length does not depend on values
        size = int(x.max()) + 1
    dtype = torch.int64
    if weights is not None:
        dtype = torch.float32 if weights.dtype is torch.float32 else torch.float64
    added = torch.ones_like(x, dtype=dtype) if weights is None else weights.to(dtype)
    counts = torch.zeros(size, dtype=dtype, device=x.device)
    return counts.scatter_add(0, x.to(torch.int64), added)
