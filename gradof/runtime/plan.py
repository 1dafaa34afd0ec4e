"""A graph with everything derived from it, each made once, on first use.

    plan = GraphPlan(graph, "numpy")
    plan(x, w)                          run the graph
    plan.gradient((False, True))        GradientPlan: f with temporaries, and df
        .df(defined, wanted)            SpecializedPlan: df for these cotangents, again a GraphPlan

df being a GraphPlan, derivatives of any order come from the same two steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

from gradof.autodiff.differentiate import differentiate
from gradof.autodiff.gradient import Gradient
from gradof.autodiff.zeros import specialize_autograd_zero
from gradof.codegen import Executable, compile_graph, has_kernels
from gradof.codegen.host.cuda_graph import CapturedExecutable
from gradof.codegen.lowering.half import held_dtype
from gradof.codegen.triton.attention.recognise import Attention, recognised
from gradof.codegen.triton.attention.replace import with_attention, without_attention
from gradof.ir import forks
from gradof.ir.clone import clone_graph
from gradof.ir.core import Graph
from gradof.ir.forks import cached_property
from gradof.ir.garbage import few_collections
from gradof.ir.types import DType
from gradof.passes.pipeline import CLEAN_UP, PREPARE, run_passes
from gradof.runtime.compiling import Compiling
from gradof.runtime.joint import Together
from gradof.runtime.log import log, told
from gradof.runtime.unasked import Unasked
from gradof.tracer.core.views import LaidOut, ViewOf

if TYPE_CHECKING:
    from gradof.runtime.inner_results import InnerResults
    from gradof.runtime.late import Late
    from gradof.runtime.state_apart import Apart

Library = Literal["numpy", "torch"]
Flags = tuple[bool, ...]


@dataclass
class RunCounts:
    """How often compiled code ran: what tests and `cache_info` read to know that ours did."""

    forward: int = 0
    backward: int = 0
    compiling: Compiling = field(default_factory=Compiling)  # and what compiling it took


class GraphPlan:
    """A graph, its executable, and its gradients by requires_grad flags. Thread-safe."""

    _gradof_opaque = True  # what it leads to is no state of the user's (tracer.state.origins)

    def __init__(
        self, graph: Graph, library: Library, counts: RunCounts, *, role: str = "forward",
        memory_budget: float | None = None, views: tuple[tuple[int, ViewOf | LaidOut], ...] = (),
        cuda_graph: bool = False, shown: int | None = None, overwritten: tuple[int, ...] = (),
        consumed: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        self.graph = graph
        self.shown = shown  # how many of the results the caller gets; the others are df's operands
        self.views = views  # results that torch is given as views of the inputs
        self.library = library
        self.counts = counts
        self.role = role
        self.memory_budget = memory_budget  # see gradof.autodiff.captures
        self.cuda_graph = cuda_graph  # see gradof.codegen.host.cuda_graph
        self.consumed = consumed  # inputs, by number, that `consume` lets go of as it runs
        self.overwritten = overwritten  # inputs, by number, that get new values after the call
        self.late: Late | None = None  # what the user's own backwards read, if that is anything
        self.inner: InnerResults | None = None  # torch's results that others are computed from
        self.apart: Apart | None = None  # torch's state with a history of its own
        self._gradients: dict[Flags, GradientPlan] = {}
        self._lock = forks.rlock()

    @cached_property
    def shows_inputs(self) -> bool:
        """Whether results are views of inputs."""
        return any(isinstance(view, ViewOf) for _, view in self.views)

    @cached_property
    def prepared(self) -> Graph:
        """The graph as it is emitted: primitives only, cleaned up."""
        graph = clone_graph(self.graph)
        run_passes(graph, PREPARE)
        if self.has_kernels:
            graph, found = with_attention(graph)
            if any(not a.reason for a in found):
                run_passes(graph, CLEAN_UP)
        return graph

    @cached_property
    def has_kernels(self) -> bool:
        """Whether Triton runs it, so that attention can be one kernel."""
        return has_kernels(self.graph, self.library)

    def recognised(self, flags: Sequence[bool]) -> tuple[Graph, list[Attention]]:
        """The graph as it is differentiated for these flags, and the attention in it."""
        graph = without_attention(self.graph)
        if self.graph.nan_safe or not self.has_kernels:
            return graph, []
        return with_attention(graph, flags)

    @cached_property
    def executable(self) -> Executable:
        """The emitted code."""
        timed = self.counts.compiling.timed
        with self._lock, timed(), told(f"compiling {self.graph.name}"), few_collections():
            start = perf_counter()
            made = compile_graph(
                self.prepared, library=self.library, name=self.graph.name, shown=self.shown,
                consumed=self.consumed,
            )  # fmt: skip
            log(f"compiled {self.graph.name} in {1e3 * (perf_counter() - start):.1f} ms: "
                f"{len(self.prepared.block)} nodes, {len(made.kernels)} kernels")  # fmt: skip
            return made

    @cached_property
    def captured(self) -> CapturedExecutable:
        """The emitted code as a CUDA graph; see CapturedExecutable for what it raises."""
        executable = self.executable
        with self._lock:
            return CapturedExecutable(executable, self.prepared)

    @cached_property
    def held(self) -> tuple[DType | None, ...]:
        """Per result, its dtype where numpy has none and holds it in a wider array."""
        return tuple(held_dtype(v) for v in self.graph.outputs)

    @cached_property
    def holds(self) -> bool:
        """Whether any result is held in a wider array."""
        return any(self.held)

    def attention(self, flags: Sequence[bool]) -> tuple[str, ...]:
        """Every softmax(Q K^T) V with the user's line: a flash kernel, or why not."""
        if self.has_kernels and not self.graph.nan_safe:
            return tuple(map(str, self.recognised(flags)[1]))
        why = "nan_safe takes its gradient op by op"
        if not self.has_kernels:
            why = "the backend has no Triton kernels"
        return tuple(str(replace(a, reason=why)) for a in recognised(self.graph, flags)[1])

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        """Run on arrays as the executable takes them; fresh ones come back."""
        self.count()
        return self.captured(*arrays) if self.cuda_graph else self.executable(*arrays)

    def consume(self, arrays: list[Any]) -> tuple[Any, ...]:
        """As a call; the list is its own, and may be emptied: see `Executable.consume`."""
        if self.cuda_graph:
            return self(*arrays)
        self.count()
        return self.executable.consume(arrays)

    def with_graph(
        self, graph: Graph, role: str | None = None,
        views: tuple[tuple[int, ViewOf | LaidOut], ...] = (), shown: int | None = None,
        consumed: tuple[int, ...] = (),
    ) -> GraphPlan:  # fmt: skip
        """A plan for a graph made from this one, with the same settings and counts."""
        return GraphPlan(
            graph, self.library, self.counts, role=role or self.role, views=views,
            memory_budget=self.memory_budget, cuda_graph=self.cuda_graph, shown=shown,
            consumed=consumed,
        )  # fmt: skip

    def count(self) -> None:
        """Note one run; a "part" of a forward is none by itself."""
        if self.role == "forward":
            self.counts.forward += 1
        elif self.role == "backward":
            self.counts.backward += 1

    def gradient(self, requires_grad: Sequence[bool]) -> GradientPlan:
        """f and df for these flags, one per graph input."""
        flags = tuple(requires_grad)
        found = self._gradients.get(flags)
        if found is not None:
            return found
        timed = self.counts.compiling.timed
        with self._lock, timed(), told(f"deriving the gradient of {self.graph.name}"):
            plan = self._gradients.get(flags)
            if plan is None:
                plan = GradientPlan(
                    differentiate(
                        self.recognised(flags)[0], flags, memory_budget=self.memory_budget,
                        kernels=self.has_kernels, overwritten=self.overwritten,
                    ), self, flags,
                )  # fmt: skip
                self._gradients[flags] = plan
            return plan

    @property
    def gradients(self) -> dict[Flags, GradientPlan]:
        """A snapshot of the gradients made so far."""
        with self._lock:
            return dict(self._gradients)


class GradientPlan:
    """A Gradient, the executable of its f, and its df by defined and wanted gradients."""

    def __init__(self, gradient: Gradient, owner: GraphPlan, flags: Flags) -> None:
        self.gradient = gradient
        self.f = owner.with_graph(
            gradient.f, views=owner.views, shown=gradient.f_real_outputs
        )
        self._dfs: dict[tuple[Flags, Flags], SpecializedPlan] = {}
        self._lock = forks.rlock()
        self.late, self.inner = owner.late, owner.inner
        self.asked_of_leaves = False  # see torch_backward._is_wanted
        self.is_recorded = False  # its backward was: Note [Temporaries have no history]
        # what every call reads, as plain attributes
        self.arity = len(gradient.f.inputs)
        self.outputs = len(gradient.f.outputs)
        self.real_outputs = gradient.f_real_outputs
        self.output_vjps = tuple(gradient.df_input_vjps)
        self.input_vjps = tuple(gradient.df_output_vjps)
        self.captured_inputs = tuple(gradient.df_input_captured_inputs)
        self.changed = tuple(i for i in self.captured_inputs if i in owner.overwritten)
        self.captured_outputs = tuple(gradient.df_input_captured_outputs)
        real = self.real_outputs
        self.captured_results = tuple(i for i in self.captured_outputs if i < real)
        known = [*self.captured_results, *range(real, self.outputs)]
        # of each captured output, its place among the captured results and all temporaries
        self.captured_places = tuple(map(known.index, self.captured_outputs))
        first = len(self.output_vjps) + len(self.captured_inputs)
        # df's inputs that f has computed for it alone
        self.captured_values = frozenset(
            first + k for k, i in enumerate(self.captured_outputs) if i >= real
        )
        constant = sorted({*range(self.outputs)} - {*self.output_vjps})
        # of a gradient as in eager, where one node has those of weight and bias: all or none
        whole = owner.role == "backward" and any(i < real for i in self.output_vjps)
        self.constant_results = () if whole else tuple(i for i in constant if i < real)
        self.constant_temporaries = tuple(i for i in constant if i >= real)
        # of which no more than the shape is read, such as a state that begins anew
        self.without_gradient = tuple(
            i for i, asks in enumerate(flags) if asks and i not in self.input_vjps
        )
        # with a gradient, and not read by df: of these only the history is kept
        self.loose_inputs = tuple(sorted({*self.input_vjps} - {*self.captured_inputs}))
        self.holds_temporaries = any(self.f.held[real:])
        self.together = Together(self)
        self.unasked = Unasked(self, owner)

    def df(self, defined: Flags, wanted: Flags) -> SpecializedPlan:
        """df where cotangent i of `df_input_vjps` is given iff defined[i]."""
        found = self._dfs.get((defined, wanted))
        if found is not None:
            return found
        with self._lock:
            plan = self._dfs.get((defined, wanted))
            if plan is None:
                special = specialize_autograd_zero(self.gradient.df, defined, wanted)
                computed = self.captured_values
                consumed = tuple([k for k, i in enumerate(special.inputs) if i in computed])
                plan = SpecializedPlan(
                    self.f.with_graph(special.graph, role="backward", consumed=consumed),
                    tuple(special.inputs),
                    tuple(special.outputs),
                )
                self._dfs[defined, wanted] = plan
            return plan

    @property
    def dfs(self) -> dict[tuple[Flags, Flags], SpecializedPlan]:
        """A snapshot of the specialisations made so far."""
        with self._lock:
            return dict(self._dfs)


@dataclass(frozen=True)
class SpecializedPlan:
    """A specialised df: the plan, which of df's inputs it takes, which of df's outputs it gives."""

    plan: GraphPlan
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
