"""What `gradof show --stage` prints, stage by stage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

STAGES = (
    "trace", "reverse", "f", "df", "fused", "numpy", "triton", "gradient", "explain", "passes",
    "nests",
)  # fmt: skip


def render_stage(
    stage: str, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], *,
    locs: bool, after: str | None = None,
) -> tuple[str, str]:  # fmt: skip
    """The text of a stage and the language to colour it in; raises what tracing raises.

    `after` names the one pass that the stage `passes` is to show.
    """
    from gradof.api import differentiate
    from gradof.autodiff.differentiate import show_reverse
    from gradof.ir.printer import print_graph
    from gradof.runtime.results import gradient_flags

    compiled = differentiate(fn)
    compiled = getattr(compiled, "base", compiled)  # value_and_grad and its like keep theirs there
    if stage == "explain":
        return f"{compiled.explain(*args, **kwargs)}\n", "text"
    if stage == "trace":
        return print_graph(compiled.trace(*args, **kwargs), locs=locs), "gradof-ir"
    if stage == "passes":
        return render_passes(compiled, args, kwargs, after, locs=locs), "gradof-ir"
    bound = compiled.bind(args, kwargs)
    flags = gradient_flags(bound)
    if stage == "reverse":
        return print_graph(show_reverse(bound.entry.traced.graph, flags), locs=locs), "gradof-ir"
    plan = bound.entry.plan.gradient(flags)
    if stage == "gradient":
        return f"{plan.gradient}\n", "gradof-ir"
    if stage in ("numpy", "fused", "nests", "triton"):
        vjps = plan.gradient.df_input_vjps
        defined = tuple(i < plan.gradient.f_real_outputs for i in vjps)
        df = plan.df(defined, (True,) * len(plan.gradient.df_output_vjps)).plan
        if stage == "fused":
            from gradof.codegen.show import show_fused

            parts = [show_fused(p.prepared, locs=locs) for p in (plan.f, df)]
            return "\n".join(parts), "text"
        if stage == "nests":
            from gradof.codegen.show import show_nests

            return "\n".join(show_nests(p.prepared, locs=locs) for p in (plan.f, df)), "text"
        if stage == "triton":
            from gradof.codegen.show import show_triton

            return "\n\n".join(show_triton(p.prepared) for p in (plan.f, df)), "python"
        return f"{plan.f.executable.listing}\n\n{df.executable.listing}", "python"
    graph = {"f": plan.gradient.f, "df": plan.gradient.df}[stage]
    return print_graph(graph, locs=locs), "gradof-ir"


def render_passes(
    compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any], after: str | None, *, locs: bool
) -> str:
    """Every pass that the compilation of the call and of its gradient runs, in order.

    A graph is printed after each pass that changed it, or after the pass named `after` alone.
    TargetError if no pass of that name runs.
    """
    from gradof.errors import TargetError
    from gradof.ir.core import Graph
    from gradof.ir.printer import print_graph
    from gradof.passes.pipeline import watching
    from gradof.runtime.results import gradient_flags

    bound = compiled.bind(args, kwargs)
    parts: list[str] = []
    ran: dict[str, None] = {}
    before: dict[str, str] = {}  # of each graph, by its name

    def note(name: str, graph: Graph, changed: bool) -> None:
        text = print_graph(graph, locs=locs)
        ran[name] = None
        head = f"# {graph.name}: {name}"
        same = before.get(graph.name) == text
        before[graph.name] = text
        if after == name or (after is None and not same):
            parts.append(f"{head}\n{text}")
        elif after is None:
            parts.append(f"{head}: nothing to do\n")

    with watching(note):
        fresh = bound.entry.plan.with_graph(bound.entry.plan.graph)  # what is kept runs no pass
        plan = fresh.gradient(gradient_flags(bound))
        vjps = plan.gradient.df_input_vjps
        defined = tuple(i < plan.gradient.f_real_outputs for i in vjps)
        df = plan.df(defined, (True,) * len(plan.gradient.df_output_vjps)).plan
        for each in (plan.f, df):
            _ = each.executable
    if not parts:
        raise TargetError(f"no pass {after!r} runs", hint="those that do: " + ", ".join(ran))
    return "\n".join(parts)
