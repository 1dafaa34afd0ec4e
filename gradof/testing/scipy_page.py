"""The section on scipy of `docs/coverage.md`: `python -m gradof.testing.scipy_page` writes it anew.

Function by function: how many cases, and whether value, first and second derivative are right.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from gradof.testing.numpy_coverage import NumpyRow, numpy_rows

SCIPY = "## scipy\n"
_NEXT = "\n## "
_PARTS = (
    "linalg", "fft", "signal", "ndimage", "spatial.distance", "spatial", "integrate", "interpolate",
    "optimize", "sparse", "stats",
)  # fmt: skip


def scipy_section(rows: Sequence[NumpyRow]) -> str:
    """The section, from the rows of the scipy table."""
    groups: dict[str, list[NumpyRow]] = {}
    for row in rows:
        groups.setdefault(row.name, []).append(row)
    counts = [
        sum(all(getattr(r, order) for r in group) for group in groups.values())
        for order in ("value", "first", "second")
    ]
    lines = [
        SCIPY.rstrip(),
        f"{len(rows)} cases of {len(groups)} functions, methods of distributions and forms of "
        f"sparse matrices, beside those of scipy.special above: {counts[0]} have the right value, "
        f"{counts[1]} the right first and {counts[2]} the right second derivative. Values are "
        "compared with scipy's, derivatives with finite differences of scipy's function and of "
        "the gradient. Functions that are not in the table are refused, with their name and the "
        "user's line, unless numpy alone is in them.",
        "",
        "| module | functions | cases | value | first | second |",
        "|---|---|---|---|---|---|",
    ]
    for part in _PARTS:
        names = [n for n in groups if _part(n) == part]
        chosen = [r for n in names for r in groups[n]]
        right = [str(sum(getattr(r, o) for r in chosen)) for o in ("value", "first", "second")]
        lines.append(f"| scipy.{part} | {len(names)} | {len(chosen)} | {' | '.join(right)} |")
    lines += ["", *_table({n: g for n, g in groups.items() if not _is_distribution(n)}),
              "", *_distributions({n: g for n, g in groups.items() if _is_distribution(n)}), ""]
    return "\n".join(lines) + "\n"


def _part(name: str) -> str:
    bare = name.removeprefix("x @ ").removeprefix("scipy.")
    return next(p for p in _PARTS if bare.startswith(p))


def _is_distribution(name: str) -> bool:
    return name.startswith("scipy.stats.") and name.count(".") == 3


def _mark(group: Sequence[NumpyRow], order: str) -> str:
    right = sum(getattr(r, order) for r in group)
    return "yes" if right == len(group) else f"{right} of {len(group)}"


def _table(groups: dict[str, list[NumpyRow]]) -> list[str]:
    lines = ["| function | cases | value | first | second | worst |", "|---|---|---|---|---|---|"]
    for name, group in groups.items():
        marks = " | ".join(_mark(group, order) for order in ("value", "first", "second"))
        worst = max(row.worst for row in group)
        lines.append(f"| `{name.removeprefix('scipy.')}` | {len(group)} | {marks} | {worst:.0e} |")
    return lines


def _distributions(groups: dict[str, list[NumpyRow]]) -> list[str]:
    """One line per distribution, with its methods."""
    by_owner: dict[str, dict[str, list[NumpyRow]]] = {}
    for name, group in groups.items():
        _, _, owner, method = name.split(".")
        by_owner.setdefault(owner, {})[method] = group
    lines = ["| distribution | methods right to second order | not right |", "|---|---|---|"]
    for owner, methods in by_owner.items():
        good = [m for m, group in methods.items() if all(r.second for r in group)]
        bad = [m for m in methods if m not in good]
        lines.append(f"| `{owner}` | {', '.join(good)} | {', '.join(bad)} |")
    return lines


def section_of(text: str) -> str:
    """The section on scipy of a page; empty if there is none."""
    start = text.find(SCIPY)
    if start < 0:
        return ""
    end = text.find(_NEXT, start + len(SCIPY))
    return text[start:] if end < 0 else text[start : end + 1]


def with_scipy(text: str, section: str, before: str) -> str:
    """A page with another section on scipy, which stands before a title."""
    head, title, tail = text.replace(section_of(text), "").partition(before)
    return head + section + title + tail


def main(page: Path) -> int:
    """Try every case of the table and write the section; the number of cases not right."""
    from gradof.testing.coverage_page import EVERY_OP, TRITON
    from gradof.testing.scipy_table import CASES

    rows = numpy_rows(lambda row: None if row.ok else print(row.source, row.reason), CASES)
    text = page.read_text(encoding="utf-8")
    before = TRITON if TRITON in text else EVERY_OP
    page.write_text(with_scipy(text, scipy_section(rows), before), encoding="utf-8")
    return sum(not row.ok for row in rows)


if __name__ == "__main__":
    sys.exit(min(main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs/coverage.md")), 1))
