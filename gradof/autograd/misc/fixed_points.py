"""Fixed points of functions with parameters, differentiated by the implicit function theorem."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradof.autograd.core import make_vjp
from gradof.autograd.primitives import Primitive, defvjp
from gradof.autograd.vspaces import vspace

Function = Callable[..., Any]


@Primitive
def fixed_point(f: Function, a: Any, x0: Any, distance: Function, tol: float) -> Any:
    """x = f(a)(x), from x0, until two iterates are at most `tol` apart."""
    step = f(a)
    x, before = step(x0), x0
    while distance(x, before) > tol:
        x, before = step(x), x
    return x


def _adjoint_step(f: Function) -> Function:
    """One step towards w = J^T w + g, at a fixed point of f."""

    def of_parameters(parameters: Any) -> Function:
        a, x, g = parameters
        pull, _ = make_vjp(f(a), x)
        space = vspace(x)
        return lambda w: space.add(pull(w), g)

    return of_parameters


def _vjp(ans: Any, f: Function, a: Any, x0: Any, distance: Function, tol: float) -> Function:
    def vjp(g: Any) -> Any:
        w = fixed_point(_adjoint_step(f), (a, ans, g), vspace(ans).zeros(), distance, tol)
        return make_vjp(lambda b: f(b)(ans), a)[0](w)

    return vjp


defvjp(fixed_point, None, _vjp, None, None, None)
