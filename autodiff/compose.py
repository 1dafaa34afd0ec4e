"""Graphs that hold a function and its gradient together.

Given    graph f(%x) returning a scalar %l
`value_and_gradient_graph(f, wrt=[0])` is  graph f_grad(%x): ... return (%l, %dx), f and df in one,
`pullback_graph(f, wrt=[0])`           is  graph f_vjp(%x, %dl): ... return (%dx),
`together_graph(gradient of f, ...)`   is  graph f(%x, %dl): ... return (%l, temporaries, %dx).

An input the output does not depend on gets a gradient of zeros, as JAX gives.
"""

from __future__ import annotations

from collections.abc import Sequence

from gradof.autodiff.differentiate import differentiate
from gradof.autodiff.gradient import Gradient
from gradof.autodiff.zeros import specialize_autograd_zero
from gradof.ir.builder import Builder
from gradof.ir.clone import clone_graph, inline
from gradof.ir.core import Graph, Value
from gradof.ir.garbage import few_collections
from gradof.ir.types import TensorType
from gradof.ops.expr import Emitter, F
from gradof.passes.pipeline import CLEAN_UP, run_passes


@few_collections()
def value_and_gradient_graph(
    graph: Graph, wrt: Sequence[int], *, output: int = 0, memory_budget: float | None = None
) -> Graph:
    """All outputs of `graph`, then the gradients of output `output` (a scalar) for inputs `wrt`.

    `memory_budget` is that of `differentiate`.
    """
    result, emitter = _copy_inputs(graph, graph.name + "_grad")
    value = graph.outputs[output]
    seed = _full(value, 1.0, emitter)
    values, gradients = _compose(graph, wrt, {output: seed}, result, emitter, memory_budget)
    result.set_outputs([*values, *gradients])
    run_passes(result, CLEAN_UP)
    return result


@few_collections()
def pullback_graph(
    graph: Graph, wrt: Sequence[int], outputs: Sequence[int], memory_budget: float | None = None
) -> Graph:
    """The gradients for inputs `wrt`, given the inputs and then cotangents of the named outputs.

    `memory_budget` is that of `differentiate`.
    """
    result, emitter = _copy_inputs(graph, graph.name + "_vjp")
    seeds = {
        i: result.block.add_param(graph.outputs[i].type, f"d{graph.outputs[i].hint or ''}")
        for i in outputs
    }
    _, gradients = _compose(graph, wrt, seeds, result, emitter, memory_budget)
    result.set_outputs(gradients)
    run_passes(result, CLEAN_UP)
    return result


@few_collections()
def together_graph(
    gradient: Gradient, df: Graph, df_inputs: Sequence[int], *, temporaries: bool
) -> Graph:
    """f's inputs and a cotangent of its output 0 → f's outputs, and df's.

    With `temporaries` f's outputs are all, else the real ones. `df` is the gradient's, specialised
    for that cotangent alone; it takes `df_inputs` of its own.
    """
    result, _ = _copy_inputs(gradient.f, gradient.f.name)
    params = list(result.inputs)
    value = gradient.f.outputs[0]
    seed = result.block.add_param(value.type, f"d{value.hint or ''}")
    values = inline(gradient.f.block, params, result.block, result.block.returns)
    arguments = _df_arguments(gradient, params, values, {0: seed})
    given = [arguments[i] for i in df_inputs]
    gradients = inline(df.block, given, result.block, result.block.returns)
    kept = values if temporaries else values[: gradient.f_real_outputs]
    result.set_outputs([*kept, *gradients])
    run_passes(result, CLEAN_UP)
    return result


@few_collections()
def jvp_graph(graph: Graph, wrt: Sequence[int], outputs: Sequence[int]) -> Graph:
    """The derivatives of the named outputs, given the inputs and then tangents of inputs `wrt`.

    The pullback is linear in its cotangents, so that its own pullback does not read them: zeros
    take their place.
    """
    n, k = len(graph.inputs), len(outputs)
    linear = pullback_graph(graph, wrt, outputs)
    result = pullback_graph(linear, range(n, n + k), range(len(wrt)))
    result.name = graph.name + "_jvp"
    first = next(iter(result.nodes()), result.block.returns)
    emitter = Emitter(Builder(result.block, first))
    for value in result.inputs[n : n + k]:
        value.replace_all_uses_with(_full(value, 0.0, emitter))
    result.block.remove_params(range(n, n + k))
    run_passes(result, CLEAN_UP)
    return result


def with_inputs_returned(graph: Graph) -> Graph:
    """A copy whose outputs are those of `graph`, then its inputs: a function may return either."""
    copy = clone_graph(graph)
    copy.set_outputs([*copy.outputs, *copy.inputs])
    return copy


def _copy_inputs(graph: Graph, name: str) -> tuple[Graph, Emitter]:
    result = Graph(name)
    result.nan_safe, result.small_kernels = graph.nan_safe, graph.small_kernels
    result.whole = graph.whole
    for value in graph.inputs:
        result.block.add_param(value.type, value.hint)
    return result, Emitter(Builder(result.block))


def _compose(
    graph: Graph, wrt: Sequence[int], seeds: dict[int, Value], result: Graph, emitter: Emitter,
    memory_budget: float | None,
) -> tuple[list[Value], list[Value]]:  # fmt: skip
    flags = [i in wrt for i in range(len(graph.inputs))]
    gradient = differentiate(graph, flags, memory_budget=memory_budget)
    params = result.inputs[: len(graph.inputs)]
    values = inline(gradient.f.block, params, result.block, result.block.returns)
    defined = [i in seeds for i in gradient.df_input_vjps]
    special = specialize_autograd_zero(gradient.df, defined)
    arguments = _df_arguments(gradient, params, values, seeds)
    grads = inline(
        special.graph.block, [arguments[i] for i in special.inputs], result.block,
        result.block.returns,
    )
    found = {gradient.df_output_vjps[i]: v for i, v in zip(special.outputs, grads, strict=True)}
    complete = [
        found[i] if i in found else _full(graph.inputs[i], 0.0, emitter) for i in wrt
    ]
    return values[: gradient.f_real_outputs], complete


def _df_arguments(
    gradient: Gradient, params: Sequence[Value], values: Sequence[Value], seeds: dict[int, Value]
) -> dict[int, Value]:
    """df's inputs by position; cotangents without a seed are left out."""
    arguments: dict[int, Value] = {}
    for position, i in enumerate(gradient.df_input_vjps):
        if i in seeds:
            arguments[position] = seeds[i]
    at = len(gradient.df_input_vjps)
    captured = [params[i] for i in gradient.df_input_captured_inputs]
    captured += [values[i] for i in gradient.df_input_captured_outputs]
    arguments.update({at + k: v for k, v in enumerate(captured)})
    return arguments


def _full(value: Value, number: float, emitter: Emitter) -> Value:
    assert isinstance(value.type, TensorType) and value.type.shape is not None
    return F.full.with_emitter(emitter)(
        dtype=value.type.dtype, shape=value.type.shape, device=value.type.device, value=number
    ).value
