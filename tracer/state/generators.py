"""Random numbers that a trace would bake in: the generators of Python and numpy, watched.

    watch = Generators(fn, arguments, reads)
    fn(...)
    watch.check()              # TraceError if the run drew from one; the generator is as it was

In numpy, draws are recorded (`numpy/draws`), and the run makes them from copies.

Watched are numpy's and Python's global states, and generators among the arguments or that the
function reaches (`gradof.tracer.state.reads`). torch's own are recorded instead; what one draws
that the function makes of a seed is the same at every call.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from gradof.errors import TraceError
from gradof.tracer.state.copied_generators import GENERATORS, family_of, state_of_seed
from gradof.tracer.state.kinds import watch_type
from gradof.tracer.state.reach import Reach
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
        self.fn, self.leaves = fn, leaves
        self.reads = reads
        watched = [(g, "an argument") for g in leaves if isinstance(g, _KINDS)]
        watched += [(np.random.mtrand._rand, "numpy's global state"),
                    (random._inst, "Python's global state")]  # fmt: skip
        self.watched = [(g, name, state_of(g)) for g, name in watched]

    def put_back(self) -> list[tuple[Any, str]]:
        """Set every generator back; those that were drawn from, and what they are."""
        drawn = []
        met = [(g, f"a {type(g).__name__}", s) for g, s in self.reads.held.watched.values()]
        for generator, name, before in (*self.watched, *met):
            if not _same(state_of(generator), before):
                set_state(generator, before)
                drawn.append((generator, name))
        return drawn

    def _was_there(self, generators: Iterable[Any]) -> list[bool]:
        """Whether they were there before the run; one that it makes of a seed draws the same."""
        there = {id(generator) for generator, *_ in self.watched}
        if any(id(generator) not in there for generator in generators):
            there.update(map(id, self._reached()))
        return [id(generator) in there for generator in generators]

    def _reached(self) -> list[Any]:
        found = Reach(self.reads).find(self.fn, lambda o: isinstance(o, GENERATORS), self.leaves)
        return [generator for generator, _ in found.values()]

    def check(self, told: Callable[[], None]) -> None:
        """Raise TraceError if the run drew from generators that were there; all are set back.

        `told` is called before.
        """
        drawn = self.put_back()
        old = self._was_there([generator for generator, _ in drawn])
        names = [name for (_, name), was_there in zip(drawn, old, strict=True) if was_there]
        if self.reads.copied.copies:
            names += [f"one that is made of a {type(g).__name__}" for g in self._reached()]
        if names:
            told()
            raise TraceError(
                f"random numbers are drawn from {names[0]}: the trace would bake them in",
                loc=function_loc(self.fn), hint="draw them outside and pass them as an argument",
            )


def state_of(generator: Any) -> Any:
    """A generator's state."""
    if isinstance(generator, Clock):
        return None
    if isinstance(generator, np.random.SeedSequence):
        return state_of_seed(generator)
    if isinstance(generator, np.random.Generator):
        generator = generator.bit_generator
    if isinstance(generator, np.random.BitGenerator):
        return generator.state, family_of(generator)
    if isinstance(generator, np.random.RandomState):
        return generator.get_state(legacy=False)
    if isinstance(generator, random.Random):
        return generator.getstate()
    return generator.get_state()  # torch's


def set_state(generator: Any, state: Any) -> None:
    """Set a generator back to a state."""
    if isinstance(generator, Clock):
        return
    if isinstance(generator, np.random.SeedSequence):
        generator.__setstate__(state)  # type: ignore[attr-defined]
        return
    if isinstance(generator, np.random.Generator):
        generator = generator.bit_generator
    if isinstance(generator, np.random.BitGenerator):
        generator.state, family = state
        if family is not None:
            set_state(generator.seed_seq, family)
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(state)
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        generator.set_state(state)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return all(_same(a[k], b[k]) for k in a)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(_same, a, b))
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


for _kind in (*_KINDS, *_BITS, np.random.SeedSequence):
    watch_type(_kind, state_of)
