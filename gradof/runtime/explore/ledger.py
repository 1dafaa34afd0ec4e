"""What is saved for the backward, for every budget that the page's slider has."""

from __future__ import annotations

from typing import Any

from gradof.autodiff.differentiate import differentiate
from gradof.autodiff.gradient import Gradient
from gradof.ir.core import Graph
from gradof.ir.origins import split
from gradof.runtime.explain import Saved, saved_values
from gradof.runtime.explore.lines import origins_of, readers_of
from gradof.runtime.explore.stages import Stages

BUDGETS: tuple[float | None, ...] = (
    None, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0
)  # fmt: skip


def ledger(stages: Stages, flags: tuple[bool, ...]) -> dict[str, Any]:
    """The saved values at each budget, the largest first, as `explain` gives them."""
    plan = stages.plan
    budgets = list(BUDGETS)
    own = plan.memory_budget
    if own not in budgets:
        budgets = sorted({*budgets, own}, key=lambda b: -2.0 if b is None else -b)
    current = budgets.index(own)
    table: list[dict[str, Any]] = []
    at: dict[Saved, int] = {}
    rows = []
    for budget in budgets:
        gradient = stages.gradient.gradient if budget == own else differentiate(
            plan.recognised(flags)[0], flags, memory_budget=budget, kernels=plan.has_kernels,
            overwritten=plan.overwritten,
        )  # fmt: skip
        saved = saved_values(gradient, budget)
        for value in saved:
            if value not in at:
                at[value] = len(table)
                table.append(_row(value, stages.trace))
        rows.append({
            "budget": budget, "saved": [at[v] for v in saved],
            "bytes": sum(v.nbytes for v in saved),
            "beyond": sum(v.nbytes for v in saved if v.kind == "a temporary"),
            "again": _computed_again(gradient),
        })  # fmt: skip
    return {"budgets": rows, "current": current, "values": table}


def _row(value: Saved, trace: Graph) -> dict[str, Any]:
    origins, loc = split(value.loc)
    if not value.loc:  # an input: the lines that read it
        inputs = {v.hint: v for v in trace.inputs}
        origins = readers_of(trace, inputs[value.name]) if value.name in inputs else ()
    return {
        "name": value.name, "type": value.type, "bytes": value.nbytes, "kind": value.kind,
        "loc": loc.removeprefix("?:0"), "readers": list(value.readers), "why": value.why,
        "origins": list(origins),
    }  # fmt: skip


def _computed_again(gradient: Gradient) -> int:
    """Nodes of df that compute a value of f once more: at the top, where gradients are blocks."""
    own = ("GradOf", "AutogradAdd", "AutogradZero", "Constant", "again")
    return sum(1 for n in gradient.df.nodes() if n.kind not in own and origins_of(n))
