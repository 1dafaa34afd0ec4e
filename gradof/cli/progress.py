"""A line that says what is done, on a terminal, for what takes more than two seconds.

>>> with progress("exploring") as say:
...     say("compiling")
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

PATIENCE = 2.0  # seconds without a word


@contextmanager
def progress(what: str, console: Console | None = None) -> Iterator[Callable[[str], None]]:
    """Show `what`, and what `say` was told last, with a spinner; nothing where stderr is a file."""
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: None
        return
    status = console.status(what)
    timer = threading.Timer(PATIENCE, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda text: status.update(f"{what}: {text}")
    finally:
        timer.cancel()
        timer.join()
        status.stop()
