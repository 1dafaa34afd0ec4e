"""scipy.integrate: integrals of functions, differentiated under the integral sign.

    quad(lambda t: np.exp(-a * t), 0.0, b)[0]    # da: the integral of -t exp(-a t); db: exp(-a b)

scipy computes the integral whenever the graph runs, from numbers. Its gradient is another integral,
of the compiled gradient of the integrand, to 1e-10, and what the ends add. That is recorded in the
same way, so that there are derivatives of any order.

Note [Integrals of few numbers]
Each of them is an integral of its own to QUADPACK (`quad`), which is in C; the integrand is asked
once for each of its points. Of many they are one integral to `quad_vec`, which is in Python.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.black_box import call as call_black_box
from gradof.tracer.numpy.floats import as_float
from gradof.tracer.numpy.functions import as_array
from gradof.tracer.scipy.calls import original_of, scipy_function
from gradof.tracer.scipy.closures import known, taken_apart, untraced
from gradof.tracer.scipy.emit import in_double
from gradof.tracer.scipy.transforms import traced_rule, transforms

Function = Callable[..., Any]
_I = "scipy.integrate"
_PRECISION = {"epsabs": 1e-12, "epsrel": 1e-10}  # of the integrals that gradients are
_PIECES = 1000  # at most, of an interval
_FEW = 16  # numbers of an integral that QUADPACK computes one by one


def _args(args: Any) -> tuple[Any, ...]:
    return args if isinstance(args, tuple) else (args,)


def _live(arrays: Sequence[Any]) -> list[int]:
    """The arrays that have gradients."""
    return [i for i, a in enumerate(arrays) if as_array(a).dtype.kind == "f"]


@dataclass(frozen=True)
class Integrand:
    """A function of x that knows arrays: `of(arrays)(x)`, and of numbers `of_numbers(arrays)`."""

    of: Function
    of_numbers: Function

    def __call__(self, x: Any, *given: Any) -> Any:
        """Its value at x."""
        return self.of(given)(x)


def integral(
    name: str, integrand: Integrand, a: Any, b: Any, arrays: Sequence[Any], compute: Function,
    points: Any = None,
) -> Any:  # fmt: skip
    """The integral of `integrand` from a to b; `compute(f, a, b)` gives its numbers.

    `points` are where the integrand may have kinks, and its derivatives may have jumps.
    """
    a, b = map(_fixed_if_infinite, (a, b))
    return _integral(name, integrand, a, b, arrays, compute, points)


def _integral(
    name: str, integrand: Integrand, a: Any, b: Any, arrays: Sequence[Any], compute: Function,
    points: Any,
) -> Any:  # fmt: skip
    def run(ends: Any, given: Any) -> Any:
        with transforms().alone():
            return compute(integrand.of_numbers(given), *map(float, ends))

    @traced_rule
    def rule(args: Any, result: Any, g: Any) -> list[Any]:
        (start, end), given = args
        given = list(map(in_double, given))
        inside = _integral_of_gradient(name, integrand, start, end, given, g, points)
        return [-_at_end(integrand, start, given, g), _at_end(integrand, end, given, g), *inside]

    recorder = next(x for x in (a, b, *arrays) if type(x) is TracedArray).recorder
    return call_black_box(recorder, name, run, ((a, b), list(arrays)), None, rule)


def _fixed_if_infinite(end: Any) -> Any:
    """An infinite end as a constant: the derivative of `-inf * scale` would be nan."""
    if type(end) is not TracedArray or not bool(np.isinf(end)):
        return end
    return np.inf if bool(end > 0) else -np.inf


def _at_end(integrand: Integrand, end: Any, given: Sequence[Any], g: Any) -> Any:
    """What an integral gains where its end moves; nothing at infinity."""
    if type(end) is not TracedArray:
        return 0.0
    inside = np.isfinite(end)
    value = np.sum(g * integrand(np.where(inside, end, 0.0), *given))
    return np.where(inside, value, 0.0)


def _integral_of_gradient(
    name: str, integrand: Integrand, a: Any, b: Any, given: Sequence[Any], g: Any, points: Any
) -> list[Any]:
    """One gradient or None for each array: the integral of g's product with the derivative."""
    live = _live(given)
    if not live:
        return [None] * len(given)
    shapes = [np.shape(given[i]) for i in live]
    sizes = [math.prod(shape) for shape in shapes]
    slope = transforms().grad(
        lambda x, g, *arrays: np.sum(g * integrand(x, *arrays)), tuple(2 + i for i in live)
    )

    def flat(x: Any, g: Any, *arrays: Any) -> Any:
        return np.concatenate([np.reshape(d, -1) for d in slope(x, g, *arrays)])

    def numbers(arrays: Sequence[Any]) -> Function:
        run = compiled.run(*arrays)
        return lambda x: run(np.float64(x))  # of Python's numbers all is asked

    compiled = transforms().steady(flat)
    inside = Integrand(lambda arrays: lambda x: flat(x, *arrays), numbers)
    compute = functools.partial(_each, sum(sizes), points)
    found = _integral(name, inside, a, b, [g, *given], compute, points)
    grads: list[Any] = [None] * len(given)
    start = 0
    for i, shape, size in zip(live, shapes, sizes, strict=True):
        grads[i] = np.reshape(found[start : start + size], shape)
        start += size
    return grads


def _each(count: int, points: Any, f: Function, a: float, b: float) -> Any:
    """The integral of an array of `count` numbers; see Note [Integrals of few numbers]."""
    if count > _FEW:
        return original_of(f"{_I}.quad_vec")(f, a, b, points=points, **_PRECISION)[0]
    options = {"full_output": 1, "limit": _PIECES, "points": points, **_PRECISION}  # no warnings
    quad = original_of(f"{_I}.quad")
    asked = functools.cache(lambda x: f(x).tolist())
    return np.array([
        quad(lambda x, i=i: asked(x)[i], a, b, **options)[0] for i in range(count)
    ])  # fmt: skip


def _traced(*values: Any) -> bool:
    return bool(known(values))


def _recorded(
    name: str, f: Function, a: Any, b: Any, args: Any, compute: Function, points: Any
) -> Any:
    arrays, fill = taken_apart((f, _args(args)))

    def of(given: Sequence[Any]) -> Function:
        fn, others = fill(given)
        return lambda x: fn(x, *others)

    return integral(name, Integrand(of, of), a, b, arrays, compute, points)


@scipy_function(f"{_I}.quad", raw=True)
def _quad(
    original: Any, func: Any, a: Any, b: Any, args: Any = (), full_output: Any = 0, **options: Any
) -> Any:
    if not _traced(func, a, b, args):
        return original(func, a, b, args, full_output, **options)
    unknown = options.keys() - {"epsabs", "epsrel", "limit", "points"}
    if full_output or any(options[name] is not None for name in unknown):
        raise TypeError(f"quad of traced values with {', '.join(sorted(unknown)) or 'full_output'}")
    error: list[Any] = []

    def compute(f: Function, a: float, b: float) -> Any:
        found = original(f, a, b, **options)
        error[:] = found[1:2]
        return found[0]

    value = _recorded(f"{_I}.quad", func, a, b, args, compute, options.get("points"))
    return as_float(value), error[0]


@scipy_function(f"{_I}.quad_vec", raw=True)
def _quad_vec(original: Any, f: Any, a: Any, b: Any, *more: Any, **options: Any) -> Any:
    args = options.get("args", ())
    if not _traced(f, a, b, args):
        return original(f, a, b, *more, **options)
    if more or options.get("full_output"):
        raise TypeError("quad_vec of traced values with options by position or full_output")
    kept = {k: v for k, v in options.items() if k != "args"}
    error: list[Any] = []

    def compute(fn: Function, a: float, b: float) -> Any:
        found = original(fn, a, b, **kept)
        error[:] = found[1:2]
        return found[0]

    value = _recorded(f"{_I}.quad_vec", f, a, b, args, compute, kept.get("points"))
    return value, error[0]


@scipy_function(f"{_I}.nquad", raw=True)  # dblquad and tplquad call it
def _nquad(
    original: Any, func: Any, ranges: Any, args: Any = None, opts: Any = None,
    full_output: bool = False,
) -> Any:  # fmt: skip
    if not _traced(func, ranges, args):
        return original(func, ranges, args, opts, full_output)
    rest = () if args is None else _args(args)
    options = [opts or {}] * len(ranges) if opts is None or isinstance(opts, dict) else opts
    if full_output or any(callable(o) for o in options):
        raise TypeError("nquad of traced values with full_output or options that are functions")

    def level(i: int, *xs: Any) -> Any:
        if i < 0:
            return func(*xs, *rest)
        low, high = ranges[i](*xs, *rest) if callable(ranges[i]) else ranges[i]
        return integrate.quad(lambda x: level(i - 1, x, *xs), low, high, **options[i])[0]

    integrate = importlib.import_module(_I)
    error = original(*untraced((func, ranges, args)), opts)[1]
    return level(len(ranges) - 1), error
