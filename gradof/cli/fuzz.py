"""`gradof fuzz`: random programs, with a line of progress, counts and files of what is wrong."""

from __future__ import annotations

import os
from pathlib import Path

import click

from gradof.cli.progress import counted
from gradof.testing.fuzz.program import Library
from gradof.testing.fuzz.search import Found, search


def run_fuzz(
    library: Library, minutes: float | None, programs: int | None, seed: int, folder: Path,
    subject: str, size: str | None, reached: bool,
) -> bool:  # fmt: skip
    """Search, print what was found; whether nothing was wrong."""
    os.environ.setdefault("GRADOF_CACHE_DIR", "off")  # no program comes back
    with counted("fuzzing", programs or 60.0 * (minutes or 0.0)) as count:

        def progress(found: Found) -> None:
            done = found.seconds if programs is None else found.programs
            what = f"{found.programs} programs, {len(found.wrong)} wrong"
            if found.shrinking is not None:
                what += f"; making seed {found.shrinking} smaller"
            count(done, what)

        found = search(
            library, minutes=minutes, programs=programs, seed=seed, folder=folder, size=size,
            progress=progress, subject=subject,
        )  # fmt: skip
    click.echo(found.summary())
    if reached:
        click.echo(found.unreached())
    return not found.wrong
