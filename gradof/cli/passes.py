"""`gradof opt`: passes by name on textual IR; and every step from a trace to kernels, by name.

    reverse                   the graph with its reverse, as `differentiate` makes it
    f, df                     the split
    hoist-slices, fuse, ...   passes of the targets, with the target's own rules

    widen-half, sums-first    passes of the targets over loop nests, on the text of a nest

Each runs alone on a text. A step of `differentiate` needs those before it, and runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gradof.autodiff.differentiate import STEPS, differentiate, run_steps
from gradof.codegen.loops.text import parse_nests, print_nest
from gradof.codegen.loops.verify import verify_nest
from gradof.codegen.targets.choose import all_targets
from gradof.codegen.targets.nests import NEST_PASSES
from gradof.codegen.targets.passes import GRAPH_PASSES
from gradof.codegen.targets.target import Target
from gradof.errors import TargetError
from gradof.ir.clone import clone_graph
from gradof.ir.core import Graph
from gradof.ir.verify import verify
from gradof.passes.pipeline import PREPARE

SPLIT: dict[str, Callable[[Graph], Graph]] = {
    "f": lambda graph: differentiate(graph).f,
    "df": lambda graph: differentiate(graph).df,
}


def pass_lines() -> Iterator[str]:
    """The whole pipeline in order: a heading for each part, and a line for each pass."""
    yield "# a trace → f and df"
    yield from (_line(name, step.__doc__) for name, step in STEPS.items())
    yield _line("f", "Lift what df captures into outputs of f.")
    yield _line("df", "The reverse as a graph of its own, which takes what f saves.")
    yield "\n# f, or df → what every target is given"
    yield from _of(PREPARE)
    yield _line("attention", GRAPH_PASSES["attention"].about + " Only where Triton runs.")
    for target in all_targets():
        yield f"\n# --target {target.name}"
        yield from _of(target.passes)
        if target.name in NEST_PASSES:
            yield "# its loop nests"
            yield from (_line(n, step.about) for n, step in NEST_PASSES[target.name].items())
    named = {*PREPARE, "attention", *(name for t in all_targets() for name in t.passes)}
    rest = [name for name in GRAPH_PASSES if name not in named]
    if rest:
        yield "\n# to be asked for"
        yield from _of(rest)


def run_named(graph: Graph, names: Sequence[str], target: str) -> Graph:
    """A copy of the graph after the passes; TargetError for a name that there is not."""
    targets = {t.name: t for t in all_targets()}
    if target not in targets:
        raise TargetError(f"unknown target {target!r}", hint="one of " + ", ".join(targets))
    graph = clone_graph(graph)
    for name in names:
        graph = _run(graph, name, targets[target])
        verify(graph)
    return graph


def run_on_nests(text: str, names: Sequence[str], target: str, source: str) -> str:
    """The nests of a text after the passes; TargetError for a name that the target has not."""
    if target not in NEST_PASSES:
        raise TargetError(f"no target {target!r} has loop nests",
                          hint="one of " + ", ".join(NEST_PASSES))  # fmt: skip
    nests = parse_nests(text, source)
    for nest in nests:
        verify_nest(nest)
    for name in names:
        step = NEST_PASSES[target].get(name)
        if step is None:
            known = ", ".join(NEST_PASSES[target])
            raise TargetError(f"unknown pass {name!r} over nests for {target}", hint=known)
        nests = [made for nest in nests for made in step.run(nest)]
        for nest in nests:
            verify_nest(nest, after=name)
    return "\n".join(map(print_nest, nests))


def _run(graph: Graph, name: str, target: Target) -> Graph:
    if name in SPLIT:
        return SPLIT[name](graph)
    if name in STEPS:
        return run_steps(graph, name)
    if name not in GRAPH_PASSES:
        known = sorted({*GRAPH_PASSES, *STEPS, *SPLIT})
        raise TargetError(f"unknown pass {name!r}", hint="known: " + ", ".join(known))
    result = GRAPH_PASSES[name].run(graph, target)
    return result if isinstance(result, Graph) else graph


def _of(names: Sequence[str]) -> Iterator[str]:
    for name in names:
        yield _line(name, GRAPH_PASSES[name].about)


def _line(name: str, about: str | None) -> str:
    text = (about or "").splitlines()[0].partition("; returns ")[0].rstrip(".")
    return f"{name:<26} {text}."
