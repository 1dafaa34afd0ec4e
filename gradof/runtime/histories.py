"""Gradients of tensors that do not require any: `grad(f)(x)` means what eager's x would have.

A trace decides by `requires_grad` where tensors share memory and not their history (`by_history`).
Where it did, and the differentiated arguments do not require grad, another trace is taken, of
arguments that do; it runs on the arguments as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradof.runtime.arrays import is_tensor
from gradof.runtime.cache import Bound
from gradof.tracer.core.pytree import flatten

Bind = Callable[[tuple[Any, ...]], Bound]


def as_differentiated_at(
    bound: Bound, args: tuple[Any, ...], positions: Sequence[int] | None, bind: Bind
) -> Bound:
    """The call, bound to a trace in which the arguments at `positions` (or all) require grad."""
    if not bound.entry.traced.by_history:
        return bound
    given: dict[int, Any] = {}  # by the id of what stands for it
    marked = list(args)
    for n in range(len(args)) if positions is None else positions:
        leaves, tree = flatten(args[n])
        for i, leaf in enumerate(leaves):
            if is_tensor(leaf) and not leaf.requires_grad and _is_inexact(leaf):
                # no leaf, so that the function may change it
                leaves[i] = leaf.detach().requires_grad_().view_as(leaf)
                given[id(leaves[i])] = leaf
        marked[n] = tree.unflatten(leaves)
    if not given:
        return bound
    again = bind(tuple(marked))
    inputs = [given.get(id(x), x) for x in again.inputs]
    return again._replace(inputs=inputs, given=bound.given)


def _is_inexact(tensor: Any) -> bool:
    return bool(tensor.is_floating_point() or tensor.is_complex())
