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

from collections.abc import Sequence

from gradof.autodiff.captures import choose_captures
from gradof.autodiff.gradient import Gradient
from gradof.autodiff.lift import lambda_lift_reverse
from gradof.autodiff.optimize import optimize
from gradof.autodiff.requires_grad import is_inexact
from gradof.autodiff.reverse import ReverseDetails, add_reverse_inline
from gradof.ir.clone import clone_graph
from gradof.ir.core import Graph
from gradof.ir.garbage import few_collections
from gradof.ir.verify import verify
from gradof.passes.common_subexpression import common_subexpression
from gradof.passes.constant_pooling import constant_pooling
from gradof.passes.eliminate_dead_code import eliminate_dead_code
from gradof.passes.expand_composites import expand_composites
from gradof.passes.forget_checkpoints import forget_checkpoints
from gradof.passes.pipeline import checking


@few_collections()
def differentiate(
    graph: Graph, requires_grad: Sequence[bool] | None = None, *,
    memory_budget: float | None = None, kernels: bool = False, overwritten: Sequence[int] = (),
) -> Gradient:  # fmt: skip
    """Split the derivative of `graph` into f and df; `graph` itself is left as it was.

    `requires_grad` has one flag per input; by default every floating-point input is wanted.
    `memory_budget` between 0 and 1 is the share of bytes that may be saved, of those that are
    without it: see `captures`. `kernels` says that arrays of any size are computed by fused loops,
    as on a GPU. `overwritten` are inputs, by number, that have other values when df runs: nothing
    is computed again from them. Raises DifferentiationError if the graph holds a node without a
    rule, or wrong flags.
    """
    f, reverse = _with_reverse(graph, requires_grad)
    eliminate_dead_code(f)
    gone = frozenset(f.inputs[i] for i in overwritten)
    choose_captures(f, reverse, memory_budget, kernels=kernels, overwritten=gone)
    forget_checkpoints(f)
    eliminate_dead_code(f)
    result = lambda_lift_reverse(f, reverse)
    _expand_rest(result.f)
    _expand_rest(result.df)
    constant_pooling(result.df)
    if checking():
        verify(result.f)
        verify(result.df)
    return result


def _with_reverse(
    graph: Graph, requires_grad: Sequence[bool] | None
) -> tuple[Graph, ReverseDetails]:
    """A copy of `graph`, and its optimised reverse; composites are those with rules alone."""
    f = clone_graph(graph)
    # nan_safe looks at each op's contribution, also at those within a softmax.
    expand_composites(f, with_rules=f.nan_safe)
    # Before the reverse is built: equal values have one gradient, and the saved one keeps it.
    common_subexpression(f)
    reverse = reverse_of(f, requires_grad)
    optimize(f, reverse)
    return f, reverse


def _expand_rest(graph: Graph) -> None:
    """Inline the composites with rules; what is inside of one is never captured.

    A cotangent of what is inside would have no way back in the second derivative.
    """
    if expand_composites(graph):
        common_subexpression(graph)
        eliminate_dead_code(graph)


def reverse_of(graph: Graph, requires_grad: Sequence[bool] | None = None) -> ReverseDetails:
    """`add_reverse_inline` with the default flags filled in."""
    flags = [is_inexact(v) for v in graph.inputs] if requires_grad is None else requires_grad
    return add_reverse_inline(graph, flags)


def show_reverse(graph: Graph, requires_grad: Sequence[bool] | None = None) -> Graph:
    """f with its optimised reverse as a block of a final `Reverse` node, before the split."""
    f, reverse = _with_reverse(graph, requires_grad)
    eliminate_dead_code(f)
    assert not isinstance(reverse.block.owner, Graph)
    f.block.append(reverse.block.owner)
    return f
