"""Which op is wrong: each node of a graph is tested by itself, on the inputs it really had.

Forward: the op's lowering against the library's own function, named in the op statement, and
against itself in float64.
Backward: the op's rule against central differences of its lowering, in float64, along a random
direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gradof.autodiff.differentiate import differentiate
from gradof.codegen.host.evaluate import ZERO, interpret
from gradof.errors import UnsupportedOpError
from gradof.ir.attrs import Attr
from gradof.ir.core import Graph, Node, Value
from gradof.ir.types import F64, DType, TensorType
from gradof.ops.registry import Op, Refused, get_op
from gradof.runtime.arrays import Library
from gradof.testing.report import OpRow

STEP = 1e-6
PRECISION_ULPS = 4096.0


def values_of(graph: Graph, inputs: Sequence[Any], library: Library) -> dict[Value, Any]:
    """Every value of a graph, for these inputs."""
    values: dict[Value, Any] = dict(zip(graph.inputs, inputs, strict=True))

    def observe(node: Node, results: Sequence[Any]) -> None:
        values.update(zip(node.outputs, results, strict=True))

    interpret(graph, inputs, library=library, observe=observe)
    return values


def examine_ops(graph: Graph, values: dict[Value, Any], seed: int = 0) -> list[OpRow]:
    """Test every node of a graph of primitives on the values it has.

    Rows are in order of execution, so that the first wrong one is the first diverging op.
    """
    rng = np.random.default_rng(seed)
    result: list[OpRow] = []
    with np.errstate(all="ignore"):
        for node in graph.nodes():
            if node.kind not in ("Constant", "AutogradAdd") and node.inputs:
                result.append(_examine_op(node, values, rng))
    return result


def _examine_op(node: Node, values: dict[Value, Any], rng: np.random.Generator) -> OpRow:
    record = get_op(node.kind)
    operands = [values[v] for v in node.inputs]
    found = np.asarray(values[node.outputs[0]])
    eager = float64 = None
    precise = True
    own = None if node.attrs or _batches_as_ours(record, operands) else _library_function(record)
    if own is not None:
        eager = _relative(found, np.asarray(own(*operands)))
    if "random" not in record.traits and found.dtype.kind == "f":
        float64 = _relative(found, _in_float64(node, operands))
        precise = float64 <= PRECISION_ULPS * float(np.finfo(found.dtype).eps)
    errors = _backward(node, record, values, rng)
    return OpRow(node.kind, str(node.loc), eager, float64, tuple(errors), precise)


def _in_float64(node: Node, operands: Sequence[Any]) -> Any:
    graph, params = one_node_graph(node)
    arrays = {
        v: np.asarray(x, np.float64) if np.asarray(x).dtype.kind == "f" else x
        for v, x in zip(node.inputs, operands, strict=True)
    }
    return np.asarray(interpret(graph, [arrays[v] for v in params])[0])


def _batches_as_ours(record: Op, operands: Sequence[Any]) -> bool:
    """Whether batches have dims as only our products take them: not one, or broadcast."""
    batches = {np.shape(x)[:-2] for x in operands}
    is_ours = record.name == "bmm" and any(len(batch) != 1 for batch in batches)
    return is_ours or ("elementwise" not in record.traits and len(batches) > 1)


def _library_function(record: Op) -> Any:
    """numpy's or torch's own function for an op, as a function of numpy arrays."""
    for name in record.names:
        library, _, rest = name.partition(".")
        if library == "numpy" and hasattr(np, rest):
            return getattr(np, rest)
    for name in record.names:
        library, _, rest = name.partition(".")
        if library == "aten" and record.numpy is not None:
            import torch

            packet = getattr(torch.ops.aten, rest.partition(".")[0])
            return lambda *xs: packet(
                *(torch.from_numpy(np.array(x)) if isinstance(x, (np.ndarray, np.generic)) else x
                  for x in xs)
            ).numpy()  # fmt: skip
    return None


def _backward(
    node: Node, record: Op, values: dict[Value, Any], rng: np.random.Generator
) -> list[tuple[str, float]]:
    if "random" in record.traits or not record.is_differentiable:
        return []
    is_rule = node.kind == "CustomRule"
    graph, params = (rule_graph if is_rule else one_node_graph)(node)
    point_of = {
        v: _point(v, values[v], rng if _has_rule(record, i) else None)  # an order may be whole
        for i, v in enumerate(node.inputs)  # an operand may stand there twice
    }
    arrays = [point_of[v] if v in point_of else _point(v, values[v], None) for v in params]
    wrt = {node.inputs[i] for i in node.attrs["wrt"]} if is_rule else params  # type: ignore[index, union-attr]
    found: list[tuple[str, float]] = []
    seen: set[Value] = set()
    for i, value in enumerate(node.inputs):
        name = record.inputs[0] if record.variadic else record.inputs[i]
        if value not in params or value not in wrt or value in seen or not _has_rule(record, i):
            continue
        seen.add(value)
        index = list(params).index(value)
        if not params[value].type.dtype.is_float or not np.size(arrays[index]):  # type: ignore[union-attr]
            continue
        error = _directional_error(graph, arrays, index, rng)
        if not np.isnan(error):
            found.append((name, error))
    return found


def _has_rule(record: Op, position: int) -> bool:
    rule = record.vjp.get(record.inputs[0] if record.variadic else record.inputs[position])
    return rule is not None and not isinstance(rule, Refused)


def one_node_graph(node: Node) -> tuple[Graph, dict[Value, Value]]:
    """A float64 graph of this node alone, and its params by the node's tensor operands."""
    graph = Graph(node.kind)
    params: dict[Value, Value] = {}
    mapping: dict[Value, Value] = {}
    for value in dict.fromkeys(node.inputs):
        source = value.node
        if source is not None and source.kind == "Constant":
            constant = Node("Constant", (), source.attrs)
            mapping[value] = constant.add_output(value.type)
            graph.block.append(constant)
        else:
            params[value] = mapping[value] = graph.block.add_param(widen(value.type))
    copy = graph.block.append(_in_double(node, mapping))
    graph.set_outputs(copy.outputs)
    return graph, params


def rule_graph(node: Node) -> tuple[Graph, dict[Value, Value]]:
    """As `one_node_graph`, of a CustomRule and of all that leads from its arguments to it.

    The rule is one for what the forward computes, which the node by itself does not know.
    """
    places = node.attrs["wrt"]
    assert isinstance(places, tuple)
    wrt = {node.inputs[i] for i in places}  # type: ignore[index]
    varying = set(wrt)
    block = node.outputs[0].node.block if node.outputs[0].node is not None else None
    assert block is not None
    stretch: list[Node] = []
    for other in block.nodes():
        if other is node:
            break
        if not varying.isdisjoint(other.inputs):
            varying.update(other.outputs)
            if wrt.isdisjoint(other.outputs):
                stretch.append(other)
    graph = Graph(node.kind)
    params: dict[Value, Value] = {}
    mapping: dict[Value, Value] = {}
    for other in (*stretch, node):
        for value in other.inputs:
            if value in mapping:
                continue
            source = value.node
            if source is not None and source.kind == "Constant":
                mapping[value] = graph.block.append(_in_double(source, {})).output
            else:
                params[value] = mapping[value] = graph.block.add_param(widen(value.type))
        copy = graph.block.append(_in_double(other, mapping))
        mapping.update(zip(other.outputs, copy.outputs, strict=True))
    graph.set_outputs(copy.outputs)
    return graph, params


def _in_double(node: Node, mapping: dict[Value, Value]) -> Node:
    """A copy whose floating-point types are float64, its blocks included."""
    constant = node.kind == "Constant" and not isinstance(node.output.type, TensorType)
    attrs = dict(node.attrs) if constant else {k: widen_attr(v) for k, v in node.attrs.items()}
    copy = Node(node.kind, [mapping[v] for v in node.inputs], attrs, node.loc)
    for out in node.outputs:
        copy.add_output(out.type if node.kind == "Constant" else widen(out.type))
    for block in node.blocks:
        made = copy.add_block()
        inner = {p: made.add_param(widen(p.type), p.hint) for p in block.params}
        for other in block.nodes():
            found = made.append(_in_double(other, inner))
            inner.update(zip(other.outputs, found.outputs, strict=True))
        made.returns.set_inputs([inner[v] for v in block.returns.inputs])
    return copy


def widen(type_: Any) -> Any:
    """The same type in float64 where it is floating point."""
    if isinstance(type_, TensorType) and type_.dtype.is_float:
        return type_.with_dtype(F64)
    return type_


def widen_attr(value: Attr) -> Attr:
    """A floating dtype attribute as float64."""
    return F64 if isinstance(value, DType) and value.is_float else value


def _point(value: Value, operand: Any, rng: np.random.Generator | None) -> Any:
    """The operand in float64, moved a little off kinks and ties unless `rng` is None."""
    if rng is None and isinstance(value.type, TensorType) and value.type.dtype.is_float:
        return np.asarray(operand, dtype=np.float64)
    if rng is None or not isinstance(value.type, TensorType) or not value.type.dtype.is_float:
        return operand
    array = np.asarray(operand, dtype=np.float64)
    moved = array * (1 + 1e-3 * rng.uniform(-1, 1, array.shape))
    return np.where(array == 0, 1e-3 * rng.uniform(-1, 1, array.shape), moved)


def _directional_error(
    graph: Graph, arrays: Sequence[Any], index: int, rng: np.random.Generator
) -> float:
    """Relative distance between the rule and a central difference; nan at a kink or a pole."""
    flags = [i == index for i in range(len(graph.inputs))]
    gradient = differentiate(graph, flags)
    if not gradient.df_output_vjps:
        return 0.0
    outputs = interpret(gradient.f, arrays)
    weights = [_weights(o, rng) for o in outputs[: gradient.f_real_outputs]]
    seeds: list[Any] = [
        weights[i] if i < gradient.f_real_outputs else ZERO for i in gradient.df_input_vjps
    ]
    seeds += [arrays[i] for i in gradient.df_input_captured_inputs]
    seeds += [outputs[i] for i in gradient.df_input_captured_outputs]
    try:
        (ours,) = interpret(gradient.df, seeds)
    except UnsupportedOpError:  # a second derivative is asked that has no rule: nothing to compare
        return float("nan")
    direction = rng.standard_normal(np.shape(arrays[index]))
    step = STEP * max(1.0, float(np.max(np.abs(arrays[index]))))

    def value(sign: float) -> float:
        moved = list(arrays)
        moved[index] = arrays[index] + sign * step * direction
        return float(sum(
            np.sum(np.real(np.conj(w) * o))
            for w, o in zip(weights, interpret(graph, moved), strict=True)
            if w is not None and i_differentiable(gradient.df_input_vjps, weights, w)
        ))  # fmt: skip

    back, here, on = value(-1.0), value(0.0), value(1.0)
    difference = (on - back) / (2 * step)
    bend = abs(on - 2 * here + back) / (2 * step)
    dot = float(np.sum(np.real(ours) * direction))  # of a complex operand the real part moves
    size = float(np.max(np.abs(ours)))
    scale = max(abs(difference), abs(dot), size if np.isfinite(size) else 0.0, 1e-8)
    if not np.isfinite(difference) or bend > 1e-2 * scale:
        return float("nan")
    return abs(dot - difference) / scale if np.isfinite(dot) else float("inf")


def _weights(output: Any, rng: np.random.Generator) -> Any:
    """A random cotangent, None of what has none."""
    kind, shape = np.asarray(output).dtype.kind, np.shape(output)
    if kind == "c":
        return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    return rng.standard_normal(shape) if kind == "f" else None


def i_differentiable(vjps: Sequence[int], weights: Sequence[Any], weight: Any) -> bool:
    """Whether the output weighed by `weight` has a cotangent."""
    return any(weights[i] is weight for i in vjps if i < len(weights))


def _relative(found: Any, expected: Any) -> float:
    if found.shape != expected.shape:
        return float("inf")
    finite = np.isfinite(found) & np.isfinite(expected)
    if found.dtype.kind not in "fiu" or not finite.any():
        return 0.0 if np.array_equal(found, expected) or not finite.any() else 1.0
    gap = np.abs(found[finite].astype(np.float64) - expected[finite].astype(np.float64))
    scale = max(float(np.max(np.abs(expected[finite]))), 1e-8)
    return float(np.max(gap)) / scale
