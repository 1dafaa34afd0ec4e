"""Errors of the first run, told in gradof's terms: wrong arguments, and shapes that do not fit.

>>> check_arguments(lambda x: x, (1, 2), {})
CallError: <lambda> cannot be called with these arguments: too many positional arguments

A library's own complaint about shapes, `x @ x` for a matrix that is not square, becomes a
ShapeError at the user's line. What the user's code raises itself passes through.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Literal, NoReturn, cast, get_args

from gradof.errors import CallError, InputError, ShapeError, TraceError
from gradof.runtime.thread import is_nan_safe, is_plain_run
from gradof.tracer.state.source import function_loc, function_name, traceback_loc, user_loc

_ABOUT_VALUES = re.compile(r"index -?\d+ is out of bounds")
_ABOUT_SHAPES = re.compile(r"shape|size|dimension|broadcast", re.IGNORECASE)


def check_arguments(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuse arguments that do not fit the signature of `fn`, before it runs; CallError.

    Of a wrapper its own counts: it may take others than the function that it wraps.
    """
    try:
        signature = inspect.signature(fn, follow_wrapped=False)
    except ValueError:
        return  # some builtins do not tell their signature; calling them says what is wrong
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        name = function_name(fn, "__name__")
        raise CallError(
            f"{name} cannot be called with these arguments: {error}", loc=function_loc(fn),
            hint=f"its signature is {name}{signature}",
        ) from None  # fmt: skip


@contextmanager
def shape_errors() -> Iterator[None]:
    """Turn a library's complaint about shapes into a ShapeError at the user's line."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        own = type(error) not in (RuntimeError, ValueError)  # a subclass means something else
        # An index *value* out of bounds is told apart from a shape, as it is at later calls.
        own = own or _ABOUT_VALUES.search(str(error)) is not None
        if own or not _ABOUT_SHAPES.search(str(error)) or not _from_library(error.__traceback__):
            raise
        raise ShapeError(
            str(error).splitlines()[0], loc=traceback_loc(error.__traceback__),
            hint="reshape, transpose or broadcast the operands so that their shapes fit",
        ) from error  # fmt: skip


def _from_library(traceback: TracebackType | None) -> bool:
    """Whether the innermost frame is one of torch's, numpy's or ours."""
    name = ""
    while traceback is not None:
        name = str(traceback.tb_frame.f_globals.get("__name__", ""))
        traceback = traceback.tb_next
    return name.partition(".")[0] in ("torch", "numpy", "gradof")


def checked_budget(budget: Any) -> float | None:
    """A memory budget as a float; InputError unless it is None or a number from 0 to 1."""
    if budget is None:
        return None
    if isinstance(budget, (int, float)) and not isinstance(budget, bool) and 0 <= budget <= 1:
        return float(budget)
    raise InputError(
        f"memory_budget is {budget!r}",
        hint="a number from 0, save inputs only, to 1, save what costs least time",
    )


Numerics = Literal["eager", "nan_safe"]


def checked_numerics(numerics: str) -> Numerics:
    """The setting itself; InputError for a name that is none."""
    if numerics not in get_args(Numerics):
        raise InputError(
            f"numerics={numerics!r}", hint="'eager', or 'nan_safe': a branch not taken gives zero"
        )
    return cast(Numerics, numerics)


def check_numerics_inside(nan_safe: bool) -> None:
    """Refuse a nan_safe function inside a traced one that is not; TraceError."""
    if nan_safe and not is_nan_safe() and not is_plain_run():
        raise TraceError(
            'a function with numerics="nan_safe" is used inside a traced one without it',
            loc=user_loc(), hint="give the outer function the same numerics",
        )  # fmt: skip


def not_scripted(self: Any) -> NoReturn:
    """`torch.jit.script` of what is differentiated, which torch asks for this. InputError."""
    raise InputError(
        "torch.jit.script compiles Python code, and gets a function that is compiled already",
        hint="script the original, or differentiate what is scripted: it is traced op by op",
    )
