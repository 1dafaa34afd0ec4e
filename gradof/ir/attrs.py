"""Attribute values of nodes: Python literals, tuples of them, dtypes and dense constant arrays.

>>> format_attr((1, 2.5, None)), format_attr(dtype("f32"))
('(1, 2.5, None)', 'f32')
>>> format_attr(Dense.of(np.array([1.0, 2.0], np.float32)))
'dense<f32[2]>[1.0, 2.0]'
"""

from __future__ import annotations

import base64
import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gradof.ir.types import DType, TensorType, dtype

_NUMPY_NAMES = {
    "bool": "bool", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
    "f16": "float16", "f32": "float32", "f64": "float64", "c64": "complex64", "c128": "complex128",
}  # fmt: skip
_HELD_AS = {"bf16": "float32", "c32": "complex64"}
_FROM_NUMPY = {v: k for k, v in _NUMPY_NAMES.items()}
_SMALL = 16  # arrays up to this many elements print as numbers, larger ones as base64


def to_numpy_dtype(dt: DType) -> np.dtype[np.generic]:
    """The numpy dtype that holds an IR dtype: its own, or a wider one where numpy has none.

    bf16 is held as float32, c32 as complex64: Note [Half precision] in
    `gradof.codegen.lowering.half`.
    """
    return np.dtype(_HELD_AS.get(dt.name) or _NUMPY_NAMES[dt.name])


@functools.lru_cache(maxsize=64)  # the name of a numpy dtype is made by Python, at every question
def from_numpy_dtype(dt: np.dtype[np.generic]) -> DType:
    """The IR dtype of a numpy dtype; KeyError if there is none."""
    return dtype(_FROM_NUMPY[dt.name])


@dataclass(frozen=True, slots=True)
class Dense:
    """A constant array: element type, shape and little-endian bytes. Hashable and immutable."""

    dtype: DType
    shape: tuple[int, ...]
    data: bytes

    @staticmethod
    def of(array: NDArray[np.generic]) -> Dense:
        """Copy a numpy array into a constant."""
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        return Dense(from_numpy_dtype(array.dtype), tuple(array.shape), little.tobytes())

    def numpy(self) -> NDArray[np.generic]:
        """A read-only numpy array over the bytes."""
        return np.frombuffer(self.data, to_numpy_dtype(self.dtype)).reshape(self.shape)

    @property
    def type(self) -> TensorType:
        """The tensor type of the constant (on the CPU)."""
        return TensorType(self.dtype, self.shape)

    def __str__(self) -> str:
        dims = ",".join(map(str, self.shape))
        head = f"dense<{self.dtype}[{dims}]>"
        array = self.numpy()
        if array.size <= _SMALL and np.isfinite(array).all():
            return head + "[" + ", ".join(repr(x) for x in array.reshape(-1).tolist()) + "]"
        return head + '"' + base64.b64encode(self.data).decode("ascii") + '"'


Scalar = bool | int | float | complex
Attr = Scalar | str | None | DType | Dense | tuple["Attr", ...]


def format_attr(value: Attr) -> str:
    """The text of an attribute, as the parser reads it back."""
    if isinstance(value, tuple):
        inner = ", ".join(format_attr(v) for v in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, (DType, Dense)):
        return str(value)
    return repr(value)


def same_attr(a: Attr, b: Attr) -> bool:
    """Equality that tells 1 from 1.0 and True, 0.0 from -0.0, and finds nan equal to itself."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(same_attr, a, b))
    return type(a) is type(b) and (repr(a) == repr(b) if not isinstance(a, Dense) else a == b)


def attr_key(value: Attr) -> object:
    """A hashable key with the equality of `same_attr`."""
    kind = type(value)
    if kind is int or kind is str or kind is bool:
        return kind, value
    if isinstance(value, tuple):
        return tuple(map(attr_key, value))
    if isinstance(value, (Dense, DType)):
        return value
    return kind, repr(value)
