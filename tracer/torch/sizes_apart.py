"""Sizes that are given one by one, the first of them a traced number.

    torch.zeros(int(index.max()) + 1, 3)        torch.zeros((int(index.max()) + 1, 3))

torch's own parser takes a number for a size as long as it has no `__torch_function__`, which a
traced one needs elsewhere. It refused the first form, before a mode heard of it; here that is made
the second.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch

from gradof.tracer.core.math_numbers import traced_math
from gradof.tracer.core.number import TracedNumber
from gradof.tracer.core.stand_ins import StandIns

_builtins: Any = torch.jit._builtins


@contextlib.contextmanager
def sizes_and_math() -> Iterator[None]:
    """Within it, Python's `math` takes traced numbers, and so do sizes."""
    with traced_math(), _IN_TORCH.placed(), _IN_TENSOR.placed():
        yield


def torchs_own(func: Any) -> Any:
    """What a mode is told of: torch looks methods up by their names, and finds ours."""
    return _OWN.get(func, func)


def _with_sizes(owner: Any, name: str, at: int) -> Any:
    """A function that takes sizes from the argument at this place on."""
    original: Any = getattr(owner, name)

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        if len(args) > at and type(args[at]) is TracedNumber:
            return original(*args[:at], args[at:], **kwargs)
        return original(*args, **kwargs)

    return function


_MAKERS = {
    name: _with_sizes(torch, name, 0) for name in ("zeros", "ones", "empty", "rand", "randn")
}  # fmt: skip
_METHODS = {
    name: _with_sizes(torch.Tensor, name, 1)
    for name in ("new_zeros", "new_ones", "new_empty", "expand")
}  # fmt: skip
_OWN = {method: method.__wrapped__ for method in _METHODS.values()}
_IN_TORCH, _IN_TENSOR = StandIns(torch, _MAKERS), StandIns(torch.Tensor, _METHODS)
for _name, _maker in _MAKERS.items():
    # what is scripted meanwhile, as the rules of `jvp` are at their first use, finds torch's own
    _builtins._register_builtin(_maker, f"aten::{_name}")
