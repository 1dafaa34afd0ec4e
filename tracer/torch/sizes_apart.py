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

from gradof.ir import forks
from gradof.tracer.core.math_numbers import traced_math
from gradof.tracer.core.number import TracedNumber

_builtins: Any = torch.jit._builtins
_LOCK = forks.lock()
_depth = 0


@contextlib.contextmanager
def sizes_and_math() -> Iterator[None]:
    """Within it, Python's `math` takes traced numbers, and so do sizes."""
    with traced_math(), sizes_apart():
        yield


@contextlib.contextmanager
def sizes_apart() -> Iterator[None]:
    """Within it, functions that make or expand tensors take traced numbers as sizes."""
    global _depth
    with _LOCK:
        _depth += 1
        if _depth == 1:
            for name, made in _MAKERS.items():
                setattr(torch, name, made)
            for name, method in _METHODS.items():
                setattr(torch.Tensor, name, method)
    try:
        yield
    finally:
        with _LOCK:
            _depth -= 1
            if _depth == 0:
                for name, made in _MAKERS.items():
                    setattr(torch, name, made.__wrapped__)
                for name in _METHODS:
                    delattr(torch.Tensor, name)  # it is that of the class below


def _maker(name: str) -> Any:
    original: Any = getattr(torch, name)

    @functools.wraps(original)
    def function(*sizes: Any, **kwargs: Any) -> Any:
        if sizes and type(sizes[0]) is TracedNumber:
            return original(sizes, **kwargs)
        return original(*sizes, **kwargs)

    # what is scripted meanwhile, as the rules of `jvp` are at their first use, finds torch's own
    _builtins._register_builtin(function, f"aten::{name}")
    return function


def _method(name: str) -> Any:
    original: Any = getattr(torch.Tensor, name)

    @functools.wraps(original)
    def method(tensor: Any, *sizes: Any, **kwargs: Any) -> Any:
        if sizes and type(sizes[0]) is TracedNumber:
            return original(tensor, sizes, **kwargs)
        return original(tensor, *sizes, **kwargs)

    return method


def torchs_own(func: Any) -> Any:
    """What a mode is told of: torch looks methods up by their names, and finds ours."""
    return _OWN.get(func, func)


_MAKERS = {name: _maker(name) for name in ("zeros", "ones", "empty", "rand", "randn")}
_METHODS = {
    name: _method(name) for name in ("new_zeros", "new_ones", "new_empty", "expand")
}  # fmt: skip
_OWN = {method: method.__wrapped__ for method in _METHODS.values()}
