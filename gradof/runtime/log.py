"""`GRADOF_LOG=1`: a line on stderr for each trace, and for each graph that is compiled.

    gradof: traced loss in 12.1 ms: the first call; 9 nodes, 2 inputs
    gradof: compiled f of loss in 31.0 ms: 18 nodes, 2 kernels

Any other value but 0 is the name of a file that lines are added to.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PATIENCE = 2.0  # seconds after which a terminal is told what takes so long


def is_logging() -> bool:
    """Whether GRADOF_LOG asks for lines."""
    return os.environ.get("GRADOF_LOG", "0") not in ("", "0")


def log(text: str) -> None:
    """One line, where it was asked for."""
    if not is_logging():
        return
    where = os.environ["GRADOF_LOG"]
    if where == "1":
        print(f"gradof: {text}", file=sys.stderr, flush=True)
        return
    with Path(where).open("a", encoding="utf-8") as file:
        file.write(f"gradof: {text}\n")


@contextmanager
def told(text: str) -> Iterator[None]:
    """On a terminal, what takes long within says what it is: one line on stderr."""
    if not sys.stderr.isatty():
        yield
        return
    timer = threading.Timer(PATIENCE, _write, [f"gradof: {text} ...\n"])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _write(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
