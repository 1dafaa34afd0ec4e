"""Calls whose gradients nobody asks for, though torch's grad mode is on.

    value, slope = value_and_grad(fn)(x)          x requires grad: the results have a history

Note [Unasked]
Where an input requires grad, f returns beside its results what df would read, and autograd keeps
it. A caller of `value_and_grad`, or one who evaluates a model without `no_grad`, never asks for
it. After `IDLE` calls in a row without a backward the graph itself runs, without temporaries, and
its inputs alone are saved. A backward that comes after all computes f again from them; from then on
f saves what df reads, for good. That is for graphs of few nodes, which are compiled once more for
it, and where f can be computed again: nothing is drawn at random, torch's own autograd runs no part
of it, and all inputs are saved anyway: one that is not may change before the backward, as in eager.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gradof import tuning
from gradof.ir.opinfo import has_trait

if TYPE_CHECKING:
    from gradof.runtime.plan import GradientPlan, GraphPlan

IDLE = 8


class Unasked:
    """What a GradientPlan knows of backwards that have not come; see Note [Unasked]."""

    def __init__(self, plan: GradientPlan, whole: GraphPlan) -> None:
        self.whole = whole  # the graph that f is of
        self._may_begin = is_computable_again(plan, whole)
        self._idle = 0

    @property
    def has_begun(self) -> bool:
        """Whether the graph runs without what df reads."""
        return self._idle >= IDLE and self._may_begin

    def ran(self) -> None:
        """f was run."""
        self._idle += 1  # without a lock: a count may be lost, and nothing with it

    def asked(self) -> None:
        """A backward has come."""
        self._may_begin = False


def is_computable_again(plan: GradientPlan, whole: GraphPlan) -> bool:
    """Whether a graph is short, and f can be run again in its backward."""
    f = plan.gradient.f
    if len(f.block) > tuning.UNASKED_NODES or len(set(plan.captured_inputs)) != len(f.inputs):
        return False
    if whole.views or whole.late is not None or whole.cuda_graph:
        return False
    if whole.memory_budget is not None or whole.library != "torch":
        return False
    own = ("Opaque", "python_call")
    graphs = (f, plan.gradient.df)
    if any(node.kind in own for graph in graphs for node in graph.walk()):
        return False
    return not any(has_trait(node.kind, "random") for node in f.walk())
