"""What scipy.stats wraps around its statistics of samples: axes, missing values, dims kept.

    stats.levene(x, y, axis=None)      # the function itself knows the last axis alone

The wrapper of scipy's (`_axis_nan_policy_factory`) puts the samples in order by numpy's C code, so
traced samples are put in order here, by what the wrapper was made with. The trace holds where
there are missing values, or none, as there were.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradof.tracer.numpy.functions import as_array

Function = Callable[..., Any]


def policy_of(function: Any) -> dict[str, Any] | None:
    """What the wrapper around a function was made with; None where there is none."""
    while function is not None:
        code = getattr(function, "__code__", None)
        if code is not None and code.co_name == "axis_nan_policy_wrapper":
            cells = [cell.cell_contents for cell in function.__closure__]
            return dict(zip(code.co_freevars, cells, strict=True))
        function = getattr(function, "__wrapped__", None)
    return None


def through_policy(
    policy: dict[str, Any], function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """`function(*args, **kwargs)` as the wrapper would call it.

    Raises TypeError for missing values that are to be left out, and ValueError where they are to
    be an error.
    """
    samples, names, rest = _samples_of(policy, function, args, dict(kwargs))
    axis = rest.pop("axis", policy["default_axis"])
    keeps, missing = rest.pop("keepdims", False), rest.pop("nan_policy", "propagate")
    samples, reduced = _in_rows(samples, axis, policy["paired"])
    n_outputs = policy["n_outputs"]
    n_out = n_outputs({**rest, **dict(zip(names, samples, strict=True))}) if callable(
        n_outputs) else n_outputs  # fmt: skip
    rows = max((s.ndim for s in samples), default=1) > 1

    as_tuple = policy["result_to_tuple"]
    # older versions of scipy hand over the result alone
    asks = len(inspect.signature(as_tuple).parameters) > 1

    def statistics(each: Sequence[Any], **named: Any) -> tuple[Any, ...]:
        given = dict(zip(names, each, strict=True))
        placed = [given.pop(n) for n in names if n[0] == "*"]
        found = function(*placed, **given, **rest, **named)
        return tuple(as_tuple(found, n_out) if asks else as_tuple(found))

    empty = _missing_in(samples, missing)
    if empty is not None and policy["override"]["nan_propagation"]:
        # the statistics of these rows are nan, whatever scipy's code says to missing values
        samples = [np.where(np.isnan(s), 0.0, s) if s.dtype.kind == "f" else s for s in samples]
    if policy["is_too_small"](samples, rest):
        shape = np.broadcast_shapes(*(s.shape[:-1] for s in samples))
        results: Sequence[Any] = [np.full(shape, np.nan)] * n_out
    elif not rows:
        results = statistics(samples)
    elif "axis" in inspect.signature(function).parameters and not policy["override"][
        "vectorization"
    ]:
        results = statistics(samples, axis=-1)
    else:
        results = _row_by_row(statistics, samples)
    if empty is not None and policy["override"]["nan_propagation"]:
        results = [np.where(empty, np.nan, y) for y in results]
    if keeps:
        results = [y if isinstance(y, int) else np.expand_dims(y, reduced) for y in results]
    return policy["tuple_to_result"](*results)


def _samples_of(
    policy: dict[str, Any], function: Function, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[list[Any], list[str], dict[str, Any]]:
    """The samples, the names of their parameters (those of `*samples` begin so), and the rest."""
    params = list(inspect.signature(function).parameters)
    n_samples = policy["n_samples"]
    if n_samples is None:
        params = [*(f"*{i}" for i in range(len(args))), *params[1:]]
    kwargs.update(zip(params, args, strict=False))
    if callable(n_samples):
        n_samples = n_samples(kwargs)
    count = len(args) if n_samples is None else n_samples
    names = [*params[:count], *(n for n in policy["kwd_samples"] if kwargs.get(n) is not None)]
    missing = [n for n in names if n not in kwargs]
    if missing:
        raise TypeError(f"missing a required argument: {missing[0]!r}")
    return [np.atleast_1d(as_array(kwargs.pop(n))) for n in names], names, kwargs


def _in_rows(samples: list[Any], axis: Any, paired: bool) -> tuple[list[Any], tuple[int, ...]]:
    """Samples whose last dim is the only one to be reduced, and the dims it is made of."""
    rank = max((s.ndim for s in samples), default=0)
    if axis is None:
        return [np.ravel(s) for s in samples], tuple(range(rank))
    dims = tuple(int(d) % rank if -rank <= d < rank else int(d) for d in np.atleast_1d(axis))
    shapes = np.ones((len(samples), rank), dtype=int)
    for row, s in zip(shapes, samples, strict=True):
        row[rank - s.ndim :] = s.shape
    common = np.broadcast_shapes(*(
        tuple(1 if d in dims and not paired else n for d, n in enumerate(row.tolist()))
        for row in shapes
    ))  # fmt: skip
    rows = []
    for row, s in zip(shapes.tolist(), samples, strict=True):
        shape = [n if d in dims and not paired else common[d] for d, n in enumerate(row)]
        moved = np.moveaxis(np.broadcast_to(s, shape), dims, range(-len(dims), 0))
        lead = moved.shape[: rank - len(dims)]
        rows.append(np.reshape(moved, (*lead, math.prod(moved.shape[rank - len(dims) :]))))
    return rows, dims


def _missing_in(samples: list[Any], policy: str) -> Any:
    """Which rows have missing values; None where no row has, as in all calls of the trace."""
    holes = [np.any(np.isnan(s), axis=-1) for s in samples if s.dtype.kind in "fc"]
    rows: Any = holes[0] if holes else np.array(False)
    for more in holes[1:]:
        rows = rows | more
    if not np.any(rows):
        return None
    if policy == "raise":
        raise ValueError("The input contains nan values")
    if policy == "omit":
        raise TypeError("argument nan_policy='omit' of samples with missing values")
    return rows


def _row_by_row(statistics: Function, samples: list[Any]) -> list[Any]:
    """Of a function that takes one row of each sample."""
    shape = np.broadcast_shapes(*(s.shape[:-1] for s in samples))
    rows = [np.reshape(np.broadcast_to(s, (*shape, s.shape[-1])), (-1, s.shape[-1]))
            for s in samples]  # fmt: skip
    each = [statistics([r[i] for r in rows]) for i in range(math.prod(shape))]
    found = (np.stack([as_array(y) for y in ys]) for ys in zip(*each, strict=True))
    return [np.reshape(y, shape) for y in found]
