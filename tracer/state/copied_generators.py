"""Generators that a run makes of others: of copies, or of their states.

    other = copy.deepcopy(self.rng)     # draws what `self.rng` would: another at each call

What a generator draws that the run makes of a seed is the same at every call. That is not known
where `copies` is true, and generators are in reach that were there before the run.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import Any

import numpy as np

GENERATORS = (
    np.random.Generator, np.random.RandomState, np.random.BitGenerator, np.random.SeedSequence,
    random.Random,
)  # fmt: skip
_STATES = frozenset({"get_state", "getstate", "__getstate__"})


class CopiedGenerators:
    """What a run does with the states of generators; `all_states` if these are not followed."""

    def __init__(self, all_states: bool) -> None:
        self.copies = False
        self._all = all_states

    def calls(self, owner: Any, name: str) -> None:
        """A method in C is called."""
        if self._all and name in _STATES and isinstance(owner, GENERATORS):
            self.copies = True

    def runs(self, module: str, name: str, names: Collection[str]) -> None:
        """Python code runs for the first time, which mentions these names."""
        if module == "numpy.random._pickle" or (module == "random" and name == "__reduce__"):
            self.copies = True
        self.copies |= "jumped" in names
        if self._all:
            self.copies |= "bit_generator" in names or (module == "random" and name in _STATES)


def family_of(bits: np.random.BitGenerator) -> Any:
    """How many children the seed of a generator has, or None where it has no seed."""
    seed = getattr(bits, "seed_seq", None)
    return state_of_seed(seed) if isinstance(seed, np.random.SeedSequence) else None


def state_of_seed(seed: np.random.SeedSequence) -> Any:
    """All there is of a seed, which counts its children."""
    found: Any = seed.__reduce__()
    _, arguments, *state = found
    return state[0] if state and state[0] is not None else arguments[2]
