"""An op in ops that a target has functions for, by the scalar expansion of its statement.

>>> print(unfolded("log_sigmoid", F32, {}, supports))       # as native code has it
graph log_sigmoid(%x : f32[]):
  %0 : bool[] = lt(%x, 0.0)
  ...

A target has a table of what it computes itself, and asks here for everything else. Half precision
is computed in float32 and rounded once, at the end (`gradof.passes.expand_composites`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from gradof.errors import CodegenError, InferenceError
from gradof.ir.attrs import Attr
from gradof.ir.builder import Builder
from gradof.ir.clone import clone_graph
from gradof.ir.core import Graph, Node, Value
from gradof.ir.opinfo import OPS
from gradof.ir.types import BOOL, DType, TensorType
from gradof.ops.expr import Expansion
from gradof.ops.registry import Op
from gradof.passes.eliminate_dead_code import eliminate_dead_code
from gradof.passes.expand_composites import inline

NO_ATTRS: Mapping[str, Attr] = MappingProxyType({})
Has = Callable[[str, Sequence[DType], DType], bool]


def unfolded(kind: str, own: DType, attrs: Mapping[str, Attr], has: Has) -> Graph | None:
    """A graph of scalars that computes the op on operands of one dtype, all nodes in the target.

    `has` says of an op, the dtypes of its operands (a condition left out) and that of its result
    whether the target computes it. None where neither it does nor an expansion leads there, or
    where the op is not defined for the dtype. Graphs are shared: not to be changed.
    """
    record = OPS.get(kind)
    if not isinstance(record, Op) or record.scalar is None:
        return None
    items = tuple((name, attrs[name]) for name in record.attrs)
    return _unfolded(record, own, items, repr(items), has)  # repr tells 1 from 1.0, and -0.0 from 0


@functools.lru_cache(maxsize=4096)
def _unfolded(
    record: Op, own: DType, items: tuple[tuple[str, Attr], ...], _text: str, has: Has
) -> Graph | None:
    graph = Graph(record.name)
    operands = [graph.block.add_param(TensorType(own, ()), name) for name in record.inputs]
    try:
        result = Builder(graph.block).emit(record.name, *operands, **dict(items))
    except InferenceError:  # not defined for the dtype
        return None
    graph.set_outputs([result])
    first = next(iter(graph.nodes()))
    todo = [(first, frozenset[tuple[str, DType | None]]())]
    while todo:
        node, within = todo.pop()
        if node.kind == "Constant":
            continue
        given, dtype = dtypes_of(node)
        if within and has(node.kind, given, dtype):
            continue
        key = (node.kind, given[0] if given else None)
        if key in within:
            raise CodegenError(f"the scalar expansion of {node.kind} leads to {node.kind} again")
        inner = OPS.get(node.kind)
        made = inline(node, inner.scalar) if isinstance(inner, Op) and inner.scalar else None
        if made is None:
            return None
        todo += [(each, within | {key}) for each in made]
    eliminate_dead_code(graph)
    return graph


def expand_scalars(graph: Graph, has_form: Callable[[str], bool]) -> Graph:
    """The graph with the ops expanded that `has_form` says no to; itself where there are none."""
    if not any(_expansion(node, has_form) for node in graph.nodes()):
        return graph
    graph = clone_graph(graph)
    todo = list(graph.nodes())
    while todo:
        node = todo.pop()
        expansion = _expansion(node, has_form)
        if expansion is not None:
            todo += inline(node, expansion) or ()
    return graph


def _expansion(node: Node, has_form: Callable[[str], bool]) -> Expansion | None:
    record = OPS.get(node.kind)
    return record.scalar if isinstance(record, Op) and not has_form(node.kind) else None


def dtypes_of(node: Node) -> tuple[list[DType], DType]:
    """The dtypes of a node's tensors, the condition of a `where` left out, and of its result."""
    inputs = node.inputs[1:] if node.kind == "where" else node.inputs
    result = node.output.type
    given = [v.type.dtype for v in inputs if isinstance(v.type, TensorType)]
    return given, result.dtype if isinstance(result, TensorType) else given[0]


def dtype_of(value: Value, reader: Node) -> DType:
    """The dtype of an operand; a number has that of the operands beside it."""
    if isinstance(value.type, TensorType):
        return value.type.dtype
    if reader.kind == "where" and value is reader.inputs[0]:
        return BOOL
    given, result = dtypes_of(reader)
    return given[0] if given else result


def number_of(value: Value) -> bool | int | float:
    """The number of a Constant."""
    assert value.node is not None
    number = value.node.attrs["value"]
    assert isinstance(number, (bool, int, float))
    return number
