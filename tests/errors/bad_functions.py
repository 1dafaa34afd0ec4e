"""Bad inputs: functions that cannot be traced; the error names the line marked `# here`."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import torch

from gradof import differentiate, grad
from gradof.errors import (
    CustomRuleError,
    DataDependentShapeError,
    FreeTensorError,
    LeafMutationError,
    ShapeError,
    UnsupportedOpError,
)
from tests.errors.rows import A, T, bad


@bad(ShapeError, "cannot be multiplied")
def tensors_that_do_not_multiply() -> None:
    def fn(x: Any) -> Any:
        return (x @ x).sum()  # here

    differentiate(fn)(T)


@bad(ShapeError, "must match the size")
def tensors_that_do_not_broadcast() -> None:
    def fn(x: Any) -> Any:
        y = x[:, :2]
        return (x + y).sum()  # here

    differentiate(fn)(T)


@bad(ShapeError, "could not be broadcast together")
def arrays_that_do_not_broadcast() -> None:
    def fn(x: Any) -> Any:
        y = x[:, :2]
        return (x + y).sum()  # here

    grad(fn)(A)


@bad(ShapeError, "mismatch|multipl|matmul")
def arrays_that_do_not_multiply() -> None:
    def fn(x: Any) -> Any:
        return (x @ x).sum()  # here

    grad(fn)(A)


@bad(DataDependentShapeError, "depends on the values")
def unique_elements_of_a_tensor() -> None:
    def fn(x: Any) -> Any:
        return x.unique().sum()  # here

    differentiate(fn, strict=True)(T)


@bad(DataDependentShapeError, "depends on values")
def unique_values_of_an_array() -> None:
    def fn(x: Any) -> Any:
        return np.unique_values(x).sum()  # here

    grad(fn)(A)


@bad(LeafMutationError, "in-place|inplace")
def mutation_of_a_leaf() -> None:
    def fn(x: Any) -> Any:
        x.mul_(2)  # here
        return x.sum()

    differentiate(fn)(T)


@bad(UnsupportedOpError, "bessel_j0")
def unknown_torch_op() -> None:
    def fn(x: Any) -> Any:
        return torch.special.bessel_j0(x).sum()  # here

    differentiate(fn, strict=True)(T)


@bad(UnsupportedOpError, "packbits")
def unknown_numpy_function() -> None:
    def fn(x: Any) -> Any:
        return np.packbits(x > 0).sum() * x.sum()  # here

    grad(fn)(A)


@bad(CustomRuleError, r"the backward of Doubled returns a gradient of f64\[")
def custom_autograd_function() -> None:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod  # here
        def backward(ctx: Any, g: Any) -> Any:
            return g[1:]

    fn = lambda x: Doubled.apply(x).sum()  # type: ignore[no-untyped-call]  # noqa: E731
    differentiate(fn, strict=True)(T)


@bad(FreeTensorError, "is no argument")
def free_tensor_without_origin() -> None:
    box = ctypes.py_object(torch.ones(3, dtype=torch.float64))

    def fn(x: Any) -> Any:
        return (x * box.value).sum()  # here

    differentiate(fn, strict=True)(T)


@bad(FreeTensorError, "shares its memory with a numpy array")
def an_array_is_written_through_a_tensor() -> None:
    def fn(x: Any) -> Any:
        return (x * torch.from_numpy(A).mul_(2)).sum()  # here

    differentiate(fn, strict=True)(T)
