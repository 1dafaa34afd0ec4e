"""What operands of numpy's functions are: plain, weak, traced; and the dtype they meet in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.deferred import memories

# Ops whose rules take a Python number for either operand.
TAKE_WEAK = frozenset({
    "add", "sub", "mul", "div", "pow", "maximum", "minimum", "gt", "ge", "lt", "le", "eq", "ne",
    "logical_and", "logical_or", "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor",
})  # fmt: skip


def is_plain(obj: Any) -> bool:
    """Whether an object is numpy's own array, and not a traced one, which claims to be."""
    return issubclass(type(obj), np.ndarray)


def is_weak(value: Any) -> bool:
    """Whether a value is a Python number, whose dtype gives way (NEP 50)."""
    return isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic)


def contains_traced(value: Any) -> bool:
    """Whether a nest of lists and tuples holds a traced array."""
    if type(value) is TracedArray:
        return True
    return issubclass(type(value), (list, tuple)) and any(map(contains_traced, value))


def common_dtype(operands: Sequence[Any], result: Any) -> np.dtype[Any]:
    """The dtype an elementwise op computes in: numpy's promotion, or the float result's."""
    mixed = result.dtype.kind == "f" and any(  # the size of complex numbers is computed in theirs
        np.iscomplexobj(memories(x)) for x in operands
    )
    if result.dtype.kind in "fc" and not mixed:
        dtype: np.dtype[Any] = result.dtype
        return dtype
    return np.result_type(*(x if is_weak(x) else np.asarray(memories(x)).dtype for x in operands))
