"""scipy.integrate.odeint and solve_ivp, differentiated by the sensitivities of the equation.

    odeint(f, y0, t, args=(theta,))                        # dy0, dt, dtheta
    solve_ivp(f, (0, 5), y0, t_eval=t, args=(theta,)).y

scipy solves the equation y' = f(t, y, arrays) whenever the graph runs, from numbers: the values are
its own. A gradient is that of the equation's solution, to about 1e-10, however loose the tolerances
of the values are. Of few numbers it comes from the sensitivities, which are solved beside it,

    Z' = df/dy Z + df/darrays,      Z = dy / d(y0, arrays),

and of many from the adjoint, which goes back along the solution: l' = -l df/dy, with a jump of g at
each time, and the gradient by arrays is the integral of l df/darrays.

The gradient is linear in g, so its own gradient by g is the derivative of the solution along a
direction: that of the equation for y and its tangent, which is recorded as any other. The rest is
the gradient of that (the product of g with it), so there are derivatives of any order.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradof.ops.expr import F
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.black_box import call as call_black_box
from gradof.tracer.numpy.functions import as_array
from gradof.tracer.numpy.recorder import real
from gradof.tracer.scipy.calls import scipy_function
from gradof.tracer.scipy.closures import known, taken_apart, untraced
from gradof.tracer.scipy.emit import in_double
from gradof.tracer.scipy.sensitivities import Compiled, checked
from gradof.tracer.scipy.transforms import traced_rule, transforms

Function = Callable[..., Any]
_I = "scipy.integrate"
_IMPLICIT = ("Radau", "BDF", "LSODA")


@dataclass(frozen=True)
class Slope:
    """The right hand side of an equation."""

    of: Function  # `of(arrays)(t, y)`: the user's own function, made of these arrays once
    row: Function  # `row(y, t, *arrays)`: one and the same function for one equation is compiled


@dataclass(frozen=True)
class Equation:
    """y' = slope.row(y, t, *arrays), and how scipy solves it: `solve(f(t, y), y0, times)` by rows.

    `at_times` is the same for other equations, of y and its tangent.
    """

    name: str
    slope: Slope
    solve: Function
    at_times: Function
    method: str  # for its gradients
    moves: bool  # whether the times may have a gradient


def solution(equation: Equation, y0: Any, times: Any, arrays: Sequence[Any]) -> Any:
    """The solution at the times, a row for each."""

    def run(start: Any, at: Any, given: Any) -> Any:
        with transforms().alone():
            return equation.solve(equation.slope.of(given), start, at)

    @traced_rule
    def rule(args: Any, result: Any, g: Any) -> list[Any]:
        start, at, given = args
        given = list(map(in_double, given))
        by_start, by_arrays = _pulled_back(equation, start, at, given, g)
        return [by_start, _by_times(equation, at, given, result, g, by_start), *by_arrays]

    recorder = next(x for x in (y0, times, *arrays) if type(x) is TracedArray).recorder
    return call_black_box(recorder, equation.name, run, (y0, times, list(arrays)), None, rule)


def _by_times(
    equation: Equation, times: Any, arrays: Sequence[Any], ys: Any, g: Any, by_start: Any
) -> Any:
    """The gradient by the times: a later one moves its own row, the first one all others."""
    if not equation.moves:
        return None
    slope = equation.slope.row
    later = [np.sum(g[i] * slope(ys[i], times[i], *arrays)) for i in range(1, len(times))]
    first = -np.sum((by_start - g[0]) * slope(ys[0], times[0], *arrays))
    return np.stack([first, *later])


# --- the gradient, a function of its own ----------------------------------------------------------


def _live(arrays: Sequence[Any]) -> list[int]:
    return [i for i, a in enumerate(arrays) if as_array(a).dtype.kind == "f"]


def _pulled_back(
    equation: Equation, y0: Any, times: Any, arrays: Sequence[Any], g: Any
) -> tuple[Any, list[Any]]:
    """The gradient of sum(g * solution) by y0, and by each array that has one."""
    live = _live(arrays)
    compiled = Compiled(equation.slope.row, live)

    def run(start: Any, at: Any, given: Any, weights: Any) -> Any:
        with transforms().alone():
            return compiled.gradient(equation.method, start, at, given, weights)

    @traced_rule
    def rule(args: Any, result: Any, v: Any) -> list[Any]:
        start, at, given, weights = args

        def along(start: Any, at: Any, weights: Any, *given: Any) -> Any:
            return np.sum(weights * _moved(equation, start, at, given, v[0], v[1], live))

        wrt = (0, 1, 2, *(3 + i for i in live))
        found = transforms().grad(along, wrt)(start, at, weights, *given)
        grads: list[Any] = [None] * len(given)
        for i, grad in zip(live, found[3:], strict=True):
            grads[i] = grad
        return [found[0], found[1], *grads, found[2]]

    traced = (y0, times, g, *arrays)
    recorder = next(x for x in traced if type(x) is TracedArray).recorder
    by_start, by_live = call_black_box(
        recorder, f"the gradient of {equation.name}", run, (y0, times, list(arrays), g), None, rule
    )
    by_arrays: list[Any] = [None] * len(arrays)
    for i, grad in zip(live, by_live, strict=True):
        by_arrays[i] = grad
    return by_start, by_arrays


def _moved(
    equation: Equation, y0: Any, times: Any, arrays: Sequence[Any], by_start: Any,
    by_live: Sequence[Any], live: list[int],
) -> Any:  # fmt: skip
    """The derivative of the solution along a direction."""
    n, count, slope = np.shape(y0)[0], len(arrays), equation.slope.row

    def along(both: Any, t: Any, *given: Any) -> Any:
        y, moved = both[:n], both[n:]
        tangents: list[Any] = [None] * count
        for i, tangent in zip(live, given[count:], strict=True):
            tangents[i] = tangent
        value, tangent = transforms().jvp(
            slope, (y, t, *given[:count]), (moved, np.zeros(np.shape(t)), *tangents)
        )
        return np.concatenate([value, tangent])

    doubled = Equation(
        equation.name, Slope(lambda given: lambda t, both: along(both, t, *given), along),
        equation.at_times, equation.at_times, equation.method, equation.moves,
    )  # fmt: skip
    start = np.concatenate([as_array(y0), as_array(by_start)])
    return solution(doubled, start, times, [*arrays, *by_live])[:, n:]


# --- scipy's functions ----------------------------------------------------------------------------


def _traced(*values: Any) -> bool:
    return bool(known(values))


def _args(args: Any) -> tuple[Any, ...]:
    return args if isinstance(args, tuple) else (args,)


def _slope_of(fill: Function, time_first: bool) -> Slope:
    """The right hand side with the arrays it knows."""

    def of(arrays: Sequence[Any]) -> Function:
        fn, args = fill(arrays)
        return (lambda t, y: fn(t, y, *args)) if time_first else lambda t, y: fn(y, t, *args)

    def row(y: Any, t: Any, *arrays: Any) -> Any:
        return np.reshape(as_array(of(arrays)(t, y)) * 1.0, -1)

    return Slope(of, row)


@scipy_function(f"{_I}.odeint", raw=True)
def _odeint(
    original: Any, func: Any, y0: Any, t: Any, args: Any = (), Dfun: Any = None,
    *more: Any, **options: Any,
) -> Any:  # fmt: skip
    if not _traced(func, y0, t, args):
        return original(func, y0, t, args, Dfun, *more, **options)
    if more or options.get("full_output"):
        raise TypeError("odeint of traced values with options by position or full_output")
    arrays, fill = taken_apart((func, _args(args)))
    first = bool(options.get("tfirst"))
    kept = {k: v for k, v in options.items() if k not in ("tfirst", "Dfun", "col_deriv")}

    def solve(f: Function, start: Any, at: Any) -> Any:
        return original(f, start, at, tfirst=True, **kept)

    start = np.reshape(as_array(y0), -1)
    times = _times(t)
    equation = Equation(f"{_I}.odeint", _slope_of(fill, first), solve, solve, "LSODA", _vary(times))
    return solution(equation, start.astype(np.float64), times, arrays)


def _vary(times: Any) -> bool:
    return type(times) is TracedArray and not times.is_constant


def _times(t: Any) -> Any:
    return as_array(t).astype(np.float64)


@scipy_function(f"{_I}.solve_ivp", raw=True)
def _ivp(
    original: Any, fun: Any, t_span: Any, y0: Any, method: Any = "RK45", t_eval: Any = None,
    dense_output: bool = False, events: Any = None, vectorized: bool = False, args: Any = None,
    **options: Any,
) -> Any:  # fmt: skip
    if not _traced(fun, t_span, y0, t_eval, args, events):
        return original(
            fun, t_span, y0, method, t_eval, dense_output, events, vectorized, args, **options
        )
    if not isinstance(method, str):
        raise TypeError("solve_ivp of traced values with a method of one's own")
    gradients = method if method in _IMPLICIT else "DOP853"
    if events is not None:
        if dense_output or any(map(_vary, (*t_span, t_eval))):
            raise TypeError(
                "solve_ivp of traced values with events and dense_output, or times that are traced"
            )
        from gradof.tracer.scipy.events import with_events

        more = {"method": method, "vectorized": vectorized, **options}
        span, times = untraced((t_span, t_eval))
        return with_events(original, fun, span, y0, times, events, args, gradients, more)
    unsaid = checked(original(
        *untraced((fun, t_span, y0)), method, untraced(t_eval), False, None, vectorized,
        untraced(args), **options,
    ))  # fmt: skip
    arrays, fill = taken_apart((fun, () if args is None else _args(args)))
    start = np.reshape(as_array(y0), -1).astype(np.float64)
    span = np.stack([as_array(end) for end in t_span]).astype(np.float64)
    slope = _slope_of(fill, True)
    solver = _Solver(slope, functools.partial(original, method=method, **options))
    others = _Solver(slope, functools.partial(original, method=method, **beside(options)))
    if t_eval is None:
        times = solver.times(span, start, arrays)
        equation = Equation(
            f"{_I}.solve_ivp", slope, solver.at_steps, others.at_all, gradients, _vary(span)
        )
        rows = solution(equation, start, times, arrays)
    else:
        times = _times(t_eval)
        every = np.concatenate([span[:1], times, span[1:]])
        equation = Equation(
            f"{_I}.solve_ivp", slope, solver.at_times, others.at_times, gradients, _vary(every)
        )
        rows = solution(equation, start, every, arrays)[1:-1]
    unsaid["t"], unsaid["y"] = times, np.swapaxes(rows, 0, 1)
    if dense_output:
        unsaid["sol"] = functools.partial(
            _between, Equation(f"{_I}.solve_ivp", slope, solver.at_times, others.at_times,
                               gradients, True), span, start, arrays,
        )  # fmt: skip
    return unsaid


def _between(equation: Equation, span: Any, start: Any, arrays: Sequence[Any], t: Any) -> Any:
    """`sol(t)`: the equation is solved for these times, which are those between scipy's steps."""
    at = _times(t)
    flat = np.reshape(at, -1)
    order = np.argsort(flat if span[1] >= span[0] else -flat)
    every = np.concatenate([span[:1], np.take(flat, order), span[1:]])
    rows = solution(equation, start, every, arrays)[1:-1]
    found = np.swapaxes(np.take(rows, np.argsort(order), axis=0), 0, 1)
    return found if at.ndim else found[:, 0]


def beside(options: dict[str, Any]) -> dict[str, Any]:
    """Those of scipy's options that hold for other equations, of y and its tangent, too."""
    own = ("jac", "jac_sparsity", "lband", "uband", "vectorized")
    return {name: value for name, value in options.items() if name not in own}


class _Solver:
    """How `solve_ivp` solves an equation: at given times, and at those of its own steps.

    The number of its steps is read by Python: a trace is for one of them. What is solved to count
    them is kept for the times and values, which the same run asks for next.
    """

    def __init__(self, slope: Slope, solve: Function) -> None:
        self.slope, self.solve = slope, solve
        self.kept = threading.local()

    def at_times(self, f: Function, start: Any, at: Any) -> Any:
        """Rows for the start, the times, and the end, of which nothing is asked."""
        distinct, rows = np.unique(at[1:-1], return_inverse=True)  # scipy takes no time twice
        if at[-1] < at[0]:
            distinct, rows = distinct[::-1], len(distinct) - 1 - rows
        found = checked(self.solve(f, (at[0], at[-1]), start, t_eval=distinct)).y.T[rows]
        return np.concatenate([start[None], found, found[-1:]])

    def at_all(self, f: Function, start: Any, at: Any) -> Any:
        """Rows for the times, the first and last of which are the ends."""
        return checked(self.solve(f, (at[0], at[-1]), start, t_eval=at)).y.T

    def at_steps(self, f: Function, start: Any, at: Any) -> Any:
        """Rows for the steps."""
        found = self.kept.__dict__.pop("for_rows", None)
        if found is None or not np.array_equal(found.t, at):
            found = checked(self.solve(f, (at[0], at[-1]), start))
        return found.y.T

    def _solved(self, span: Any, start: Any, given: Any) -> Any:
        with transforms().alone():
            return checked(self.solve(self.slope.of(given), tuple(span), start))

    def times(self, span: Any, start: Any, arrays: Sequence[Any]) -> Any:
        """The times of the steps; the last one is the end of the span."""

        def key(given: Any) -> Any:
            return [np.asarray(a).tobytes() for a in (*given[:2], *given[2])]

        def count(*given: Any) -> Any:
            found = self._solved(*given)
            self.kept.for_times = key(given), found
            return np.int64(len(found.t))

        def times(*given: Any) -> Any:
            held = self.kept.__dict__.pop("for_times", None)
            same = held is not None and held[0] == key(given)
            found = self.kept.for_rows = held[1] if same else self._solved(*given)
            return found.t

        recorder = next(x for x in (span, start, *arrays) if type(x) is TracedArray).recorder
        given = (span, start, list(arrays))
        int(call_black_box(recorder, f"{_I}.solve_ivp: steps", count, given, None, None))
        at = call_black_box(recorder, f"{_I}.solve_ivp: times", times, given, None, None)
        at = recorder.wrap(real(at), F.detach(at.expr))
        return np.concatenate([span[:1], at[1:-1], span[1:]])
