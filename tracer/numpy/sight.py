"""What a run is about to see of Python's objects: plain arrays, and references to numpy.

    sight = Sight(reads)
    with sight.replacing(names):        # numpy's functions that are reached have stand-ins
        sight.roots([fn], arguments)    # what is there before the run
        fn(...)
    id(W) in sight.arrays               # an array that was there: it can be read again
    sight.check(fn)                     # TraceError if plain numpy has changed one

Objects are looked at when code that can reach them is about to run (`Held.see`), not by a search of
all that the function refers to: a function that mentions pandas refers to half a million objects,
and its run sees a few hundred. Which path leads to an array is asked after the run, of the code
that ran (`paths`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import CodeType
from typing import Any

import numpy as np

from gradof.errors import TraceError
from gradof.ir.contents import checksum
from gradof.tracer.core.given import GivenContainers
from gradof.tracer.core.number import TracedNumber
from gradof.tracer.core.number_trees import settle
from gradof.tracer.core.stores import is_bookkeeping
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.names import Names, Replacing
from gradof.tracer.state.changes import Change, write
from gradof.tracer.state.code_facts import Facts, facts_of
from gradof.tracer.state.iterators import position
from gradof.tracer.state.leads import leads_to
from gradof.tracer.state.origins import ATOMS, Origin, Origins
from gradof.tracer.state.reach import Reach
from gradof.tracer.state.reads import Reads
from gradof.tracer.state.source import function_loc

_COPIED = 1 << 20  # bytes of an array that is put back if a trace fails for its change


class Sight:
    """See the module docstring. It serves the runs of one function that one trace needs."""

    def __init__(self, reads: Reads) -> None:
        self.arrays: dict[int, tuple[Any, int]] = {}  # old ones, with what their elements were
        self._copies: dict[int, Any] = {}
        self._reach: Reach | None = None  # of this run, once it has been asked for
        self._found: dict[int, tuple[Any, Origin]] = {}
        self._given: list[Any] = []  # objects among the arguments
        self.changed: list[Any] = []  # arrays that plain numpy has changed, and that are put back
        self._own: list[Any] = []  # kept, so that no other array has its id
        self._held = reads.held
        self.reads = reads
        self._replacing: Replacing | None = None
        self._held.sight = self._at

    @contextmanager
    def replacing(self, names: Names) -> Iterator[None]:
        """While active, what is seen refers to the replacements of these names."""
        if self._replacing is None:
            self._replacing = Replacing(names, self._held)
        with self._replacing:
            yield

    def roots(self, functions: Iterable[Any], given: Any, objects: Iterable[Any]) -> None:
        """Look at the functions that will be called, and at what they are given.

        `objects` are those of the arguments that are no arrays.
        """
        self._reach = None
        self.containers = GivenContainers(given)
        for fn in functions:
            if self._replacing is not None:
                self._replacing.at(fn, root=True)
            facts = _facts_of(fn)
            self._held.see(fn, facts, old=True)
            self._held.see(given, facts, given=True, old=True)
        self._given = [*objects]

    def _at(self, obj: Any, old: bool) -> bool:
        if not issubclass(type(obj), np.ndarray):
            return self._replacing is None or self._replacing.at(obj)
        if old and id(obj) not in self.arrays:
            self.arrays[id(obj)] = obj, checksum(obj)
            if obj.nbytes <= _COPIED:
                self._copies[id(obj)] = obj.copy()
        return True

    # --- afterwards -----------------------------------------------------------------------------

    def check(self, fn: Callable[..., Any]) -> None:
        """Raise TraceError if the run changed a plain array, or took from an iterator, of before.

        Arrays of up to a megabyte are then as they were; what was taken is gone.
        """
        for iterator, before in self._held.iterators.values():
            if position(iterator) != before:
                raise TraceError(
                    f"the function takes from a {type(iterator).__name__} that was there before "
                    "the call; compiled code would have the same item at every call",
                    loc=function_loc(fn), hint="take it outside, and pass it as an argument",
                )
        changed = self.put_back()
        if not changed:
            self._check_frames(fn)
            return
        found = Origins(fn, lambda o: issubclass(type(o), np.ndarray)).paths(changed[:1])
        origin = found[id(changed[0])][1] if found else "an array"
        raise TraceError(
            f"{origin} is changed in place by plain numpy, which a trace cannot repeat",
            loc=function_loc(fn), hint="pass it as an argument",
        )

    def put_back(self) -> list[Any]:
        """Make plain arrays as they were; those that the run has changed."""
        changed = [a for a, before in self.arrays.values() if checksum(a) != before]
        if self.are_copied(changed):
            self.changed = changed or self.changed  # as inputs of the next try they are seen
        for array in changed:
            if id(array) in self._copies:
                array[...] = self._copies[id(array)]
        return changed

    def are_copied(self, arrays: Iterable[Any]) -> bool:
        """Whether all of them are small enough to be put back."""
        return all(id(array) in self._copies for array in arrays)

    def _check_frames(self, fn: Callable[..., Any]) -> None:
        for frame in self._held.frames.changed()[:1]:
            raise TraceError(
                f"a {type(frame).__name__} that was there before the call is changed in place, "
                "which a trace cannot repeat", loc=function_loc(fn), hint="change a copy of it",
            )  # fmt: skip

    def written(
        self, fn: Callable[..., Any], given: Iterable[Any], lent: Iterable[TracedArray] = ()
    ) -> list[Change]:
        """What the run has written to what was there before it; `given` are its arguments' leaves,
        whose containers are not among these.

        `lent` stand in places of Python's state as the run begins, for what is there.

        Raises TraceError if the trace's own arrays were left elsewhere, where they outlive it.
        Traced numbers that were are plain again, and pinned.
        """
        changes = [
            c for c in self._held.changes()
            if not is_bookkeeping(c) and not self.containers.owns(c.container)
        ]  # fmt: skip
        if not changes:
            return []
        there = self._reached(fn, given).reached
        found = [c for c in changes if id(c.container) in there]
        others = [c for c in changes if id(c.container) not in there]
        left = self._leaves(others)
        if left:
            for change in found:
                change.undo()
            try:
                self._refuse(fn, left, others, {id(array) for array in lent})
            finally:
                for change in found:
                    write(change, change.after)
        return found

    def _refuse(
        self, fn: Callable[..., Any], left: set[type], changes: Sequence[Change], lent: set[int]
    ) -> None:
        if TracedNumber in left:
            settle(fn)
        if TracedArray not in left:
            return
        found = Origins(fn, lambda o: type(o) is TracedArray).all()
        found = [(array, origin) for array, origin in found if id(array) not in lent]
        if not found and TracedArray not in self._leaves(changes, surely=True):
            return
        where = found[0][1] if found else "Python's state"
        raise TraceError(
            f"a traced array was left in {where}, where it outlives the call",
            loc=function_loc(fn), hint="return it instead",
        )

    def _leaves(self, changes: Iterable[Change], surely: bool = False) -> set[type]:
        """Which of the trace's own were written to what was, or may have been, there before."""
        old = self._held.met
        written = (c for c in changes if old.get(id(c.container), not surely))
        return set().union(*(leads_to(c.after, (TracedNumber, TracedArray), old) for c in written))

    def _reached(self, fn: Callable[..., Any], given: Iterable[Any] = ()) -> Reach:
        """What code that ran could reach; `find` has been asked of it."""
        if self._reach is None:
            self._reach = Reach(self.reads)
            self._found = self._reach.find(fn, _is_data, self._given)
            for leaf in given:
                if not isinstance(leaf, (*ATOMS, np.ndarray, np.generic)):
                    self._reach.find(leaf, _is_data)
        return self._reach

    def was_there(self, obj: Any) -> bool:
        """Whether an object was there before the run, where code that ran could reach it."""
        if self._held.met.get(id(obj), False):
            return True
        return self._reach is not None and id(obj) in self._reach.reached

    def paths(
        self, fn: Callable[..., Any], wanted: Iterable[Any]
    ) -> dict[int, tuple[Any, Origin]]:
        """By id, the arrays that code which ran could read, with their paths.

        An array that is `wanted` and that nothing leads to is not there before another run.
        """
        self._reached(fn)
        found = self._found
        missing = [array for array in wanted if id(array) not in found]
        if missing:  # in closures of code that is not heard, our own say
            found |= Origins(fn, lambda o: issubclass(type(o), np.ndarray)).paths(missing)
        self._own += [self.arrays.pop(id(a)) for a in missing if id(a) not in found]
        return found

    def checksum(self, array: Any) -> int:
        """What the elements of an array were before the run."""
        known = self.arrays.get(id(array))
        return checksum(array) if known is None else known[1]


def _is_data(obj: Any) -> bool:
    """Whether it is an array of anything but objects, which is a container."""
    return issubclass(type(obj), np.ndarray) and obj.dtype != np.object_


@functools.lru_cache(maxsize=1)
def _nothing() -> Facts:
    return facts_of(compile("", "<nothing>", "exec"))


def _facts_of(fn: Any) -> Facts:
    """The facts of the code that a call of `fn` runs first."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    fn = getattr(fn, "__func__", fn)
    call = fn if hasattr(fn, "__code__") else vars(type(fn)).get("__call__")
    code = getattr(call, "__code__", None)
    return facts_of(code) if isinstance(code, CodeType) else _nothing()
