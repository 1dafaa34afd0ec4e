"""Random numbers that a trace would bake in: the generators of Python and numpy, watched.

    watch = Generators(fn, arguments)
    fn(...)
    watch.check()              # TraceError if the run drew from one; the generator is as it was

Watched are numpy's and Python's global states, and generators among the arguments or that the
function reaches through closures, globals and attributes. torch's own are recorded instead.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradof.errors import TraceError
from gradof.tracer.origins import Origins
from gradof.tracer.source import function_loc

_KINDS = (np.random.Generator, np.random.RandomState, random.Random)


class Generators:
    """The states of all generators before the run."""

    def __init__(self, fn: Callable[..., Any], leaves: Sequence[Any]) -> None:
        self.fn = fn
        reachable = Origins(fn, lambda o: isinstance(o, _KINDS)).all()
        self.watched = [(g, str(origin)) for g, origin in reachable]
        self.watched += [(g, "an argument") for g in leaves if isinstance(g, _KINDS)]
        self.watched += [(np.random.mtrand._rand, "numpy's global state"),
                         (random._inst, "Python's global state")]  # fmt: skip
        self.states = [_state(g) for g, _ in self.watched]

    def check(self) -> None:
        """Raise TraceError if the run drew random numbers; every generator is set back."""
        drawn = []
        for (generator, name), before in zip(self.watched, self.states, strict=True):
            if not _same(_state(generator), before):
                _restore(generator, before)
                drawn.append(name)
        if drawn:
            raise TraceError(
                f"random numbers are drawn from {drawn[0]}: the trace would bake them in",
                loc=function_loc(self.fn), hint="draw them outside and pass them as an argument",
            )


def _state(generator: Any) -> Any:
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    if isinstance(generator, np.random.RandomState):
        return generator.get_state(legacy=False)
    return generator.getstate()


def _restore(generator: Any, state: Any) -> None:
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(state)
    else:
        generator.setstate(state)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return all(_same(a[k], b[k]) for k in a)
    return bool(np.array_equal(a, b)) if isinstance(a, np.ndarray) else bool(a == b)
