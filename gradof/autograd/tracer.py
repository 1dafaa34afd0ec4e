"""What autograd's tracer offers to users: primitives, and questions about boxes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradof.autograd.primitives import Primitive, is_in_rule
from gradof.autograd.tape import Box, Node, is_boxed, new_box, notrace_primitives, trace
from gradof.runtime.escapes import stop_gradient, value_of
from gradof.tracer.numpy.array import TracedArray


def isbox(value: Any) -> bool:
    """Whether a value is traced, or on a tape."""
    return type(value) is TracedArray or is_boxed(value)


def getval(value: Any) -> Any:
    """The value of what is traced, or on a tape.

    In a primitive's rule it is one that no gradient goes through: rules that are differentiated
    once more cut derivatives so.
    """
    if is_boxed(value):
        return getval(value._value)
    return stop_gradient(value) if is_in_rule() else value_of(value)


def primitive(f_raw: Callable[..., Any]) -> Primitive:
    """A function that is not traced; `defvjp` or `defjvp` give its derivative."""
    return Primitive(f_raw)


def notrace_primitive(f_raw: Callable[..., Any]) -> Primitive:
    """A function that is not traced, and has no gradient."""
    made = Primitive(f_raw)
    made.is_constant = True
    return made


def register_notrace(kind: type, fun: Primitive) -> None:
    """A primitive has no gradient from now on, and no node on tapes of this kind."""
    notrace_primitives[kind].add(fun)
    fun.is_constant = True


__all__ = [
    "Box", "Node", "getval", "isbox", "new_box", "notrace_primitive", "primitive",
    "register_notrace", "trace",
]  # fmt: skip
