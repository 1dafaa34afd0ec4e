"""differentiate: one graph in, f and df out.

>>> g = parse_graph('''graph f(%x : f32[3]):
...   %y : f32[3] = tanh(%x)
...   return (%y)''')
>>> gradient = differentiate(g)
>>> print(gradient.df)
graph df(%dy : f32[3], %y : f32[3]):
  %0 : float = Constant[value=1.0]()
  %dx : f32[3] = GradOf[name='tanh'](%dy)
  ...
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gradof.autodiff.captures import choose_captures, saved_bytes
from gradof.autodiff.gradient import Gradient
from gradof.autodiff.lift import lambda_lift_reverse
from gradof.autodiff.optimize import (
    captured_uses,
    deduplicate_size_captures,
    eliminate_dead_reverse,
    lift_constants,
    rematerialize_views,
)
from gradof.autodiff.reverse import ReverseDetails, add_reverse_inline
from gradof.autodiff.segments import in_segments, long_loops
from gradof.autodiff.step import Step
from gradof.ir.clone import clone_graph, clone_node
from gradof.ir.core import Block, Graph, Value
from gradof.ir.garbage import few_collections
from gradof.ir.verify import verify
from gradof.passes.common_subexpression import common_subexpression
from gradof.passes.constant_pooling import constant_pooling
from gradof.passes.eliminate_dead_code import eliminate_dead_code
from gradof.passes.expand_composites import expand_composites
from gradof.passes.forget_checkpoints import forget_checkpoints
from gradof.passes.pipeline import after_pass, checking, is_watched


@few_collections()
def differentiate(
    graph: Graph, requires_grad: Sequence[bool] | None = None, *,
    memory_budget: float | None = None, kernels: bool = False, overwritten: Sequence[int] = (),
    step: Step | None = None,
) -> Gradient:  # fmt: skip
    """Split the derivative of `graph` into f and df; `graph` itself is left as it was.

    `requires_grad` has one flag per input; by default every floating-point input is wanted.
    `memory_budget` between 0 and 1 is the share of bytes that may be saved, of those that are
    without it: see `captures`. `kernels` says that arrays of any size are computed by fused loops,
    as on a GPU. `overwritten` are inputs, by number, that have other values when df runs: nothing
    is computed again from them. `step` says that the graph is the body of a loop.
    Raises DifferentiationError if the graph holds a node without a
    rule, or wrong flags.
    """
    run = Run(clone_graph(graph), requires_grad, memory_budget, kernels, tuple(overwritten), step)
    for name, apply in STEPS.items():
        apply(run)
        if is_watched():
            after_pass(name, run.shown(), True)
    result = lambda_lift_reverse(run.f, run.pair())
    _expand_rest(result.f)
    _expand_rest(result.df)
    constant_pooling(result.df)
    if checking():
        verify(result.f)
        verify(result.df)
    return result


@dataclass
class Run:
    """A function on its way to f and df: first alone, from `reverse` on with its reverse block."""

    f: Graph
    requires_grad: Sequence[bool] | None = None
    memory_budget: float | None = None
    kernels: bool = False
    overwritten: tuple[int, ...] = ()
    step: Step | None = None
    reverse: ReverseDetails | None = None
    unlimited: int | None = None  # bytes that are saved without a budget, where loops have segments

    def pair(self) -> ReverseDetails:
        """The reverse of f; AssertionError before there is one."""
        assert self.reverse is not None
        return self.reverse

    def shown(self) -> Graph:
        """A copy of f, with the reverse as a block of a final `Reverse` node if there is one."""
        mapping: dict[Value, Value] = {}
        copy = clone_graph(self.f, mapping=mapping)
        if self.reverse is not None:
            owner = self.reverse.block.owner
            assert not isinstance(owner, Graph)
            copy.block.append(clone_node(owner, mapping))
        return copy


def _add_reverse(run: Run) -> None:
    """Append a block with one GradOf for each node that a cotangent reaches, last node first."""
    run.reverse = reverse_of(run.f, run.requires_grad, run.memory_budget)


def _segment_loops(run: Run) -> None:
    """Make loops of segments of those whose steps save more than the budget allows."""
    if run.memory_budget is None or run.memory_budget >= 1.0 or run.step is not None:
        return
    loops = long_loops(run.f)
    if not loops:
        return
    copies: dict[Value, Value] = {}
    plain = Run(clone_graph(run.f, mapping=copies), run.requires_grad, None, run.kernels,
                run.overwritten)  # fmt: skip
    alike = {node: copies[node.outputs[0]].node for node in loops}
    for apply in STEPS.values():
        apply(plain)
    captured = dict.fromkeys(v for _, _, v in captured_uses(plain.f, plain.pair().block))
    run.unlimited = saved_bytes(list(captured), plain.f)
    for node, copy in alike.items():
        if copy is not None and copy.block is not None:
            saved = saved_bytes([v for v in copy.outputs if v in captured], plain.f)
            in_segments(node, saved, run.memory_budget * saved)


def _choose_captures(run: Run) -> None:
    """Say by a minimum cut what is saved for the reverse, and compute the rest again there."""
    gone = frozenset(run.f.inputs[i] for i in run.overwritten)
    choose_captures(
        run.f, run.pair(), run.memory_budget, kernels=run.kernels, overwritten=gone, step=run.step,
        unlimited=run.unlimited,
    )  # fmt: skip


def _rematerialize_views(run: Run) -> None:
    if run.step is None:  # a view of what a loop carries is less to save than what it is a view of
        rematerialize_views(run.f, run.pair().block)


def _of_f(function: Callable[[Graph], object]) -> Callable[[Run], object]:
    return _documented(lambda run: function(run.f), function)


def _of_pair(function: Callable[[Graph, Block], object]) -> Callable[[Run], object]:
    return _documented(lambda run: function(run.f, run.pair().block), function)


def _documented(step: Callable[[Run], object], function: Any) -> Callable[[Run], object]:
    step.__doc__ = function.__doc__
    return step


def _expand(run: Run) -> None:
    """Inline composites; those with a rule of their own stay, unless nan_safe looks inside."""
    expand_composites(run.f, with_rules=run.f.nan_safe)


# In order; `gradof opt` runs a graph up to one of them. Equal values are merged before the reverse
# is built: they have one gradient, and the saved one keeps it.
STEPS: dict[str, Callable[[Run], object]] = {
    "expand-without-rules": _expand,
    "segment-loops": _segment_loops,
    "merge-equal": _of_f(common_subexpression),
    "reverse": _add_reverse,
    "lift-constants": _of_pair(lift_constants),
    "merge-equal-again": _of_f(common_subexpression),
    "rematerialize-views": _documented(_rematerialize_views, rematerialize_views),
    "deduplicate-size-captures": _of_pair(deduplicate_size_captures),
    "eliminate-dead-reverse": _documented(
        lambda run: eliminate_dead_reverse(run.pair()), eliminate_dead_reverse
    ),
    "eliminate-dead-forward": _of_f(eliminate_dead_code),
    "choose-captures": _choose_captures,
    "forget-regions": _of_f(forget_checkpoints),
    "eliminate-unsaved": _of_f(eliminate_dead_code),
}


def run_steps(graph: Graph, last: str, requires_grad: Sequence[bool] | None = None) -> Graph:
    """A copy of `graph` after the steps up to `last`; its reverse is a final `Reverse` node."""
    run = Run(clone_graph(graph), requires_grad)
    for name, step in STEPS.items():
        step(run)
        if name == last:
            break
    return run.shown()


def _expand_rest(graph: Graph) -> None:
    """Inline the composites with rules; what is inside of one is never captured.

    A cotangent of what is inside would have no way back in the second derivative.
    """
    if expand_composites(graph):
        common_subexpression(graph)
        eliminate_dead_code(graph)


def reverse_of(
    graph: Graph, requires_grad: Sequence[bool] | None = None, memory_budget: float | None = None
) -> ReverseDetails:
    """`add_reverse_inline` with the default flags filled in."""
    flags = [v.is_inexact for v in graph.inputs] if requires_grad is None else requires_grad
    return add_reverse_inline(graph, flags, memory_budget)


def show_reverse(graph: Graph, requires_grad: Sequence[bool] | None = None) -> Graph:
    """f with its optimised reverse as a block of a final `Reverse` node, before the split."""
    return run_steps(graph, "eliminate-dead-forward", requires_grad)
