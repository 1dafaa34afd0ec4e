"""Tuples in Python's state, named or not, count by their class and by what is in them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

import gradof
from gradof import differentiate


class Empty(NamedTuple):
    """As optimisers have for no state."""


class Settings(NamedTuple):
    """What a function reads."""

    scale: float = 2.0
    weight: Any = None


class Louder(NamedTuple):
    """The same items, of another class."""

    scale: float = 2.0
    weight: Any = None

    @property
    def gain(self) -> float:
        """What its instances have beside their items."""
        return 10.0


def _weight(value: float) -> torch.Tensor:
    return torch.full((3,), value)


STATE: dict[str, Any] = {}


def _scaled(x: Any) -> Any:
    settings = STATE["settings"]
    found = (x * settings.scale * settings.weight).sum()
    return found * getattr(settings, "gain", 1.0)


def _in_a_list(x: Any) -> Any:
    return x.sum() * (2.0 if isinstance(STATE["list"][0], Empty) else 1.0)


@pytest.mark.parametrize("fn", [_scaled, _in_a_list])
def test_another_one_like_it_is_no_other_trace(fn: Any) -> None:
    compiled = differentiate(fn)
    STATE["list"] = [None]
    for n in range(6):
        STATE["settings"] = Settings(2.0, _weight(n))
        STATE["list"][0] = Empty()
        x = torch.ones(3, requires_grad=True)
        value = compiled(x)
        torch.testing.assert_close(value, fn(x))
        value.backward()
    assert compiled.cache_info().misses == 1


@pytest.mark.filterwarnings("ignore::gradof.errors.RetraceWarning")
def test_other_items_and_classes_are_seen() -> None:
    compiled = differentiate(_scaled)
    for settings in (
        Settings(2.0, _weight(1)), Settings(3.0, _weight(1)), Louder(3.0, _weight(1)),
        Louder(0.5, _weight(2)), Settings(3.0, _weight(4)), Louder(3.0, _weight(0)),
    ):  # fmt: skip
        STATE["settings"] = settings
        x = torch.ones(3, requires_grad=True)
        torch.testing.assert_close(compiled(x), _scaled(x))


@pytest.mark.filterwarnings("ignore::gradof.errors.RetraceWarning")
def test_a_tuple_of_as_many_items_is_another_trace() -> None:
    def by_class(x: Any) -> Any:
        found = STATE["settings"]
        return x.sum() * (2.0 if isinstance(found, Settings) else 1.0) * found[0]

    compiled = differentiate(by_class)
    for settings in (Settings(2.0), (2.0, None), Settings(2.0), (3.0, None), Louder(3.0)):
        STATE["settings"] = settings
        x = torch.ones(3, requires_grad=True)
        torch.testing.assert_close(compiled(x), by_class(x))


class Optimizer(NamedTuple):
    """As optimisers in the style of optax have."""

    steps: int
    rate: float
    mean: Any
    inner: Any = ()


def _step(x: Any) -> Any:
    old = STATE["optimizer"]
    mean = 0.9 * old.mean + x.detach() if isinstance(x, torch.Tensor) else 0.9 * old.mean + 1.0
    inner = old.inner[0]._replace(steps=old.inner[0].steps + 2), old.inner[1]
    STATE["optimizer"] = old._replace(
        steps=old.steps + 1, rate=old.rate * 0.9, mean=mean, inner=inner
    )
    return (x * x * mean * old.rate).sum() * inner[0].steps * inner[1]


@pytest.mark.parametrize("library", [torch, np])
def test_numbers_in_tuples_vary(library: Any) -> None:
    def calls(call: Any) -> list[Any]:
        zeros = library.zeros(3, dtype=library.float64)
        STATE["optimizer"] = Optimizer(0, 1.0, zeros, (Optimizer(5, 1.0, zeros), 2.5))
        found = list[Any]()
        for n in range(6):
            x = library.arange(3, dtype=library.float64) + n
            found += [float(call(x.requires_grad_() if library is torch else x))]
            now = STATE["optimizer"]
            found += [now.steps, now.rate, *now.mean.tolist(), now.inner[0].steps, type(now)]
        return found

    compiled: Any = differentiate(_step) if library is torch else gradof.value_and_grad(_step)
    want = calls(lambda x: _step(x).item())
    ours = calls(lambda x: compiled(x).item() if library is torch else compiled(x)[0])
    assert ours == pytest.approx(want)
    assert [type(each) for each in ours] == [type(each) for each in want]
    assert compiled.cache_info().misses <= 3


def test_a_tuple_that_is_only_read_stays_where_it_is() -> None:
    def outer() -> tuple[Any, Any, Any]:
        pair: Any = (1.0, _weight(1))

        def put(new: Any) -> None:
            nonlocal pair
            pair = new

        return lambda x: (x * pair[0] * pair[1]).sum(), put, lambda: pair

    fn, put, now = outer()
    compiled = differentiate(fn)
    for n in range(5):
        pair = (n + 0.5, _weight(n))
        put(pair)
        x = torch.ones(3, requires_grad=True)
        torch.testing.assert_close(compiled(x), fn(x))
        assert now() is pair and type(pair[0]) is float
    assert compiled.cache_info().misses == 2


@pytest.mark.filterwarnings("ignore::gradof.errors.RetraceWarning")
def test_a_number_in_a_tuple_whose_value_is_needed() -> None:
    def fn(x: Any) -> Any:
        found = x.sum()
        for _ in range(STATE["times"][0]):
            found = found + (x * STATE["times"][1]).sum()
        return found

    compiled = differentiate(fn)
    for n in (3, 1, 2, 0, 3):
        STATE["times"] = (n, _weight(2))
        x = torch.ones(3, requires_grad=True)
        torch.testing.assert_close(compiled(x), fn(x))
