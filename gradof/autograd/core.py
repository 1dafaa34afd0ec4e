"""Pullbacks and pushforwards of functions of one argument, in autograd's convention.

    vjp, value = make_vjp(fun, x)
    vjp(g)                              # in the space of x
    value, tangent = make_jvp(fun, x)(v)

Gradients of complex numbers are the conjugates of gradof's (docs/conventions.md).
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any, cast

import numpy as np

from gradof.autograd.primitives import (
    Primitive,
    conjugated,
    def_linear,
    defjvp,
    defjvp_argnum,
    defjvp_argnums,
    defvjp,
    defvjp_argnum,
    defvjp_argnums,
    primitive_jvps,
    primitive_vjps,
)
from gradof.autograd.vspaces import VSpace, vspace
from gradof.runtime.forward import jvp as pushforward
from gradof.runtime.pullback import vjp as pullback
from gradof.tracer.core.pytree import flatten
from gradof.tracer.numpy.active import active_recorder
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.functions import as_array

Function = Callable[..., Any]
_ARRAYS = (np.ndarray, np.generic, TracedArray)
_WRAPPED = "__gradof_autograd__"
primitive = Primitive


def as_arrays(tree: Any) -> Any:
    """Python's numbers in a nest as arrays, so that derivatives are taken of them."""
    leaves, structure = flatten(tree)
    return structure.unflatten([
        np.asarray(x) if isinstance(x, (float, complex)) and not isinstance(x, np.generic) else x
        for x in leaves
    ])  # fmt: skip


def in_space(tree: Any) -> Any:
    """What is differentiated by: as `as_arrays`, and integers as real numbers, as autograd does."""
    leaves, structure = flatten(as_arrays(tree))
    return structure.unflatten([
        x.astype(np.float64) if isinstance(x, _ARRAYS) and x.dtype.kind in "iu" else x
        for x in leaves
    ])  # fmt: skip


def returning_arrays(fun: Function) -> Function:
    """The function with arrays for the numbers it returns; the same one for the same function."""
    if isinstance(fun, MethodType) and isinstance(fun.__func__, FunctionType):
        return MethodType(returning_arrays(fun.__func__), fun.__self__)
    held = fun.__dict__ if isinstance(fun, FunctionType) else {}
    found = held.get(_WRAPPED)
    if found is not None and found[0] is fun:  # functools.wraps copies attributes
        return cast(Function, found[1])

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return as_arrays(fun(*args, **kwargs))

    wrapped.__name__ = getattr(fun, "__name__", "f")
    held[_WRAPPED] = fun, wrapped
    return wrapped


def make_vjp(fun: Function, x: Any) -> tuple[Function, Any]:
    """`(vjp, value)`: the value, and a function from its covectors to those of x."""
    x = in_space(x)
    outer = active_recorder()
    value, pull_here = pullback(returning_arrays(fun), x)

    def vjp(g: Any) -> Any:
        inside = active_recorder() is not outer  # it is differentiated itself, in g
        pull = pullback(returning_arrays(fun), x)[1] if inside else pull_here
        return completed(conjugated(pull(seeds_for(conjugated(g), value))[0]), x)

    return vjp, value


def make_jvp(fun: Function, x: Any) -> Function:
    """A function from vectors v at x to `(value, derivative along v)`."""
    x = in_space(x)

    def jvp(v: Any) -> tuple[Any, Any]:
        value, tangent = pushforward(returning_arrays(fun), (x,), (seeds_for(v, x),))
        return value, completed(tangent, value)

    return jvp


def completed(tree: Any, like: Any) -> Any:
    """Derivatives with zeros, where there are none."""
    leaves, structure = flatten(like)
    found, _ = flatten(tree)
    if len(found) != len(leaves):
        found = [None] * len(leaves)
    return structure.unflatten([
        _of_dtype(f, x) if f is not None else _zeros(x) for f, x in zip(found, leaves, strict=True)
    ])  # fmt: skip


def _of_dtype(found: Any, like: Any) -> Any:
    if np.iscomplexobj(found) and not np.iscomplexobj(like):
        return np.real(found)
    return found


def _zeros(x: Any) -> Any:
    return vspace(x).zeros() if isinstance(x, (np.ndarray, np.generic, float, complex)) else None


def seeds_for(given: Any, like: Any) -> Any:
    """Cotangents or tangents of the leaves that have any, with the dtypes of these."""
    leaves, structure = flatten(like)
    found = flatten(given)[0]
    return structure.unflatten([
        _seed(g, x) if _is_float(x) else None for g, x in zip(found, leaves, strict=True)
    ])  # fmt: skip


def _is_float(x: Any) -> bool:
    return isinstance(x, (np.ndarray, np.generic)) and x.dtype.kind in "fc"


def _seed(g: Any, x: Any) -> Any:
    array = g if isinstance(g, (np.ndarray, np.generic)) else np.asarray(g)
    if np.iscomplexobj(array) and not np.iscomplexobj(x):
        array = np.real(array)
    array = array if array.dtype == x.dtype else array.astype(x.dtype)
    return array if np.shape(array) == np.shape(x) else np.reshape(array, np.shape(x))


__all__ = [
    "TracedArray", "VSpace", "as_array", "def_linear", "defjvp", "defjvp_argnum",
    "defjvp_argnums", "defvjp", "defvjp_argnum", "defvjp_argnums", "make_jvp", "make_vjp",
    "primitive", "primitive_jvps", "primitive_vjps", "vspace",
]  # fmt: skip
