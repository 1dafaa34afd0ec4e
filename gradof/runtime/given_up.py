"""Runs of the function of which no entry comes: what they have seen is let go.

    known = weakref.ref(settings)       # code that asks `known() is None` is to see what it would
    raise warmed_first(error, reads)    # see without the run
"""

from __future__ import annotations

from gradof.errors import TraceError
from gradof.runtime.shapes import NotYet
from gradof.tracer.state.reads import Reads


def let_go(reads: Reads | None) -> None:
    """A run is over that nothing comes of: what it has seen dies as it does in plain Python.

    Weak references tell. What a run has noted is in cycles, which Python frees when it likes.
    """
    if reads is not None:
        reads.held.alive.clear()


def warmed_first(error: TraceError, reads: Reads | None) -> NotYet:
    """For a run that met a cold cache."""
    let_go(reads)
    return NotYet(error.message)
