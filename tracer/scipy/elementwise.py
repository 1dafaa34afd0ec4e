"""scipy.optimize.elementwise: a root, or a minimum, for each element of arrays.

    find_root(f, (lower, upper), args=(theta,)).x          f(x, theta) = 0
    find_minimum(f, (left, middle, right), args=(theta,)).x

Differentiated by the implicit function theorem (`implicit`), each element by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.tracer.numpy.functions import as_array
from gradof.tracer.scipy.calls import scipy_function
from gradof.tracer.scipy.implicit import anchored, constant, traced, zero_and_more
from gradof.tracer.scipy.transforms import transforms

Function = Callable[..., Any]
_O = "scipy.optimize"
_FOUND = ("success", "status", "f_x", "nfev", "nit", "bracket", "f_bracket")


def _args_of(args: Any) -> tuple[Any, ...]:
    """What scipy passes on: the items of anything that has some."""
    return tuple(args) if np.iterable(args) else (args,)


def _equation(f: Function, rest: Any) -> Function:
    return lambda x: f(x, *_args_of(rest["args"]))


def _slope(f: Function, rest: Any) -> Function:
    """What is zero at a minimum: the derivative of each element's value."""
    value = _equation(f, rest)
    by_x = transforms().grad(lambda x: np.sum(as_array(value(x))))

    def at(x: Any) -> Any:
        if type(x) is not np.ndarray and not isinstance(x, np.generic):
            return by_x(x)
        with transforms().alone():  # of numbers, while something else is traced
            return by_x(np.array(x))

    return at


def _solved(
    name: str, original: Any, f: Any, init: Any, args: Any, options: dict[str, Any],
    equation: Function,
) -> Any:  # fmt: skip
    rest = {"args": args, "init": init}
    if not traced(f, rest):
        return original(f, init, args=args, **options)
    last: list[Any] = []  # what scipy found, of numbers

    def run(fn: Any, r: Any) -> tuple[Any, Any]:
        last[:] = [original(fn, tuple(r["init"]), args=_args_of(r["args"]), **options)]
        return last[0].x, {key: last[0][key] for key in _FOUND}

    x, said = zero_and_more(f"{_O}.elementwise.{name}", run, f, equation, rest, elementwise=True)
    (like,) = last
    x = x.astype(np.asarray(like.x).dtype)[()]
    # At a root the value stays what it is; at a minimum it changes as f does.
    by_f = constant(said["f_x"]) if name == "find_root" else anchored(
        said["f_x"], as_array(_equation(f, rest)(x))
    )  # fmt: skip
    return type(like)(**{**like, **said, "x": x, "f_x": by_f[()]})


@scipy_function(f"{_O}.elementwise.find_root", at=f"{_O}._elementwise.find_root", raw=True)
def _find_root(original: Any, f: Any, init: Any, /, *, args: Any = (), **options: Any) -> Any:
    return _solved("find_root", original, f, init, args, options, _equation)


@scipy_function(f"{_O}.elementwise.find_minimum", at=f"{_O}._elementwise.find_minimum", raw=True)
def _find_minimum(original: Any, f: Any, init: Any, /, *, args: Any = (), **options: Any) -> Any:
    return _solved("find_minimum", original, f, init, args, options, _slope)
