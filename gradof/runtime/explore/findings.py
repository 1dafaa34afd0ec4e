"""What stands out: in words, with the lines it is about, the most urgent first.

Each is a dict: `level` ("wrong", "slow" or "note"), `title`, `text`, `hint`, `origins` and `lines`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradof.ir.core import Loc
from gradof.ir.origins import Origin
from gradof.runtime.cache import Bound
from gradof.runtime.explore.sources import Source, plain_function
from gradof.runtime.explore.stages import Stages
from gradof.runtime.explore.traces import main_cause
from gradof.runtime.find_nan import NotFinite, find_nan
from gradof.runtime.function import Differentiated
from gradof.runtime.lint import lint
from gradof.tracer.core.pytree import positional_names

_LARGE = 1 << 20  # bytes saved from which on a smaller budget is worth a word
_FEWER = 0.75  # of the bytes, with a budget that is proposed
_LEVELS = ("wrong", "slow", "note")


def findings(
    function: Differentiated, bound: Bound, stages: Stages, ledger: dict[str, Any],
    traces: list[dict[str, Any]], source: Source,
) -> list[dict[str, Any]]:  # fmt: skip
    """All that is found; each with the user's lines that it is about."""
    found = [*_numerics(bound, stages), *_traces(function, traces, source), *_ledger(ledger),
             *_opaque(stages)]  # fmt: skip
    for each in found:
        each["lines"] = each["lines"] or source.text_of(each["origins"])
    return sorted(found, key=lambda each: _LEVELS.index(each["level"]))


def finding(
    level: str, title: str, text: str, hint: str, origins: tuple[int, ...] = (),
    lines: Sequence[list[str]] = (),
) -> dict[str, Any]:  # fmt: skip
    """One of them; its lines are those of its nodes where none are given."""
    return {"level": level, "title": title, "text": text, "hint": hint, "origins": list(origins),
            "lines": list(lines)}  # fmt: skip


def _numerics(bound: Bound, stages: Stages) -> list[dict[str, Any]]:
    found = []
    first = find_nan(bound)
    if first is not None:
        made = {"f": "the value", "df": "the gradient", "second": "the second gradient"}
        origins = _at(stages, first.loc, first.op)
        if first.source is not None:
            origins += _at(stages, first.source.loc, first.source.op)
        origins = tuple(dict.fromkeys(origins))
        found.append(finding(
            "note" if first.within == "second" else "wrong",
            f"{'NaN' if _is_nan(first) else 'Infinity'} in {made[first.within]}", str(first),
            "Keep the operand of that op away from where its value or its slope is infinite: as in "
            "sqrt(where(c, x, 1.0)), or log(maximum(x, 1e-30)).", origins))
    for each in lint(bound):
        found.append(finding(
            "wrong", f"A branch that is not taken spoils the gradient of {each.op}" if each.select
            else f"The slope of {each.op} is infinite where it counts for nothing", str(each),
            "Choose the operand before the op" + (', or compile with numerics="nan_safe".'
                                                  if each.select else "."),
            _at(stages, each.loc, each.op) + _at(stages, each.taken_by, each.select)))
    return found


def _is_nan(found: NotFinite) -> bool:
    return found.what == "nan"


def _at(stages: Stages, loc: Loc | None, op: str | None) -> tuple[int, ...]:
    """The nodes of the trace of an op at a line; all of the line, where no node is the op."""
    if loc is None:
        return ()
    here = [n for n in stages.trace.walk() if isinstance(n.loc, Origin)
            and (n.loc.file, n.loc.line) == (loc.file, loc.line)]  # fmt: skip
    named = [n for n in here if n.kind == op] or here
    return tuple(k for n in named if isinstance(n.loc, Origin) for k in n.loc.nodes)


def _traces(function: Differentiated, rows: list[dict[str, Any]], source: Source
            ) -> list[dict[str, Any]]:  # fmt: skip
    cache, again = function.cache, rows[1:]
    if not again:
        return []
    calls = cache.hits + cache.misses + cache.eager.runs
    every = len(rows) >= max(3, calls // 2)
    cause = main_cause(again, positional_names(plain_function(function.fn)))
    origins, lines = source.reading(cause.word)
    return [finding(
        "slow" if every else "note",
        f"Traced {len(rows)} times" + (" in as many calls" if every else ""),
        f"{1e3 * sum(row['seconds'] for row in again):.0f} ms went into tracing again, mostly "
        f"because of {cause.place}. The last time: {again[-1]['reason']}.",
        f"{cause.advice} See the view Traces.", origins, lines,
    )]  # fmt: skip


def _ledger(ledger: dict[str, Any]) -> list[dict[str, Any]]:
    now = ledger["budgets"][ledger["current"]]
    if now["beyond"] < _LARGE:
        return []
    for row in ledger["budgets"][ledger["current"] + 1 :]:
        if row["bytes"] <= _FEWER * now["bytes"]:
            left = {_name(ledger["values"][k]) for k in row["saved"]}
            gone = [v for k in now["saved"] if _name(v := ledger["values"][k]) not in left
                    and v["kind"] == "a temporary"]  # fmt: skip
            gone.sort(key=lambda v: -v["bytes"])
            names = ", ".join(f"%{v['name']} ({v['bytes'] / 1e6:.1f} MB)" for v in gone[:3])
            origins = tuple(dict.fromkeys(n for v in gone for n in v["origins"]))
            return [finding(
                "slow", f"{(now['bytes'] - row['bytes']) / 1e6:.1f} MB are saved that could be "
                "computed again",
                f"{names} are kept from the forward to the backward. With "
                f"memory_budget={row['budget']:g} they are not, for {row['again'] - now['again']} "
                "more operations in the backward.",
                f"Compile with differentiate(memory_budget={row['budget']:g}). See the view "
                "Ledger.", origins)]  # fmt: skip
    return []


def _name(value: dict[str, Any]) -> tuple[str, str]:
    return value["name"], value["loc"]


def _opaque(stages: Stages) -> list[dict[str, Any]]:
    return [
        finding("note", f"{node.attrs['name']} runs in torch", "It has no rule here, and so runs "
                "under torch's own autograd, between two compiled parts.", "gradof ops lists what "
                "has a rule.", node.loc.nodes if isinstance(node.loc, Origin) else ())
        for node in stages.trace.walk() if node.kind == "Opaque"
    ]  # fmt: skip
