"""Named tuples in Python's state count by their class and what is in them, as tuples do."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch

from gradof import differentiate


class Empty(NamedTuple):
    """As optimisers have for no state."""


class Settings(NamedTuple):
    scale: float = 2.0
    weight: Any = None


class Louder(NamedTuple):
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
