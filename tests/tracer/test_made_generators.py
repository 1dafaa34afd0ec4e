"""Generators that a function makes: of a seed its draws are the same; of others, they are not."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import gradof
from gradof.errors import EagerWarning, GradofError

Function = Callable[["State"], Any]


class State:
    """Generators of Python's state, which go on between two calls."""

    def __init__(self) -> None:
        self.rng, self.python = np.random.default_rng(9), random.Random(3)
        self.seeds, self.seed = np.random.SeedSequence(1), 5


def _noise(rng: Any) -> Any:
    if isinstance(rng, random.Random):
        return np.array([rng.random() for _ in range(4)])
    return rng.random(4)


def _of_own_state(s: State) -> Any:
    own = random.Random(0)
    own.setstate(s.python.getstate())
    return _noise(own)


SEEDED: dict[str, Function] = {
    "generator": lambda s: _noise(np.random.default_rng(s.seed)),
    "legacy": lambda s: _noise(np.random.RandomState(s.seed)),
    "Python's": lambda s: _noise(random.Random(4)),
    "bits": lambda s: _noise(np.random.Generator(np.random.PCG64(s.seed))),
    "child": lambda s: _noise(np.random.default_rng(s.seed).spawn(1)[0]),
    "of a sequence": lambda s: _noise(np.random.default_rng(s.seeds)),
    "words": lambda s: _noise(np.random.default_rng(s.seeds.generate_state(1)[0])),
}
OTHERS: dict[str, Function] = {
    "child of the state's": lambda s: _noise(s.rng.spawn(1)[0]),
    "child of its seed": lambda s: _noise(np.random.default_rng(
        s.rng.bit_generator.seed_seq.spawn(1)[0])),  # type: ignore[attr-defined]
    "child of a sequence": lambda s: np.random.default_rng(s.seeds.spawn(1)[0]).random(4),
    "copy": lambda s: _noise(copy.deepcopy(s.rng)),
    "direct": lambda s: copy.deepcopy(s.rng).random(4),
    "Python's copy": lambda s: _noise(copy.copy(s.python)),
    "pickled": lambda s: _noise(pickle.loads(pickle.dumps(s.rng))),
    "jumped": lambda s: _noise(np.random.Generator(s.rng.bit_generator.jumped())),  # type: ignore[attr-defined]
    "state": _of_own_state,
}  # fmt: skip


def _runs(fn: Function, torchs: bool, compiled: bool) -> tuple[list[Any], Any]:
    state = State()

    def of_tensors(x: Any) -> Any:
        return x * torch.from_numpy(fn(state))

    call: Any = of_tensors if torchs else lambda x: x * fn(state)
    call = gradof.differentiate(call) if compiled else call
    found = []
    for i in range(4):
        if i == 2:
            state.rng.random()
            state.python.random()
        found.append(np.asarray(call(torch.ones(4).double() if torchs else np.ones(4))))
    return found, call


@pytest.mark.parametrize("torchs", [True, False])
@pytest.mark.parametrize("name", SEEDED)
def test_one_of_a_seed_draws_the_same_at_every_call(name: str, torchs: bool) -> None:
    have, compiled = _runs(SEEDED[name], torchs, compiled=True)
    np.testing.assert_array_equal(have, _runs(SEEDED[name], torchs, compiled=False)[0])
    assert compiled.cache_info().misses == 1 and compiled.cache_info().eager_runs == 0


@pytest.mark.parametrize("name", OTHERS)
def test_one_of_another_draws_what_that_one_would(name: str) -> None:
    want, _ = _runs(OTHERS[name], torchs=True, compiled=False)
    with pytest.warns(EagerWarning, match="random numbers are drawn"):
        have, compiled = _runs(OTHERS[name], torchs=True, compiled=True)
    np.testing.assert_array_equal(have, want)
    assert compiled.cache_info().eager_runs == 4


@pytest.mark.parametrize("name", OTHERS)
def test_in_numpy_functions_it_is_an_error(name: str) -> None:
    with pytest.raises(GradofError, match="random"):
        _runs(OTHERS[name], torchs=False, compiled=True)
