"""The types of numpy's results without their elements, for calls that wait (`deferred`).

    results_of(np.add, (x, 2.0), {})      # an empty array as np.add(x, 2.0) would be

Note [Layout of what waits]
Shapes are computed here, and strides, on which it depends what is a view: numpy's iterator
allocates the result of an elementwise op as the ufunc would. Dtypes are those of the same call of
arrays whose axes have one element each. A call that is wrong has no results here: it is made for
real, and numpy says so. So is one that may raise for the elements of its operands.

Functions that only move elements (`MOVERS`) need no rule: they run on whatever the memory has, and
again when their result is read.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Results = tuple[list[Array], bool, bool]  # empty arrays, whether numpy's scalars, whether a tuple
Rule = Callable[..., "Results | None"]

# Functions that ask their arguments for types only.
TYPES_ONLY = frozenset({
    np.shape, np.ndim, np.size, np.result_type, np.iscomplexobj, np.isrealobj, np.can_cast,
    np.common_type, np.diag_indices_from, np.tril_indices_from, np.triu_indices_from,
    np.zeros_like, np.ones_like, np.empty_like,
})  # fmt: skip
# Functions whose result has the elements of their first argument, in places told by the others.
MOVERS = frozenset({
    operator.getitem, np.reshape, np.ravel, np.transpose, np.matrix_transpose, np.swapaxes,
    np.linalg.matrix_transpose, np.moveaxis, np.rollaxis, np.squeeze, np.expand_dims, np.flip,
    np.fliplr, np.flipud, np.rot90, np.broadcast_to, np.diagonal, np.linalg.diagonal, np.atleast_1d,
    np.atleast_2d, np.atleast_3d, np.real, np.imag, np.concatenate, np.stack, np.vstack, np.hstack,
    np.take, np.repeat, np.tile, np.roll, np.tril, np.triu, np.diag,
    np.lib.stride_tricks.sliding_window_view,
})  # fmt: skip


def results_of(
    function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> Results | None:
    """Results without elements; None for what cannot wait."""
    rule = _RULES.get(function) or (_elementwise if _is_library_ufunc(function) else None)
    arrays = [a for a in args if isinstance(a, np.ndarray)]
    if rule is None or any(type(a) not in (np.ndarray, np.memmap) for a in arrays):
        return None
    if any(a.dtype.kind not in "biufc" or not a.size for a in arrays):  # a maximum of none raises
        return None
    try:
        return rule(function, *args, **kwargs)
    except (ValueError, TypeError, OverflowError, IndexError):
        return None  # numpy itself says what is wrong, or the rule lacks an argument


def _is_library_ufunc(function: Any) -> bool:
    """A ufunc by element of numpy or scipy.special: others may call Python, or raise."""
    if not isinstance(function, np.ufunc) or function.signature is not None:
        return False
    return any(getattr(sys.modules.get(library), function.__name__, None) is function
               for library in ("numpy", "scipy.special"))  # fmt: skip


def _tiny(value: Any) -> Any:
    return np.ones((1,) * value.ndim, value.dtype) if isinstance(value, np.ndarray) else value


def _of_tiny(
    function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[list[Any], bool, bool]:
    """Dtypes, whether results are numpy's scalars, and whether they are a tuple."""
    with np.errstate(all="ignore"):
        like = function(*map(_tiny, args), **kwargs)
    kinds = list(like) if isinstance(like, tuple) else [like]
    return [k.dtype for k in kinds], isinstance(kinds[0], np.generic), isinstance(like, tuple)


def _elementwise(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Results | None:
    if not all(isinstance(a, (np.ndarray, *_NUMBERS)) for a in args):
        return None  # a list, which numpy makes an array of
    if not all(isinstance(a, _NUMBERS) for a in kwargs.values()):
        return None
    dtypes, is_scalar, is_tuple = _of_tiny(function, args, kwargs)
    if function is np.power and dtypes[0].kind in "iu":
        return None  # a negative exponent is an error
    arrays = [a for a in args if isinstance(a, np.ndarray)]
    iterate: Any = np.nditer  # its stub knows no operands that are to be allocated
    iterator = iterate(
        [*arrays, *[None] * len(dtypes)],
        op_flags=[*[["readonly"]] * len(arrays), *[["writeonly", "allocate"]] * len(dtypes)],
        op_dtypes=[*[None] * len(arrays), *dtypes],
    )
    return list(iterator.operands[len(arrays) :]), is_scalar, is_tuple


_NUMBERS = (np.generic, bool, int, float, complex, type(None))


def _chosen(function: Callable[..., Any], mask: Any, a: Any, b: Any) -> Results | None:
    return _elementwise(function, mask, a, b)


def _reduced(
    function: Callable[..., Any], a: Array, axis: Any = None, *, keepdims: bool = False,
    dtype: Any = None,
) -> Results | None:  # fmt: skip
    if not isinstance(a, np.ndarray) or isinstance(axis, np.ndarray):
        return None
    told = {"axis": axis, "keepdims": keepdims} | ({} if dtype is None else {"dtype": dtype})
    dtypes, is_scalar, _ = _of_tiny(function, (a,), told)
    given = range(a.ndim) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    gone = {d % max(a.ndim, 1) for d in map(operator.index, given)}
    shape = [1 if d in gone else n for d, n in enumerate(a.shape) if keepdims or d not in gone]
    if len(shape) > 1 and not a.flags.c_contiguous:
        return None  # the order of its axes in memory follows from the operand's
    return [np.empty(shape, dtypes[0])], is_scalar, False


def _product(function: Callable[..., Any], a: Any, b: Any) -> Results | None:
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        return None
    if min(a.ndim, b.ndim) < 1 or (function is np.dot and max(a.ndim, b.ndim) > 2):
        return None
    lead = a.shape[:-2] if a.ndim > 2 else b.shape[:-2] if b.ndim > 2 else ()
    if a.shape[-1] != b.shape[max(b.ndim - 2, 0)] or any(
        x.ndim > 2 and x.shape[:-2] != lead for x in (a, b)
    ):
        return None
    dtypes, is_scalar, _ = _of_tiny(function, (a, b), {})
    shape = (*lead, *a.shape[-2:-1], *(b.shape[-1:] if b.ndim > 1 else ()))
    return [np.empty(shape, dtypes[0])], is_scalar, False


def _copy(function: Callable[..., Any], a: Array) -> Results | None:
    return ([np.empty_like(a)], False, False) if isinstance(a, np.ndarray) else None


def _padded(
    function: Callable[..., Any], a: Array, pad_width: Any, mode: str = "constant", *,
    constant_values: float = 0,
) -> Results | None:  # fmt: skip
    if mode != "constant" or a.dtype.kind not in "fc" or not math.isfinite(constant_values):
        return None
    widths = np.broadcast_to(np.asarray(pad_width), (a.ndim, 2))
    if widths.dtype.kind not in "iu" or (widths < 0).any():
        return None
    shape = [n + int(w.sum()) for n, w in zip(a.shape, widths, strict=True)]
    return [np.empty(shape, a.dtype, "F" if a.flags.fnc else "C")], False, False


_REDUCTIONS = (
    np.sum, np.prod, np.mean, np.var, np.std, np.max, np.amax, np.min, np.amin, np.any, np.all,
)  # fmt: skip
_RULES: dict[Any, Rule] = {
    **dict.fromkeys(_REDUCTIONS, _reduced),
    np.clip: _elementwise,
    np.where: _chosen,
    **dict.fromkeys((np.matmul, np.dot), _product),
    np.copy: _copy,
    np.pad: _padded,
}
