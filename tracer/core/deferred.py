"""Calls of a trace that wait until something needs the elements of their results.

    deferred.add(Call(np.exp, (x,), {}, (made,)))    # made has its memory, and nothing in it yet
    deferred.fill(key)                               # runs the call, and first those it reads

A trace runs the function for its types, and what it computes is computed again by the compiled
code: of large arrays that would be most of a first call, and memory for every intermediate. So a
large result waits, with the call that makes it, until something needs its elements: a number that
Python reads, an op whose shape or errors depend on them, a constant, a change in place. Memory that
nothing writes to costs no pages.

Each library says which calls may wait, with which types, what stands for the memory of an array
(`key`; views share it), and how a call is run. Before memory changes, whatever waits for its
elements is computed (`fill_readers`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(eq=False)
class Call:
    """A call that waits, and its results; None for one that is a view."""

    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: dict[str, Any]
    results: Sequence[Any]

    def made(self) -> Iterator[Any]:
        """The results that have memory of their own."""
        return (result for result in self.results if result is not None)


class Waiting:
    """The calls of one trace that wait, by the memory of each result."""

    def __init__(self) -> None:
        self._waiting: dict[int, Call] = {}
        self._readers: dict[int, list[Call]] = {}  # by the memory of each operand

    # --- what a library says ----------------------------------------------------------------------

    def key(self, array: Any) -> int:
        """What stands for the memory of an array."""
        raise NotImplementedError

    def operands(self, call: Call) -> Iterable[Any]:
        """The arrays of the trace that a call reads."""
        raise NotImplementedError

    def run(self, call: Call) -> None:
        """Compute the results of a call, in the memory that is there for them."""
        raise NotImplementedError

    def before(self, call: Call) -> Iterable[int]:
        """The memory of what has to be computed before a call, beside what it reads."""
        return ()

    # --- what waits -------------------------------------------------------------------------------

    def waits(self, array: Any) -> bool:
        """Whether the elements of an array are not computed yet."""
        return bool(self._waiting) and self.key(array) in self._waiting

    def add(self, call: Call) -> None:
        """Let a call wait."""
        for result in call.made():
            self._waiting[self.key(result)] = call
        for key in {self.key(a) for a in self.operands(call)}:
            self._readers.setdefault(key, []).append(call)

    def fill(self, key: int) -> None:
        """Compute what is in a memory, and first what that is computed from."""
        stack = [key]
        while stack:
            call = self._waiting.get(stack[-1])
            if call is None:
                stack.pop()
                continue
            needs = [k for k in map(self.key, self.operands(call)) if k in self._waiting]
            needs += self.before(call)
            if needs:
                stack.extend(needs)
                continue
            for result in call.made():
                self._waiting.pop(self.key(result), None)
            self.run(call)
            call.args = call.results = ()  # readers of its operands remember it

    def fill_readers(self, key: int) -> None:
        """Compute what waits for the elements of a memory, which is about to change."""
        for call in self._readers.pop(key, ()):
            for result in call.made():
                if self._waiting.get(self.key(result)) is call:
                    self.fill(self.key(result))

    def forget(self) -> None:
        """Let go of every call that waits: the trace has ended."""
        self._waiting.clear()
        self._readers.clear()
