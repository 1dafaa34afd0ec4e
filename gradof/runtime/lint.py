"""`lint`: the ops whose gradient is 0 * inf for the arguments given, and the `where` behind each.

    mlp.py:7: the slope of sqrt is not finite at 2 elements that the where at mlp.py:8 does not take
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gradof.autodiff.compose import pullback_graph
from gradof.codegen.host.evaluate import interpret
from gradof.ir.attrs import to_numpy_dtype
from gradof.ir.clone import clone_graph
from gradof.ir.core import Graph, Loc, Node, Value
from gradof.ir.types import TensorType
from gradof.ops.nan_safe import unreached
from gradof.passes.expand_composites import expand_composites
from gradof.runtime.arrays import as_numpy
from gradof.runtime.cache import Bound
from gradof.runtime.results import gradient_flags

_SELECTS = ("where", "masked_fill", "clamp", "maximum", "minimum")


@dataclass(frozen=True)
class Finding:
    """`op` at `loc` has no finite slope at `count` elements that `select` at `taken_by` drops."""

    op: str
    loc: Loc | None
    count: int
    select: str | None
    taken_by: Loc | None

    def __str__(self) -> str:
        many = "1 element" if self.count == 1 else f"{self.count} elements"
        by = f"that the {self.select} at {self.taken_by} does not take"
        if self.select is None:
            by = "whose cotangent is zero, and zero times infinity is NaN"
        return (
            f"{self.loc}: the slope of {self.op} is not finite at {many} {by}; "
            'choose its operand first (where(c, x, 1.0)), or use numerics="nan_safe"'
        )


def lint(bound: Bound) -> list[Finding]:
    """See `Differentiated.lint`."""
    graph = clone_graph(bound.entry.traced.graph)
    expand_composites(graph)
    graph.nan_safe = True
    flags = gradient_flags(bound)
    outputs = [i for i, v in enumerate(graph.outputs) if v.is_inexact]
    reverse = pullback_graph(graph, [i for i, f in enumerate(flags) if f], outputs)
    inputs = [as_numpy(x) for x in bound.inputs]
    random = np.random.default_rng(0)
    for value in reverse.inputs[len(inputs) :]:
        assert isinstance(value.type, TensorType) and value.type.shape is not None
        seed = random.normal(size=value.type.shape)
        inputs.append(seed.astype(to_numpy_dtype(value.type.dtype)))
    values: dict[Value, Any] = {}
    found: list[Finding] = []

    def observe(node: Node, results: Any) -> None:
        if node.kind == "zero_unreached":
            count = int(np.sum(unreached(*(np.asarray(values[v]) for v in node.inputs))))
            if count:
                name = str(node.attrs["name"])
                found.append(Finding(name, node.loc, count, *_selected(graph, name, node.loc)))

    interpret(reverse, inputs, observe=observe, values=values,
              library="torch" if bound.entry.traced.library == "torch" else "numpy")  # fmt: skip
    return list(dict.fromkeys(reversed(found)))


def _selected(graph: Graph, name: str, loc: Loc | None) -> tuple[str | None, Loc | None]:
    """The first select after the op, following its results."""
    reached: set[Value] = set()
    for node in graph.nodes():
        if node.kind == name and node.loc == loc:
            reached.update(node.outputs)
        elif any(v in reached for v in node.inputs):
            if node.kind in _SELECTS:
                return node.kind, node.loc
            reached.update(node.outputs)
    return None, None
