"""Gradients on a tape: a primitive's by its rule, those of numpy's functions by compiled pullbacks.

    value, vjp = make_vjp(fun, x)        # x of a class of the user's own, or on another tape
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from gradof.autograd.core import completed, in_space, seeds_for
from gradof.autograd.primitives import Primitive, conjugated, primitive_jvps, primitive_vjps
from gradof.autograd.tape import ArrayBox, Node, apply, is_boxed, trace
from gradof.autograd.vspaces import VSpace, vspace
from gradof.runtime.pullback import vjp as pullback

Function = Callable[..., Any]
_order = itertools.count()
VSpace.register(ArrayBox, lambda box: vspace(box._value))


class VJPNode(Node):
    """Its parents, and the function from its cotangent to theirs."""

    __slots__ = ("at", "parents", "vjp")

    def __init__(
        self, value: Any, fun: Any, args: Any, kwargs: Any, parent_argnums: Any, parents: Any
    ) -> None:
        self.at, self.parents = next(_order), parents
        self.vjp = _rule(fun, parent_argnums, value, args, kwargs)

    def initialize_root(self) -> None:
        """The node of an input has no parents."""
        self.at, self.parents, self.vjp = next(_order), (), lambda g: ()


def _rule(fun: Any, argnums: Sequence[int], ans: Any, args: Any, kwargs: Any) -> Function:
    if isinstance(fun, Primitive):
        if fun not in primitive_vjps:
            told = " (its jvp is not taken on a tape)" if fun in primitive_jvps else ""
            raise NotImplementedError(f"VJP of {fun.__name__} is not defined{told}")
        found: Function = primitive_vjps[fun](argnums, ans, args, kwargs)
        return found
    called = _called(fun, tuple(sorted(kwargs.items())))
    return lambda g: [apply(_pulled(called, n), (g, *args), {}) for n in argnums]


@functools.lru_cache(maxsize=4096)
def _called(fun: Any, named: tuple[tuple[str, Any], ...]) -> Function:
    """The function with these named arguments: one, so that it is traced once."""

    def called(*args: Any) -> Any:
        return fun(*args, **dict(named))

    called.__name__ = getattr(fun, "__name__", "f")
    return called


@functools.lru_cache(maxsize=4096)
def _pulled(fun: Function, argnum: int) -> Function:
    """From a cotangent and the arguments to the cotangent of one of them."""

    def pulled(g: Any, *args: Any) -> Any:
        given = [in_space(a) if i == argnum else a for i, a in enumerate(args)]
        value, pull = pullback(fun, *given)
        found = pull(seeds_for(conjugated(g), value))[argnum]
        return completed(conjugated(found), given[argnum])

    pulled.__name__ = f"vjp_of_{fun.__name__}"
    return pulled


def make_vjp(fun: Function, x: Any) -> tuple[Any, Function]:
    """The value, and the function from its cotangent to that of x."""
    value, end = trace(VJPNode.new_root(), fun, x)

    def vjp(g: Any) -> Any:
        return vspace(x).zeros() if end is None else _backward(end, g)

    return value, vjp


def _backward(end: VJPNode, g: Any) -> Any:
    """Cotangents from the last node to the first, which is the input's."""
    waiting: dict[VJPNode, Any] = {end: g}
    while True:
        node = max(waiting, key=lambda n: n.at)
        found = waiting.pop(node)
        if not node.parents:
            return found
        for parent, part in zip(node.parents, node.vjp(found), strict=True):
            waiting[parent] = _sum(waiting[parent], part) if parent in waiting else part


def _sum(first: Any, second: Any) -> Any:
    plain = first._value if is_boxed(first) else first
    return first + second if is_boxed(first) else vspace(plain).add(first, second)
