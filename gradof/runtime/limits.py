"""How much a compiled function keeps, and when it stops tracing.

    import gradof
    gradof.limits.shapes = 4          # of one call site; further ones run eagerly at first
    gradof.limits.signatures = 1000   # that are kept; the least recently used goes

The limits hold for the whole process, from the next call on.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Limits:
    """Counts, all of one compiled function; see each.

    `signatures`: types and shapes of arguments that are kept, with all that was compiled for them.
    `entries`: traces of one signature, by Python state and by path.
    `paths`: of one signature, by the values that Python reads.
    `new_paths`: in a row, none of which came again. A torch function whose every call takes a new
    path runs under torch's own autograd from then on.
    `state_traces`: traces of one signature because Python state changed; then it runs eagerly.
    `shapes`: signatures with arguments of the same types: shapes, texts, lengths of lists. A torch
    function runs further ones under torch's own autograd until a trace pays (`runtime.shapes`).
    `shape_seconds`: of processor time that traces of such signatures took and their compilation,
    but for the first one; then it does so, too, however few they were.
    `warn_at`: the trace, for one changing place, that gives a RetraceWarning.
    """

    signatures: int = 256
    entries: int = 256
    paths: int = 64
    new_paths: int = 8
    state_traces: int = 16
    shapes: int = 12
    shape_seconds: float = 2.0
    warn_at: int = 3


limits = Limits()
