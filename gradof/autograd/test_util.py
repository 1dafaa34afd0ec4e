"""Derivatives against finite differences, in both modes, to second order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from gradof.autograd.core import make_jvp, make_vjp, vspace
from gradof.autograd.wrap_util import get_name, unary_to_nary

TOL = RTOL = EPS = 1e-6
Function = Callable[..., Any]


def scalar_close(a: Any, b: Any) -> bool:
    """Whether two numbers agree to 1e-6, absolutely or relatively."""
    return bool(abs(a - b) < TOL or abs(a - b) / abs(a + b) < RTOL)


def make_numerical_jvp(f: Function, x: Any) -> Function:
    """The derivative of f at x along a vector, by central differences."""
    x_vs, y_vs = vspace(x), vspace(f(x))

    def jvp(v: Any) -> Any:
        ahead = f(x_vs.add(x, x_vs.scalar_mul(v, EPS / 2)))
        behind = f(x_vs.add(x, x_vs.scalar_mul(v, -EPS / 2)))
        return y_vs.scalar_mul(y_vs.add(ahead, y_vs.scalar_mul(behind, -1.0)), 1.0 / EPS)

    return jvp


def check_vjp(f: Function, x: Any) -> None:
    """Compare the pullback of f at x with differences, on random vectors."""
    vjp, y = make_vjp(f, x)
    jvp = make_numerical_jvp(f, x)
    x_vs, y_vs = vspace(x), vspace(y)
    x_v, y_v = x_vs.randn(), y_vs.randn()
    vjp_y = x_vs.covector(vjp(y_vs.covector(y_v)))
    assert vspace(vjp_y) == x_vs, f"{vspace(vjp_y)} is not {x_vs}"
    exact, numeric = x_vs.inner_prod(x_v, vjp_y), y_vs.inner_prod(y_v, jvp(x_v))
    assert scalar_close(numeric, exact), (
        f"Derivative (VJP) check of {get_name(f)} failed with arg {x}:\nanalytic: {exact}\n"
        f"numeric:  {numeric}"
    )


def check_jvp(f: Function, x: Any) -> None:
    """Compare the pushforward of f at x with differences, on a random vector."""
    v = vspace(x).randn()
    check_equivalent(make_jvp(f, x)(v)[1], make_numerical_jvp(f, x)(v))


def check_equivalent(x: Any, y: Any) -> None:
    """Whether two values are in one space, and close along a random vector."""
    x_vs, y_vs = vspace(x), vspace(y)
    assert x_vs == y_vs, f"VSpace mismatch:\nx: {x_vs}\ny: {y_vs}"
    v = x_vs.randn()
    assert scalar_close(x_vs.inner_prod(x, v), x_vs.inner_prod(y, v)), (
        f"Value mismatch:\nx: {x}\ny: {y}"
    )


def _check_grads(
    f: Function, x: Any, modes: Sequence[str] = ("fwd", "rev"), order: int = 2
) -> None:
    assert all(m in ("fwd", "rev") for m in modes)
    if "fwd" in modes:
        check_jvp(f, x)
        if order > 1:
            v = vspace(x).randn()
            moved = _named(lambda x, v: make_jvp(f, x)(v)[1], f"jvp_{get_name(f)}")
            check_grads(moved, (0, 1), modes, order=order - 1)(x, v)
    if "rev" in modes:
        check_vjp(f, x)
        if order > 1:
            v = vspace(f(x)).randn()
            pulled = _named(lambda x, v: make_vjp(f, x)[0](v), f"vjp_{get_name(f)}")
            check_grads(pulled, (0, 1), modes, order=order - 1)(x, v)


def _named(function: Function, name: str) -> Function:
    function.__name__ = name
    return function


check_grads = unary_to_nary(_check_grads)
check_grads.__doc__ = "Check the derivatives of a function at its arguments, to an order."


def combo_check(fun: Function, *args: Any, **kwargs: Any) -> Function:
    """`check_grads` for each combination of the given values of arguments and keywords."""

    def checked(*values: Any, **named: Any) -> None:
        options = [[(k, x) for x in xs] for k, xs in named.items()]
        for chosen in product(*values):
            for keywords in product(*options):
                check_grads(fun, *args, **kwargs)(*chosen, **dict(keywords))

    return checked
