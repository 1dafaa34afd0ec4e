"""States of generators that a numpy function takes and puts back: as in plain numpy, each call."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gradof import differentiate, value_and_grad
from gradof.errors import UnsupportedOpError

Array = NDArray[Any]
OLD = np.random.RandomState(0)
NEW = np.random.default_rng(0)
PYTHON = random.Random(0)
SAVED = np.random.RandomState(5).get_state()


def _global(x: Array) -> Any:
    state = np.random.get_state()
    y = x * np.random.rand()
    np.random.set_state(state)
    return y.sum()


def _of_python(x: Array) -> Any:
    state = random.getstate()
    random.seed(1)
    y = x.sum() * random.random()
    random.setstate(state)
    return y + random.random()


def _own_python(x: Array) -> Any:
    state = PYTHON.getstate()
    a = PYTHON.uniform(0, 1)
    PYTHON.setstate(state)
    return x.sum() * a + PYTHON.uniform(0, 1)


def _seeded_between(x: Array) -> Any:
    state = np.random.get_state()
    np.random.seed(1)
    y = x * np.random.rand()
    np.random.set_state(state)
    return y.sum() + np.random.rand()


def _own(x: Array) -> Any:
    state = OLD.get_state()
    y = x * OLD.rand()
    OLD.set_state(state)
    return (y * OLD.rand()).sum()


def _bits(x: Array) -> Any:
    state = NEW.bit_generator.state
    y = x * NEW.random()
    NEW.bit_generator.state = state
    return (y * NEW.standard_normal()).sum()


def _finally(x: Array) -> Any:
    state = np.random.get_state()
    try:
        return (x * np.random.rand()).sum()
    finally:
        np.random.set_state(state)


def _saved(x: Array) -> Any:
    np.random.set_state(SAVED)
    return (x * np.random.rand()).sum()


def _twice(x: Array) -> Any:
    state, total = OLD.get_state(), 0.0
    for _ in range(12):
        total = total + (x * OLD.rand(2)).sum()
        OLD.set_state(state)
    return total + OLD.rand()


FUNCTIONS: tuple[Callable[[Array], Any], ...] = (
    _global, _of_python, _own_python, _seeded_between, _own, _bits, _finally, _saved, _twice,
)  # fmt: skip


def _seed() -> None:
    np.random.seed(0)
    random.seed(0)
    PYTHON.seed(0)
    OLD.seed(0)
    NEW.bit_generator.state = np.random.default_rng(0).bit_generator.state


def _after() -> tuple[float, ...]:
    return (np.random.rand(), random.random(), PYTHON.random(), OLD.rand(), NEW.random())


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_states_are_taken_and_put_back_by_each_call(fn: Callable[[Array], Any]) -> None:
    x = np.array([1.0, 2.0])
    _seed()
    want, end = [fn(x * k) for k in range(1, 5)], _after()
    _seed()
    compiled = differentiate(fn)
    assert [float(compiled(x * k)) for k in range(1, 5)] == pytest.approx(want, rel=1e-14)
    assert _after() == end
    assert compiled.cache_info().misses == 1


def test_a_state_that_is_an_argument_is_put() -> None:
    def f(x: Array, state: Any) -> Any:
        np.random.set_state(state)
        return (x * np.random.rand()).sum()

    compiled, x = differentiate(f), np.array([1.0, 2.0])
    for seed in (3, 4, 3):
        state = np.random.RandomState(seed).get_state()
        assert compiled(x, state) == f(x, state)


def test_with_the_gradient_they_are_taken_once() -> None:
    x = np.array([1.0, 2.0])
    _seed()
    want, end = _own(x), _after()
    _seed()
    value, slope = value_and_grad(_own)(x)
    assert value == pytest.approx(want) and slope == pytest.approx([want / 3.0] * 2)
    assert _after() == end


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.sum() * np.random.get_state()[2],  # type: ignore[index]
        lambda x: (x.sum(), np.random.get_state()),
        lambda x: x.sum() * len(random.getstate()),
        lambda x: x.sum() * len(NEW.bit_generator.state.keys()),
        lambda x: x.sum() * NEW.bit_generator.state["state"]["inc"],
    ],
)
def test_what_looks_into_a_state_is_an_error(fn: Callable[[Array], Any]) -> None:
    with pytest.raises(UnsupportedOpError, match="state of a random generator"):
        differentiate(fn)(np.ones(2))


def test_a_state_that_is_kept_is_that_of_each_call() -> None:
    kept: list[Any] = []

    def f(x: Array) -> Any:
        kept.append(OLD.get_state())
        return (x * OLD.rand()).sum()

    compiled = differentiate(f)
    for k in range(3):
        before: Any = OLD.get_state()
        compiled(np.ones(2))
        assert len(kept) == k + 1 and np.array_equal(kept[-1][1], before[1])
