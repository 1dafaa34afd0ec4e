"""State that a call renews under autograd, by a node of its own.

    self.mean = 0.9 * self.mean + 0.1 * x.mean(0)         with a history, as nobody detached it
    return (x - x.mean(0)) * self.weight

In eager no path leads from the result to the mean of the call before. In one node for all of f one
would, and a backward would go on through the graphs of all calls before, which are freed. So state
whose inputs no other result depends on is computed, once more, by a plan of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gradof.ir.clone import clone_graph
from gradof.ir.core import Value
from gradof.ir.opinfo import has_trait
from gradof.passes.eliminate_dead_code import eliminate_dead_code
from gradof.runtime.inner_results import flows
from gradof.tracer.core.result import TensorOut, Traced
from gradof.tracer.state.origins import Origin
from gradof.tracer.state.places import place_key

if TYPE_CHECKING:
    from gradof.runtime.plan import GraphPlan


@dataclass(frozen=True)
class Apart:
    """A plan in two: by each, which of the results it gives."""

    plans: tuple[tuple[GraphPlan, tuple[int, ...]], ...]

    def run(
        self, call: Callable[[GraphPlan, Sequence[Any]], Sequence[Any]], tensors: Sequence[Any]
    ) -> tuple[Any, ...]:
        """All results, each recorded by autograd with its own inputs."""
        found = dict[int, Any]()
        for plan, places in self.plans:
            found.update(zip(places, call(plan, tensors), strict=True))
        return tuple(found[i] for i in range(len(found)))


def state_apart(plan: GraphPlan, traced: Traced) -> Apart | None:
    """The plan in two, where its state has a history that the other results do not need."""
    graph = traced.graph
    if plan.inner is not None or traced.performs or any(map(_has_effect, graph.walk())):
        return None
    stored = {out.index for store in traced.stores for out in store.outputs
              if isinstance(out, TensorOut) and out.requires_grad}  # fmt: skip
    stored.update(back.output for back in traced.writebacks if back.requires_grad)
    if not stored:
        return None
    others = [i for i in range(len(graph.outputs)) if i not in stored]
    read = _inputs_of(plan, {i for i, flag in enumerate(traced.requires_grad) if flag}
                      | _renewed(traced))  # fmt: skip
    own = _union(read, stored) & ~_union(read, others)
    if not own or not others:
        return None
    apart = tuple(i for i in sorted(stored) if read[i] & own)
    rest = tuple(i for i in range(len(graph.outputs)) if i not in apart)
    return Apart(((_part(plan, rest, "forward"), rest), (_part(plan, apart, "part"), apart)))


def _has_effect(node: Any) -> bool:
    """Whether a node is not to be computed twice: the user's own functions are run once a call."""
    traits = any(has_trait(node.kind, trait) for trait in ("random", "effect"))
    return traits or node.kind == "python_call"


def _union(read: Sequence[int], results: Any) -> int:
    found = 0
    for i in results:
        found |= read[i]
    return found


def _renewed(traced: Traced) -> set[int]:
    """The inputs that the call gives new contents: at the next call they have a history."""
    keys = {place_key(store.place) for store in traced.stores}
    first = len(traced.arg_leaves)
    found = {first + i for i, origin in enumerate(traced.origins)
             if isinstance(origin, Origin) and origin.place is not None
             and place_key(origin.place) in keys}  # fmt: skip
    return found | {back.input for back in traced.writebacks if back.requires_grad}


def _inputs_of(plan: GraphPlan, inputs: set[int]) -> list[int]:
    """By result, those of the inputs that its gradient flows to, as bits."""
    graph = plan.graph
    through: dict[Value, int] = {
        value: 1 << i for i, value in enumerate(graph.inputs) if i in inputs and value.is_inexact
    }
    for outputs, read in flows(graph):
        bits = 0
        for value in read:
            bits |= through.get(value, 0)
        if bits:
            through.update((value, bits) for value in outputs if value.is_inexact)
    return [through.get(value, 0) for value in graph.outputs]


def _part(plan: GraphPlan, places: Sequence[int], role: str) -> GraphPlan:
    copies: dict[Value, Value] = {}
    graph = clone_graph(plan.graph, mapping=copies)
    graph.set_outputs([copies[plan.graph.outputs[i]] for i in places])
    eliminate_dead_code(graph)
    views = tuple((places.index(i), view) for i, view in plan.views if i in places)
    part = plan.with_graph(graph, role, views)
    part.overwritten, part.late = plan.overwritten, plan.late
    return part
