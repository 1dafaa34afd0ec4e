"""The stages of a compilation as views: its graphs, loops, emitted source, and every pass.

Everything is made anew from a stamped copy of the trace, as the first call makes it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from gradof.autodiff.differentiate import STEPS
from gradof.codegen.loops.text import print_nest
from gradof.codegen.machine.executable import Executable
from gradof.codegen.show import show_fused, show_triton
from gradof.codegen.targets.nests import NEST_PASSES, after_each
from gradof.codegen.targets.passes import GRAPH_PASSES
from gradof.codegen.whole.function import WholeExecutable
from gradof.errors import CodegenError
from gradof.ir.clone import clone_graph
from gradof.ir.core import Graph
from gradof.ir.origins import stamp
from gradof.ir.printer import print_graph
from gradof.passes.pipeline import watching
from gradof.runtime.cache import Bound
from gradof.runtime.explore.lines import Lines, SteadyNames, llvm_lines
from gradof.runtime.plan import GradientPlan, GraphPlan, RunCounts, SpecializedPlan
from gradof.runtime.results import gradient_flags

_TARGETS = {"numpy tiles": "tiles", "native": "native", "triton": "triton",
            "triton, interpreted": "triton"}  # by what a kernel says of itself
_REVERSE = "eliminate-dead-forward"  # after it the reverse is whole, and not yet cut off


@dataclass
class Stages:
    """A compilation made for looking at: its graphs, plans, views and passes."""

    trace: Graph
    plan: GraphPlan
    gradient: GradientPlan
    df: SpecializedPlan
    views: list[dict[str, Any]] = field(default_factory=list)
    passes: list[dict[str, Any]] = field(default_factory=list)

    @property
    def executables(self) -> dict[str, Executable]:
        """The code of f and of df."""
        return {"f": self.gradient.f.executable, "df": self.df.plan.executable}


def compile_stages(bound: Bound, lines: Lines) -> Stages:
    """Compile a call and its gradient once more, and note every step."""
    plan = bound.entry.plan
    trace = clone_graph(bound.entry.traced.graph)
    stamp(trace)
    graph = clone_graph(trace)
    fresh = GraphPlan(
        graph, plan.library, RunCounts(), memory_budget=plan.memory_budget,
        overwritten=plan.overwritten, views=plan.views,
    )  # fmt: skip
    steps = _Steps(lines, trace)
    with watching(steps.note):
        gradient = fresh.gradient(gradient_flags(bound))
        steps.differentiated()
        vjps = gradient.gradient.df_input_vjps
        defined = tuple(i < gradient.real_outputs for i in vjps)
        df = gradient.df(defined, (True,) * len(gradient.gradient.df_output_vjps))
        for each in (gradient.f, df.plan):
            _ = each.executable
    stages = Stages(trace, fresh, gradient, df, passes=steps.found)
    _add_views(stages, steps.reverse, lines)
    _add_nest_passes(stages, lines)
    return stages


class _Steps:
    """Notes each pass with the graph after it."""

    def __init__(self, lines: Lines, trace: Graph) -> None:
        self.lines = lines
        self.found: list[dict[str, Any]] = []
        self.reverse = ""
        self._known: dict[Any, str] = {}
        self._counter = [0]
        self._last: dict[str, list[int]] = {}
        self._stage = "reverse"
        self._name = trace.name
        self._last["reverse"] = self._lines(trace)
        self.found.append(_step("trace", "reverse", "The graph as it was recorded.",
                                self._last["reverse"], None))  # fmt: skip

    def differentiated(self) -> None:
        """What follows are passes over f, and over df."""
        self._stage = ""

    def note(self, name: str, graph: Graph, changed: bool) -> None:
        """A watcher of passes."""
        if name == _REVERSE and self._stage:
            self.reverse = print_graph(graph)
        part = self._stage or ("f" if graph.name == self._name else "df")
        made = self._lines(graph)
        before = self._last.get(part)
        same = before == made
        self._last[part] = made
        about = (STEPS[name].__doc__ or "").splitlines()[0] if name in STEPS and self._stage else (
            GRAPH_PASSES[name].about if name in GRAPH_PASSES else "")  # fmt: skip
        self.found.append(_step(name, part, about, None if same else made, before))

    def _lines(self, graph: Graph) -> list[int]:
        names = SteadyNames(self._known, self._counter)
        return self.lines.add_text(print_graph(graph, names=names))


def _step(
    name: str, part: str, about: str, lines: list[int] | None, before: list[int] | None
) -> dict[str, Any]:  # fmt: skip
    old, new = Counter(before or ()), Counter(lines or ())
    return {
        "name": name, "part": part, "about": about.partition("; returns ")[0].rstrip("."),
        "lines": lines, "added": (new - old).total() if lines is not None and before else 0,
        "removed": (old - new).total() if lines is not None and before else 0,
    }  # fmt: skip


def _add_views(stages: Stages, reverse: str, lines: Lines) -> None:
    gradient = stages.gradient.gradient
    prepared = (stages.gradient.f.prepared, stages.df.plan.prepared)
    texts = [
        ("trace", "Trace", "ir", print_graph(stages.trace)),
        ("reverse", "Reverse", "ir", reverse),
        ("f", "f", "ir", print_graph(gradient.f)),
        ("df", "df", "ir", print_graph(gradient.df)),
        ("loops", "Loops", "ir", "\n".join(map(show_fused, prepared))),
        ("code", "Code", "python", "\n\n".join(map(_listing, stages.executables.values()))),
    ]
    stages.views += [
        {"id": id_, "title": title, "language": language, "lines": lines.add_text(text)}
        for id_, title, language, text in texts
    ]
    try:
        triton = "\n\n".join(map(show_triton, prepared))
    except CodegenError as error:  # an op that a GPU's kernels have not: the page says which
        triton = f"# {error.message}  # {error.loc}"
    stages.views.append({"id": "triton", "title": "Triton", "language": "python",
                         "lines": lines.add_text(triton)})  # fmt: skip


def _listing(executable: Executable) -> str:
    """The source, and then that of every kernel it calls; of one native function, op by op."""
    if isinstance(executable, WholeExecutable):
        head = f"# {executable.name} is one native function (see LLVM). Op by op it is"
        return f"{head}\n\n{_listing(executable.statements)}"
    return "\n\n".join([executable.source, *(k.source for k in executable.kernels)])


def add_llvm(stages: Stages, lines: Lines) -> None:
    """The LLVM IR of the native kernels, which is made for the strides of a run."""
    made: list[int] = []
    for executable in stages.executables.values():
        if isinstance(executable, WholeExecutable):
            made += [lines.add(line) for line in executable.source.splitlines()]
        for kernel in executable.kernels:
            for text in getattr(kernel, "llvm", ()):
                made += [lines.add(f"; ---- {kernel.nest.name} ----"),
                         *(lines.add(*row) for row in llvm_lines(text)), lines.add("")]  # fmt: skip
    if made:
        stages.views.insert(-1, {"id": "llvm", "title": "LLVM", "language": "llvm", "lines": made})


def _add_nest_passes(stages: Stages, lines: Lines) -> None:
    """The passes over the loop nests of the kernels that there are."""
    for part, executable in stages.executables.items():
        for kernel in executable.kernels:
            target = _TARGETS.get(kernel.emitter, "")
            nest = getattr(kernel, "given", getattr(kernel, "nest", None))
            if nest is None or target not in NEST_PASSES:
                continue
            last = lines.add_text(print_nest(nest))
            stages.passes.append(_step("lowered", nest.name, f"A kernel of {part}, as loops.",
                                       last, None))  # fmt: skip
            for name, after in after_each(nest, target):
                made = lines.add_text(print_nest(after))
                about = NEST_PASSES[target][name].about
                stages.passes.append(
                    _step(name, nest.name, about, None if made == last else made, last))
                last = made
