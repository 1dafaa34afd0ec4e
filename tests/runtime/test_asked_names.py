"""Objects whose class looks attributes up in Python count by what was asked of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from gradof.tracer.state.lookup_code import known_to, says_itself
from tests.runtime.compare import held_to_eager


class Config:
    """As those of transformers: some names stand for others."""

    attribute_map: ClassVar[dict[str, str]] = {"width": "n_embd"}

    def __init__(self) -> None:
        self.n_embd = 2.0
        self.dtype: Any = None
        self.names: Any = None
        self.scale = 3.0

    def __getattribute__(self, name: str) -> Any:
        table = super().__getattribute__("__dict__").get("_per_layer")
        if table is not None and name in table.names:
            raise AttributeError(f"{name} is of a layer")
        if name != "attribute_map" and name in super().__getattribute__("attribute_map"):
            name = super().__getattribute__("attribute_map")[name]
        return super().__getattribute__(name)


class Wider(Config):
    """One whose lookups may lead anywhere."""

    def __getattribute__(self, name: str) -> Any:
        return super().__getattribute__(name.removeprefix("the_"))


def _of(config: Any, read: Callable[[Any, Tensor], Tensor]) -> tuple[Any, Callable[[], Any]]:
    def loss(x: Tensor) -> Tensor:
        return read(config, x).sum() * (1 if x.dtype is torch.float32 else 2)

    return held_to_eager(loss)


def test_what_was_not_asked_for_may_change() -> None:
    config = Config()
    compiled, call = _of(config, lambda config, x: x * config.width)
    for n in range(6):
        call()
        config.dtype, config.names = torch.float32, ["a"] * n  # names that code reads elsewhere
        config.scale += 1
    assert compiled.cache_info().misses == 1


@pytest.mark.parametrize("read", [
    lambda config, x: x * config.width,
    lambda config, x: x * config.n_embd,
    lambda config, x: x * getattr(config, "n_" + "embd"),
    lambda config, x: x * sum(getattr(config, name) for name in ("width", "scale")),
    lambda config, x: x * vars(config)["n_embd"],
    lambda config, x: x * config.__dict__["n_embd"],
    lambda config, x: x * object.__getattribute__(config, "n_embd"),
])  # fmt: skip
def test_what_was_asked_for_is_read_again(read: Callable[[Any, Tensor], Tensor]) -> None:
    config = Config()
    _, call = _of(config, read)
    first = call()
    config.n_embd = 5.0
    second = call()
    config.n_embd = 7.0
    assert first < second < call()


def test_what_it_does_not_have_may_come() -> None:
    config: Any = Config()
    _, call = _of(config, lambda config, x: x * (config.more if hasattr(config, "more") else 1))
    assert call() == 3.0
    config.more = 2.0
    assert call() == 6.0
    del config.more
    assert call() == 3.0


def test_names_that_are_refused_later() -> None:
    config: Any = Config()
    _, call = _of(config, lambda config, x: x * getattr(config, "scale", 10.0))
    assert call() == 9.0
    config._per_layer = type("Table", (), {"names": {"scale"}})()
    assert call() == 30.0


def test_lookups_that_may_lead_anywhere() -> None:
    config: Any = Wider()
    assert says_itself(Config) and not says_itself(Wider) and not says_itself(object)
    compiled, call = _of(config, lambda config, x: x * config.the_scale)
    assert call() == 9.0
    config.scale = 5.0
    assert call() == 15.0
    assert compiled.cache_info().misses == 2


def _lookup(body: str) -> Any:
    space: dict[str, Any] = {"TABLE": {}, "look": getattr}
    lines = "\n".join("        " + line for line in body.splitlines())
    exec(f"class C:\n    def __getattribute__(self, name):\n{lines}", space)
    return vars(space["C"])["__getattribute__"].__code__


@pytest.mark.parametrize("body", [
    "return super().__getattribute__(name)",
    "if name == 'x':\n    raise KeyError(f'no {name}')\nreturn super().__getattribute__(name)",
    "return super().__getattribute__('_items')",
    "name = super().__getattribute__('_names')[name]\nreturn super().__getattribute__(name)",
])  # fmt: skip
def test_lookups_that_say_it_themselves(body: str) -> None:
    assert known_to(_lookup(body)) is not None


@pytest.mark.parametrize("body", [
    "return super().__getattribute__('_' + name)",
    "return super().__getattribute__(name.lower())",
    "name = name.lower()\nreturn super().__getattribute__(name)",
    "return super().__getattribute__('__dict__')[name]",
    "return super().__getattribute__('__dict__')",
    "return look(self, name)",
    "return object.__getattribute__(self, name)",
    "return (lambda: super(type(self), self).__getattribute__(name))()",
    "return getattr(super(), name)",
    "other = self\nreturn super().__getattribute__(name)",
])  # fmt: skip
def test_lookups_that_do_not(body: str) -> None:
    assert known_to(_lookup(body)) is None
