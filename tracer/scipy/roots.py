"""scipy.optimize: roots of equations, by the implicit function theorem (see `implicit`).

    brentq(lambda t: t**3 - a, 0, 4)          # da: that of the equation, at the root
    root(f, x0, args=(theta,)).x
    root_scalar(f, bracket=(0, 4)).root
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.tracer.numpy.floats import as_float
from gradof.tracer.numpy.functions import as_array
from gradof.tracer.scipy.calls import scipy_function
from gradof.tracer.scipy.found import counts_of, result_of
from gradof.tracer.scipy.implicit import args_of, traced, zero, zero_and_more

Function = Callable[..., Any]
_O = "scipy.optimize"


def _equation(f: Function, rest: Any) -> Function:
    return lambda x: f(x, *args_of(rest["args"]))


def _as_found(x: Any, kind: type) -> Any:
    """scipy's number: Python's own, or numpy's."""
    return as_float(x) if kind is float else x[()]


def _report(
    name: str, f: Any, rest: Any, solve: Function, equation: Function = _equation
) -> tuple[Any, Any]:
    """The root, and scipy's report of it: a RootResults."""
    from scipy.optimize import RootResults

    texts: dict[str, Any] = {}
    kinds: list[type] = []

    def run(fn: Any, r: Any) -> tuple[Any, Any]:
        x, said = solve(fn, r)
        counts, others = counts_of(said)
        texts.update(others)
        kinds[:] = [type(x)]
        return x, counts

    x, counts = zero_and_more(name, run, f, equation, rest)
    x = _as_found(x, kinds[0])
    report = RootResults(x, counts["iterations"], counts["function_calls"], 0, texts["method"])
    report["converged"], report["flag"] = counts["converged"], texts["flag"]
    return x, report


def _bracketed(name: str) -> None:
    @scipy_function(f"{_O}.{name}", raw=True)
    def record(original: Any, f: Any, a: Any, b: Any, args: Any = (), *more: Any, **options: Any
               ) -> Any:  # fmt: skip
        rest = {"args": args, "ends": (a, b)}
        if not traced(f, rest):
            return original(f, a, b, args, *more, **options)
        if more:
            raise TypeError(f"{name} of traced values with options by position")

        kinds: list[type] = []

        def solve(fn: Any, r: Any) -> Any:
            found = original(fn, *r["ends"], args_of(r["args"]), **options)
            kinds[:] = [type(found)]
            return found

        if options.get("full_output"):
            return _report(f"{_O}.{name}", f, rest, solve)
        x = zero(f"{_O}.{name}", solve, f, _equation, rest)
        return _as_found(x, kinds[0])


for _name in ("brentq", "brenth", "bisect", "ridder", "toms748"):
    _bracketed(_name)


def _spread(f: Function, rest: Any) -> Function:
    return lambda x: f(x, *rest["args"])


@scipy_function(f"{_O}.newton", raw=True)
def _newton(
    original: Any, func: Any, x0: Any, fprime: Any = None, args: Any = (), **options: Any
) -> Any:
    rest = {"args": args, "start": x0, "fprime": fprime, "options": options}
    if not traced(func, rest):
        return original(func, x0, fprime, args, **options)

    def solve(fn: Any, r: Any) -> Any:
        return original(fn, r["start"], r["fprime"], r["args"], **r["options"])

    if np.size(x0) > 1:
        return _newton_of_each(func, rest, solve)
    if options.get("full_output"):
        return _report(f"{_O}.newton", func, rest, solve, _spread)
    return zero(f"{_O}.newton", solve, func, _spread, rest)[()]


def _newton_of_each(func: Any, rest: Any, solve: Function) -> Any:
    """Of several starts: an equation each."""
    kinds: list[type] = []

    def run(fn: Any, r: Any) -> tuple[Any, Any]:
        found = solve(fn, r)
        kinds[:] = [type(found)]
        return (found, ()) if isinstance(found, np.ndarray) else (found[0], tuple(found[1:]))

    x, said = zero_and_more(f"{_O}.newton", run, func, _spread, rest, elementwise=True)
    return kinds[0](x, *said) if said else x


@scipy_function(f"{_O}.root_scalar", raw=True)
def _root_scalar(original: Any, f: Any, args: Any = (), method: Any = None, *more: Any,
                 **options: Any) -> Any:  # fmt: skip
    rest = {"args": args, "options": options}
    if not traced(f, rest):
        return original(f, args, method, *more, **options)
    if more:
        raise TypeError("root_scalar of traced values with options by position")
    both = options.get("fprime") is True or options.get("fprime2") is True

    def solve(fn: Any, r: Any) -> Any:
        found = original(fn, args_of(r["args"]), method, **r["options"])
        return found.root, found

    def equation(f: Function, r: Any) -> Function:  # which may give its slope, too
        return lambda x: f(x, *args_of(r["args"]))[0] if both else _equation(f, r)(x)

    return _report(f"{_O}.root_scalar", f, rest, solve, equation)[1]


@scipy_function(f"{_O}.fsolve", raw=True)
def _fsolve(original: Any, func: Any, x0: Any, args: Any = (), **options: Any) -> Any:
    rest = {"args": args, "start": x0}
    if not traced(func, rest):
        return original(func, x0, args, **options)
    if options.get("full_output"):
        raise TypeError("fsolve of traced values with full_output: root tells of success")

    def solve(fn: Any, r: Any) -> Any:
        return original(fn, r["start"], args_of(r["args"]), **options)

    return zero(f"{_O}.fsolve", solve, func, _equation, rest)


@scipy_function(f"{_O}.fixed_point", raw=True)
def _fixed_point(original: Any, func: Any, x0: Any, args: Any = (), **options: Any) -> Any:
    rest = {"args": args, "start": x0}
    if not traced(func, rest):
        return original(func, x0, args, **options)
    x = zero(
        f"{_O}.fixed_point", lambda fn, r: original(fn, r["start"], args_of(r["args"]), **options),
        func, lambda f, r: lambda x: f(x, *args_of(r["args"])) - x, rest,
    )  # fmt: skip
    start = as_array(x0).dtype
    return x.astype(start) if start.kind == "f" else x


@scipy_function(f"{_O}.root", raw=True)
def _root(original: Any, fun: Any, x0: Any, args: Any = (), method: str = "hybr", **options: Any
          ) -> Any:  # fmt: skip
    rest = {"args": args, "start": x0, "options": options}
    if not traced(fun, rest):
        return original(fun, x0, args, method, **options)
    both = options.get("jac") is True
    texts: dict[str, Any] = {}

    def solve(fn: Any, r: Any) -> Any:
        found = original(fn, r["start"], args_of(r["args"]), method, **r["options"])
        counts, others = counts_of(found)
        texts.update(others)
        return found.x, counts

    def equation(f: Function, r: Any) -> Function:
        return lambda x: f(x, *args_of(r["args"]))[0] if both else _equation(f, r)(x)

    x, counts = zero_and_more(f"{_O}.root", solve, fun, equation, rest)
    return result_of("root", {"x": x, "fun": as_array(equation(fun, rest)(x)), **counts}, texts)
