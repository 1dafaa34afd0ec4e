"""scipy.optimize: least squares, by the implicit function theorem (see `implicit`).

    curve_fit(model, t, y, p0, sigma)             # dy, dsigma, and by what the model knows
    least_squares(residuals, p0, loss="soft_l1", bounds=(0, b)).x

The parameters are an optimum of half the sum of the residuals' losses. The Jacobian that scipy
reports, and the covariance that follows from it, have the derivatives of the Jacobian of the
residuals there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.tracer.numpy.functions import as_array
from gradof.tracer.scipy.calls import scipy_function
from gradof.tracer.scipy.constraints import held_to
from gradof.tracer.scipy.found import counts_of, result_of
from gradof.tracer.scipy.implicit import Problem, anchored, args_of, optimum, traced
from gradof.tracer.scipy.transforms import transforms

Function = Callable[..., Any]
_O = "scipy.optimize"

# --- losses ---------------------------------------------------------------------------------------


def _huber(z: Any) -> Any:
    large = z > 1
    return np.where(large, 2.0 * np.sqrt(np.where(large, z, 1.0)) - 1.0, z)


_LOSSES: dict[str, Function] = {
    "linear": lambda z: z, "huber": _huber, "soft_l1": lambda z: 2.0 * (np.sqrt(1.0 + z) - 1.0),
    "cauchy": np.log1p, "arctan": np.arctan,
}


def _cost(residuals: Any, loss: Any, scale: Any) -> Any:
    """Half the sum of the losses of residuals."""
    if not isinstance(loss, str):
        raise TypeError("least_squares of traced values with a loss of one's own")
    z = np.square(residuals / scale)
    return 0.5 * np.sum(scale * scale * _LOSSES[loss](z))


def _scaled(jacobian: Any, residuals: Any, loss: Any, scale: Any) -> Any:
    """The Jacobian whose product with itself approximates the Hessian of the cost, as scipy's."""
    if loss == "linear":
        return jacobian
    z = np.square(residuals / scale)
    first = transforms().grad(lambda v: np.sum(_LOSSES[loss](v)))
    slope = first(z)
    curve = transforms().grad(lambda v: np.sum(first(v)))(z)
    weight = slope + 2.0 * curve * z
    least = np.finfo(np.float64).eps
    return jacobian * np.sqrt(np.where(weight < least, least, weight))[:, None]


# --- least_squares --------------------------------------------------------------------------------


def pairs(bounds: Any, count: int) -> Any:
    """The bounds of `least_squares`, two vectors or numbers, as a list of pairs."""
    if hasattr(bounds, "lb"):
        bounds = (bounds.lb, bounds.ub)
    ends = [np.broadcast_to(as_array(e), (count,)) for e in bounds]
    if not any(np.any(np.isfinite(e)) for e in ends):
        return None
    return [(ends[0][i], ends[1][i]) for i in range(count)]


def _residuals(fun: Any, rest: Any) -> Function:
    args, kwargs = args_of(rest["args"]), rest["kwargs"] or {}
    return lambda x: np.reshape(as_array(fun(x, *args, **kwargs)) * 1.0, -1)


def _problem(fun: Any, rest: Any) -> Problem:
    options = rest["options"]
    loss, scale = options.get("loss", "linear"), options.get("f_scale", 1.0)
    of = _residuals(fun, rest)
    count = np.size(rest["start"])
    bounds = options.get("bounds")
    held = held_to(None if bounds is None else pairs(bounds, count), None, count)
    return Problem(lambda x: _cost(of(x), loss, scale), None, *held)


_ORDER = (
    "method", "ftol", "xtol", "gtol", "x_scale", "loss", "f_scale", "diff_step", "tr_solver",
    "tr_options", "jac_sparsity", "max_nfev", "verbose",
)  # fmt: skip


@scipy_function(f"{_O}.least_squares", raw=True)
def _least_squares(
    original: Any, fun: Any, x0: Any, jac: Any = "2-point", bounds: Any = (-np.inf, np.inf),
    *more: Any, args: Any = (), kwargs: Any = None, **options: Any,
) -> Any:  # fmt: skip
    options = {"bounds": bounds, **dict(zip(_ORDER, more, strict=False)), **options}
    kwargs = kwargs or {}  # as scipy before 1.15 has it
    rest = {"start": x0, "args": args, "kwargs": kwargs, "options": options, "jac": jac}
    if not traced(fun, rest):
        return original(fun, x0, jac, args=args, kwargs=kwargs, **options)
    texts: dict[str, Any] = {}

    def run(fn: Any, r: Any) -> tuple[Any, Any]:
        found = original(
            fn, r["start"], r["jac"], args=args_of(r["args"]), kwargs=r["kwargs"], **r["options"]
        )
        counts, others = counts_of(found)
        texts.update(others)
        counts["active_mask"], counts["jac"] = found.active_mask, _dense(found.jac)
        return found.x, counts

    x, counts = optimum(f"{_O}.least_squares", (fun, rest), run, _problem)
    of = _residuals(fun, rest)
    loss, scale = options.get("loss", "linear"), options.get("f_scale", 1.0)
    values = of(x)
    slope = transforms().jacobian(of)(x)
    jacobian = anchored(counts.pop("jac"), _scaled(slope, values, loss, scale))
    cost = _problem(fun, rest).cost
    parts = {
        "x": x, "fun": values, "cost": cost(x), "jac": jacobian, "grad": transforms().grad(cost)(x),
    }
    return result_of("least_squares", {**parts, **counts}, texts)


def _dense(jacobian: Any) -> Any:
    return np.asarray(jacobian.toarray() if hasattr(jacobian, "toarray") else jacobian)


# --- leastsq and curve_fit ------------------------------------------------------------------------


def _covariance(jacobian: Any) -> Any:
    return np.linalg.inv(np.swapaxes(jacobian, 0, 1) @ jacobian)


@scipy_function(f"{_O}.leastsq", raw=True)
def _leastsq(
    original: Any, func: Any, x0: Any, args: Any = (), Dfun: Any = None, full_output: Any = False,
    *more: Any, **options: Any,
) -> Any:  # fmt: skip
    rest = {"start": x0, "args": args, "kwargs": None, "options": {}, "slope": Dfun}
    if not traced(func, rest):
        return original(func, x0, args, Dfun, full_output, *more, **options)
    said: list[str] = []

    def run(fn: Any, r: Any) -> tuple[Any, Any]:
        x, covariance, _, text, status = original(
            fn, r["start"], args_of(r["args"]), r["slope"], True, *more, **options
        )
        said[:] = [text]
        known = () if covariance is None or not full_output else (covariance,)
        return x, (np.int64(status), *known)

    x, (status, *known) = optimum(f"{_O}.leastsq", (func, rest), run, _problem)
    if not full_output:
        return x, status
    of = _residuals(func, rest)
    spread = None
    if known:
        spread = anchored(known[0], _covariance(transforms().jacobian(of)(x)))
    return x, spread, result_of("leastsq", {"fvec": of(x)}, {}), said[0], status


def _weighted(f: Function, x: Any, y: Any, sigma: Any) -> Function:
    """The residuals that `curve_fit` makes small."""
    def of(params: Any) -> Any:
        left = as_array(f(x, *[params[i] for i in range(params.shape[0])])) - y
        if sigma is None:
            return np.reshape(left, -1)
        spread = as_array(sigma)
        if spread.size == 1 or spread.ndim == 1:
            return np.reshape(left / spread, -1)
        return np.linalg.solve(np.linalg.cholesky(spread), left)

    return of


@scipy_function(f"{_O}.curve_fit", raw=True)
def _curve_fit(
    original: Any, f: Any, xdata: Any, ydata: Any, p0: Any = None, sigma: Any = None,
    absolute_sigma: Any = False, check_finite: Any = None, bounds: Any = (-np.inf, np.inf),
    *more: Any, **options: Any,
) -> Any:  # fmt: skip
    rest = {"x": xdata, "y": ydata, "sigma": sigma, "p0": p0, "bounds": bounds}
    if not traced(f, rest):
        return original(f, xdata, ydata, p0, sigma, absolute_sigma, check_finite, bounds, *more,
                        **options)  # fmt: skip
    if options.get("nan_policy") == "omit" or options.get("loss", "linear") != "linear":
        raise TypeError("curve_fit of traced values with nan_policy or loss")
    full = options.pop("full_output", False)

    def run(fn: Any, r: Any) -> tuple[Any, Any]:
        found = original(fn, r["x"], r["y"], r["p0"], r["sigma"], absolute_sigma, check_finite,
                         r["bounds"], *more, full_output=True, **options)  # fmt: skip
        return found[0], (found[1], np.int64(found[4]))

    def problem(fn: Any, r: Any, count: int | None = None) -> Problem:
        of = _weighted(fn, r["x"], as_array(r["y"]) * 1.0, r["sigma"])
        count = _parameters(fn, r) if count is None else count
        held = held_to(pairs(r["bounds"], count), None, count)
        return Problem(lambda p: 0.5 * np.sum(np.square(of(p))), None, *held)

    x, (known, status) = optimum(f"{_O}.curve_fit", (f, rest), run, problem)
    of = _weighted(f, xdata, as_array(ydata) * 1.0, sigma)
    covariance = known
    if np.all(np.isfinite(known)):
        jacobian = transforms().jacobian(of)(x)
        formula = _covariance(jacobian)
        rows, columns = jacobian.shape
        if not absolute_sigma:
            formula = formula * (np.sum(np.square(of(x))) / (rows - columns))
        covariance = anchored(known, formula)
    if not full:
        return x, covariance
    return x, covariance, result_of("curve_fit", {"fvec": of(x)}, {}), "", status


def _parameters(f: Any, rest: Any) -> int:
    """How many parameters a model has, as `curve_fit` counts them."""
    if rest["p0"] is not None:
        return int(np.size(rest["p0"]))
    import inspect

    return len(inspect.signature(f).parameters) - 1
