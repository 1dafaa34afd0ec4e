"""Arrays as Python source: short ones as lists, longer ones as their bytes.

>>> array_source(np.array([1.0, 2.0], np.float32), "numpy", False)
'np.array([1.0, 2.0], dtype=np.float32)'

Values are exact either way.
"""

from __future__ import annotations

import base64
import zlib
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
