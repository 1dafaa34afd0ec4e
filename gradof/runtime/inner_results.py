"""Results of a trace that other results are computed from: what autograd is to know of each.

    h, y = compiled(x)               y is computed from h
    torch.autograd.grad(y, h)        of the part of the graph that goes from x and h to y
    h.retain_grad(); y.backward()    the same part, then from h to x

The backward of a call goes from all results to the arguments at once, and no gradient of `h` is
there by itself. Where one is asked for, it is taken of the part between; see `torch_inner`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gradof.ir import forks
from gradof.ir.clone import clone_graph
from gradof.ir.core import Graph
from gradof.ir.opinfo import has_trait
from gradof.ir.value import Value
from gradof.passes.eliminate_dead_code import eliminate_dead_code
from gradof.tracer.core.result import TensorOut, Traced
from gradof.tracer.core.views import SharedView

if TYPE_CHECKING:
    from gradof.runtime.plan import GraphPlan

Results = tuple[int, ...]


class InnerResults:
    """Those of one trace.

    `earlier`: by result, those that it is computed from, in the order of the graph. A result is
    there behind all of its own. `views`: those that are given as views of another result.
    `written`: those that are written to an argument, and its input.
    """

    def __init__(
        self, plan: GraphPlan, earlier: dict[int, Results], views: Mapping[int, SharedView],
        written: Mapping[int, int],
    ) -> None:  # fmt: skip
        self.earlier = earlier
        self.written = {i: number for i, number in written.items() if i in earlier}
        self.views = {i: view for i, view in views.items() if i in earlier}
        self.is_random = any(has_trait(node.kind, "random") for node in plan.graph.walk())
        self.draws_in_python = any(node.kind == "python_draw" for node in plan.graph.walk())
        self._plan = plan
        self._parts: dict[tuple[int, Results], GraphPlan] = {}
        self._lock = forks.rlock()

    def shown(self, out: TensorOut, results: Sequence[Any]) -> Any:
        """A result that is a view of another: the one that autograd knows, if it recorded."""
        own = results[out.index]
        return own if own.grad_fn is not None else self.views[out.index].of(results)

    def part(self, result: int, given: Results) -> GraphPlan:
        """From the inputs, and behind them these results, to a result."""
        with self._lock:
            made = self._parts.get((result, given))
            if made is None:
                graph = _part(self._plan.graph, result, given)
                made = self._parts[result, given] = self._plan.with_graph(graph, role="backward")
            return made


def inner_results(plan: GraphPlan, traced: Traced) -> InnerResults | None:
    """The results of a trace that gradients of other results flow through; None without any."""
    stored = (out for store in traced.stores for out in store.outputs)
    shown = {
        out.index: out.shared for out in (*traced.outputs, *stored)
        if isinstance(out, TensorOut) and out.requires_grad
    }  # fmt: skip
    # what a function that is performed writes to its arguments, it writes itself
    backs = () if traced.performs else traced.writebacks
    written = {back.output: back.input for back in backs if back.requires_grad}
    shown |= dict.fromkeys(written.keys() - shown.keys())
    earlier = _earlier(traced.graph, set(shown)) if len(shown) > 1 else {}
    if not any(earlier.values()):
        return None
    views = {i: view for i, view in shown.items() if view is not None}
    return InnerResults(plan, earlier, views, written)


def _part(graph: Graph, result: int, given: Results) -> Graph:
    copies: dict[Value, Value] = {}
    part = clone_graph(graph, f"{graph.name}_part", copies)
    part.set_outputs([copies[graph.outputs[result]]])
    for i in given:
        value = copies[graph.outputs[i]]
        value.replace_all_uses_with(part.block.add_param(value.type, value.hint))
    eliminate_dead_code(part)
    return part


def _earlier(graph: Graph, shown: set[int]) -> dict[int, Results]:
    """Of the results that another is computed from, or that are: those that each is."""
    own: dict[Value, int] = {}  # by value, which of the results it is
    for i in sorted(shown):
        value = graph.outputs[i]
        if value.is_inexact and value.node is not None:
            own.setdefault(value, i)
    before: dict[Value, int] = {}  # by value, the results that its gradient flows through: bits
    order: dict[int, int] = {}
    for outputs, read in flows(graph):
        through = 0
        for value in read:
            through |= before.get(value, 0)
            if value in own:
                through |= 1 << own[value]
        for value in outputs:
            if through and value.is_inexact:
                before[value] = through
            if value in own:
                order[own[value]] = len(order)
    found = {
        i: tuple(j for j in order if before[value] >> j & 1)
        for i in shown if (value := graph.outputs[i]) in before
    }  # fmt: skip
    inner = {j for earlier in found.values() for j in earlier}
    return {i: found.get(i, ()) for i in (*order, *found) if i in found or i in inner}


def flows(graph: Graph) -> Iterator[tuple[list[Value], list[Value]]]:
    """What each node gives, and what it reads that a gradient may flow to."""
    for node in graph.nodes():
        read = [] if node.kind == "detach" else list(node.inputs)
        for block in node.blocks:
            read += [value for inner in block.walk() for value in inner.inputs]
        yield node.outputs, read
