"""A line that says what is done, on a terminal, for what takes more than two seconds.

>>> with progress("exploring") as say:
...     say("compiling")
>>> with counted("fuzzing", total=100) as count:
...     count(3, "3 programs, none wrong")
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)  # fmt: skip

PATIENCE = 2.0  # seconds without a word


@contextmanager
def progress(what: str, console: Console | None = None) -> Iterator[Callable[[str], None]]:
    """Show `what`, what `say` was told last, and how long it takes."""
    with _shown(what, None, console) as (bar, task):
        yield lambda text: bar.update(task, description=f"{what}: {text}")


@contextmanager
def counted(
    what: str, total: float, console: Console | None = None
) -> Iterator[Callable[[float, str], None]]:  # fmt: skip
    """The same with a bar: `count` is told how much of `total` is done, and what to say of it."""
    with _shown(what, total, console, BarColumn()) as (bar, task):
        yield lambda done, text: bar.update(task, completed=done, description=f"{what}: {text}")


@contextmanager
def _shown(
    what: str, total: float | None, console: Console | None, *columns: ProgressColumn
) -> Iterator[tuple[Progress, TaskID]]:  # fmt: skip
    """A line that comes after a while and goes at the end; nothing where stderr is a file."""
    console = console or Console(stderr=True)
    bar = Progress(
        SpinnerColumn(), *columns, TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(), console=console, transient=True,
    )  # fmt: skip
    task = bar.add_task(what, total=total)
    if not console.is_terminal:
        yield bar, task
        return
    timer = threading.Timer(PATIENCE, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield bar, task
    finally:
        timer.cancel()
        timer.join()
        bar.stop()
