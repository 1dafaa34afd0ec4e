"""What a page is told: one dict, in JSON.

    schema, name, version, library, backend, inputs
    lines      [[text, [nodes of the trace it comes from], whether their line was printed]]: each
               different line once
    views      [{id, title, language, lines: [index]}]; that of the source has numbers and files
    nodes      of the trace, by number: {op, line, name, type, reads: [nodes]}
    passes     [{name, part, about, lines or null where nothing changed, added, removed}]
    ledger     {budgets: [{budget, saved: [index], bytes, beyond, again}], current, values}
    time       {speeds, rows: [{part, line, text, seconds, best, ...}], f, df}, or null
    traces     [{reason, seconds, changes: [{place, was, now}]}], and calls: {hits, traced, eager}
    findings   what stands out; audit: what `check` found, or null
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from typing import Any, Protocol

from gradof.ir.core import Graph, Loc
from gradof.ir.origins import NOWHERE, Origin
from gradof.runtime.cache import Bound
from gradof.runtime.explore.findings import findings
from gradof.runtime.explore.ledger import ledger
from gradof.runtime.explore.lines import Lines
from gradof.runtime.explore.sources import Source, plain_function, source_view
from gradof.runtime.explore.stages import add_llvm, compile_stages
from gradof.runtime.explore.timing import measure
from gradof.runtime.explore.traces import history, named
from gradof.runtime.function import Differentiated
from gradof.runtime.results import gradient_flags
from gradof.tracer.core.pytree import positional_names
from gradof.tracer.state.source import function_loc

SCHEMA = 1
Say = Callable[[str], None]


class Checked(Protocol):
    """A report of `gradof.testing.check`."""

    rows: Any
    ops: Any
    notes: Any

    @property
    def ok(self) -> bool:
        """Whether all is right."""
        ...


def model_of(
    function: Differentiated, bound: Bound, *, time: bool = True, report: Checked | None = None,
    say: Say = lambda text: None,
) -> dict[str, Any]:  # fmt: skip
    """The model of a bound call; `say` is told what is done next."""
    lines = Lines()
    flags = gradient_flags(bound)
    say("compiling, pass by pass")
    stages = compile_stages(bound, lines)
    plain = plain_function(function.fn)
    source = source_view(stages.trace, function_loc(plain), lines)
    say("saving less: the ledger of each memory budget")
    saved = ledger(stages, flags)
    times = None
    if time:
        say("running f and df, statement by statement")
        times = measure(stages, bound, lines)
        add_llvm(stages, lines)
    say("looking for NaN, and for what else stands out")
    cache = function.cache
    names = positional_names(plain)
    traces = history(cache, names)
    return {
        "schema": SCHEMA, "version": metadata.version("gradof"),
        "name": getattr(function.fn, "__qualname__", type(function.fn).__name__),
        "library": bound.entry.traced.library,
        "backend": _backend(stages.executables["f"]),
        "inputs": [f"{name} : {v.type}" for name, v in zip(
            bound.entry.traced.input_names, stages.trace.inputs, strict=True)],
        "forward": len(stages.gradient.f.prepared.block),
        "backward": len(stages.df.plan.prepared.block),
        "kernels": [
            {"name": k.nest.name, "emitter": k.emitter, "part": part,
             "sizes": "x".join(map(str, k.nest.sizes)), "origins": _of_nest(k)}
            for part, e in stages.executables.items() for k in e.kernels if hasattr(k, "nest")
        ],
        "views": [source, *stages.views], "nodes": _nodes(stages.trace),
        "passes": stages.passes, "ledger": saved, "time": times,
        "traces": traces,
        "calls": {"hits": cache.hits, "traced": cache.misses, "eager": cache.eager.runs},
        "findings": findings(function, bound, stages, saved, traces, Source(source, lines)),
        "audit": _audit(report, names),
        "lines": lines.rows,
    }  # fmt: skip


def _backend(executable: Any) -> str:
    if executable.takes_tensors:
        return "torch and Triton"
    emitters = dict.fromkeys(str(k.emitter) for k in executable.kernels)
    return ", ".join(["numpy", *emitters])


def _of_nest(kernel: Any) -> list[int]:
    body = getattr(kernel.nest, "body", ())  # none, where the whole graph is one kernel
    found = (n for i in body if isinstance(i.loc, Origin) for n in i.loc.nodes)
    return list(dict.fromkeys(found))


def _nodes(trace: Graph) -> list[dict[str, Any]]:
    """By number; `reads` are nodes whose results a node reads."""
    number = {node: k for k, node in enumerate(trace.walk())}
    return [
        {"op": node.kind, "loc": _where(node.loc),
         "name": next((v.hint for v in node.outputs if v.hint), ""),
         "type": ", ".join(str(v.type) for v in node.outputs),
         "reads": [number[v.node] for v in node.inputs if v.node is not None]}
        for node in number
    ]  # fmt: skip


def _where(loc: Loc | None) -> str:
    return "" if loc is None or loc.file == NOWHERE else f"{loc.file}:{loc.line}"


def _audit(report: Checked | None, names: list[str]) -> dict[str, Any] | None:
    if report is None:
        return None
    return {
        "ok": report.ok, "notes": list(report.notes),
        "rows": [{"what": named(r.what, names), "reference": r.reference, "error": _number(r.error),
                  "eager": _number(r.eager), "allowed": _number(r.allowed), "ok": r.ok}
                 for r in report.rows],
        "ops": [{"op": o.op, "loc": o.loc, "eager": _number(o.eager),
                 "float64": _number(o.float64),
                 "backward": _number(max((e for _, e in o.backward), default=None)),
                 "ok": not o.culprits} for o in report.ops],
    }  # fmt: skip


def _number(value: float | None) -> str | None:
    """As text: JSON has no nan."""
    return None if value is None else f"{value:.1e}"
