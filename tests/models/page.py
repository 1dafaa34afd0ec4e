"""`docs/models.md`, from the rows of a survey."""

from __future__ import annotations

import platform
import re
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from statistics import median
from typing import Any

Row = dict[str, Any]
_LISTED = ("equal", "fallback", "wrong", "error", "killed")


def page(bodies: Sequence[Row], heads: Sequence[Row]) -> str:
    """The whole page."""
    bodies, heads = (sorted(rows, key=lambda row: str(row["name"])) for rows in (bodies, heads))
    ran, trained = ([r for r in rows if r["status"] in _LISTED] for rows in (bodies, heads))
    parts = [
        _HEAD, _counts("architectures", bodies), _failing(ran), _HEADS,
        _counts("classes with a head", heads), _failing(trained), _equal(ran), _left_out(bodies),
        _not_run(heads),
    ]  # fmt: skip
    return "\n".join(parts)


def figures(rows: Sequence[Row]) -> dict[str, float]:
    """The counts and medians of a survey, by name."""
    ran = [r for r in rows if r["status"] in _LISTED]
    count = Counter(r["status"] for r in ran)
    equal = [r for r in ran if r["status"] == "equal"]
    once = sum(r["traces"] == 1 for r in equal)
    return {
        "known": len(rows), "ran": len(ran), **{s: count[s] for s in _LISTED},
        "passed": 100 * count["equal"] / max(len(ran), 1),
        "once": 100 * once / max(len(equal), 1),
        "first": median(r["first"] for r in equal) if equal else 0.0,
        "cpu": median(r["first_cpu"] for r in equal) if equal else 0.0,
        "step": median(r["hot"] / r["eager"] for r in equal) if equal else 0.0,
    }  # fmt: skip


_HEAD = f"""# Models
Written by `make models`; transformers {version("transformers")}, torch \
{version("torch").partition("+")[0]}, Python {platform.python_version()}, one thread.

Every architecture that transformers' `AutoModel` knows is built from its default config, made small
by the names of the fields (`tests/models/shrink.py`: two layers), and run eagerly on inputs made by
the names of its parameters (`tests/models/inputs.py`). Those that run and have a gradient are then
wrapped in `gradof.differentiate` and called five times on different inputs, each in a process of
its own that starts without compiled kernels. Values and the gradients of all parameters, for random
cotangents of all outputs, are compared with eager's in the first and the last call; the bound comes
from the same model in float64 (Note [Closeness] in `gradof/testing/closeness.py`).
"""

_HEADS = """## With a head and a loss, in training
Every class that transformers' other `Auto` classes know (`AutoModelForCausalLM` and the like),
small in the same way, in training mode with the dropout of its config, and given labels
(`tests/models/heads.py`). The gradient is that of the loss. Masks are drawn from the same seed, so
eager, gradof and float64 drop the same elements.
"""


def _counts(what: str, rows: Sequence[Row]) -> str:
    f = figures(rows)
    return f"""| | |
|---|---|
| {what} | {f["known"]:.0f} |
| built small and run by eager | {f["ran"]:.0f} |
| equal, with our own backward | {f["equal"]:.0f} ({f["passed"]:.1f} %) |
| equal, run eagerly with a warning | {f["fallback"]:.0f} |
| different numbers | {f["wrong"]:.0f} |
| an error | {f["error"]:.0f} |
| stopped: time or memory | {f["killed"]:.0f} |
| of the equal, traced once in five calls | {f["once"]:.1f} % |
| first gradient, median | {f["first"]:.2f} s ({f["cpu"]:.2f} s of processor time) |
| a later step / eager's, median | {f["step"]:.2f} |
"""


def _failing(ran: Sequence[Row]) -> str:
    lines = ["### Not equal, or not compiled\n", "| model | | reason |", "|---|---|---|"]
    for row in ran:
        if row["status"] != "equal":
            lines.append(f"| {row['name']} | {row['status']} | {_cell(row['reason'])} |")
    again = [r for r in ran if r["status"] == "equal" and r["traces"] != 1]
    lines += ["", "Traced more than once in five calls: " + (
        ", ".join(f"{r['name']} ({r['traces']})" for r in again) or "none") + ".", ""]
    return "\n".join(lines)


def _equal(ran: Sequence[Row]) -> str:
    lines = ["## Equal\n", "| architecture | parameters | first gradient, s | step / eager |",
             "|---|---|---|---|"]
    for row in ran:
        if row["status"] == "equal":
            ratio = row["hot"] / row["eager"]
            lines.append(
                f"| {row['name']} | {row['parameters']:,} | {row['first']:.2f} | {ratio:.2f} |"
            )
    return "\n".join([*lines, ""])


def _left_out(rows: Sequence[Row]) -> str:
    lines = ["## Not in the list: eager does not run them like this\n",
             "Libraries that are not installed, sizes that do not fit each other, inputs of "
             "another kind.\n", "| architecture | reason |", "|---|---|"]
    lines += [f"| {r['name']} | {_cell(r['reason'])} |" for r in rows if r["status"] not in _LISTED]
    return "\n".join([*lines, ""])


def _not_run(heads: Sequence[Row]) -> str:
    left = [str(r["name"]) for r in heads if r["status"] not in _LISTED]
    return f"Of the classes with a head, {len(left)}: {', '.join(left) or 'none'}.\n"


def _cell(text: Any) -> str:
    told = re.sub(r"\S*/site-packages/", "", str(text))  # no path of the machine's
    return " ".join(told.replace("|", "/").replace("`", "'").split())[:200]
