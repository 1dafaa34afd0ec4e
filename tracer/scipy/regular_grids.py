"""Interpolation on regular grids: RegularGridInterpolator and interpn.

    RegularGridInterpolator((x, y), values, method="cubic")(points)      # dvalues, dpoints

The grid is a constant of a trace. Splines are linear in the values. Their coefficients are found by
scipy, by an iterative solver to about 1e-6, whenever the graph runs; gradients are exact.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.black_box import call as call_black_box
from gradof.tracer.numpy.functions import as_array, traced_all
from gradof.tracer.numpy.recorder import real
from gradof.tracer.scipy.bsplines import basis, derived, spline_matrix
from gradof.tracer.scipy.calls import holds_traced, scipy_function
from gradof.tracer.scipy.closures import PLAIN
from gradof.tracer.scipy.kept import kept

_RGI = "scipy.interpolate._rgi.RegularGridInterpolator"
_DEGREES = {"slinear": 1, "cubic": 3, "quintic": 5}


@scipy_function("scipy.interpolate.RegularGridInterpolator.__init__", at=f"{_RGI}.__init__",
                raw=True)
def _grid(
    original: Any, self: Any, points: Any, values: Any, method: str = "linear",
    bounds_error: bool = True, fill_value: Any = np.nan, *, solver: Any = None,
    solver_args: Any = None,
) -> None:  # fmt: skip
    points, traced = _constant(points), holds_traced((values, fill_value))
    values = as_array(values) if holds_traced((values,)) else values
    # scipy looks at what it is given, and says what is wrong with it
    original(self, points, real(values), method, bounds_error, real(fill_value), solver=solver,
             solver_args=solver_args)  # fmt: skip
    if traced:
        self._traced = (points, as_array(values), method, bounds_error, fill_value)
        held = {"_values": as_array(values), "values": as_array(values), "fill_value": fill_value}
        vars(self).update({name: held[name] for name in held.keys() & vars(self).keys()})
    self._solver = {} if solver is None else {"solver": solver, "solver_args": solver_args}


def _plain(self: Any) -> Any:
    """scipy's own of the values that a traced one now holds, as an equation's solver calls it."""
    points, values, method, bounds_error, fill = self._traced
    return type(self)(points, values, method, bounds_error, fill, **self._solver)


PLAIN[_RGI] = _plain


def _constant(points: Any) -> Any:
    """The lines of a grid, as plain arrays."""
    for line in points:
        if type(line) is TracedArray and not line.is_constant:
            raise TypeError("a grid of traced values whose points are traced: they are constants")
        if type(line) is TracedArray:
            line.recorder.baked = True
    return tuple(map(real, points))


@scipy_function("scipy.interpolate.RegularGridInterpolator", at=f"{_RGI}.__call__", raw=True)
def _grid_call(
    original: Any, self: Any, xi: Any, method: Any = None, *, nu: Any = None
) -> Any:
    given = vars(self).get("_traced")
    if given is None:
        if not holds_traced((xi,)):
            return original(self, xi, method, nu=nu)
        given = (self.grid, self.values, self.method, self.bounds_error, self.fill_value)
    points, values, kind, bounds_error, fill = given
    method, options = method or kind, vars(self).get("_solver", {})
    if nu is not None and method not in _DEGREES:
        original(self, [line[0] for line in points], method, nu=nu)  # which says so
        raise TypeError(f"argument nu with method={method!r}")
    options = options if method == kind else {}
    return on_grid(points, values, xi, method, bounds_error, fill, options, nu)


@scipy_function("scipy.interpolate.interpn", raw=True)
def _interpn(
    original: Any, points: Any, values: Any, xi: Any, method: str = "linear",
    bounds_error: bool = True, fill_value: Any = np.nan,
) -> Any:  # fmt: skip
    if not holds_traced((values, xi, fill_value)):
        return original(points, values, xi, method, bounds_error, fill_value)
    return on_grid(_constant(points), values, xi, method, bounds_error, fill_value)


def on_grid(
    points: Any, values: Any, xi: Any, method: str, bounds_error: bool, fill: Any,
    solver: Mapping[str, Any] = MappingProxyType({}), nu: Sequence[int] | None = None,
) -> Any:  # fmt: skip
    """Values at points, whose last dim is that of the grid; further dims of the values stay.

    `solver` has RegularGridInterpolator's options of that name, for splines, and `nu` the orders of
    their derivatives.
    """
    count = len(points)
    at: Any
    if isinstance(xi, tuple):
        at = np.stack(np.broadcast_arrays(*map(as_array, xi)), axis=-1)
    else:
        at = as_array(xi)
        at = at[..., None] if at.ndim == 1 and count == 1 else at
        at = at[None] if at.ndim == 1 else at
    values, at = traced_all(values, at)
    lines = [np.asarray(line, np.float64) for line in points]
    for d, line in enumerate(lines):
        if len(line) > 1 and line[0] > line[-1]:
            lines[d], values = line[::-1], np.flip(values, axis=d)
    shape, rest = at.shape[:-1], values.shape[count:]
    flat = np.reshape(at, (-1, count))
    outside: Any = None
    for d, line in enumerate(lines):
        x: Any = flat[:, d]
        if bounds_error and not np.all((x >= line[0]) & (x <= line[-1])):  # at every call
            raise ValueError(f"One of the requested xi is out of bounds in dimension {d}")
        beyond = (x < line[0]) | (x > line[-1])
        outside = beyond if outside is None else outside | beyond
    columns = np.reshape(values, (*values.shape[:count], -1))
    result = _method(method, solver, nu)(lines, columns, flat)
    if fill is not None and not bounds_error:
        result = np.where(outside[:, None], fill, result)
    return np.reshape(result, (*shape, *rest))


def _method(
    name: str, solver: Mapping[str, Any], nu: Sequence[int] | None
) -> Callable[[Sequence[Any], Any, Any], Any]:
    """What gives [points, columns] of a grid's values, whose last dim are columns."""
    if name in _DEGREES:
        return functools.partial(_splines, name, solver, nu or ())
    if name not in _METHODS:
        raise TypeError(f"argument method={name!r}")
    return _METHODS[name]


def _places(line: Any, x: Any) -> tuple[Any, Any]:
    """The lower neighbour of each point, and the share of the way to the upper one."""
    low = np.clip(np.searchsorted(line, x, side="right") - 1, 0, len(line) - 2)
    grid = traced_all(line, x)[0]
    start = np.take(grid, low)
    return low, (x - start) / (np.take(grid, low + 1) - start)


def _nearest(lines: Sequence[Any], values: Any, at: Any) -> Any:
    found = [_places(line, at[:, d]) for d, line in enumerate(lines)]
    return values[tuple(np.where(share <= 0.5, low, low + 1) for low, share in found)]


def _linear(lines: Sequence[Any], values: Any, at: Any) -> Any:
    found = [_places(line, at[:, d]) for d, line in enumerate(lines)]
    weights = [(1.0 - share, share) for _, share in found]
    return _weighed(values, [low for low, _ in found], weights)


def _weighed(values: Any, firsts: Sequence[Any], weights: Sequence[Any]) -> Any:
    """Sums over the neighbours of each point, which begin at `firsts` in each dim."""
    result: Any = 0.0
    for corner in itertools.product(*(range(len(w)) for w in weights)):
        factors = [w[k] for k, w in zip(corner, weights, strict=True)]
        index = tuple(first + k for k, first in zip(corner, firsts, strict=True))
        weight = math.prod(factors[1:], start=factors[0])
        result = result + values[index] * weight[:, None]
    return result


def _splines(
    method: str, solver: Mapping[str, Any], nu: Sequence[int], lines: Sequence[Any], values: Any,
    at: Any,
) -> Any:  # fmt: skip
    degree = _DEGREES[method]
    found = [spline_matrix(tuple(line.tolist()), degree) for line in lines]
    c = _coefficients(method, solver, lines, values, [matrix for _, matrix in found])
    firsts, weights = [], []
    for d, (knots, _) in enumerate(found):
        rows, left = np.moveaxis(c, d, 0), degree
        for _ in range(nu[d] if nu else 0):
            knots, rows, left = derived(knots, rows, left, 1)
        c = np.moveaxis(rows, 0, d)
        first, weight = basis(knots, left, at[:, d])
        firsts.append(first)
        weights.append(weight)
    return _weighed(c, firsts, weights)


def _coefficients(
    method: str, solver: Mapping[str, Any], lines: Sequence[Any], values: Any,
    matrices: Sequence[Any],
) -> Any:  # fmt: skip
    """Those of scipy's tensor product splines, by its own solver; their gradient is exact."""
    from scipy.interpolate import RegularGridInterpolator

    def run(given: Any) -> Any:
        return RegularGridInterpolator(lines, given, method, **solver)._spline.c

    if values.is_constant:  # found once
        values.recorder.baked = True
        return traced_all(run(real(values)), values)[0]

    def rule(args: Any, result: Any, g: Any) -> list[Any]:
        return [_along_dims(g, [matrix.T for matrix in matrices])]

    return call_black_box(values.recorder, f"a grid's {method} splines", run, (values,), None, rule)


def _along_dims(values: Any, matrices: Sequence[Any]) -> Any:
    """A matrix for each of the first dims."""
    for d, matrix in enumerate(matrices):
        rows = np.moveaxis(values, d, 0)
        rows = np.reshape(matrix @ np.reshape(rows, (rows.shape[0], -1)), rows.shape)
        values = np.moveaxis(rows, 0, d)
    return values


def _pchip(lines: Sequence[Any], values: Any, at: Any) -> Any:
    """Monotone cubics along one dim after the other, the last one first, as in scipy."""
    from scipy.interpolate import PchipInterpolator

    rows = np.broadcast_to(values[..., None, :], (*values.shape[:-1], len(at), values.shape[-1]))
    point = np.arange(len(at))
    for d in reversed(range(len(lines))):
        rows = np.moveaxis(rows, d, 0)
        c = kept(PchipInterpolator(lines[d], rows), "c")
        low, _ = _places(lines[d], at[:, d])
        away = (at[:, d] - np.take(traced_all(lines[d], at)[0], low))[:, None]
        last = c.ndim - 2  # the dim of the points, after those of the grid that are left
        found: Any = 0.0
        for coefficient in c:  # [intervals, dims that are left, points, columns]
            picked = np.moveaxis(coefficient, last - 1, 1)[low, point]
            found = found * _beside(away, picked) + picked
        rows = np.moveaxis(found, 0, -2)
    return rows.astype(values.dtype)


def _beside(away: Any, picked: Any) -> Any:
    return np.reshape(away, (-1, *(1,) * (picked.ndim - 1)))


_METHODS: dict[str, Callable[[Sequence[Any], Any, Any], Any]] = {
    "linear": _linear, "nearest": _nearest, "pchip": _pchip,
}  # fmt: skip
