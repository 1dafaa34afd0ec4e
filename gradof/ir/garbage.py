"""How often Python looks for dead cycles while graphs are made.

    @few_collections()
    def differentiate(graph): ...

Note [Few collections]
A graph is tens of thousands of objects that hold each other and all live. Python goes through its
young objects after every 700 new ones, and through all there are once a quarter is new: of the time
a long program takes to its first gradient that was half. Here it looks after every 100000. It is
not switched off, so what dies in cycles is freed as before, a little later, and a caller's
`gc.disable()`, in another thread too, stays in force.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG = 100_000  # new objects between two looks at them


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
