"""Random numbers that a trace would bake in: the generators of Python and numpy, watched.

    watch = Generators(fn, arguments, reads)
    fn(...)
    watch.check()              # TraceError if the run drew from one; the generator is as it was

In numpy, draws are recorded (`numpy/draws`), and the run makes them from copies.

Watched are numpy's and Python's global states, and generators among the arguments or that the
function reaches (`gradof.tracer.state.reads`). torch's own are recorded instead.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from gradof.errors import TraceError
from gradof.tracer.state.kinds import watch_type
from gradof.tracer.state.reads import Reads
from gradof.tracer.state.source import function_loc

GLOBAL: tuple[Any, ...] = (np.random.mtrand._rand, random._inst)
_KINDS = (
    np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random,
)  # fmt: skip
_BITS = (
    np.random.MT19937, np.random.PCG64, np.random.PCG64DXSM, np.random.Philox, np.random.SFC64,
)  # fmt: skip


class Clock:
    """A clock, which gives another number at every call, as a generator does; it has no state."""

    def __init__(self, read: Callable[[], Any]) -> None:
        self.read = read

    def __deepcopy__(self, memo: Any) -> Clock:
        return self


class Generators:
    """The states of all generators before the run."""

    def __init__(self, fn: Callable[..., Any], leaves: Sequence[Any], reads: Reads) -> None:
        self.fn = fn
        self.reads = reads
        watched = [(g, "an argument") for g in leaves if isinstance(g, _KINDS)]
        watched += [(np.random.mtrand._rand, "numpy's global state"),
                    (random._inst, "Python's global state")]  # fmt: skip
        self.watched = [(g, name, state_of(g)) for g, name in watched]

    def put_back(self) -> list[str]:
        """Set every generator back; the names of those that were drawn from."""
        drawn = []
        met = [(g, f"a {type(g).__name__}", s) for g, s in self.reads.held.watched.values()]
        for generator, name, before in (*self.watched, *met):
            if not _same(state_of(generator), before):
                set_state(generator, before)
                drawn.append(name)
        return drawn

    def check(self, told: Callable[[], None]) -> None:
        """Raise TraceError if the run drew random numbers; every generator is set back.

        `told` is called before.
        """
        drawn = self.put_back()
        if drawn:
            told()
            raise TraceError(
                f"random numbers are drawn from {drawn[0]}: the trace would bake them in",
                loc=function_loc(self.fn), hint="draw them outside and pass them as an argument",
            )


def state_of(generator: Any) -> Any:
    """A generator's state."""
    if isinstance(generator, Clock):
        return None
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    if isinstance(generator, np.random.BitGenerator):
        return generator.state
    if isinstance(generator, np.random.RandomState):
        return generator.get_state(legacy=False)
    if isinstance(generator, random.Random):
        return generator.getstate()
    return generator.get_state()  # torch's


def set_state(generator: Any, state: Any) -> None:
    """Set a generator back to a state."""
    if isinstance(generator, Clock):
        return
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    elif isinstance(generator, np.random.BitGenerator):
        generator.state = state
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(state)
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        generator.set_state(state)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return all(_same(a[k], b[k]) for k in a)
    return bool(np.array_equal(a, b)) if isinstance(a, np.ndarray) else bool(a == b)


class Rewound:
    """What generators are at now, so that a second run of a graph draws what the first one will."""

    def __init__(self, generators: Iterable[Any]) -> None:
        self.states = [(g, state_of(g)) for g in generators]

    @contextmanager
    def again(self) -> Iterator[None]:
        """Within it, the generators are back there; after it, where they were before it."""
        now = [(g, state_of(g)) for g, _ in self.states]
        try:
            for generator, state in self.states:
                set_state(generator, state)
            yield
        finally:
            for generator, state in now:
                set_state(generator, state)


for _kind in (*_KINDS, *_BITS):
    watch_type(_kind, state_of)
