"""What of the objects that a function reads is looked at in each call, and what is noticed."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from torch import Tensor

from gradof import differentiate
from tests.runtime.compare import close
from tests.runtime.test_torch_values import leaf


@dataclass
class Power:
    scale: float
    power: int = 2

    def of(self, x: Tensor) -> Tensor:
        return x**self.power * self.scale


def test_a_dataclass_is_watched_where_it_matters() -> None:
    settings, x = Power(2.0), leaf(3)
    fn = differentiate(lambda x: settings.of(x).sum())
    for scale, power in ((2.0, 2), (5.0, 2), (5.0, 3), (5.0, 3)):
        settings.scale, settings.power = scale, power
        for _ in range(2):
            close(fn(x), scale * (x**power).sum())
    assert fn.cache_info().misses == 3
    state = fn.cache.fast[0].entry.state
    watched = {shown for *_, shown in (*state.by_identity, *state.by_value)}
    assert {"settings.scale", "settings.power", "settings.of"} <= watched
    assert not any("__dataclass" in shown or "__module__" in shown for shown in watched)


def test_another_class_or_method_of_an_instance_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Double:
        def apply(self, x: Tensor) -> Tensor:
            return x * 2

    class Triple:
        def apply(self, x: Tensor) -> Tensor:
            return x * 3

    class Last(Double):
        pass

    thing, last, x = Double(), Last(), leaf(3)
    fn = differentiate(lambda x: (thing.apply(x) + last.apply(x)).sum())
    close(fn(x), 4 * x.sum())
    thing.__class__ = Triple  # type: ignore[assignment]
    close(fn(x), 5 * x.sum())
    monkeypatch.setattr(Last, "apply", lambda self, x: x, raising=False)  # before its base's
    close(fn(x), 4 * x.sum())
    thing.apply = lambda x: x * 7  # type: ignore[method-assign]
    close(fn(x), 8 * x.sum())
    del thing.apply
    close(fn(x), 4 * x.sum())
    assert fn.cache_info().misses <= 5


def test_values_that_are_equal_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"name": "mean of " + str(3), "scale": float("1.5"), "flag": True}
    x = leaf(3)
    fn = differentiate(lambda x: (x * config["scale"]).sum() if config["flag"] else x.prod())
    close(fn(x), 1.5 * x.sum())
    config.update(name="mean of " + str(1 + 2), scale=float("1.50"))
    close(fn(x), 1.5 * x.sum())
    assert fn.cache_info().misses == 1
    config["scale"] = 2
    close(fn(x), 2 * x.sum())
    config["flag"] = 1  # equal to True, and no bool
    close(fn(x), 2 * x.sum())
    assert fn.cache_info().misses == 3
    del config["name"]
    close(fn(x), 2 * x.sum())
    assert fn.cache_info().misses == 4
