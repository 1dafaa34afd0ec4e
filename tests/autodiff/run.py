"""Running a Gradient on arrays: the index lists at work, as the runtime uses them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradof.autodiff.differentiate import differentiate
from gradof.autodiff.gradient import Gradient
from gradof.autodiff.zeros import specialize_autograd_zero
from gradof.codegen.host.evaluate import ZERO, interpret
from gradof.ir.core import Graph

Array = NDArray[Any]


def run_f(gradient: Gradient, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """All outputs of f, temporaries (arrays and sizes) included."""
    return interpret(gradient.f, inputs)


def df_arguments(
    gradient: Gradient, inputs: Sequence[Any], values: Sequence[Any], seeds: dict[int, Array]
) -> list[Any]:
    """What df is called with; `seeds` are cotangents by f's output, those without one are ZERO."""
    assert set(seeds) <= set(gradient.df_input_vjps)
    arguments: list[Any] = [seeds.get(i, ZERO) for i in gradient.df_input_vjps]
    arguments += [inputs[i] for i in gradient.df_input_captured_inputs]
    arguments += [values[i] for i in gradient.df_input_captured_outputs]
    return arguments


def gradients(
    gradient: Gradient, inputs: Sequence[Any], seeds: dict[int, Array]
) -> dict[int, Array]:
    """Gradients by f's input, by df as it is and by df specialised to these seeds; they agree."""
    arguments = df_arguments(gradient, inputs, run_f(gradient, inputs), seeds)
    plain = dict(zip(gradient.df_output_vjps, interpret(gradient.df, arguments), strict=True))
    special = specialize_autograd_zero(gradient.df, [i in seeds for i in gradient.df_input_vjps])
    assert not {n.kind for n in special.graph.walk()} & {"GradOf", "AutogradZero", "AutogradAdd"}
    results = interpret(special.graph, [arguments[i] for i in special.inputs])
    found = {gradient.df_output_vjps[i]: r for i, r in zip(special.outputs, results, strict=True)}
    for i, grad in plain.items():
        want = found[i] if i in found else np.zeros_like(grad)
        np.testing.assert_allclose(grad, want, rtol=1e-12, atol=1e-14)
    return plain


def grads_of(graph: Graph, inputs: Sequence[Any], seeds: dict[int, Array]) -> dict[int, Array]:
    """Differentiate for every floating-point input, and run."""
    return gradients(differentiate(graph), inputs, seeds)


def sum_to(grad: Array, shape: tuple[int, ...]) -> Array:
    """Sum what was broadcast, written apart from the library's own."""
    while grad.ndim > len(shape):
        grad = grad.sum(axis=0)
    for axis, size in enumerate(shape):
        if size == 1 and grad.shape[axis] != 1:
            grad = grad.sum(axis=axis, keepdims=True)
    return grad
