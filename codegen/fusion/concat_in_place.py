"""Kernels that write straight into the parts of an array that is put together.

    h = room((256, 1024), "float32")
    (t, a, b) = kernel(x, into=((1, h[:, 0:256]), (2, h[:, 256:512])))
    h[:, 512:1024] = c                     # instead of h = np.concatenate((a, b, c), axis=1)

The gradient of what was split, as gates and gated units are, is put together from the gradients of
the parts: their kernel writes them where they belong, and nobody copies them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gradof import tuning
from gradof.ir.attrs import to_numpy_dtype
from gradof.ir.core import Graph, Node, Value
from gradof.ir.types import F32, F64, TensorType
from gradof.ops.memory import empty


@dataclass
class Joins:
    """`parts` are values of kernels, with what they are parts of; `first` makes the array."""

    parts: dict[Value, Node] = field(default_factory=dict)
    first: dict[Node, list[Node]] = field(default_factory=dict)  # kernel → concatenations
    nodes: set[Node] = field(default_factory=set)

    def whole(self) -> dict[Value, Value]:
        """The value in whose array each part lives."""
        return {part: node.output for part, node in self.parts.items()}


def find_joins(graph: Graph, takes: Mapping[Node, Callable[[int], bool]]) -> Joins:
    """The concatenations of large results of kernels; `takes` tells which results have a place."""
    joins = Joins()
    kept = set(graph.outputs)
    for node in graph.nodes():
        type_ = node.output.type if node.kind == "cat" else None
        if not isinstance(type_, TensorType) or type_.shape is None:
            continue
        if type_.dtype not in (F32, F64):
            continue
        parts = [v for v in node.inputs if v not in kept and _is_part(v, type_, takes)]
        if not parts:
            continue
        joins.nodes.add(node)
        joins.parts.update(dict.fromkeys(parts, node))
        makers = {v.node for v in parts if v.node is not None}
        joins.first.setdefault(_earliest(makers), []).append(node)
    return joins


def _is_part(
    value: Value, whole: TensorType, takes: Mapping[Node, Callable[[int], bool]]
) -> bool:
    own = value.type
    if value.node not in takes or len(value.uses) != 1 or not isinstance(own, TensorType):
        return False
    assert value.node is not None
    large = own.size >= tuning.CONCAT_PART and own.dtype == whole.dtype
    return large and takes[value.node](value.index)


def _earliest(nodes: Iterable[Node]) -> Node:
    first, *others = nodes
    for node in others:
        first = node if node.is_before(first) else first
    return first


def places(node: Node) -> list[str]:
    """The text of the index of each operand's place in a concatenation."""
    dim, start, texts = node.attrs["dim"], 0, []
    assert isinstance(dim, int)
    for value in node.inputs:
        assert isinstance(value.type, TensorType) and value.type.shape is not None
        stop = start + value.type.shape[dim]
        texts.append(f"[{':, ' * dim}{start}:{stop}]")
        start = stop
    return texts


def making(node: Node) -> str:
    """The text that makes the array of a concatenation."""
    type_ = node.output.type
    assert isinstance(type_, TensorType)
    return f"room({type_.shape}, {str(to_numpy_dtype(type_.dtype))!r})"


def room(shape: tuple[int, ...], dtype: str) -> Any:
    """An array for kernels to write into."""
    return empty(shape, np.dtype(dtype))


def placed(results: Sequence[Any], into: Iterable[tuple[int, Any]]) -> tuple[Any, ...]:
    """Results of something that does not write into given arrays, copied there."""
    made = list(results)
    for k, array in into:
        array[...] = made[k]
        made[k] = array
    return tuple(made)
