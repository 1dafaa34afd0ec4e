"""The items of a `for` loop that a value may end, counted by a value of the graph (`whiles`).

    for k in range(100):        # the loop asks `place < 100`, a branch like any other
        if err < tol: break     # and `k` is a traced number that follows from `place`
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, Protocol

import numpy as np

from gradof.ir.attrs import Dense
from gradof.ir.core import Value
from gradof.ops.expr import Emitter, Expr, F
from gradof.tracer.core.loop_notes import LoopNotes
from gradof.tracer.core.number import Numbers, TracedNumber
from gradof.tracer.state.loop_code import is_looped_over
from gradof.tracer.state.unheard import unheard

_ZERO = np.array(0)


class Lent(type):
    """A builtin as the traced code knows it: of a loop's own its `steps`, if it has any for it.

    Any other call makes what the builtin makes, which is still the class of its own.
    """

    builtin: Any
    steps: Callable[[tuple[Any, ...], dict[str, Any]], Any]

    @staticmethod
    def of(builtin: type, steps: Callable[[tuple[Any, ...], dict[str, Any]], Any]) -> Lent:
        """A builtin with these steps."""
        return Lent(builtin.__name__, (), {"builtin": builtin, "steps": staticmethod(steps)})

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """What the builtin makes, or steps."""
        caller = sys._getframe(1)
        if is_looped_over(caller.f_code, caller.f_lasti):
            made = cls.steps(args, kwargs)
            if made is not None:
                return made
        return cls.builtin(*args, **kwargs)

    def __instancecheck__(cls, obj: Any) -> bool:
        return isinstance(obj, cls.builtin)

    def __subclasscheck__(cls, kind: Any) -> bool:
        return issubclass(kind, cls.builtin)


class Recorder(Protocol):
    """What counting asks of the recorders of both libraries."""

    emitter: Emitter
    closed: bool

    @property
    def loops(self) -> LoopNotes:
        """What is noted of loops."""
        ...

    @property
    def numbers(self) -> Numbers:
        """The numbers of the trace."""
        ...

    def enter(self) -> None:
        """Stamp the user's line on what is emitted next."""
        ...

    def note_varying(self, value: Value) -> None:
        """A value is no constant."""
        ...

    def guard(self, value: Value, seen: bool) -> None:
        """The trace holds where a value is this again."""
        ...


class Counted:
    """Items of a `for`, from sources of which `ranges` are such numbers."""

    def __init__(self, recorder: Recorder, sources: Sequence[Any]) -> None:
        self.sources, self.recorder = sources, recorder
        self.count, self.at = min(map(len, sources)), 0
        self.counter: Expr | None = None

    @property
    def given(self) -> int:
        """How many items the loop has been given."""
        return self.at

    @property
    def place(self) -> Expr:
        """The same as a value, where that is what counts."""
        assert self.counter is not None
        return self.counter

    @property
    def is_counted(self) -> bool:
        """Whether a value counts the items."""
        return self.counter is not None

    def go_to(self, place: Expr, at: int) -> None:
        """So many items have been given."""
        self.recorder.note_varying(place.value)
        self.counter, self.at = place, at

    def may_count(self, source: Any) -> bool:
        """Whether a value can count the items of a source."""
        return type(source) is range

    @unheard
    def is_to_count(self, frame: FrameType) -> bool:
        """Note that the loop has begun; whether its end is one of several that values decide."""
        recorder, key = self.recorder, (frame, frame.f_lasti)
        if recorder.closed:
            return False
        recorder.loops.running[key] = self
        counted = (frame.f_code, frame.f_lasti) in recorder.loops.varying.counted
        if not counted or not all(map(self.may_count, self.sources)):
            return False
        recorder.enter()
        begin = recorder.emitter.body.constant(Dense.of(_ZERO))
        self.go_to(F.copy(recorder.emitter.wrap(begin)), 0)
        return True

    @unheard
    def counted_items(self) -> list[Any]:
        """The next items; StopIteration where there is none."""
        recorder, at = self.recorder, self.at
        recorder.enter()
        more = F.lt(self.place, self.count)
        recorder.note_varying(more.value)
        recorder.guard(more.value, at < self.count)
        if at >= self.count:
            raise StopIteration
        items = [self.item(source, at) for source in self.sources]
        self.go_to(self.place + 1, at + 1)
        return items

    def item(self, source: Any, at: int) -> TracedNumber:
        """One of a source, which is a range."""
        number = self.place * source.step + source.start
        self.recorder.note_varying(number.value)
        return self.recorder.numbers.element(source[at], number.value)
