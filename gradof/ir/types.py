"""Types of SSA values: dtypes, tensors, weak Python scalars, run-time sizes.

>>> str(TensorType(dtype("f32"), (4, 3)))
'f32[4,3]'
>>> str(TensorType(dtype("f64"), None))            # shape unknown until run time
'f64[*]'
>>> str(TensorType(dtype("f32"), (2,), "cuda:0"))
'f32[2]@cuda:0'
>>> str(ScalarType("float")), str(SizeType())
('float', 'size')
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["bool", "int", "uint", "float", "complex"]


@dataclass(frozen=True, slots=True)
class DType:
    """An element type: `name` as printed, `kind`, and width in `bits`."""

    name: str
    kind: Kind
    bits: int

    def __str__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return hash(self.name)  # no two share it, and types are hashed often

    @property
    def is_float(self) -> bool:
        """Real floating point."""
        return self.kind == "float"

    @property
    def is_complex(self) -> bool:
        """Complex floating point."""
        return self.kind == "complex"

    @property
    def is_inexact(self) -> bool:
        """Real or complex floating point: what a gradient can flow through."""
        return self.kind in ("float", "complex")

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return max(1, self.bits // 8)


_DTYPES = {
    d.name: d
    for d in (
        DType("bool", "bool", 8),
        DType("i8", "int", 8),
        DType("i16", "int", 16),
        DType("i32", "int", 32),
        DType("i64", "int", 64),
        DType("u8", "uint", 8),
        DType("u16", "uint", 16),
        DType("u32", "uint", 32),
        DType("u64", "uint", 64),
        DType("f16", "float", 16),
        DType("bf16", "float", 16),
        DType("f32", "float", 32),
        DType("f64", "float", 64),
        DType("c32", "complex", 32),
        DType("c64", "complex", 64),
        DType("c128", "complex", 128),
    )
}


def dtype(name: str) -> DType:
    """The dtype printed as `name`; KeyError if there is none."""
    return _DTYPES[name]


def all_dtypes() -> tuple[DType, ...]:
    """Every dtype, in a fixed order."""
    return tuple(_DTYPES.values())


BOOL, I32, I64 = dtype("bool"), dtype("i32"), dtype("i64")
F16, BF16, F32, F64 = dtype("f16"), dtype("bf16"), dtype("f32"), dtype("f64")
C32, C64, C128 = dtype("c32"), dtype("c64"), dtype("c128")


@dataclass(frozen=True, slots=True)
class TensorType:
    """An n-dimensional array; `shape` is None where it is only known at run time."""

    dtype: DType
    shape: tuple[int, ...] | None
    device: str = "cpu"

    def __str__(self) -> str:
        dims = "*" if self.shape is None else ",".join(map(repr, self.shape))
        suffix = "" if self.device == "cpu" else f"@{self.device}"
        return f"{self.dtype}[{dims}]{suffix}"

    @property
    def size(self) -> int:
        """Number of elements; only for known shapes."""
        assert self.shape is not None, "the shape of this value is not known"
        n = 1
        for d in self.shape:
            n *= d
        return n

    @property
    def nbytes(self) -> int:
        """Bytes of a dense array of this type; only for known shapes."""
        return self.size * self.dtype.itemsize

    def with_shape(self, shape: tuple[int, ...] | None) -> TensorType:
        """This type with another shape."""
        return TensorType(self.dtype, shape, self.device)

    def with_dtype(self, dt: DType) -> TensorType:
        """This type with another dtype."""
        return TensorType(dt, self.shape, self.device)


@dataclass(frozen=True, slots=True)
class ScalarType:
    """A weak Python scalar: it never changes the dtype of a tensor it meets."""

    kind: Literal["bool", "int", "float", "complex"]

    def __str__(self) -> str:
        return self.kind


@dataclass(frozen=True, slots=True)
class SizeType:
    """A shape as a run-time value, or None where no reduction is due (see `_size_if_not_equal`)."""

    def __str__(self) -> str:
        return "size"


Type = TensorType | ScalarType | SizeType


def scalar_type_of(value: bool | int | float | complex) -> ScalarType:
    """The weak type of a Python scalar."""
    if isinstance(value, bool):
        return ScalarType("bool")
    if isinstance(value, int):
        return ScalarType("int")
    if isinstance(value, float):
        return ScalarType("float")
    return ScalarType("complex")
