"""torch's functions of lists of tensors, traced as loops: what an optimizer or an average runs.

    torch._foreach_lerp_(averages, weights, 0.1)      each average.lerp_(weight, 0.1), in order

torch computes them so itself where its kernels of lists do not apply. As one call they would have
no rule; and one that changes its tensors does not count their versions in a traced function, by
which `histories` tells what was written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_PREFIX = "_foreach_"
_LISTS = (list, tuple)


def _norm(tensor: torch.Tensor, ord: float = 2, dtype: torch.dtype | None = None) -> torch.Tensor:
    found: torch.Tensor = torch.linalg.vector_norm(tensor, ord, dtype=dtype)
    return found


# Those with other names for one tensor; None: left to torch, as they have other kinds of arguments.
_NAMED: dict[str, Any] = {
    "norm": _norm, "maximum_": torch.Tensor.clamp_min_, "minimum_": torch.Tensor.clamp_max_,
    "maximum": None, "minimum": None, "mm": None, "powsum": None,
}  # fmt: skip


def loops() -> dict[Any, Callable[..., Any]]:
    """By function of torch's, what runs in its place."""
    found: dict[Any, Callable[..., Any]] = {}
    for name in dir(torch):
        short = name.removeprefix(_PREFIX)
        if short != name and (one := _NAMED.get(short, getattr(torch.Tensor, short, None))):
            found[getattr(torch, name)] = _loop(getattr(torch, name), one, short.endswith("_"))
    return found


def _loop(whole: Any, one: Callable[..., Any], in_place: bool) -> Callable[..., Any]:
    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = (*args, *kwargs.values())
        lengths = {len(arg) for arg in given if isinstance(arg, _LISTS)}
        scalars = any(isinstance(arg, torch.Tensor) and arg.dim() for arg in given)
        if not isinstance(self, _LISTS) or not self or scalars or lengths - {len(self)}:
            return whole(self, *args, **kwargs)  # its numbers in a tensor; or torch's own error
        made = [
            one(tensor, *(_at(i, arg) for arg in args), **{k: _at(i, v) for k, v in kwargs.items()})
            for i, tensor in enumerate(self)
        ]
        return self if in_place else tuple(made)

    return run


def _at(i: int, arg: Any) -> Any:
    return arg[i] if isinstance(arg, _LISTS) else arg
