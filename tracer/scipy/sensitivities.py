"""The gradient of a solution of y' = f(t, y, arrays), of numbers: sensitivities, or the adjoint.

See `odes`. Both are solved by scipy, to 1e-11, with the compiled derivatives of f.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradof.errors import OutputError
from gradof.tracer.scipy.calls import original_of
from gradof.tracer.scipy.transforms import transforms

Function = Callable[..., Any]
_STEPS = 100_000  # from one time to the next
_PRECISION = {"rtol": 1e-11, "atol": 1e-13}
_STIFF = ("Radau", "BDF")
_OF_STIFF = {"rtol": 1e-9, "atol": 1e-11}  # of methods of low order, which would take long
FEW = 2000  # numbers of sensitivities: more, and the adjoint is solved
TOGETHER = 8  # equations whose sensitivities are one graph with them


def checked(found: Any) -> Any:
    """What `solve_ivp` has found; OutputError where it gave up."""
    if found.status < 0:
        raise OutputError(
            f"scipy.integrate.solve_ivp: {found.message}",
            hint="take another method, as Radau for a stiff equation, or another start",
        )
    return found



class Compiled:
    """The gradient of an equation's solutions, by its compiled derivatives."""

    def __init__(self, slope: Function, live: list[int]) -> None:
        self.live = live
        wrt = (0, *(2 + i for i in live))
        self.slope = slope
        self.jacobian = transforms().jacobian(slope, wrt)
        self.wrt = wrt
        self.together = functools.cache(self._together)  # by the number of equations
        self.adjoint = transforms().grad(
            lambda y, t, *rest: np.sum(rest[-1] * slope(y, t, *rest[:-1])), wrt
        )

    def gradient(
        self, method: str, y0: Any, times: Any, arrays: Sequence[Any], g: Any
    ) -> tuple[Any, list[Any]]:
        """That of sum(g * solution) by y0, and by each array that has one."""
        arrays = [np.array(a) for a in arrays]  # compiled functions may be given no views
        shapes = [arrays[i].shape for i in self.live]
        sizes = [int(np.prod(s)) for s in shapes]
        columns = len(y0) + sum(sizes)
        few = len(y0) * (1 + columns) <= FEW
        by = (self._forward if few else self._back)(method, np.array(y0), times, arrays, g)
        parts = np.split(by, np.cumsum([len(y0), *sizes])[:-1])
        return parts[0], [p.reshape(s) for p, s in zip(parts[1:], shapes, strict=True)]

    def _forward(self, method: str, y0: Any, times: Any, arrays: list[Any], g: Any) -> Any:
        """By the sensitivities."""
        n, columns = len(y0), len(y0) + sum(arrays[i].size for i in self.live)
        if n <= TOGETHER:
            run = self.together(n).run(*arrays)
            slope: Function = lambda t, state: run(state, np.float64(t))  # noqa: E731
        else:
            slope = functools.partial(self._apart, n, columns, arrays)
        start = np.concatenate([y0, np.eye(n, columns).ravel()])
        states = _solved(slope, start, times, method)
        return np.einsum("tn,tnc->c", g, states[:, n:].reshape(len(times), n, columns))

    def _together(self, n: int) -> Any:
        """The slope of the solution and its sensitivities, as one compiled function."""

        def slope(state: Any, t: Any, *arrays: Any) -> Any:
            y, z = state[:n], np.reshape(state[n:], (n, -1))
            by_y, *by_arrays = self.jacobian(y, t, *arrays)
            parts = [np.zeros((n, n)), *(np.reshape(part, (n, -1)) for part in by_arrays)]
            moved = by_y @ z + np.concatenate(parts, axis=1)
            return np.concatenate([self.slope(y, t, *arrays), np.ravel(moved)])

        return transforms().steady(slope)

    def _apart(self, n: int, columns: int, arrays: list[Any], t: Any, state: Any) -> Any:
        """The same of many equations, whose Jacobian would be a graph for each row."""
        y, moved, t = state[:n], np.zeros((n, columns)), np.float64(t)
        by_y, *by_arrays = self.jacobian(y, t, *arrays)
        parts = [part.reshape(n, -1) for part in by_arrays]
        if parts:
            moved[:, n:] = np.concatenate(parts, axis=1)
        moved += by_y @ state[n:].reshape(n, -1)
        return np.concatenate([np.asarray(self.slope(y, t, *arrays)), moved.ravel()])

    def _back(self, method: str, y0: Any, times: Any, arrays: list[Any], g: Any) -> Any:
        """By the adjoint, along the solution between the times."""
        ends = (times[0], times[-1])
        path = _solve_ivp(
            lambda t, y: self.slope(y, np.float64(t), *arrays), ends, y0, method, dense_output=True
        ).sol
        adjoint, by_arrays = np.array(g[-1]), 0.0

        def pulled(t: Any, adjoint: Any) -> list[Any]:
            found: list[Any] = self.adjoint(path(t), np.float64(t), *arrays, np.array(adjoint))
            return found

        for i in range(len(times) - 1, 0, -1):
            if times[i] != times[i - 1]:
                step = _solve_ivp(
                    lambda t, a: -pulled(t, a)[0], (times[i], times[i - 1]), adjoint, method,
                    dense_output=True,
                )  # fmt: skip
                by_arrays = by_arrays + _integral(
                    lambda t, a: np.concatenate([d.ravel() for d in pulled(t, a)[1:]] or [[]]),
                    step,
                )
                adjoint = step.y[:, -1]
            adjoint = adjoint + g[i - 1]
        count = sum(arrays[i].size for i in self.live)
        return np.concatenate([adjoint, np.broadcast_to(by_arrays, (count,))])


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(5)


def _integral(f: Function, step: Any) -> Any:
    """The integral of f(t, adjoint) along the steps that a solver has taken back in time."""
    total = 0.0
    for end, start in zip(step.t[:-1], step.t[1:], strict=True):
        for node, weight in zip(_NODES, _WEIGHTS, strict=True):
            t = start + (node + 1) / 2 * (end - start)
            total = total + weight / 2 * (end - start) * f(t, step.sol(t))
    return total


def _solve_ivp(slope: Function, ends: Any, y0: Any, method: str, **options: Any) -> Any:
    """`solve_ivp`, to the precision of gradients; OutputError where it gives up."""
    precision = _OF_STIFF if method in _STIFF else _PRECISION
    found = original_of("scipy.integrate.solve_ivp")(
        slope, ends, y0, method=method, **precision, **options
    )
    return checked(found)


def _solved(slope: Function, y0: Any, times: Any, method: str) -> Any:
    """The solution at the times, a row for each."""
    distinct, rows = np.unique(times, return_inverse=True)
    if len(distinct) == 1:
        return np.stack([y0] * len(times))
    forward = times[-1] > times[0]
    at = distinct if forward else distinct[::-1]
    if method in _STIFF:
        found = _solve_ivp(slope, (at[0], at[-1]), y0, method, t_eval=at).y.T
    else:
        found = _odeint(slope, y0, at)
    return found[rows if forward else len(distinct) - 1 - rows]


def _odeint(slope: Function, y0: Any, times: Any) -> Any:
    """LSODA without Python between its steps; OutputError where it gives up."""
    found, said = original_of("scipy.integrate.odeint")(
        slope, y0, times, tfirst=True, full_output=True, mxstep=_STEPS, **_PRECISION
    )
    if said["message"] != "Integration successful.":
        raise OutputError(
            f"scipy.integrate.odeint, of the sensitivities: {said['message']}",
            hint="take another method, as Radau for a stiff equation, or another start",
        )
    return found
