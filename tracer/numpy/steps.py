"""Loops of Python's that a trace runs a few steps of, and records as a Loop of all.

    for z in seen:              # an array, or range(...): `Steps` gives the items
        level = level + rate * (z - level)

Each time the loop asks for an item `Steps` looks where the run stands (`standing`). If it stands
where it stood a step before, all further steps do what that one did (Note [Steps that are alike]):
a Loop is recorded (`gradof.passes.roll.repeat`), what the steps carry on is what the Loop carries
out, and there are no more items. So tracing takes as long for a thousand steps as for five. Where
that cannot be known the loop runs on, and is rolled afterwards if it can be (`roll_loops`).

The number of a step is an `Index` meanwhile: places that it gives move with the step, and anything
else that is done with it ends the attempt.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from gradof import tuning
from gradof.ir.core import Node, Value
from gradof.ops.expr import F
from gradof.passes.roll.build import Unfit
from gradof.passes.roll.repeat import repeated
from gradof.tracer.core.counted import Counted
from gradof.tracer.core.standing import Unknown, are_known
from gradof.tracer.core.whiles import between
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.index import Index, Origin
from gradof.tracer.numpy.lengths import is_users
from gradof.tracer.numpy.standing import ArrayStanding
from gradof.tracer.state.loop_code import LoopCode, is_looped_over, loop_at
from gradof.tracer.state.unheard import unheard

if TYPE_CHECKING:
    from gradof.tracer.numpy.recorder import Recorder

_TRIES = 5  # steps after which the loop is left alone
_PLAIN = frozenset({int, float, bool, str, type(None)})


@dataclass
class _Head:
    """A step is about to begin: what was recorded last, and where the run stands."""

    last: Node | None
    standing: ArrayStanding
    marks: tuple[Any, ...]


class Steps(Counted):
    """The items of a loop: rows of arrays and numbers of ranges, `in_tuples` where it is zipped."""

    def __init__(
        self, recorder: Recorder, sources: Sequence[TracedArray | range], in_tuples: bool = False
    ) -> None:
        super().__init__(recorder, sources)
        self.array_recorder, self._in_tuples = recorder, in_tuples
        loops = recorder.loops
        least = max(tuning.LOOP_LOOKED_AT, tuning.LOOP_STEPS)
        looks = self.count >= least and loops.evaluate is not None and not recorder.closed
        looks = looks and loops.computed < tuning.DEFERRED_READS  # all there is so far, each time
        self._attempt = _Attempt(recorder, self.count, sources) if looks else None
        self._note, self._sizes = loops.sizes.count(self.count), loops.sizes

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        attempt, at = self._attempt, self.at
        if self.is_counted or (at == 0 and self.is_to_count(sys._getframe(1))):
            self._attempt = None
            items = self.counted_items()
            return tuple(items) if self._in_tuples else items[0]
        if attempt is not None:
            if attempt.head(sys._getframe(1), at):
                self._sizes.few_stood_for(self._note)  # Note [Told sizes] in `lengths`
                at = self.at = self.count
            if attempt.over:
                attempt.end()
                attempt = self._attempt = None
        if at >= self.count:
            raise StopIteration
        self.at = at + 1
        items = [source[at] for source in self.sources]
        if attempt is not None:
            items = attempt.given(items)
        return tuple(items) if self._in_tuples else items[0]

    def may_count(self, source: Any) -> bool:
        """Numbers, and the rows of a vector."""
        return type(source) is range or source.ndim == 1

    def item(self, source: Any, at: int) -> Any:
        """A number, or a row."""
        if type(source) is range:
            return super().item(source, at)
        row = F.dynamic_slice(source.expr, self.place, dims=(0,), sizes=(1,)).reshape(())
        return self.array_recorder.wrap(source.concrete[at], row)


def rows(array: TracedArray, frame: FrameType) -> Iterator[TracedArray]:
    """The rows of an array, one by one; `frame` is what asks for them."""
    if is_looped_over(frame.f_code, frame.f_lasti):
        return Steps(array.recorder, [array])
    if is_users(frame):
        array.recorder.loops.sizes.plain(array.memory.shape[0])
    return (array[i] for i in range(len(array)))


class _Attempt:
    """To know from its first steps what a loop does in all of them."""

    def __init__(
        self, recorder: Recorder, count: int, sources: Sequence[TracedArray | range]
    ) -> None:
        self._recorder, self._count, self._sources = recorder, count, sources
        self._frame: FrameType | None = None
        self._loop: LoopCode | None = None
        self._heads: list[_Head] = []
        self._called: set[Any] = set()
        self._items: Sequence[Any] = ()  # of the step before
        self._origins: list[Origin] = []
        self.done = self.over = False

    def given(self, items: Sequence[Any]) -> list[Any]:
        """What the loop is given for these items: for numbers, indices."""
        origin = Origin(self._recorder.loops)
        self._origins.append(origin)
        pairs = zip(items, self._sources, strict=True)
        self._items = [Index(x, s.step, origin) if type(s) is range else x for x, s in pairs]
        return self._items

    def end(self) -> None:
        """Nothing more is heard of what is called, and numbers of steps are numbers."""
        loops = self._recorder.loops
        loops.looked_at.append(self.done)
        called = loops.reads.called
        called[:] = [each for each in called if each is not self._called]
        for origin in self._origins:
            origin.done = True

    @unheard
    def head(self, frame: FrameType, step: int) -> bool:
        """A step is about to begin; whether all of them have been recorded instead."""
        recorder, self.over = self._recorder, True
        if step == 0:
            self._frame, self._loop = frame, loop_at(frame.f_code, frame.f_lasti)
            recorder.loops.reads.called.append(self._called)
        loop, block = self._loop, recorder.builder.block
        if loop is None or frame is not self._frame or block is not recorder.graph.block:
            return False
        if recorder.closed or not recorder.loops.reads.hears(frame.f_code):
            return False
        if recorder.told.performs is not None or recorder.loops.reads.performs is not None:
            return False
        if any(origin.escaped for origin in self._origins):
            return False
        try:
            standing = ArrayStanding.of(frame, loop, recorder)
        except Unknown:
            return False
        self._heads.append(_Head(recorder.builder.anchor._prev, standing, marks(recorder)))
        done = step >= 2 and are_known(self._called) and self._record(step - 2)
        self._called.clear()
        self.done, self.over = done, done or step >= _TRIES
        return done

    def _record(self, first: int) -> bool:
        """Record all steps from `first` on as a Loop, if the last two are alike."""
        recorder = self._recorder
        a, b, c = self._heads[first:]
        sa, sb, sc = a.standing, b.standing, c.standing
        if b.marks != c.marks or sb.key != sc.key or not sa.fits(sc):
            return False
        changed = [k for k, v in enumerate(sb.values) if v is not sc.values[k]]
        left = self._left(sb, sc)
        if left is None or any(sc.is_constant(k) for k in changed):
            return False
        if any(np.empty_like(x.memory).strides != x.memory.strides for x in sc.arrays):
            return False
        steps, at = self._count - first, len(sc.values)
        nodes = between(a.last, b.last, recorder.graph), between(b.last, c.last, recorder.graph)
        if len(nodes[0]) * steps < tuning.LOOP_NODES:
            return False
        states = (
            [*sa.values, *(before for before, _ in left)],
            [*sb.values, *(before for before, _ in left)],
            [*sc.values, *(array.expr.value for _, array in left)],
        )
        moves = {move for origin in self._origins for move in origin.moves}
        try:
            made = repeated(
                recorder.graph, *nodes, states, steps, {1, *moves},
                [*changed, *range(at, at + len(left))], recorder.loops.places,
            )  # fmt: skip
        except Unfit:
            return False
        arrays = [sc.arrays[k] for k in changed]
        fresh = [sb.arrays[k] is not array for k, array in zip(changed, arrays, strict=True)]
        arrays += [array for _, array in left]
        self._finish(arrays, [*fresh, *(True for _ in left)], made)
        return True

    def _left(
        self, before: ArrayStanding, now: ArrayStanding
    ) -> list[tuple[Value, TracedArray]] | None:
        """Arrays that no step reads of the one before, but what is after the loop may.

        With what each was a step before. None where such a variable is something else.
        """
        known = set(map(id, now.arrays))
        found: dict[int, tuple[Value, TracedArray]] = {}
        for name, value in now.left.items():
            was = before.left.get(name)
            given = any(value is item for item in self._items)
            if given or id(value) in known or is_same(was, value):
                continue
            if type(value) is not TracedArray or type(was) is not TracedArray:
                return None
            if value.link is not None or was.link is not None or value.kind != was.kind:
                return None
            found[id(value)] = was.expr.value, value
        return list(found.values())

    def _finish(
        self, arrays: Sequence[TracedArray], fresh: Sequence[bool], values: Sequence[Value]
    ) -> None:
        """Let arrays be what they are after the loop."""
        recorder = self._recorder
        for array, new, value in zip(arrays, fresh, values, strict=True):
            if new:  # nobody else has its memory
                array.memory = np.empty_like(array.memory)
            else:
                recorder.deferred.before_write(array.memory)
            array.assign(recorder.emitter.wrap(value))
        loops = recorder.loops

        def compute() -> list[Any]:
            assert loops.evaluate is not None
            loops.computed += 1
            return list(loops.evaluate(recorder, values))

        recorder.deferred.later([array.memory for array in arrays], compute)
        for item, source in zip(self._items, self._sources, strict=True):
            last: Any = source[self._count - 1]
            (item.finish if type(item) is Index else item.become)(last)


def marks(recorder: Recorder) -> tuple[Any, ...]:
    """What a step may do beside recording nodes."""
    told, reads = recorder.told, recorder.loops.reads
    counted = (
        recorder.free, told.values, told.files, told.opened, recorder.graph.inputs,
        recorder.layouts, recorder.generators, reads.effects, reads.variables, reads.switches,
        reads.environment,
    )  # fmt: skip
    return recorder.guards, recorder.baked, told.texts, reads.progress(), *map(len, counted)


def is_same(a: Any, b: Any) -> bool:
    """Whether a variable holds what it held a step before."""
    return a is b or (type(a) is type(b) and type(a) in _PLAIN and repr(a) == repr(b))
