"""The gradient of a function that cannot be traced, by torch's own autograd.

>>> gradient_eagerly(lambda x: (x ** 2).sum() * len(x.tolist()), (0,), (torch.ones(2),), {}, False)
(tensor(4.), [tensor([4., 4.])])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from gradof.errors import LeafTypeError, OutputError
from gradof.tracer.core.pytree import flatten


def gradient_eagerly(
    fn: Callable[..., Any], positions: Sequence[int], args: tuple[Any, ...],
    kwargs: dict[str, Any], has_aux: bool,
) -> tuple[Any, list[Any]]:  # fmt: skip
    """`fn(*args, **kwargs)`, and one gradient for each of the arguments at `positions`.

    Raises LeafTypeError for an argument that is no tensor of floats, OutputError for a result that
    is no scalar (with `has_aux`, the first of two).
    """
    given = list(args)
    inputs: list[Any] = []
    trees = []
    for n in positions:
        leaves, tree = flatten(args[n])
        if not all(isinstance(x, torch.Tensor) and x.dtype.is_floating_point for x in leaves):
            raise LeafTypeError(
                f"args[{n}] has a leaf that is no tensor of floats", hint="pass floating point"
            )
        mine = [x if x.requires_grad else x.detach().requires_grad_() for x in leaves]
        given[n] = tree.unflatten(mine)
        inputs += mine
        trees.append(tree)
    again = any(x.requires_grad for x in flatten((args, kwargs))[0] if isinstance(x, torch.Tensor))
    with torch.enable_grad():
        result = fn(*given, **kwargs)
        value = result[0] if has_aux else result
        if not isinstance(value, torch.Tensor) or value.numel() != 1:
            raise OutputError("the function does not return one scalar", hint="sum or average it")
        grads: list[Any] = list(
            torch.autograd.grad(
                value, inputs, create_graph=again, allow_unused=True, materialize_grads=True
            )
            if value.requires_grad else map(torch.zeros_like, inputs)
        )  # fmt: skip
    shaped = []
    for tree in trees:
        shaped.append(tree.unflatten(grads[: tree.num_leaves]))
        del grads[: tree.num_leaves]
    if not again:
        leaves, tree = flatten(result)
        result = tree.unflatten([x.detach() if isinstance(x, torch.Tensor) else x for x in leaves])
    return result, shaped
