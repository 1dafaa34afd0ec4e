"""Calls of a signature that cannot be traced: a generated check of the arguments, and the function.

    call 1              the trace fails; the function runs as it is, with an EagerWarning
    the next ones       the failure is found by its key, its Python state looked at
    from AFTER on       the generated check finds it, and the state is looked at now and then

Eager's run is right whatever the state is; another one may only mean that a trace would do now.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from gradof import tuning
from gradof.runtime.arrays import Call
from gradof.runtime.as_it_is import Quick, modes_of, write_modes
from gradof.runtime.cache import Cache
from gradof.runtime.check_writer import Writer
from gradof.runtime.eager import Failure
from gradof.runtime.lengths import MISS
from gradof.runtime.place_code import NotSimple
from gradof.runtime.quickcall import MAX_QUICK

AFTER = 4  # times that a failure is found; the check is made again at twice as many, if it went


def hasten_failure(cache: Cache, fn: Callable[..., Any], call: Call, failure: Failure) -> None:
    """Generate the call of a signature that was found to have failed, if it is found often.

    One that has traces, too, keeps them: it has failed on another path, or with other numbers in
    Python's state (`if step % 100 == 0: print(loss.item())`).
    """
    lifted = cache.numbers.lifted(call)
    if any(cache.entries.get(each.key) for each in (call, lifted) if each is not None):
        return
    failure.found += 1
    often = failure.found >= AFTER and failure.found & (failure.found - 1) == 0
    if not often or failure.quick in cache.quick:
        return
    try:
        failure.quick = _generated(cache, fn, call, failure.error)
    except NotSimple:
        return
    cache.quick = (failure.quick, *cache.quick)[:MAX_QUICK]


def _generated(cache: Cache, fn: Callable[..., Any], call: Call, error: Exception) -> Quick:
    known = cache.eager.failed(fn, error)
    writer = Writer(call, trusting=False, missed="MISS")
    writer.signature()
    writer.names.update(
        MISS=MISS, fn=fn, known=known, run=cache.eager.run, turn=count(1).__next__
    )
    write_modes(writer, modes_of(call, fn))
    writer.lines += [
        f"if not turn() % {tuning.TRIAL_AGAIN}: return MISS",
        "return run(fn, args, kwargs, known)",
    ]
    made: Quick
    made, _ = writer.compiled("<gradof eager>")
    return made
