"""What autograd's tracer offers to users: primitives, and questions about boxes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradof.autograd.primitives import Primitive
from gradof.runtime.escapes import value_of as getval
from gradof.tracer.numpy.array import TracedArray as Box


def isbox(value: Any) -> bool:
    """Whether a value is traced."""
    return type(value) is Box


def primitive(f_raw: Callable[..., Any]) -> Primitive:
    """A function that is not traced; `defvjp` or `defjvp` give its derivative."""
    return Primitive(f_raw)


def notrace_primitive(f_raw: Callable[..., Any]) -> Primitive:
    """A function that is not traced, and has no gradient."""
    made = Primitive(f_raw)
    made.is_constant = True
    return made


def register_notrace(kind: type, fun: Primitive) -> None:
    """A primitive has no gradient from now on."""
    fun.is_constant = True


__all__ = ["Box", "getval", "isbox", "notrace_primitive", "primitive", "register_notrace"]
