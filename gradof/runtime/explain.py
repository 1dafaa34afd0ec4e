"""explain(): what a call does, what it saves for the backward, and why.

>>> print(loss.explain(x, w, b, y))
loss: 7 nodes, numpy backend, library torch
saved for the backward: 3 values, 128 bytes
  %x  f32[4,3]  48 bytes  an input               read by GradOf[mm] (%dw)
  ...
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gradof.autodiff.gradient import Gradient
from gradof.ir.core import Graph, Value
from gradof.ir.printer import Names
from gradof.ir.types import TensorType
from gradof.passes.purity import is_pure
from gradof.runtime.cache import Bound
from gradof.runtime.guards import render_tree
from gradof.runtime.results import gradient_flags
from gradof.tracer.state.source import function_name

if TYPE_CHECKING:
    from gradof.runtime.function import Differentiated


@dataclass(frozen=True)
class Saved:
    """One value kept for the backward: name, type, size, kind, user line, readers, and why."""

    name: str
    type: str
    nbytes: int
    kind: str
    loc: str
    readers: tuple[str, ...]
    why: str


@dataclass(frozen=True)
class Explanation:
    """The report of `explain`; `str()` is for people, the fields are for programs."""

    name: str
    library: str
    inputs: tuple[str, ...]
    free: tuple[str, ...]
    forward_nodes: int
    backward_nodes: int
    saved: tuple[Saved, ...]
    writebacks: tuple[str, ...]
    gradients_of: tuple[str, ...]
    no_gradient: tuple[str, ...]
    source: str
    paths: tuple[str, ...] = ()
    opaque: tuple[str, ...] = ()  # what torch's own autograd runs, with the user's line
    kernels: tuple[str, ...] = ()  # of the forward: name, emitter, sizes
    traces: tuple[tuple[str, float], ...] = ()  # of the function so far: why, and the seconds
    reason: str = ""  # of the trace that serves this call
    seconds: float = 0.0
    together: bool = False  # whether value and gradients are one run (gradof.runtime.joint)
    attention: tuple[str, ...] = ()  # each softmax(Q K^T) V: a flash kernel, or why not
    backend: str = "numpy"  # or "torch and Triton", where compiled code takes tensors
    performs: str = ""  # what the function itself runs for at each call, beside its graph
    runs: str = ""  # whose code runs the calls, and the times of both, where they were timed

    @property
    def saved_bytes(self) -> int:
        """Bytes kept alive between forward and backward beyond the inputs themselves."""
        return sum(s.nbytes for s in self.saved if s.kind == "a temporary")

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))  # what IPython shows in a terminal

    def _repr_html_(self) -> str:
        from gradof.ir.html import bar, framed, lines, table

        most = max((s.nbytes for s in self.saved), default=0)
        rows = [
            (f"%{s.name}", s.type, s.nbytes, bar(s.nbytes, most), s.kind, s.loc,
             ", ".join(s.readers), s.why) for s in self.saved
        ]  # fmt: skip
        head = ("saved", "type", "bytes", "", "kind", "line", "for", "why")
        told = [line for line in str(self).splitlines() if not line.startswith("  %")]
        return framed(told[0], lines(told[1:]), table(head, rows))

    def __str__(self) -> str:
        total = sum(s.nbytes for s in self.saved)
        lines = [
            f"{self.name}: {self.forward_nodes} nodes forward, {self.backward_nodes} backward; "
            f"{self.backend} backend, {self.library} arrays",
            f"inputs: {', '.join(self.inputs) or 'none'}",
        ]
        lines.append(
            f"traced {len(self.traces)} times, this time in {1e3 * self.seconds:.1f} ms because: "
            f"{self.reason}"
        )
        if self.free:
            lines.append(f"read at every call: {', '.join(self.free)}")
        if self.writebacks:
            lines.append(f"written back: {', '.join(self.writebacks)}")
        lines.append(f"gradients of: {', '.join(self.gradients_of) or 'none'}")
        if self.kernels:
            lines.append(f"fused kernels of the forward: {', '.join(self.kernels)}")
        lines += [f"attention, {said}" for said in self.attention]
        if self.performs:
            lines.append(f"the function itself runs, too, at each call, for {self.performs}")
        if self.runs:
            lines.append(f"calls run {self.runs}")
        if self.together:
            lines.append("value and gradients are one run: the last calls wanted both")
        if self.opaque:
            lines.append(f"run by torch, under its own autograd: {', '.join(self.opaque)}")
        if self.paths:
            lines.append("values read by Python, one path for each:")
            lines += self.paths
        if self.no_gradient:
            lines.append(f"no differentiable path from: {', '.join(self.no_gradient)}")
        lines.append(
            f"saved for the backward: {len(self.saved)} values, {total} bytes "
            f"({self.saved_bytes} beyond inputs and outputs)"
        )
        lines += [
            f"  %{s.name:<12} {s.type:<16} {s.nbytes:>10} bytes  {s.kind:<12} {s.loc:<24} "
            f"for {', '.join(s.readers)}; {s.why}"
            for s in self.saved
        ]
        return "\n".join(lines)


def explain(function: Differentiated, bound: Bound) -> Explanation:
    """Describe the entry of a bound call."""
    traced = bound.entry.traced
    flags = gradient_flags(bound)
    plan = bound.entry.plan.gradient(flags)
    gradient = plan.gradient
    names = traced.input_names
    reached = set(gradient.df_output_vjps)
    return Explanation(
        name=function_name(function.fn),
        library=traced.library,
        inputs=tuple(
            f"{name} {v.type}" for name, v in zip(names, traced.graph.inputs, strict=True)
        ),
        free=tuple(map(str, traced.origins)),
        forward_nodes=len(plan.f.prepared.block),
        backward_nodes=sum(1 for n in gradient.df.walk() if n.kind not in ("GradOf", "Constant")),
        saved=tuple(saved_values(gradient, plan.f.memory_budget)),
        writebacks=tuple(names[b.input] for b in traced.writebacks),
        gradients_of=tuple(names[i] for i in gradient.df_output_vjps),
        no_gradient=tuple(
            n for i, n in enumerate(names) if flags[i] and i not in reached
        ),
        source=plan.f.executable.source,
        backend="torch and Triton" if plan.f.executable.takes_tensors else "numpy",
        traces=tuple(function.cache.traces),
        reason=bound.entry.reason,
        seconds=bound.entry.seconds,
        together=plan.together.begun is not None,
        performs=traced.performs,
        runs=_runs(bound.entry.trial),
        attention=bound.entry.plan.attention(flags),
        paths=tuple(render_tree(function.paths(bound.call))),
        opaque=tuple(
            f"{n.attrs['name']} at {n.loc}" for n in traced.graph.walk() if n.kind == "Opaque"
        ),
        kernels=tuple(
            f"{k.nest.name} ({k.emitter}, over {'x'.join(map(str, k.nest.sizes))})"
            for k in plan.f.executable.kernels
        ),
    )


def _runs(trial: Any) -> str:
    if trial is None:
        return ""
    return "compiled code and torch's own in turns" if trial.verdict is None else str(trial.verdict)


def saved_values(gradient: Gradient, budget: float | None) -> list[Saved]:
    """What f keeps for df, and why, where it was differentiated with this `memory_budget`."""
    first = len(gradient.df_input_vjps)
    names = _printed_names(gradient.f)
    rows: list[Saved] = []
    sources: list[tuple[Value, str]] = [
        (gradient.f.inputs[i], "an input") for i in gradient.df_input_captured_inputs
    ]
    sources += [
        (gradient.f.outputs[i], "an output" if i < gradient.f_real_outputs else "a temporary")
        for i in gradient.df_input_captured_outputs
    ]
    for param, (value, kind) in zip(gradient.df.inputs[first:], sources, strict=True):
        nbytes = value.type.nbytes if isinstance(value.type, TensorType) else 0
        loc = str(value.node.loc) if value.node is not None and value.node.loc else ""
        readers = _readers(gradient.df, param)
        why = _why(value, kind, budget)
        rows.append(Saved(names[value], str(value.type), nbytes, kind, loc, readers, why))
    return rows


def _why(value: Value, kind: str, budget: float | None) -> str:
    """Why a value is kept; see Note [Save or recompute] in gradof.autodiff.captures."""
    if kind != "a temporary":
        return "there anyway"
    assert value.node is not None
    if not is_pure(value.node) or value.node.kind in ("Opaque", "python_call"):
        return "cannot be computed again"
    if budget is None or budget == 1.0:
        return "least cost"
    if budget == 0.0:
        return "holds what cannot be computed again"
    return f"within the budget of {budget:g}"


def _printed_names(graph: Graph) -> Names:
    """The names that printing the graph gives its values."""
    names = Names()
    for value in graph.inputs:
        names[value]
    for node in graph.walk():
        for out in node.outputs:
            names[out]
    return names


def _readers(df: Graph, param: Value) -> tuple[str, ...]:
    """The GradOf blocks that read a captured value, by the gradients they make."""
    names: list[str] = []
    for use in param.uses:
        node = use.node
        while node.block is not None and node.block is not df.block:
            owner = node.block.owner
            if isinstance(owner, Graph):
                break
            node = owner
        made = ", ".join(f"%{out.hint}" for out in node.outputs if out.hint)
        label = f"{node.attrs.get('name', node.kind)} ({made})" if made else str(node.kind)
        if label not in names:
            names.append(label)
    return tuple(names)
