"""How often one signature is traced again, by state and by path, and when that ends.

    run.step += 1; loss(x)        # a text that changes: a RetraceWarning at the third trace, and
                                  # eager runs from the sixteenth on (gradof.limits)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gradof.errors import PathLimitError, RetraceWarning, TraceError
from gradof.runtime.arrays import Call
from gradof.runtime.cache import Cache
from gradof.runtime.guards import Decisions, path_limit
from gradof.runtime.limits import limits
from gradof.tracer.state.source import function_loc, warn_user


def count_changes(cache: Cache, call: Call, fn: Any, name: str) -> None:
    """Warn of a place that costs a trace each time it changes; TraceError at the last."""
    entries = cache.entries.get(call.key, ())
    change = entries[0].state.first_change() if entries else None
    if change is None:
        return
    place = change.partition(" was ")[0].partition(" had ")[0]
    count = cache.changed[place] = cache.changed.get(place, 1) + 1
    if count >= limits.warn_at:
        _warn(
            cache, f"{name} has been traced {count} times, now because {change}; make it a "
            "tensor or an argument, or keep it out of what the function reads",
        )  # fmt: skip
    if len(entries) >= limits.state_traces and call.library == "torch":
        raise TraceError(
            f"Python state has changed {len(entries)} times, the last: {change}",
            loc=function_loc(fn),
            hint="make it a tensor or an argument, or raise gradof.limits.state_traces",
        )


def count_new_paths(cache: Cache, call: Call, name: str) -> None:
    """PathLimitError, and no entries, where each call of late has taken a path of its own."""
    lifted = cache.numbers.lifted(call)
    for which in [call] if lifted is None else [call, lifted]:
        entries = cache.entries.get(which.key, ())
        fresh = [
            entry.decisions for entry in entries
            if entry.decisions is not None and entry.hits_before == cache.hits
        ]  # fmt: skip
        if len(fresh) >= limits.new_paths and call.library == "torch":
            cache.forget(which.key)
            raise path_limit(name, fresh)


def forget_a_path(
    cache: Cache, call: Call, oldest: Sequence[Decisions], error: PathLimitError
) -> None:
    """Let go of the paths that were not taken for the longest time: there is no way but on."""
    _warn(
        cache, f"{error.message}; each further one is traced, and the one that was not taken for "
        f"the longest time is forgotten; {error.hint}",
    )  # fmt: skip
    cache.entries[call.key] = [
        entry for entry in cache.entries[call.key]
        if not any(entry.decisions is path for path in oldest)
    ]  # fmt: skip


def _warn(cache: Cache, text: str) -> None:
    """Say, once for a function, that traces go on."""
    if not cache.warned:
        cache.warned = True
        warn_user(text, RetraceWarning)
