"""`gradof coverage`: run the coverage and write the page."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from gradof.cli.progress import counted
from gradof.errors import InputError

if TYPE_CHECKING:
    from gradof.testing.numpy_coverage import NumpyRow
    from gradof.testing.torch_coverage import OpCoverage

BAD = ("wrong", "error")


def run_coverage(
    dtypes: tuple[str, ...], pattern: str, jobs: int | None, output: Path | None
) -> bool:
    """Run, print what is not native, write the page if everything ran; whether all is right."""
    from gradof.testing.coverage import op_names, run_torch
    from gradof.testing.coverage_page import page, triton_section
    from gradof.testing.numpy_coverage import numpy_rows
    from gradof.testing.scipy_page import section_of

    names = op_names(pattern)
    if not names:
        raise InputError(f"no op of torch's table has {pattern!r} in its name")
    total, done = len(names) * len(dtypes), itertools.count(1)
    with counted("torch", total) as count:
        rows = run_torch(dtypes, names, jobs, lambda row: _say(count, next(done), total, row.name))
    cases: list[NumpyRow] = []
    if not pattern:
        from gradof.testing.numpy_table import CASES

        total, done = len(CASES), itertools.count(1)
        with counted("numpy", total) as count:
            cases = numpy_rows(lambda row: _say(count, next(done), total, row.name))
    _print(rows, cases)
    if output is not None and not pattern:
        text = output.read_text() if output.exists() else ""
        kept = section_of(text) + triton_section(text)
        output.write_text(page(rows, cases, kept))
        click.echo(f"wrote {output}")
    wrong = [r for r in rows if any(r.status(order) in BAD for order in range(3))]
    return not wrong and all(case.ok for case in cases)


def _say(count: Callable[[float, str], None], done: int, total: int, name: str) -> None:
    count(done, f"{done} of {total}, {name}")


def _print(rows: list[OpCoverage], cases: list[NumpyRow]) -> None:
    from gradof.testing.coverage_page import HALVES, ORDERS, RANK, by_name, counts, status

    console = Console(soft_wrap=True)
    for row in rows:
        if row.dtype in HALVES and row.status(1) in BAD:
            console.print(f"{row.dtype} {(*row.errors, *row.wrong)[0][1]}", markup=False)
    rows = [row for row in rows if row.dtype not in HALVES] or rows
    others = Table("op", "value", "first", "second", "why", title="not native")
    for name, group in by_name(rows).items():
        states = [status(group, order) for order in range(3)]
        if set(states) != {"native"}:
            notes = [text for row in group for _, text in (*row.errors, *row.wrong)]
            others.add_row(name, *states, notes[0] if notes else ", ".join(group[0].opaque))
    if others.rows:
        console.print(others)
    for case in cases:
        if not case.ok:
            console.print(f"numpy {case.name}: {case.reason}", markup=False)
    summary = Table("", *RANK, title=f"torch: {len(by_name(rows))} ops")
    for title, count in zip(ORDERS, counts(rows), strict=True):
        summary.add_row(title, *(str(count[s]) for s in RANK))
    console.print(summary)
    if cases:
        right = sum(case.ok for case in cases)
        console.print(f"numpy: {right} of {len(cases)} cases right to second order")
