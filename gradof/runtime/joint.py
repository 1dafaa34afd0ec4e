"""Value and gradients of a torch caller in one run, where both are asked for every time.

    loss = fn(x, w)                     runs f, and df too, with the cotangent of the last times
    loss.backward()                     hands over what is there

Note [Together]
A torch caller asks for the value and then, in another call, for the gradients, so that f and df
read the same arrays twice. Where the value is one number, its cotangent is one number too, and
nearly always the same one: 1, or a loss scale. After `ENOUGH` backwards in a row that wanted all
gradients and had equal cotangents, f is run as one graph with df. The backward compares: for
another cotangent, or with `create_graph=True`, it runs df as ever, from what f saved. That is a
miss, and so are `IDLE` values in a row whose gradients nobody asked for, as in an evaluation. After
`TOO_MANY` misses f is never run so again; neither is a function whose value is more than one
number, that has a memory budget, or part of which torch's own autograd runs.

Results are the same bits as those of f and df alone, on any number of threads: kernels add in one
order, whatever else they compute (Note [One order of adding] in `codegen.cpu.native.reductions`,
Note [Sums of tiles] in `codegen.cpu.tile_sums`). Sums may differ in their last bits only where the
two are not the same loop: where one kernel is native code and the other is not, because of an op or
of strides; where one has float64 beside float32, and so shorter vectors; where an array of three
axes or more is summed over all of them in both, but over the first few in one, which then has other
rows; or where partial results, one for each column, would take so much memory (32 MB) that fewer
are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gradof.autodiff.compose import together_graph
from gradof.ir import forks
from gradof.ir.opinfo import has_trait
from gradof.ir.types import TensorType

if TYPE_CHECKING:
    from gradof.runtime.plan import GradientPlan, GraphPlan

ENOUGH = 2
TOO_MANY = 3
IDLE = 8


class Together:
    """What a GradientPlan knows of the backwards that followed its forwards. Thread-safe."""

    def __init__(self, owner: GradientPlan) -> None:
        self._owner = owner
        self._possible = is_possible(owner)
        self._lock = forks.lock()
        self._last: float | None = None
        self._in_row = 0
        self._misses = 0
        self._idle = 0
        self._plan: GraphPlan | None = None
        self.is_lean = is_lean(owner)
        self.places: tuple[int, ...] = ()  # of the gradients that `plan` gives: inputs of f
        # the cotangent df is run with, as a number and as a tensor; None where f runs alone
        self.begun: tuple[float, Any] | None = None

    @property
    def is_learning(self) -> bool:
        """Whether a backward that ran df should be told of."""
        return self._possible and self.begun is None

    def note(self, cotangent: float | None) -> bool:
        """A backward ran df on its own; True if it is time to begin with this cotangent.

        None where it wanted only some gradients, or not only values.
        """
        with self._lock:
            same = cotangent is not None and cotangent == self._last
            self._in_row = self._in_row + 1 if same else int(cotangent is not None)
            self._last = cotangent
            return self._in_row >= ENOUGH and self._possible

    def begin(self, cotangent: float, tensor: Any) -> None:
        """Run df with f from now on, with this cotangent, a tensor of the value's dtype."""
        with self._lock:
            self.begun = cotangent, tensor

    def ran(self) -> None:
        """f was run with df, whose gradients wait."""
        self._idle += 1  # without the lock: a count may be lost, and nothing with it
        if self._idle >= IDLE:
            self.missed()

    def taken(self) -> None:
        """A backward took the gradients that waited."""
        self._idle = 0

    def missed(self) -> None:
        """A backward wanted something other than what was computed with f."""
        with self._lock:
            self._miss()

    def _miss(self) -> None:
        self._misses += 1
        self._in_row, self._last, self._idle, self.begun = 0, None, 0, None
        self._possible = self._possible and self._misses < TOO_MANY

    def plan(self) -> GraphPlan:
        """f and df as one graph: f's inputs and the cotangent → f's outputs and the gradients.

        Of a lean plan the value and the gradients.
        """
        if self._plan is not None:
            return self._plan
        with self._lock:
            if self._plan is None:
                special = self._owner.df(
                    tuple(i == 0 for i in self._owner.output_vjps),
                    (True,) * len(self._owner.input_vjps),
                )
                gradient, f = self._owner.gradient, self._owner.f
                graph = together_graph(
                    gradient, special.plan.graph, special.inputs, temporaries=not self.is_lean
                )
                self.places = tuple(self._owner.input_vjps[i] for i in special.outputs)
                self._plan = f.with_graph(graph)
            return self._plan


def is_possible(plan: GradientPlan) -> bool:
    """Whether f and df can be one run; see Note [Together]."""
    f = plan.gradient.f
    if plan.real_outputs != 1 or plan.output_vjps[:1] != (0,) or plan.f.views:
        return False
    type_ = f.outputs[0].type
    if not isinstance(type_, TensorType) or type_.shape != () or type_.device != "cpu":
        return False
    if not type_.dtype.is_float or plan.f.memory_budget is not None or plan.f.library != "torch":
        return False
    graphs = (f, plan.gradient.df)
    own = ("Opaque", "python_call")
    return not any(node.kind in own for graph in graphs for node in graph.walk())


def is_lean(plan: GradientPlan) -> bool:
    """Whether what f saves can be computed again: from inputs that are all saved, without draws.

    An input that is not saved may change between value and gradient, as in eager.
    """
    f = plan.gradient.f
    if len(set(plan.captured_inputs)) != len(f.inputs) or not is_possible(plan):
        return False
    return not any(has_trait(node.kind, "random") for node in f.walk())
