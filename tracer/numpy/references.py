"""Who refers to an array of a run: the run alone, or the trace that follows it, too.

An array that one variable refers to may be taken into the trace in its place (`adopt`). What the
trace itself keeps does not count: it neither reads nor writes the elements.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import sys
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gradof.tracer.core.standing import Alive

if TYPE_CHECKING:
    from gradof.tracer.numpy.recorder import Recorder

_SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def others(array: Any, surplus: int, frame: FrameType, recorder: Recorder) -> bool:
    """Whether others than the trace are among the `surplus` references to an array.

    Loops have noted where the run stood, and keep frames of calls that are over, whose variables
    are let go of; containers that were seen have copies; arrays that functions were given, and
    that were constants, are kept.
    """
    before = sys.getrefcount(array)
    running = set()
    here: FrameType | None = frame
    while here is not None:
        running.add(here)
        here = here.f_back
    reads = recorder.loops.reads
    kept = reads.decisions.times_given(array) + recorder.deferred.borrows(array)
    for copy in reads.held.copies():
        if type(copy) in (list, dict):
            kept += sum(x is array for x in (copy.values() if type(copy) is dict else copy))
    for referrer in gc.get_referrers(array):
        if type(referrer) is Alive:
            kept += sum(item is array for item in referrer)
        elif type(referrer) is FrameType and not referrer.f_code.co_flags & _SUSPENDED:
            if referrer not in running:
                _let_go(referrer)
    return surplus - (before - sys.getrefcount(array)) > kept


def _let_go(frame: FrameType) -> None:
    """The variables of a call that is over refer to nothing any more."""
    with contextlib.suppress(RuntimeError):  # it runs, in another thread
        frame.clear()
        _ = frame.f_locals  # before Python 3.13 a copy, which is made to agree


class Counts(NamedTuple):
    """Of arrays that one variable, one list, one view refers to."""

    of_local: int
    of_item: int
    of_base: int


def measured() -> Counts:
    """The counts as they are when asked as above.

    They are measured for each run: where a frame evaluator is set, as Dynamo's is from the first
    `torch.compile` on, Python's calls keep their arguments alive, which adds to the counts.
    """
    found: list[int] = []

    def ask(array: Any, frame: Any, expected: int) -> None:
        base: Any = array.base
        while base is not None:
            found.append(sys.getrefcount(base))
            base = base.base
        found.append(sys.getrefcount(array))

    def of_local(frame: FrameType) -> None:
        local: Any = frame.f_locals
        for name in frozenset({"array"}).intersection(local):
            value = local[name]
            ask(value, frame, 0)

    def of_item(value: Any) -> None:
        for _, item in list(enumerate(value)):
            ask(item, None, 0)

    def user() -> None:
        array = np.zeros(2)  # noqa: F841  # found in the frame
        of_local(sys._getframe())

    user()
    of_item([np.zeros(2)])
    view = np.zeros(4).reshape(2, 2)
    ask(view, None, 0)
    return Counts(*found[:3])
