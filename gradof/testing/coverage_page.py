"""`docs/coverage.md`, from the rows of a coverage run.

The section on Triton is written by `python -m tests.codegen.triton_matrix` and kept here.
"""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradof.testing.numpy_coverage import NumpyRow
    from gradof.testing.torch_coverage import OpCoverage

ORDERS = ("value", "first gradient", "second gradient")
HALVES = ("bf16", "f16")
TRITON = "## Triton\n"
EVERY_OP = "## Every op of torch\n"
RANK = ("error", "wrong", "opaque", "native", "none")  # worst first

# What is expected to fail, and why; the tests hold that it does.
REASONS = {
    "as_strided_partial_views": "reads memory of the tensor that the argument is a view of, which "
    "is not part of the call",
}


def status(rows: Sequence[OpCoverage], order: int) -> str:
    """The status of one op, over its dtypes: the worst; none only where it is none in each."""
    return min((row.status(order) for row in rows), key=RANK.index)


def by_name(rows: Sequence[OpCoverage]) -> dict[str, list[OpCoverage]]:
    """Rows of all dtypes, by op."""
    ops: dict[str, list[OpCoverage]] = {}
    for row in rows:
        ops.setdefault(row.name, []).append(row)
    return ops


def counts(rows: Sequence[OpCoverage]) -> list[Counter[str]]:
    """How many ops have each status, by order."""
    ops = by_name(rows)
    return [Counter(status(group, order) for group in ops.values()) for order in range(3)]


def page(
    torch_rows: Sequence[OpCoverage], numpy_rows: Sequence[NumpyRow], triton: str = ""
) -> str:
    """The whole page; `triton` is the section on Triton."""
    lines = [
        "# Coverage",
        "Written by `gradof coverage`; "
        f"torch {version('torch').partition('+')[0]}, numpy {version('numpy')}, scipy "
        f"{version('scipy')}, Python {platform.python_version()}.",
        "",
    ]
    wide = [row for row in torch_rows if row.dtype not in HALVES]
    lines += _torch_summary(wide) + _not_native(wide)
    lines += _halves([row for row in torch_rows if row.dtype in HALVES]) + _rough()
    lines += _numpy(numpy_rows)
    return with_triton("\n".join([*lines, *_torch_table(wide)]) + "\n", triton)


def triton_section(text: str) -> str:
    """The section on Triton of a page; empty if there is none."""
    start = text.find(TRITON)
    return "" if start < 0 else text[start : text.index(EVERY_OP)]


def with_triton(text: str, section: str) -> str:
    """A page with another section on Triton."""
    before, title, after = text.replace(triton_section(text), "").partition(EVERY_OP)
    return before + section + title + after


def _torch_summary(rows: Sequence[OpCoverage]) -> list[str]:
    dtypes = sorted({row.dtype for row in rows})
    samples = sum(row.samples for row in rows)
    table = counts(rows)
    lines = [
        "## torch",
        "The yardstick is torch's own table of ops, `op_db`: every op that has a gradient for "
        f"dense real inputs, {len(by_name(rows))} of them, on all of torch's sample inputs in "
        f"{' and '.join(dtypes)}, {samples} programs. Values, gradients and second gradients are "
        "compared with eager under random cotangents; how close is close enough is told by "
        "float64 and by how far eager itself moves when its inputs move by an ulp. *native*: our "
        "own transform did all of it. *opaque*: torch's own autograd ran inside an `Opaque` node. "
        "*none*: torch refuses it, too.",
        "",
        "| | native | opaque | none | wrong | error |",
        "|---|---|---|---|---|---|",
    ]
    for title, count in zip(ORDERS, table, strict=True):
        cells = [str(count[s]) for s in ("native", "opaque", "none", "wrong", "error")]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return [*lines, ""]


def _halves(rows: Sequence[OpCoverage]) -> list[str]:
    """bfloat16 and float16, to first order."""
    if not rows:
        return []
    lines = [
        "### Half precision",
        "The same programs in bfloat16 and float16, values and first gradients: within 4 ulps of "
        "eager's largest number, or no further from float64 than 8 times eager's distance. *none*: "
        "torch has no such kernel, or no gradient of it, on a CPU.",
        "",
        "| dtype | | native | opaque | none | wrong | error |",
        "|---|---|---|---|---|---|---|",
    ]
    for dtype in HALVES:
        for order in range(2):
            count = Counter(r.status(order) for r in rows if r.dtype == dtype)
            cells = [str(count[s]) for s in ("native", "opaque", "none", "wrong", "error")]
            lines.append(f"| {dtype} | {ORDERS[order]} | {' | '.join(cells)} |")
    bad = sorted({r.name for r in rows if any(r.status(k) in ("wrong", "error") for k in (0, 1))})
    return [*lines, "", *(f"{name}: {REASONS.get(name, 'not right')}." for name in bad), ""]


def _not_native(rows: Sequence[OpCoverage]) -> list[str]:
    lines = ["### Not native, and why", "| op | value | first | second | why |",
             "|---|---|---|---|---|"]  # fmt: skip
    for name, group in by_name(rows).items():
        states = [status(group, order) for order in range(3)]
        if set(states) != {"native"}:
            lines.append(f"| {name} | {' | '.join(states)} | {_why(name, group, states)} |")
    return [*lines, ""]


def _why(name: str, group: Sequence[OpCoverage], states: Sequence[str]) -> str:
    if name in REASONS:
        return REASONS[name]
    messages = [text for row in group for _, text in (*row.errors, *row.wrong)]
    if messages:
        return messages[0].partition(": ")[2].replace("|", "\\|")
    opaque = sorted({op for row in group for op in row.opaque})
    if opaque:
        return "no rule for " + ", ".join(opaque)
    return "torch has no such gradient"


def _torch_table(rows: Sequence[OpCoverage]) -> list[str]:
    dtypes = sorted({row.dtype for row in rows})
    lines = [
        EVERY_OP.rstrip(),
        "Programs per dtype, status by order, and the worst difference from eager of any output or "
        "gradient, relative to the largest number of its group.",
        "",
        f"| op | programs | value | first | second | {' | '.join(f'worst {d}' for d in dtypes)} |",
        f"|---|---|---|---|---|{'---|' * len(dtypes)}",
    ]
    for name, group in by_name(rows).items():
        states = " | ".join(status(group, order) for order in range(3))
        worst = {row.dtype: f"{max(row.worst):.0e}" for row in group}
        cells = " | ".join(worst.get(d, "-") for d in dtypes)
        lines.append(f"| {name} | {max(row.samples for row in group)} | {states} | {cells} |")
    return [*lines, ""]


def _rough() -> list[str]:
    from gradof.testing.torch_coverage import NAN_IN_EAGER, ROUGH_IN_EAGER, WRONG_IN_EAGER

    lines = ["### Where eager is no judge", "| op | order | allowed | why |",
             "|---|---|---|---|"]  # fmt: skip
    for (name, order), (error, why) in ROUGH_IN_EAGER.items():
        lines.append(f"| {name} | {ORDERS[order]} | {error:.0e} in float64 | {why} |")
    for (name, order), why in NAN_IN_EAGER.items():
        lines.append(f"| {name} | {ORDERS[order]} | any number for nan | {why} |")
    for name, why in WRONG_IN_EAGER.items():
        lines.append(f"| {name} | first gradient | finite differences judge | {why} |")
    return [*lines, ""]


def _numpy(rows: Sequence[NumpyRow]) -> list[str]:
    from gradof.testing.numpy_coverage import differentiable_names

    good = differentiable_names(rows)
    bad = [row for row in rows if not row.ok]
    names = {row.name for row in rows}
    lines = [
        "## numpy and scipy.special",
        f"{len(rows)} cases of {len(names)} functions, methods and operators; {len(good)} of them "
        "have a gradient that is not zero everywhere and are right to second order, in float64 "
        "and float32. Gradients are compared with finite differences of numpy's own function.",
        "",
        "| | cases | functions |",
        "|---|---|---|",
        f"| right, second gradient included | {len(rows) - len(bad)} | "
        f"{len(names - {row.name for row in bad})} |",
        f"| not right | {len(bad)} | {len({row.name for row in bad})} |",
        "",
    ]
    if bad:
        lines += ["| not right | why |", "|---|---|"]
        lines += [f"| `{r.name}`: `{r.source}` | {r.reason} |".replace("\n", " ") for r in bad]
        lines.append("")
    lines += ["Right to second order: " + ", ".join(f"`{name}`" for name in good) + ".", ""]
    return lines
