"""scipy.optimize: linear programs, least squares with bounds, assignments, monotone regression.

    linprog(c, A_ub, b_ub).fun            # dc: the optimum; db: the multipliers
    nnls(A, b)[0]                         # of the numbers that are not zero
    linear_sum_assignment(cost)           # two arrays of whole numbers: cost[rows, columns].sum()

What is whole is constant near the arguments, and found anew at each call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.tracer.numpy.black_box import call as call_black_box
from gradof.tracer.numpy.floats import as_float
from gradof.tracer.numpy.functions import as_array
from gradof.tracer.scipy.calls import holds_traced, scipy_function
from gradof.tracer.scipy.constraints import held_to
from gradof.tracer.scipy.found import counts_of, result_of
from gradof.tracer.scipy.implicit import Problem, constant, optimum, traced
from gradof.tracer.scipy.in_c import scipy_in_c
from gradof.tracer.scipy.least_squares import pairs

Function = Callable[..., Any]
_O = "scipy.optimize"

# --- linear programs ------------------------------------------------------------------------------


def _turned(jacobian: Any) -> Any:
    """At a vertex where more constraints meet than there are numbers, the least change."""
    return np.linalg.pinv(jacobian, rcond=1e-9)


def _rows(given: Any) -> Problem:
    c = as_array(given["c"])
    equal, above = held_to(given["bounds"], None, c.size)
    return Problem(
        lambda x: c @ x, None,
        _and(equal, given, "A_eq", "b_eq", lambda a, b: lambda x: a @ x - b),
        _and(above, given, "A_ub", "b_ub", lambda a, b: lambda x: b - a @ x),
    )  # fmt: skip


def _and(function: Function | None, given: Any, rows: str, ends: str, made: Function) -> Any:
    if given.get(rows) is None:
        return function
    a = given[rows]
    more = made(a if hasattr(a, "tocsr") else np.atleast_2d(as_array(a)),
                np.atleast_1d(as_array(given[ends]) * 1.0))  # fmt: skip
    return more if function is None else lambda x: np.concatenate([more(x), function(x)])


@scipy_function(f"{_O}.linprog", raw=True)
def _linprog(
    original: Any, c: Any, A_ub: Any = None, b_ub: Any = None, A_eq: Any = None, b_eq: Any = None,
    bounds: Any = (0, None), method: Any = "highs", callback: Any = None, options: Any = None,
    x0: Any = None, integrality: Any = None,
) -> Any:  # fmt: skip
    given = {"c": c, "A_ub": A_ub, "b_ub": b_ub, "A_eq": A_eq, "b_eq": b_eq, "bounds": bounds}
    if not traced(given):
        return original(*given.values(), method, callback, options, x0, integrality)
    texts: dict[str, Any] = {}

    def run(given: Any) -> tuple[Any, Any]:
        found = original(*given.values(), method, callback, options, x0, integrality)
        counts, others = counts_of(found)
        texts.update(others)
        missing = np.full(np.size(given["c"]), np.nan)
        return missing if found.x is None else found.x, counts

    if integrality is not None and np.any(integrality):
        if not np.all(np.asarray(integrality) == 1):
            raise TypeError("linprog of traced values of which some are whole")
        x, counts = _whole(f"{_O}.linprog", given, run)
    else:
        made = given | {"bounds": _of_linprog(bounds)}
        x, counts = optimum(f"{_O}.linprog", (made,), run, _rows, _turned)
    parts = {"x": x, "fun": as_array(c) @ x, **counts}
    if A_ub is not None:
        parts["slack"] = as_array(b_ub) - (A_ub if hasattr(A_ub, "tocsr") else as_array(A_ub)) @ x
    return result_of("linprog", parts, texts)


def _of_linprog(bounds: Any) -> Any:
    """One pair stands for all."""
    if bounds is None:
        return [(0, None)]
    single = len(bounds) == 2 and all(b is None or np.ndim(b) == 0 for b in bounds)
    return [tuple(bounds)] if single else bounds


def _whole(name: str, given: Any, run: Function) -> tuple[Any, Any]:
    """A solution of whole numbers."""
    from gradof.tracer.scipy.closures import taken_apart

    arrays, fill = taken_apart(given)

    def found(values: list[Any]) -> Any:
        x, counts = run(fill(values))
        return np.asarray(x, np.float64), counts

    x, counts = call_black_box(arrays[0].recorder, name, found, (arrays,), None, None)
    return constant(x), counts


# --- least squares with bounds --------------------------------------------------------------------


def _least(a: Any, b: Any, bounds: Any) -> Problem:
    a = a if hasattr(a, "tocsr") or hasattr(a, "matvec") else as_array(a)
    b = as_array(b)
    count = a.shape[1]
    held = held_to(None if bounds is None else pairs(bounds, count), None, count)
    return Problem(lambda x: 0.5 * np.sum(np.square(a @ x - b)), None, *held)


@scipy_function(f"{_O}.nnls", raw=True)
def _nnls(original: Any, A: Any, b: Any, **options: Any) -> Any:
    if not traced(A, b):
        return original(A, b, **options)
    x, _ = optimum(
        f"{_O}.nnls", (A, b), lambda a, b: (original(a, b, **options)[0], ()),
        lambda a, b: _least(a, b, (0.0, np.inf)),
    )  # fmt: skip
    left = as_array(A) @ x - as_array(b)
    return x, as_float(np.sqrt(np.sum(np.square(left))))


@scipy_function(f"{_O}.lsq_linear", raw=True)
def _lsq_linear(
    original: Any, A: Any, b: Any, bounds: Any = (-np.inf, np.inf), *more: Any, **options: Any
) -> Any:
    if not traced(A, b, bounds):
        return original(A, b, bounds, *more, **options)
    texts: dict[str, Any] = {}

    def run(a: Any, b: Any, ends: Any) -> tuple[Any, Any]:
        found = original(a, b, ends, *more, **options)
        counts, others = counts_of(found)
        texts.update(others)
        return found.x, {**counts, "active_mask": found.active_mask}

    x, counts = optimum(f"{_O}.lsq_linear", (A, b, bounds), run, _least)
    left = (A if hasattr(A, "tocsr") or hasattr(A, "matvec") else as_array(A)) @ x - as_array(b)
    parts = {"x": x, "fun": left, "cost": 0.5 * np.sum(np.square(left)), **counts}
    return result_of("lsq_linear", parts, texts)


# --- what is whole --------------------------------------------------------------------------------


@scipy_in_c(f"{_O}.linear_sum_assignment")
def _assigned(original: Any, cost_matrix: Any, maximize: bool = False) -> Any:
    def found(cost: Any) -> Any:
        return original(np.array(cost), maximize)

    cost = as_array(cost_matrix)
    return call_black_box(
        cost.recorder, f"{_O}.linear_sum_assignment", found, (cost,), None, None
    )


@scipy_function(f"{_O}.isotonic_regression", raw=True)
def _isotonic_regression(
    original: Any, y: Any, *, weights: Any = None, increasing: bool = True
) -> Any:
    if not any(map(holds_traced, (y, weights))):
        return original(y, weights=weights, increasing=increasing)
    y = as_array(y)
    weights = np.ones(y.shape) if weights is None else as_array(weights)

    def found(y: Any, w: Any) -> Any:
        blocks = original(np.array(y), weights=np.array(w), increasing=increasing).blocks
        return np.repeat(np.arange(len(blocks) - 1), np.diff(blocks))

    recorder = next(a.recorder for a in (y, weights) if holds_traced(a))
    block = call_black_box(
        recorder, f"{_O}.isotonic_regression", found, (y, weights), None, None
    )
    together = np.equal(block[:, None], block) * weights
    x = together @ y / np.sum(together, axis=1)
    blocks = np.concatenate([[0], np.flatnonzero(np.diff(block)) + 1, [y.shape[0]]])
    of = np.take(np.sum(together, axis=1), blocks[:-1])
    return result_of("isotonic_regression", {"x": x, "weights": of, "blocks": blocks}, {})
