"""`find_nan`: the op that made the first NaN or infinity of a result, a gradient or a second one.

    loss.py:7: log makes inf in f, from finite operands
    loss.py:9: mul makes nan in df, of the inf that sqrt makes at loss.py:7

The graph of each pass runs op by op, with ones as cotangents. From a result that is not finite the
search goes back, along NaN before infinities, to the op whose operands are still in order: an
infinity that is masked away again, as in attention, is not reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gradof.autodiff.compose import pullback_graph
from gradof.codegen.host.evaluate import interpret
from gradof.ir.attrs import to_numpy_dtype
from gradof.ir.clone import clone_graph
from gradof.ir.core import Graph, Loc, Node, Value
from gradof.ir.types import TensorType
from gradof.passes.expand_composites import expand_composites
from gradof.runtime.arrays import as_numpy
from gradof.runtime.cache import Bound
from gradof.runtime.results import gradient_flags

Pass = Literal["f", "df", "second"]
_PASSES: tuple[Pass, ...] = ("f", "df", "second")


@dataclass(frozen=True)
class NotFinite:
    """`op` at `loc` makes `what`, nan or inf, at `count` elements; see the module docstring.

    `within` is the pass. `source` is the op that made the infinities it has as operands, if it has.
    An input that is not finite itself is an op called "input", with the name of the argument.
    """

    op: str
    loc: Loc | None
    within: Pass
    what: Literal["nan", "inf"]
    count: int
    source: NotFinite | None = None

    def __str__(self) -> str:
        many = "1 element" if self.count == 1 else f"{self.count} elements"
        where = "" if self.loc is None else f"{self.loc}: "
        if self.source is None:
            return f"{where}{self.op} makes {self.what} at {many}, in {self.within}"
        made = f"the {self.source.what} of {self.source.op}"
        if self.source.loc is not None:
            made += f" at {self.source.loc}"
        return f"{where}{self.op} makes {self.what} at {many}, in {self.within}, of {made}"


def find_nan(bound: Bound) -> NotFinite | None:
    """See `Differentiated.find_nan`."""
    graph = clone_graph(bound.entry.traced.graph)
    flags = gradient_flags(bound)
    inputs = [as_numpy(x) for x in bound.inputs]
    library = bound.entry.traced.library
    wanted = [i for i, flag in enumerate(flags) if flag]
    for within in _PASSES:
        if within != "f":
            outputs = [i for i, v in enumerate(graph.outputs) if v.is_inexact]
            if not outputs or not wanted:
                return None
            expand_composites(graph)  # in f an op has the name that the user knows it by
            graph = pullback_graph(graph, wanted, outputs)
            inputs += [_ones(v) for v in graph.inputs[len(inputs) :]]
        run = _Run(graph, inputs, library)
        found = next(run.bad(), None)
        if found is not None:
            return run.origin(found, within)
    return None


class _Run:
    """One pass over a graph, with all its values."""

    def __init__(self, graph: Graph, inputs: list[Any], library: Any) -> None:
        self.graph = graph
        self.values: dict[Value, Any] = dict(zip(graph.inputs, inputs, strict=True))
        self.nodes: dict[Value, Node] = {}

        def observe(node: Node, results: Any) -> None:
            self.values.update(zip(node.outputs, results, strict=True))
            self.nodes.update((v, node) for v in node.outputs)

        results = interpret(graph, inputs, observe=observe, library=library)
        self.values.update(zip(graph.outputs, results, strict=True))

    def bad(self) -> Iterator[Value]:
        """The results that are not finite, those with a nan first."""
        bad = [v for v in self.graph.outputs if self.has(v, "nan") or self.has(v, "inf")]
        return iter(sorted(bad, key=lambda v: not self.has(v, "nan")))

    def has(self, value: Value, what: str) -> int:
        """How many elements of a value are nan, or are infinite."""
        array = self.values.get(value)
        if not isinstance(value.type, TensorType) or not isinstance(array, np.ndarray | np.generic):
            return 0
        array = np.asarray(array)
        if array.dtype.kind not in "fcV":
            return 0
        return int(np.sum(np.isnan(array) if what == "nan" else np.isinf(array)))

    def origin(self, value: Value, within: Pass) -> NotFinite:
        """The op that made what is not finite in a value."""
        what: Literal["nan", "inf"] = "nan" if self.has(value, "nan") else "inf"
        while True:
            node = self.nodes.get(value)
            if node is None:
                name = f"input {value.hint}"
                return NotFinite(name, None, within, what, self.has(value, what))
            before = [v for v in node.inputs if self.has(v, what)]
            if not before:
                break
            value = before[0]
        infinite = [v for v in node.inputs if self.has(v, "inf")]
        source = self.origin(infinite[0], within) if infinite else None
        return NotFinite(node.kind, node.loc, within, what, self.has(value, what), source)


def _ones(value: Value) -> Any:
    assert isinstance(value.type, TensorType) and value.type.shape is not None
    return np.ones(value.type.shape, to_numpy_dtype(value.type.dtype))
