"""Bad inputs: argnums, arguments, dtypes, devices, outputs and cotangents."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from gradof import differentiate, grad, hessian, hvp, jacobian, value_and_grad, vjp
from gradof.errors import (
    ArgnumsError,
    CallError,
    CotangentError,
    DataDependentError,
    DeviceError,
    DtypeError,
    InputError,
    LeafTypeError,
    OutputError,
)
from tests.errors.rows import IMAGINARY, INDEX, SWAPPED, A, T, bad, total

# --- argnums and the arguments ------------------------------------------------------------------


@bad(ArgnumsError, "argument 3, but there are 1")
def argnums_out_of_range() -> None:
    grad(total, argnums=3)(A)


@bad(ArgnumsError, "must name each argument once")
def argnums_twice() -> None:
    grad(total, argnums=(0, 0))


@bad(ArgnumsError, "non-negative int")
def argnums_negative() -> None:
    value_and_grad(total, argnums=-1)


@bad(ArgnumsError, "non-negative int")
def argnums_of_another_type() -> None:
    jacobian(total, argnums="x")  # type: ignore[arg-type]


@bad(ArgnumsError, "must name each argument once")
def argnums_of_nothing() -> None:
    hessian(total, argnums=())


@bad(LeafTypeError, r"args\[1\] is a str, which has no gradient")
def gradient_of_a_string() -> None:
    grad(total, argnums=1)(A, "sum")


@bad(LeafTypeError, "without any array argument")
def no_array_at_all() -> None:
    differentiate(total)("sum")


@bad(LeafTypeError, r"args\[1\] is a set: neither an array nor hashable")
def unhashable_static() -> None:
    differentiate(total)(A, {1, 2})


@bad(LeafTypeError, r"args\[0\] is an array of dtype object")
def array_of_objects() -> None:
    grad(total)(np.array([None, "a"]))


@bad(DataDependentError, "read by numpy: an array meets a tensor")
def two_libraries() -> None:
    differentiate(lambda x, y: x * y, strict=True)(T, A)


@bad(LeafTypeError, r"args\[0\] is a torch.sparse_coo tensor")
def sparse_tensor() -> None:
    differentiate(total, strict=True)(T.detach().to_sparse())


@bad(CallError, "two cannot be called with these arguments: missing a required argument")
def too_few_arguments() -> None:
    def two(x: Any, y: Any) -> Any:
        return (x * y).sum()

    grad(two)(A)


@bad(CallError, "one cannot be called with these arguments: too many")
def too_many_arguments() -> None:
    def one(x: Any) -> Any:
        return x.sum()

    grad(one)(A, A)


@bad(CallError, "unexpected keyword argument 'scale'")
def unknown_keyword() -> None:
    def one(x: Any) -> Any:
        return x.sum()

    differentiate(one)(A, scale=2.0)


@bad(InputError, "nope")
def unknown_static_argument() -> None:
    differentiate(total, static_argnames=("nope",))(A)


@bad(InputError, "takes a function or a module, not a float")
def not_a_function() -> None:
    differentiate(3.0)  # type: ignore[call-overload]



# --- dtypes and devices -------------------------------------------------------------------------


@bad(DtypeError, "integers and booleans have no gradient")
def gradient_of_integers() -> None:
    grad(lambda i: (i * 2.0).sum())(INDEX)


@bad(DtypeError, "integers and booleans have no gradient")
def gradient_of_integer_tensors() -> None:
    grad(lambda i: (i * 2.0).sum())(torch.arange(3))


@bad(OutputError, "c128.*complex")
def gradient_of_a_complex_result() -> None:
    grad(total)(IMAGINARY)


@bad(DtypeError, "float8")
def eight_bit_float() -> None:
    differentiate(total, strict=True)(torch.ones(3).to(torch.float8_e5m2))


@bad(DtypeError, "native byte order")
def foreign_byte_order() -> None:
    grad(total)(SWAPPED)


@bad(DeviceError, "is on meta")
def tensor_without_data() -> None:
    differentiate(total, strict=True)(torch.ones(2, device="meta"))



# --- outputs and cotangents ---------------------------------------------------------------------


@bad(OutputError, r"f64\[2,3\], not a scalar")
def gradient_of_a_matrix() -> None:
    grad(lambda x: x * 2.0)(A)


@bad(OutputError, "returns 2 leaves, not one scalar")
def gradient_of_two_outputs() -> None:
    grad(lambda x: (x.sum(), x.sum()))(A)


@bad(OutputError, "'text', which does not depend on any array")
def output_that_is_no_tensor() -> None:
    grad(lambda x: "text")(A)


@bad(OutputError, "one of its inputs as it is")
def output_that_is_the_input() -> None:
    grad(lambda x: x)(np.float64(2.0))


@bad(OutputError, "not floating point")
def integer_output() -> None:
    grad(lambda x: (x > 1).sum())(A)


@bad(OutputError, "pair")
def aux_without_a_pair() -> None:
    grad(total, has_aux=True)(A)


@bad(CotangentError, "shape")
def cotangent_of_wrong_shape() -> None:
    vjp(lambda x: x * 2.0, A)[1](np.ones((3, 2)))


@bad(CotangentError, "dtype")
def cotangent_of_wrong_dtype() -> None:
    vjp(lambda x: x * 2.0, A)[1](np.ones((2, 3), np.float32))


@bad(CotangentError, "dtype")
def cotangent_tensor_of_wrong_dtype() -> None:
    vjp(lambda x: x * 2.0, T)[1](torch.ones(2, 3))


@bad(CotangentError, "structure")
def cotangent_of_wrong_structure() -> None:
    vjp(lambda x: (x * 2.0, x * 3.0), A)[1](np.ones((2, 3)))


@bad(CotangentError, "tangents")
def tangent_of_wrong_shape() -> None:
    hvp(total, (A,), (np.ones(2),))


@bad(CotangentError, "2 tangents for 1 primals")
def too_many_tangents() -> None:
    hvp(total, (A,), (A, A))
