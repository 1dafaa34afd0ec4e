"""Operators on functions of one argument, made into operators on functions of several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradof.autograd.util import subvals

Function = Callable[..., Any]


def get_name(f: Any) -> str:
    """The name of a function."""
    return getattr(f, "__name__", "[unknown name]")


def get_doc(f: Any) -> str:
    """The docstring of a function."""
    return getattr(f, "__doc__", "") or ""


def wraps(
    fun: Any, namestr: str = "{fun}", docstr: str = "{doc}", **kwargs: Any
) -> Callable[[Any], Any]:
    """Give a function the name and docstring of another, in these templates."""

    def named(f: Any) -> Any:
        f.__name__ = namestr.format(fun=get_name(fun), **kwargs)
        f.__doc__ = docstr.format(fun=get_name(fun), doc=get_doc(fun), **kwargs)
        return f

    return named


def wrap_nary_f(fun: Any, op: Any, argnum: Any) -> Callable[[Any], Any]:
    """Name a function that an operator has made."""
    text = (
        "    {op} of function {fun} with respect to argument number {argnum}. Takes the\n"
        "    same arguments as {fun} but returns the {op}.\n    "
    )
    return wraps(fun, "{op}_of_{fun}_wrt_argnum_{argnum}", text, op=get_name(op), argnum=argnum)


def _places(argnum: Any) -> tuple[int, ...]:
    return (argnum,) if isinstance(argnum, int) else tuple(argnum)


def unary_to_nary(unary_operator: Function) -> Any:
    """`operator(fun, x, ...)` as `operator(fun, argnum, ...)(*args, **kwargs)`."""

    @wraps(unary_operator)
    def nary_operator(fun: Any, argnum: Any = 0, *op_args: Any, **op_kwargs: Any) -> Any:
        assert type(argnum) in (int, tuple, list), argnum

        @wrap_nary_f(fun, unary_operator, argnum)
        def nary_f(*args: Any, **kwargs: Any) -> Any:
            x = args[argnum] if isinstance(argnum, int) else tuple(args[i] for i in argnum)
            if argnum in (0, -1) and len(args) == 1 and not kwargs:
                return unary_operator(fun, x, *op_args, **op_kwargs)  # its traces are its own
            # Without x, which is another at each call: what a function holds is part of its traces.
            others = subvals(args, [(i, None) for i in _places(argnum)])

            @wraps(fun)
            def unary_f(x: Any) -> Any:
                values = (x,) if isinstance(argnum, int) else x
                return fun(*subvals(others, zip(_places(argnum), values, strict=True)), **kwargs)

            return unary_operator(unary_f, x, *op_args, **op_kwargs)

        return nary_f

    return nary_operator
