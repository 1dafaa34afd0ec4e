"""State that is read by a name which no code mentions, or by torch's own code, is noticed."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from gradof import differentiate, grad


def _name() -> str:
    return chr(107)  # "k", of which the code has no constant


class _Part(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        vars(self)[_name()] = 2.0

    def forward(self, x: Any) -> Any:
        return x


class _Model(torch.nn.Module):
    def __init__(self, way: Callable[[Any], Any]) -> None:
        super().__init__()
        self.part, self.parts = _Part(), torch.nn.ModuleList([_Part()])
        self.held, self.get, self.way = {"a": _Part()}, getattr, way

    def found(self) -> Any:
        return self.get_submodule("part")

    def forward(self, x: Any) -> Any:
        return x * self.way(self)


WAYS: dict[str, Callable[[Any], Any]] = {
    "child": lambda m: getattr(m.part, _name()),
    "default": lambda m: getattr(m.part, _name(), 2.0),
    "item": lambda m: getattr(m.held["a"], _name()),
    "of a list": lambda m: getattr(m.parts[0], _name()),
    "found": lambda m: getattr(m.found(), _name()),
    "mapped": lambda m: next(map(getattr, [m.found()], [_name()])),
    "reduced": lambda m: functools.reduce(getattr, ("part", _name()), m),
    "attrgetter": lambda m: operator.attrgetter(_name())(m.part),
    "by path": lambda m: operator.attrgetter("part." + _name())(m),
    "method": lambda m: m.part.__getattribute__(_name()),
    "object's": lambda m: object.__getattribute__(m.found(), _name()),
    "namespace": lambda m: m.found().__dict__[_name()],
    "vars": lambda m: vars(m.found())[_name()],
    "static": lambda m: inspect.getattr_static(m.found(), _name()),
    "renamed": lambda m: m.get(m.found(), _name()),
}


@pytest.mark.parametrize("way", WAYS)
def test_an_attribute_by_a_computed_name_is_read_again(way: str) -> None:
    model = _Model(WAYS[way])
    compiled, x = differentiate(model), torch.randn(3)
    torch.testing.assert_close(compiled(x), x * 2)
    for k in (5.0, 7.0, 7.0):
        for part in (model.part, model.parts[0], model.held["a"]):
            setattr(part, _name(), k)
        torch.testing.assert_close(compiled(x), x * k)
    assert compiled.cache_info().eager_runs == 0


def test_one_that_is_not_there_may_come() -> None:
    class Model(_Model):
        def forward(self, x: Any) -> Any:
            return x * 3 if hasattr(self.found(), _name() * 2) else x

    model = Model(len)
    compiled, x = differentiate(model), torch.randn(3)
    torch.testing.assert_close(compiled(x), x)
    setattr(model.part, _name() * 2, None)
    torch.testing.assert_close(compiled(x), x * 3)
    delattr(model.part, _name() * 2)
    torch.testing.assert_close(compiled(x), x)


def test_one_that_is_set_by_a_computed_name_is_set_at_every_call() -> None:
    class Model(_Model):
        def forward(self, x: Any) -> Any:
            part = self.found()
            setattr(part, _name(), getattr(part, _name()) + 1)
            return x * getattr(part, _name())

    compiled, x = differentiate(Model(len)), torch.randn(3)
    for k in range(3, 7):
        torch.testing.assert_close(compiled(x), x * k)


def test_what_is_kept_under_a_computed_name_is_as_it_was_at_entry() -> None:
    class Model(_Model):
        def forward(self, x: Any) -> Any:
            kept = getattr(self.found(), _name())
            if "noise" not in kept:
                kept["noise"] = torch.randn(3)
            return x + kept["noise"]

    model = Model(len)
    setattr(model.part, _name(), {})
    compiled, x = differentiate(model), torch.zeros(3)
    first = compiled(x)
    assert first.abs().min() > 0
    for _ in range(3):
        torch.testing.assert_close(compiled(x), first)


def test_numpy_too() -> None:
    of = SimpleNamespace(part=SimpleNamespace())
    setattr(of.part, _name(), 2.0)
    gradient = grad(lambda x: np.sum(x) * getattr(of.part, _name()))
    assert gradient(np.ones(2)).tolist() == [2.0, 2.0]
    setattr(of.part, _name(), 5.0)
    assert gradient(np.ones(2)).tolist() == [5.0, 5.0]


def test_the_builtins_are_lent_for_a_run_alone() -> None:
    compiled, x = differentiate(_Model(WAYS["child"])), torch.randn(3)
    compiled(x)
    assert "getattr" not in globals() and "setattr" not in globals()


@pytest.mark.filterwarnings("ignore::gradof.errors.RetraceWarning")  # each is another function
def test_a_forward_of_an_instance_is_read_again() -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 3)

        def run(self, x: Any) -> Any:
            return self.layer(x)

    model, x = Model(), torch.randn(2, 3)
    vars(model)["for" + "ward"] = model.run
    compiled = differentiate(model)
    torch.testing.assert_close(compiled(x), model.layer(x))
    scale = torch.ones(3)
    for forward in (lambda x: x * 3, functools.partial(torch.add, scale), lambda x: x - 1):
        vars(model.layer)["for" + "ward"] = forward
        torch.testing.assert_close(compiled(x), forward(x))
        scale += 1
        torch.testing.assert_close(compiled(x), forward(x))
    del vars(model.layer)["for" + "ward"]
    torch.testing.assert_close(compiled(x), model.layer(x))


def test_what_a_forward_of_an_instance_keeps_is_read_again() -> None:
    def noisy(x: Any, kept: dict[str, Any]) -> Any:
        if "noise" not in kept:
            kept["noise"] = torch.randn(3)
        return x + kept["noise"]

    model = torch.nn.Sequential(torch.nn.Identity())
    vars(model[0])["for" + "ward"] = functools.partial(noisy, kept={})
    compiled, x = differentiate(model), torch.zeros(3)
    first = compiled(x)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), first)
