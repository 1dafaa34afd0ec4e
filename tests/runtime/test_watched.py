"""What of the objects that a function reads is looked at in each call, and what is noticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
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
    watched = {shown for *_, shown in (*state.items, *state.cells, *state.others)}
    assert {"settings.power", "settings.of"} <= watched, "the scale varies: it is an input"
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
    del config["name"]  # which nothing reads
    close(fn(x), 2 * x.sum())
    assert fn.cache_info().misses == 3


def test_descriptors_are_not_run_by_the_check() -> None:
    runs: list[int] = []

    class Noted:
        def __get__(self, obj: object, owner: type | None = None) -> float:
            runs.append(1)
            return 2.0

    class Holder:
        number = Noted()
        double = staticmethod(lambda x: x * 2)

    holder, x = Holder(), leaf(3)
    fn = differentiate(lambda x: (holder.double(x) * holder.number).sum())
    close(fn(x), 4 * x.sum())
    for _ in range(3):
        close(fn(x), 4 * x.sum())
    assert len(runs) == 4 and fn.cache_info().misses == 1
    Holder.double = staticmethod(lambda x: x * 3)
    close(fn(x), 6 * x.sum())


FACTOR = 2.0
WEIGHTS = leaf(3)


class Reader:
    """What its properties, static and class methods read is not in any attribute."""

    @property
    def factor(self) -> float:
        return FACTOR

    @property
    def weights(self) -> Tensor:
        return WEIGHTS

    @staticmethod
    def scaled(x: Tensor) -> Tensor:
        return x * FACTOR

    @classmethod
    def weighted(cls, x: Tensor) -> Tensor:
        return x * WEIGHTS


READER = Reader()
READS: dict[str, Callable[[Tensor], Tensor]] = {
    "property": lambda x: x * READER.factor,
    "tensor of a property": lambda x: x * READER.weights,
    "static method": lambda x: READER.scaled(x),
    "static method of the class": lambda x: Reader.scaled(x),
    "class method": lambda x: READER.weighted(x),
    "class method of the class": lambda x: Reader.weighted(x),
}


@pytest.mark.parametrize("name", READS)
def test_what_properties_and_static_methods_read(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, x = READS[name], leaf(3)
    fn = differentiate(lambda x: read(x).sum())
    for factor, weights in ((2.0, leaf(3)), (5.0, leaf(3, seed=8)), (5.0, leaf(3, seed=9))):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        monkeypatch.setitem(globals(), "WEIGHTS", weights)
        for _ in range(2):
            value, want = fn(x), read(x).sum()
            close(value, want)
            have = torch.autograd.grad(value, (x, weights), allow_unused=True)
            for h, w in zip(have, torch.autograd.grad(want, (x, weights), allow_unused=True),
                            strict=True):  # fmt: skip
                close(h, w)
    reads_factor = "factor" in name or "static" in name or name == "property"
    assert fn.cache_info().misses == 1 + reads_factor, "another factor is another trace once"


def test_replaced_properties_and_static_methods_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = leaf(3)
    fn = differentiate(lambda x: (READER.scaled(x) * READER.factor + READER.weighted(x)).sum())
    changes = {
        "factor": property(lambda self: 3.0), "scaled": staticmethod(lambda x: x * 7),
        "weighted": classmethod(lambda cls, x: x.exp()),
    }  # fmt: skip
    close(fn(x), (x * FACTOR * FACTOR + x * WEIGHTS).sum())
    for k, (name, value) in enumerate(changes.items()):
        monkeypatch.setattr(Reader, name, value)
        close(fn(x), (READER.scaled(x) * READER.factor + READER.weighted(x)).sum())
        assert fn.cache_info().misses == k + 2
