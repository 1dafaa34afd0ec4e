"""Solutions of equations and optima, differentiated by the implicit function theorem.

    x = zero("scipy.optimize.root", solve, fun, residual, rest)       # residual(fun, rest)(x) = 0
    x, said = optimum("scipy.optimize.minimize", (fun, rest), problem)

scipy finds them whenever the graph runs, from numbers, together with the Jacobian there by
differences. To the graph both are constants; chord steps from the root, x - J^-1 f(x, theta), leave
it where it is, and the k-th has the root's derivatives up to order k. An error of J counts by its
k-th power. Functions may know traced arrays by their arguments, their closures or partials.

An optimum is a root of the equations of Karush, Kuhn and Tucker, in x and one multiplier for each
constraint: the slope of the Lagrangian is zero, and each constraint is met with equality or has no
multiplier. Which of the two is read from the optimum, whenever it is found.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradof.errors import OutputError
from gradof.ops.expr import F
from gradof.tracer.numpy.black_box import call as call_black_box
from gradof.tracer.numpy.functions import as_array
from gradof.tracer.numpy.recorder import real
from gradof.tracer.scipy.closures import known, taken_apart
from gradof.tracer.scipy.transforms import transforms
from gradof.tracer.state.source import user_loc

Function = Callable[..., Any]
STEPS = 3  # derivatives up to the third
CONDITION = 1e9  # of a Jacobian by differences, which has nine digits or ten


def traced(*values: Any) -> bool:
    """Whether a nest of arrays and functions knows a traced array."""
    return bool(known(values))


def args_of(args: Any) -> tuple[Any, ...]:
    """What scipy passes on to a function, which is given one argument without a tuple, too."""
    return args if isinstance(args, tuple) else (args,)


def constant(value: Any) -> Any:
    """The same array without a gradient."""
    array = as_array(value)
    return array.recorder.wrap(real(array), F.detach(array.expr))


def anchored(value: Any, formula: Any) -> Any:
    """scipy's value, with the derivatives of a formula for it."""
    return constant(value) + (formula - constant(formula))


def _jacobian(f: Function, x: Any) -> Any:
    """By central differences."""
    flat = np.reshape(x, -1)
    columns = []
    for i in range(flat.size):
        step = 6e-6 * max(1.0, abs(flat[i]))
        sides = []
        for sign in (step, -step):
            moved = flat.copy()
            moved[i] += sign
            sides.append(np.reshape(np.asarray(f(np.reshape(moved, np.shape(x))[()])), -1))
        columns.append((sides[0] - sides[1]) / (2 * step))
    return np.stack(columns, axis=-1)


def _inverse_slopes(name: str, f: Function, x: Any) -> Any:
    """Of each element one over its slope, where f is of each element by itself."""
    step = 6e-6 * np.maximum(1.0, np.abs(x))
    above, below = (np.asarray(f((x + sign)[()])) for sign in (step, -step))
    slopes = (above - below) / (2 * step)
    if np.any(slopes == 0):
        raise _not_alone(name)
    return 1 / slopes


def _not_alone(name: str) -> OutputError:
    return OutputError(
        f"{name}: the solution is not the only one nearby, so it has no derivative",
        loc=user_loc(),
        hint="leave out parameters that do the same, or add a term that prefers one solution",
    )


def _inverse(name: str, jacobian: Any) -> Any:
    """The inverse; an error where the differences do not tell the Jacobian from a singular one.

    Rows and columns are scaled first, as units of parameters are the user's choice.
    """
    size = np.abs(jacobian)
    rows = np.max(size, axis=1, initial=0.0, keepdims=True)
    columns = np.max(size / np.where(rows > 0, rows, 1.0), axis=0, initial=0.0, keepdims=True)
    scaled = jacobian / np.where(rows > 0, rows, 1.0) / np.where(columns > 0, columns, 1.0)
    try:
        inverse = np.linalg.inv(scaled)
    except np.linalg.LinAlgError:
        inverse = np.full_like(scaled, np.inf)
    if scaled.size and not _norm(scaled) * _norm(inverse) < CONDITION:
        raise _not_alone(name)
    return inverse / columns.T / rows.T


def _norm(matrix: Any) -> float:
    return float(np.max(np.sum(np.abs(matrix), axis=0)))


def _stepped(at: Any, inverse: Any, equation: Function, elementwise: bool = False) -> Any:
    """Chord steps from a root, which is a constant, with the inverse of the Jacobian there."""
    x = at
    for _ in range(STEPS):
        if elementwise:
            x = x - inverse * as_array(equation(x[()]))
            continue
        left = np.reshape(as_array(equation(x)), -1)
        x = x - np.reshape(inverse @ left, at.shape)
    return x


def zero(name: str, solve: Function, f: Function, residual: Function, rest: Any) -> Any:
    """The x that `solve(f, rest)` finds, a zero of `residual(f, rest)(x)`, with derivatives."""
    return zero_and_more(
        name, lambda fn, others: (solve(fn, others), ()), f, residual, rest
    )[0]


def zero_and_more(
    name: str, solve: Function, f: Function, residual: Function, rest: Any,
    elementwise: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """The same where `solve` gives a nest of numbers beside x, which have no gradient.

    An `elementwise` equation is one for each element of x.
    """
    arrays, fill = taken_apart((f, rest))
    recorder = arrays[0].recorder

    def found(values: list[Any]) -> Any:
        fn, others = fill(values)
        with transforms().alone():  # f, or its slope, may be compiled
            x, said = solve(fn, others)
            x = np.asarray(x, np.float64)
            equation = residual(fn, others)
            if elementwise:
                return x, _inverse_slopes(name, equation, x), said
            return x, _inverse(name, _jacobian(equation, x)), said

    at, inverse, said = call_black_box(recorder, name, found, (arrays,), None, None)
    at, inverse = constant(at), constant(inverse)
    formula = _stepped(at, inverse, residual(*fill(arrays)), elementwise)
    return anchored(at, formula), said


# --- optima ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """A cost of x, its slope where the user has given one, and what x is held to.

    `equal(x)` is zero and `above(x)` is not below zero at the optimum; both are vectors.
    """

    cost: Function
    slope: Function | None = None
    equal: Function | None = None
    above: Function | None = None

    def equations(self, active: Any, count: int) -> Function:
        """What is zero at the optimum, of x (`count` numbers) and the multipliers."""
        slope = self._slope_of_lagrangian(count)

        def at(both: Any) -> Any:
            x = both[:count]
            parts = [np.reshape(as_array(slope(both)), -1)]
            start = count
            if self.equal is not None:
                parts.append(as_array(self.equal(x)))
                start += len(parts[-1])
            if self.above is not None:
                parts.append(np.where(active, as_array(self.above(x)), both[start:]))
            return np.concatenate(parts) if len(parts) > 1 else parts[0]

        return at

    def _slope_of_lagrangian(self, count: int) -> Function:
        given = self.slope
        held = self._held

        def lagrangian(x: Any, multipliers: Any) -> Any:
            cost = np.sum(as_array(self.cost(x))) if given is None else np.sum(x) * 0.0
            return cost - np.sum(multipliers * held(x)) if self._is_held else cost

        if given is not None and not self._is_held:
            return given
        by_x = transforms().grad(lagrangian)

        def at(both: Any) -> Any:
            x, multipliers = both[:count], both[count:]
            if type(both) is not np.ndarray:
                found = by_x(x, multipliers)
            else:
                with transforms().alone():  # of numbers, while something else is traced
                    found = by_x(np.array(x), np.array(multipliers))
            return found if given is None else found + np.reshape(as_array(given(x)), -1)

        return at

    @property
    def _is_held(self) -> bool:
        return self.equal is not None or self.above is not None

    def _held(self, x: Any) -> Any:
        parts = [as_array(f(x)) for f in (self.equal, self.above) if f is not None]
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    def multipliers(self, x: Any) -> tuple[Any, Any]:
        """Of numbers: one for each constraint, and which of those that may be slack are met."""
        if not self._is_held:
            return np.zeros(0), np.zeros(0, bool)
        from scipy.optimize import nnls

        count = 0 if self.equal is None else np.size(self.equal(x))
        above = np.zeros(0) if self.above is None else np.asarray(self.above(x))
        all_free = self.equations(np.zeros(len(above), bool), len(x))
        slope = np.asarray(all_free(np.concatenate([x, np.zeros(count + len(above))])))[: len(x)]
        pulls = _jacobian(self._held, x).T
        near = np.flatnonzero(above < 1e-3 * np.maximum(1.0, np.max(np.abs(x), initial=0.0)))
        chosen = [pulls[:, :count], -pulls[:, :count], pulls[:, count + near]]
        given = np.concatenate(chosen, axis=1)
        found = nnls(given, slope)[0] if given.size else np.zeros(0)  # scipy's needs a column
        values = np.zeros(len(above))
        values[near] = found[2 * count :]
        active = values > np.maximum(above, 1e-7 * np.max(np.abs(slope), initial=0.0))
        values[~active] = 0.0
        return np.concatenate([found[:count] - found[count : 2 * count], values]), active


def optimum(
    name: str, known_to: Any, solve: Function, problem: Function, inverse: Function | None = None
) -> tuple[Any, Any]:
    """The x that `solve(*known_to)` finds, the optimum of `problem(*known_to)`.

    `solve` gives a nest of whole numbers beside x, which have no gradient. `inverse` is that of the
    Jacobian of the optimum's equations, where it may have none.
    """
    arrays, fill = taken_apart(known_to)
    recorder = arrays[0].recorder

    def found(values: list[Any]) -> Any:
        given = fill(values)
        with transforms().alone():  # costs, or their slopes, may be compiled
            x, said = solve(*given)
            x = np.asarray(x, np.float64)
            flat = np.reshape(x, -1)
            stated = problem(*given)
            multipliers, active = stated.multipliers(flat)
            both = np.concatenate([flat, multipliers])
            slope = _jacobian(stated.equations(active, flat.size), both)
        turned = _inverse(name, slope) if inverse is None else inverse(slope)
        return x, both, turned, active, said

    x, both, turned, active, said = call_black_box(recorder, name, found, (arrays,), None, None)
    equations = problem(*fill(arrays)).equations(active, x.size)
    moved = _stepped(constant(both), constant(turned), equations)[: x.size]
    return anchored(x, np.reshape(moved, x.shape)), said
