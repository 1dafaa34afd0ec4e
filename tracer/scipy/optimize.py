"""scipy.optimize: minima, by the implicit function theorem (see `implicit`).

    minimize(cost, x0, args=(data,), bounds=[(0, 1), (None, b)], constraints=...).x
    fmin_bfgs(cost, x0)
    minimize_scalar(cost, bounds=(0, b), method="bounded").x

Bounds and constraints may be traced, too. Solvers for global minima are differentiated in the same
way, at the minimum that they find.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.tracer.numpy.functions import as_array
from gradof.tracer.scipy.calls import ADAPTORS, original_of, scipy_function
from gradof.tracer.scipy.constraints import held_to
from gradof.tracer.scipy.found import counts_of, result_of
from gradof.tracer.scipy.implicit import Problem, args_of, optimum, traced

Function = Callable[..., Any]
_O = "scipy.optimize"


def _first(fun: Function) -> Function:
    return lambda *args: fun(*args)[0]


def _with_args(fun: Function, args: Any) -> Function:
    return lambda x: fun(x, *args_of(args))


def _problem(fun: Any, rest: Any) -> Problem:
    options, args = rest["options"], rest["args"]
    jac = options.get("jac")
    cost = _with_args(_first(fun) if jac is True else fun, args)
    slope = _with_args(jac, args) if callable(jac) else None
    count = np.size(rest["start"])
    return Problem(
        cost, slope, *held_to(options.get("bounds"), options.get("constraints"), count)
    )


@scipy_function(f"{_O}.minimize", raw=True)
def _minimize(
    original: Any, fun: Any, x0: Any, args: Any = (), method: Any = None, *more: Any, **options: Any
) -> Any:
    names = ("jac", "hess", "hessp", "bounds", "constraints", "tol", "callback", "options")
    options = {**dict(zip(names, more, strict=False)), **options}
    rest = {"args": args, "start": x0, "options": options}
    if not traced(fun, rest):
        return original(fun, x0, args, method, **options)

    def solve(fn: Any, r: Any) -> Any:
        return original(fn, r["start"], args_of(r["args"]), method, **r["options"])

    return _minimized("minimize", solve, fun, rest)


def _minimized(name: str, solve: Function, fun: Any, rest: Any) -> Any:
    texts: dict[str, Any] = {}

    def run(fn: Any, r: Any) -> tuple[Any, Any]:
        found = solve(fn, r)
        counts, others = counts_of(found)
        texts.update(others)
        return found.x, counts

    x, counts = optimum(f"{_O}.{name}", (fun, rest), run, _problem)
    return result_of(name, {"x": x, "fun": _problem(fun, rest).cost(x), **counts}, texts)


# --- of one number --------------------------------------------------------------------------------


def _of_one(fun: Any, rest: Any) -> Problem:
    cost = _with_args(fun, rest["args"])
    return Problem(lambda x: cost(x[0]), None, *held_to(_one(rest["bounds"]), None, 1))


def _one(bounds: Any) -> Any:
    return None if bounds is None else [tuple(bounds)]


@scipy_function(f"{_O}.minimize_scalar", raw=True)
def _minimize_scalar(
    original: Any, fun: Any, bracket: Any = None, bounds: Any = None, args: Any = (),
    method: Any = None, tol: Any = None, options: Any = None,
) -> Any:  # fmt: skip
    rest = {"args": args, "bracket": bracket, "bounds": bounds, "options": options}
    if not traced(fun, rest):
        return original(fun, bracket, bounds, args, method, tol, options)
    texts: dict[str, Any] = {}

    def run(fn: Any, r: Any) -> tuple[Any, Any]:
        found = original(
            fn, r["bracket"], r["bounds"], args_of(r["args"]), method, tol, r["options"]
        )
        counts, others = counts_of(found)
        texts.update(others)
        return np.reshape(found.x, ()), counts

    x, counts = optimum(f"{_O}.minimize_scalar", (fun, rest), run, _of_one)
    x = x[()]
    value = _with_args(fun, args)(x)
    return result_of("minimize_scalar", {"x": x, "fun": value, **counts}, texts)


def _scalar(name: str, bounded: bool) -> None:
    """A minimum of a function of one number: fminbound, brent, golden."""

    @scipy_function(f"{_O}.{name}", raw=True)
    def record(original: Any, *args: Any, **kwargs: Any) -> Any:
        if not traced(args, kwargs):
            return original(*args, **kwargs)
        given = _named(original, args, kwargs)
        func = given["func"]
        if given.get("full_output"):
            raise TypeError(f"{name} of traced values with full_output: use minimize_scalar")
        options = {k: v for k, v in given.items() if k not in ("func", "args")}
        bounds = (given["x1"], given["x2"]) if bounded else None
        rest = {"args": given.get("args", ()), "options": options, "bounds": bounds}

        def run(fn: Any, r: Any) -> tuple[Any, Any]:
            return np.reshape(original(fn, args=args_of(r["args"]), **r["options"]), ()), ()

        x, _ = optimum(f"{_O}.{name}", (func, rest), run, _of_one)
        return x[()]


_scalar("fminbound", True)
_scalar("brent", False)
_scalar("golden", False)


# --- older names, and global minima ---------------------------------------------------------------


def _named(original: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """The arguments of a call by name, those that are given."""
    return {**inspect.signature(original).bind_partial(*args).arguments, **kwargs}


def _of_named(name: str) -> Function:
    """What a call of an older function asks for, by its arguments."""

    def problem(given: Any) -> Problem:
        fun = given.get("func", given.get("f"))
        args = given.get("args", ())
        inner = given.get("minimizer_kwargs")
        if name == "basinhopping" and inner is not None:
            args = inner.get("args", ())
            if inner.get("bounds") is not None or inner.get("constraints"):
                raise TypeError("basinhopping of traced values with bounds or constraints")
        joint = name in ("fmin_l_bfgs_b", "fmin_tnc") and (
            given.get("fprime") is None and not given.get("approx_grad")
        )
        joint = joint or (inner or {}).get("jac") is True
        cost = _with_args(_first(fun) if joint else fun, args)
        slope = given.get("fprime")
        start = given.get("x0")
        ends = given.get("bounds", given.get("ranges"))
        count = len(ends) if start is None else np.size(start)
        held = held_to(ends or None, given.get("constraints") or None, count)
        return Problem(cost, _with_args(slope, args) if callable(slope) else None, *held)

    return problem


def _own_code(finish: Any) -> Any:
    """A solver whose parameters `brute` looks at, as it is without a trace."""
    name = finish if isinstance(finish, str) else getattr(finish, "__name__", "")
    return original_of(f"{_O}.{name}") if f"{_O}.{name}" in ADAPTORS else finish


def _older(name: str) -> None:
    @scipy_function(f"{_O}.{name}", raw=True)
    def record(original: Any, *args: Any, **kwargs: Any) -> Any:
        if not traced(args, kwargs):
            return original(*args, **kwargs)
        given = _named(original, args, kwargs)
        if name == "brute":
            given["finish"] = _own_code(given.get("finish", "fmin"))
        if given.get("full_output") or given.get("retall"):
            raise TypeError(f"{name} of traced values with full_output or retall: use minimize")
        texts: dict[str, Any] = {}
        whole: list[bool] = []

        def run(given: Any) -> tuple[Any, Any]:
            found = original(**given)
            if isinstance(found, dict):
                counts, others = counts_of(found)
                texts.update(others)
                whole[:] = [True]
                return found["x"], counts
            whole[:] = [False]
            if name == "fmin_l_bfgs_b":
                return found[0], counts_of(found[2])[0]
            if name == "fmin_tnc":
                return found[0], tuple(map(np.int64, found[1:]))
            return found, ()

        problem = _of_named(name)
        x, counts = optimum(f"{_O}.{name}", (given,), run, problem)
        if whole[0]:
            value = problem(given).cost(x)
            return result_of(name, {"x": x, "fun": value, **counts}, texts)
        if name == "fmin_l_bfgs_b":
            return x, problem(given).cost(x), result_of(name, counts, {})
        return (x, *counts) if name == "fmin_tnc" else x


for _name in (
    "fmin", "fmin_bfgs", "fmin_cg", "fmin_ncg", "fmin_powell", "fmin_l_bfgs_b", "fmin_tnc", "brute",
    "basinhopping", "differential_evolution", "dual_annealing", "shgo", "direct",
):  # fmt: skip
    _older(_name)


@scipy_function(f"{_O}.fmin_slsqp", raw=True)
def _fmin_slsqp(original: Any, *args: Any, **kwargs: Any) -> Any:
    if not traced(args, kwargs):
        return original(*args, **kwargs)
    given = _named(original, args, kwargs)
    if given.get("full_output"):
        raise TypeError("fmin_slsqp of traced values with full_output: use minimize")

    def problem(given: Any) -> Problem:
        rest = given.get("args", ())
        constraints = [
            {"type": kind, "fun": f, "args": args_of(rest)}
            for kind, one, many in (("eq", "eqcons", "f_eqcons"), ("ineq", "ieqcons", "f_ieqcons"))
            for f in ([given[many]] if given.get(many) is not None else given.get(one, ()))
        ]
        held = held_to(given.get("bounds") or None, constraints or None, np.size(given["x0"]))
        slope = given.get("fprime")
        return Problem(_with_args(given["func"], rest),
                       None if slope is None else _with_args(slope, rest), *held)  # fmt: skip

    return optimum(f"{_O}.fmin_slsqp", (given,), lambda g: (original(**g), ()), problem)[0]


# --- Rosenbrock's function ------------------------------------------------------------------------


@scipy_function(f"{_O}.rosen")
def _rosen(x: Any) -> Any:
    x = as_array(x)
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2, axis=0)


@scipy_function(f"{_O}.rosen_der")
def _rosen_der(x: Any) -> Any:
    x = as_array(x)
    off = x[1:] - x[:-1] ** 2
    zero = x[:1] * 0.0
    return np.concatenate([-400.0 * off * x[:-1] - 2.0 * (1 - x[:-1]), zero]) + np.concatenate(
        [zero, 200.0 * off]
    )


@scipy_function(f"{_O}.rosen_hess")
def _rosen_hess(x: Any) -> Any:
    x = as_array(x)
    n = len(x)
    beside = np.diag(-400.0 * x[:-1], 1) + np.diag(-400.0 * x[:-1], -1)
    first = np.concatenate([1200.0 * x[:-1] ** 2 - 400.0 * x[1:] + 2.0, x[:1] * 0.0])
    return beside + np.diag(first + np.array([0.0] + [200.0] * (n - 1)))


@scipy_function(f"{_O}.rosen_hess_prod")
def _rosen_hess_prod(x: Any, p: Any) -> Any:
    return _rosen_hess(x) @ as_array(p)
