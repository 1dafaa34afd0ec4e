"""How often Python looks for dead cycles while graphs are made.

    @few_collections()
    def differentiate(graph): ...

Note [Few collections]
A graph is tens of thousands of objects that hold each other and all live. Python goes through its
young objects after every 700 new ones, and through all there are once a quarter is new: of the time
a long program takes to its first gradient that was half. Here it looks after every 300000. (After
every 100000, ten looks at the graphs of 200 layers made it look at all that they had left: 0.5 s of
2.9.) It is not switched off, so what dies in cycles is freed as before, a little later, and a
caller's `gc.disable()`, in another thread too, stays in force.

Note [Full collections wait]
Of a process that has imported a large library a look at all objects takes a quarter of a second. As
Python begins one when a quarter is new, it came in nearly every second first gradient of a network.
So before a trace all that is there counts as just looked at. What is made meanwhile is looked at as
before, while it is young. After `MOST_WAITS` traces without a full look Python begins one when it
wants to. Where others have frozen objects, to thaw them is not ours, and nothing is done. Python
counts what is frozen one by one, which took more than the rest of a trace: it is asked again after
`FROZEN_FOR` traces. From Python 3.12 on each look freezes what is immortal, some hundred objects:
so few are not what others have frozen.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG = 300_000  # new objects between two looks at them
MOST_WAITS = 16
FROZEN_FOR = 256  # traces
IMMORTAL = 2048 if sys.version_info >= (3, 12) else 0  # objects that Python itself may have frozen
_OLDEST = 2  # generation
_waits = (0, 0)  # full collections so far, and the traces since the last one
_frozen = 0  # traces to come for which objects count as frozen by others


@contextmanager
def few_collections() -> Iterator[None]:
    """Within, new objects are looked at rarely; see the note. Thresholds others set are kept."""
    before = gc.get_threshold()
    if not 0 < before[0] < YOUNG:  # 0: never
        yield
        return
    gc.set_threshold(YOUNG, *before[1:])
    try:
        yield
    finally:
        if gc.get_threshold() == (YOUNG, *before[1:]):
            gc.set_threshold(*before)


def let_full_collections_wait() -> None:
    """Begin the count to the next full collection anew; see the note."""
    global _waits, _frozen
    if _frozen:
        _frozen -= 1
        return
    done = gc.get_stats()[_OLDEST]["collections"]
    since = _waits[1] if _waits[0] == done else 0
    if since == MOST_WAITS:
        return
    if gc.get_freeze_count() > IMMORTAL:
        _frozen = FROZEN_FOR
        return
    _waits = done, since + 1
    gc.freeze()  # all objects leave the generations, whose counters start at 0,
    gc.unfreeze()  # and are in the oldest one
