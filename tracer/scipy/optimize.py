"""scipy.optimize: roots and minima by the implicit function theorem.

    brentq(lambda t: t**3 - a, 0, 4)          # da: that of the equation, at the root
    root(f, x0, args=(theta,)).x
    minimize(cost, x0, args=(data,)).x

scipy finds the root whenever the graph runs, from numbers, together with the Jacobian there by
differences. To the graph both are constants; chord steps from the root, x - J^-1 f(x, theta), leave
it where it is, and the k-th has the root's derivatives up to order k. An error of J counts by its
k-th power. Functions may know traced arrays by their arguments, their closures or partials.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.ops.expr import F
from gradof.tracer.numpy.black_box import call as call_black_box
from gradof.tracer.numpy.functions import as_array
from gradof.tracer.numpy.recorder import real
from gradof.tracer.scipy.calls import scipy_function
from gradof.tracer.scipy.closures import known, taken_apart, untraced
from gradof.tracer.scipy.emit import float_dtype
from gradof.tracer.scipy.transforms import transforms

Function = Callable[..., Any]
STEPS = 3  # derivatives up to the third
_O = "scipy.optimize"

# --- roots ----------------------------------------------------------------------------------------


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


def solution(name: str, solve: Function, f: Function, residual: Function, rest: Any) -> Any:
    """The x that `solve(f, rest)` finds, a zero of `residual(f, rest)(x)`, with derivatives."""
    arrays, fill = taken_apart((f, rest))
    recorder = arrays[0].recorder

    def found(values: list[Any]) -> Any:
        fn, others = fill(values)
        x = np.asarray(solve(fn, others), np.float64)
        return x, _jacobian(residual(fn, others), x)

    at, slope = call_black_box(recorder, name, found, (arrays,), None, None)
    at, slope = (recorder.wrap(real(v), F.detach(as_array(v).expr)) for v in (at, slope))
    equation = residual(*fill(arrays))
    x = at
    for _ in range(STEPS):
        left = np.reshape(as_array(equation(x)), -1)
        x = x - np.reshape(np.linalg.solve(slope, left), at.shape)
    return at + (x - recorder.wrap(real(x), F.detach(x.expr)))


def _traced(*values: Any) -> bool:
    return bool(known(values))


def _args(args: Any) -> tuple[Any, ...]:
    return args if isinstance(args, tuple) else (args,)


def _equation(f: Function, rest: Any) -> Function:
    return lambda x: f(x, *_args(rest["args"]))


def _bracketed(name: str) -> None:
    @scipy_function(f"{_O}.{name}", raw=True)
    def record(original: Any, f: Any, a: Any, b: Any, args: Any = (), *more: Any, **options: Any
               ) -> Any:  # fmt: skip
        rest = {"args": args, "ends": (a, b)}
        if not _traced(f, rest):
            return original(f, a, b, args, *more, **options)
        if more or options.get("full_output"):
            raise TypeError(f"{name} of traced values with options by position or full_output")
        x = solution(
            f"{_O}.{name}", lambda fn, r: original(fn, *r["ends"], _args(r["args"]), **options),
            f, _equation, rest,
        )[()]  # fmt: skip
        return x.astype(float_dtype(*taken_apart((f, rest))[0]))  # scipy's is a number of Python's


for _name in ("brentq", "brenth", "bisect", "ridder"):
    _bracketed(_name)


@scipy_function(f"{_O}.newton", raw=True)
def _newton(
    original: Any, func: Any, x0: Any, fprime: Any = None, args: Any = (), **options: Any
) -> Any:
    rest = {"args": args, "start": x0, "fprime": fprime}
    if not _traced(func, rest):
        return original(func, x0, fprime, args, **options)
    if np.ndim(x0) or options.get("full_output"):
        raise TypeError("newton of traced values with several starts or full_output")
    return solution(
        f"{_O}.newton",
        lambda fn, r: original(fn, r["start"], r["fprime"], _args(r["args"]), **options),
        func, _equation, rest,
    )[()]  # fmt: skip


@scipy_function(f"{_O}.fsolve", raw=True)
def _fsolve(original: Any, func: Any, x0: Any, args: Any = (), **options: Any) -> Any:
    rest = {"args": args, "start": x0}
    if not _traced(func, rest):
        return original(func, x0, args, **options)
    if options.get("full_output"):
        raise TypeError("fsolve of traced values with full_output")
    return solution(
        f"{_O}.fsolve", lambda fn, r: original(fn, r["start"], _args(r["args"]), **options),
        func, _equation, rest,
    )  # fmt: skip


@scipy_function(f"{_O}.fixed_point", raw=True)
def _fixed_point(original: Any, func: Any, x0: Any, args: Any = (), **options: Any) -> Any:
    rest = {"args": args, "start": x0}
    if not _traced(func, rest):
        return original(func, x0, args, **options)
    x = solution(
        f"{_O}.fixed_point", lambda fn, r: original(fn, r["start"], _args(r["args"]), **options),
        func, lambda f, r: lambda x: f(x, *_args(r["args"])) - x, rest,
    )  # fmt: skip
    start = as_array(x0).dtype
    return x.astype(start) if start.kind == "f" else x


@scipy_function(f"{_O}.root", raw=True)
def _root(original: Any, fun: Any, x0: Any, args: Any = (), method: str = "hybr", **options: Any
          ) -> Any:  # fmt: skip
    rest = {"args": args, "start": x0, "options": options}
    if not _traced(fun, rest):
        return original(fun, x0, args, method, **options)
    if options.get("jac") is True:
        raise TypeError("root of traced values with jac=True")

    def solve(fn: Any, r: Any) -> Any:
        return original(fn, r["start"], _args(r["args"]), method, **r["options"]).x

    result = _result(original, fun, rest, method)
    result["x"] = solution(f"{_O}.root", solve, fun, _equation, rest)
    result["fun"] = _equation(fun, rest)(result["x"])
    return result


def _result(original: Any, fun: Any, rest: Any, method: Any) -> Any:
    """What scipy says of this run beside the solution: whether it succeeded, and why not."""
    fn, others = untraced((fun, rest))
    said = original(fn, others["start"], _args(others["args"]), method, **others["options"])
    return type(said)({k: v for k, v in said.items() if k in ("success", "status", "message")})


# --- minima ---------------------------------------------------------------------------------------


def _slope(fun: Function, rest: Any) -> Function:
    jac = rest["options"].get("jac")
    args = _args(rest["args"])
    if callable(jac):
        return lambda x: jac(x, *args)
    cost = (lambda x: fun(x, *args)[0]) if jac is True else (lambda x: fun(x, *args))
    slope = transforms().grad(cost)

    def at(x: Any) -> Any:
        if type(x) is not np.ndarray:
            return slope(x)
        with transforms().alone():  # of numbers, while something else is traced
            return slope(x)

    return at


@scipy_function(f"{_O}.minimize", raw=True)
def _minimize(
    original: Any, fun: Any, x0: Any, args: Any = (), method: Any = None, **options: Any
) -> Any:
    rest = {"args": args, "start": x0, "options": options}
    if not _traced(fun, rest):
        return original(fun, x0, args, method, **options)
    if options.get("bounds") is not None or options.get("constraints"):
        raise TypeError("minimize of traced values with bounds or constraints")

    def solve(fn: Any, r: Any) -> Any:
        return original(fn, r["start"], _args(r["args"]), method, **r["options"]).x

    result = _result(original, fun, rest, method)
    result["x"] = solution(f"{_O}.minimize", solve, fun, _slope, rest)
    value = fun(result["x"], *_args(args))
    result["fun"] = value[0] if options.get("jac") is True else value
    return result


# --- others ---------------------------------------------------------------------------------------


@scipy_function(f"{_O}.rosen", raw=True)
def _rosen(original: Any, x: Any) -> Any:
    if not _traced(x):
        return original(x)
    x = as_array(x)
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2, axis=0)
