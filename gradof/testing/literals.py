"""Arrays as Python source: short ones as lists, longer ones as their bytes.

>>> array_source(np.array([1.0, 2.0], np.float32), "numpy", False)
'np.array([1.0, 2.0], dtype=np.float32)'

Values are exact either way.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

LISTED = 64  # elements


def array_source(value: Any, library: Literal["numpy", "torch"], grad: bool) -> str:
    """An expression that makes this array, in a file that imports inf and nan too."""
    if library == "numpy":
        value = np.asarray(value)
        if value.size > LISTED or value.dtype.kind == "c" or 0 in value.shape[:-1]:
            return _bytes(value)
        return f"np.array({value.tolist()!r}, dtype=np.{_numpy_name(value)})"
    dtype = str(value.dtype)
    value = value.detach()
    if value.numel() <= LISTED and not value.is_complex() and 0 not in value.shape[:-1]:
        text = f"torch.tensor({value.tolist()!r}, dtype={dtype}"
        return text + (", requires_grad=True)" if grad else ")")
    raw = value.contiguous()
    if dtype == "torch.bfloat16":  # numpy has none; every one of its numbers is a float32
        text = f"torch.from_numpy({_bytes(raw.float().numpy())}).to({dtype})"
    else:
        text = f"torch.from_numpy({_bytes(raw.numpy())})"
    return text + ".requires_grad_()" if grad else text


def _numpy_name(value: Any) -> str:
    return "bool_" if value.dtype.kind == "b" else str(value.dtype.name)


def _bytes(value: Any) -> str:
    packed = base64.b64encode(zlib.compress(np.ascontiguousarray(value).tobytes())).decode()
    imported = "__import__('zlib').decompress(__import__('base64').b64decode"
    array = "__import__('numpy').frombuffer"
    return (
        f"{array}({imported}({packed!r})), dtype={value.dtype.str!r})"
        f".reshape({value.shape!r}).copy()"
    )


def base_of(array: Any) -> Any:
    """The array that owns the memory of a view."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def numpy_twins(values: Sequence[Any]) -> list[Any]:
    """Copies with the layout of the originals, which share memory where those do."""
    memory: dict[int, Any] = {}
    found = []
    for value in values:
        value = np.asarray(value)
        base = base_of(value)
        if base is value or not base.flags.contiguous:
            found.append(value.copy(order="K"))
            continue
        if id(base) not in memory:
            memory[id(base)] = base.copy(order="K").reshape(-1, order="A")
        offset = value.__array_interface__["data"][0] - base.__array_interface__["data"][0]
        found.append(np.ndarray(
            value.shape, value.dtype, memory[id(base)].data, offset, value.strides
        ))  # fmt: skip
    return found
