"""Graphs with `attention` nodes in place of what was recognised, and back.

    with_attention(graph, (True, True, True))     before it is differentiated: f then saves o and l
    without_attention(graph)                      the same in primitives: for derivatives of df
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gradof.codegen.triton.attention.causal import number_of
from gradof.codegen.triton.attention.kernel import allows_tf32
from gradof.codegen.triton.attention.recognise import Attention, recognised, renames
from gradof.ir.builder import Builder
from gradof.ir.clone import clone_graph
from gradof.ir.core import Graph, Node, Value
from gradof.ir.types import BF16, F16, F32, DType, TensorType
from gradof.ops.attention import attention_in_primitives, backward_in_primitives
from gradof.ops.expr import Emitter, Expr, F
from gradof.passes.eliminate_dead_code import eliminate_dead_code

_SAME = frozenset({"alias", "copy", "reshape"})
WIDE = ("its products are float32, which kernels multiply in TF32 alone; "
        'torch.backends.cuda.matmul.fp32_precision = "tf32" allows that')
NODES = {"attention": attention_in_primitives, "attention_backward": backward_in_primitives}


def with_attention(
    graph: Graph, requires_grad: Sequence[bool] | None = None
) -> tuple[Graph, list[Attention]]:
    """The graph with a node for each attention that can be one kernel, and all that were found.

    The graph itself comes back where there is none. `requires_grad` has a flag per input.
    """
    copy, found = recognised(graph, requires_grad)
    for attention in found:
        if not attention.reason and not allows_tf32() and F32 in _dtypes(attention):
            attention.reason = WIDE
    fit = [a for a in found if not a.reason]
    if not fit:
        return graph, found
    for attention in fit:
        _replace(attention)
    eliminate_dead_code(copy)
    return copy, found


def without_attention(graph: Graph) -> Graph:
    """The graph in primitives; itself where it has no such node."""
    if not any(node.kind in NODES for node in graph.nodes()):
        return graph
    copy = clone_graph(graph)
    for node in list(copy.nodes()):
        if node.kind in NODES:
            assert node.block is not None
            emitter = Emitter(Builder(node.block, node, node.loc))
            made = NODES[node.kind](*map(emitter.wrap, node.inputs), **node.attrs)  # type: ignore[operator]
            for out, expr in zip(node.outputs, made, strict=True):
                out.replace_all_uses_with(expr.value)
            node.erase()
    return copy


def _dtypes(attention: Attention) -> set[DType]:
    """The dtypes of Q, K and V as a kernel reads them."""
    *batch, rows, keys = attention.frame
    (q, kt), v, out = attention.product.inputs, attention.last.inputs[1], attention.last.output
    head, width = (_sizes(value)[-1] for value in (q, out))
    found = {
        _type(_origin(value, shape)[0]).dtype
        for value, shape in ((q, (*batch, rows, head)), (kt, (*batch, head, keys)))
    }
    if len(found) > 1:  # both are read as they were widened
        found = {_type(q).dtype}
    shape = (*batch, keys, width)
    for casts in (True, False):
        dtype = _type(_origin(v, shape, casts=casts, numbers=False)[0]).dtype
        if _dtypes_read(out) == {dtype}:
            return {*found, dtype}
    return {*found, _type(v).dtype}


def _replace(attention: Attention) -> None:
    product, last = attention.product, attention.last
    assert last.block is not None
    emitter = Emitter(Builder(last.block, last, last.loc))
    *batch, rows, keys = attention.frame
    head, width = (_sizes(v)[-1] for v in (product.inputs[0], last.output))
    q, kt = product.inputs
    found = [
        _before(q, (*batch, rows, head), emitter), _before(kt, (*batch, head, keys), emitter)
    ]  # fmt: skip
    if len({x.dtype for x, _ in found}) > 1:
        found = [
            _before(q, (*batch, rows, head), emitter, casts=False),
            _before(kt, (*batch, head, keys), emitter, casts=False),
        ]
    (queries, q_factor), (turned, k_factor) = found
    v, shape = last.inputs[1], (*batch, keys, width)
    values, _ = _before(v, shape, emitter, numbers=False)
    if _dtypes_read(last.output) != {values.dtype}:
        values, _ = _before(v, shape, emitter, numbers=False, casts=False)
    steps, factor = tuple(attention.steps), q_factor * k_factor
    if factor != 1.0:
        steps = (("mul", ("s", factor)), *steps)
    extras = map(emitter.wrap, attention.extras)
    o, _ = F.attention.multiple(
        queries, turned, values, *extras, steps=steps, safe=attention.safe,
        causal=attention.causal,
    )  # fmt: skip
    _hand_on(last.output, o.value)
    whole = o.cast(_type(last.output).dtype).reshape(_sizes(last.output))
    last.output.replace_all_uses_with(whole.value)


def _hand_on(value: Value, o: Value) -> None:
    """Let readers of a value in o's own shape read o: what is returned and saved is one tensor."""
    for use in value.uses:
        if renames(use.node):
            if use.node.kind != "cast":
                _hand_on(use.node.output, o)
            if use.node.output.type == o.type:
                use.node.output.replace_all_uses_with(o)


def _dtypes_read(value: Value) -> set[DType]:
    """The dtypes in which a value is read: that of casts, where nothing else reads it."""
    found: set[DType] = set()
    for use in value.uses:
        if use.node.kind in ("alias", "reshape"):
            found |= _dtypes_read(use.node.output)
        else:
            read = use.node.output if use.node.kind == "cast" else value
            found.add(_type(read).dtype)
    return found


def _before(
    value: Value, shape: tuple[int, ...], emitter: Emitter, *, casts: bool = True,
    numbers: bool = True,
) -> tuple[Expr, float]:  # fmt: skip
    """An operand of a product as it was before it was copied, reshaped or multiplied by numbers."""
    found, factor, dims = _origin(value, shape, casts=casts, numbers=numbers)
    made = emitter.wrap(found)
    if dims is not None:
        made = F.permute(made, dims=dims)
    return _in_shape(made.value, shape, emitter), factor


def _origin(
    value: Value, shape: tuple[int, ...], *, casts: bool = True, numbers: bool = True
) -> tuple[Value, float, tuple[int, ...] | None]:
    """The last value of that shape on the way back, the numbers it was multiplied by, and dims.

    The product of the numbers becomes a step of the scores: torch's own attention multiplies Q and
    K by the root of its scale. Kernels take strides, so what was copied for a product need not be.
    With `casts` also before it was widened from half precision: products are summed in float32
    either way. Where it was widened first, and turned afterwards, `dims` are how it was turned.
    """
    found, at, factor = (value, 1.0), value, 1.0
    while at.node is not None and (
        at.node.kind in _SAME or (casts and _widens(at.node)) or (numbers and _scales(at.node))
    ):
        operands = [number_of(v) for v in at.node.inputs]
        factor *= next((n for n in operands if n is not None), 1.0)
        at = at.node.inputs[operands.index(None)]
        if _sizes(at) == shape:
            found = (at, factor)
    node = found[0].node
    if casts and node is not None and node.kind == "permute":
        source: Any = node.inputs[0].node
        dims: Any = node.attrs["dims"]
        if source is not None and _widens(source):
            return source.inputs[0], found[1], dims
    return (*found, None)


def _scales(node: Node) -> bool:
    """Whether a node multiplies a tensor by a number."""
    return node.kind == "mul" and sum(number_of(v) is None for v in node.inputs) == 1


def _widens(node: Node) -> bool:
    if node.kind != "cast" or not isinstance(node.inputs[0].type, TensorType):
        return False
    return node.inputs[0].type.dtype in (F16, BF16) and _type(node.output).dtype == F32


def _in_shape(value: Value, shape: tuple[int, ...], emitter: Emitter) -> Expr:
    made = emitter.wrap(value)
    if _sizes(value) == shape:
        return made
    same_size = math.prod(_sizes(value)) == math.prod(shape)
    return made.reshape(shape) if same_size else made.expand(shape)


def _type(value: Value) -> TensorType:
    assert isinstance(value.type, TensorType)
    return value.type


def _sizes(value: Value) -> tuple[int, ...]:
    shape = _type(value).shape
    assert shape is not None
    return shape


def is_attention(node: Node) -> bool:
    """Whether the emitter has kernels of its own for a node."""
    return node.kind in NODES
