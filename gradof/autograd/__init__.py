"""The names of HIPS autograd, on gradof: existing code changes one import.

    import gradof.autograd.numpy as np
    from gradof.autograd import grad

Functions are traced and compiled once per signature. What autograd does with boxes is done by the
trace: `np` is numpy, containers are Python's, and arrays may be assigned into.
"""

from gradof.autograd.builtins import dict, isinstance, list, tuple, type
from gradof.autograd.differential_operators import (
    checkpoint,
    deriv,
    elementwise_grad,
    grad,
    grad_and_aux,
    grad_named,
    hessian,
    hessian_tensor_product,
    hessian_vector_product,
    holomorphic_grad,
    jacobian,
    make_ggnvp,
    make_hvp,
    make_jvp,
    make_jvp_reversemode,
    make_vjp,
    multigrad_dict,
    tensor_jacobian_product,
    value_and_grad,
    vector_jacobian_product,
)
from gradof.autograd.extend import primitive

__all__ = [
    "checkpoint", "deriv", "dict", "elementwise_grad", "grad", "grad_and_aux", "grad_named",
    "hessian", "hessian_tensor_product", "hessian_vector_product", "holomorphic_grad",
    "isinstance", "jacobian", "list", "make_ggnvp", "make_hvp", "make_jvp",
    "make_jvp_reversemode", "make_vjp", "multigrad_dict", "primitive", "tensor_jacobian_product",
    "tuple", "type", "value_and_grad", "vector_jacobian_product",
]  # fmt: skip
