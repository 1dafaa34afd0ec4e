"""Fields of dataclasses, which a class is made of but once: read, and not compared at each call."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from gradof import differentiate

SCALE = torch.tensor(2.0)


@dataclasses.dataclass
class Options:
    """Twelve settings, one of them a tensor."""

    scale: Any = dataclasses.field(default=SCALE)
    power: int = 2
    a: int = 0
    b: int = 0
    c: int = 0
    d: int = 0
    e: int = 0
    f: int = 0
    g: int = 0
    h: int = 0


def _loss(x: torch.Tensor) -> Any:
    defaults: list[Any] = [field.default for field in dataclasses.fields(Options)]
    scale, power, *rest = defaults
    return (x**power * scale).sum() + sum(rest)


def test_a_tensor_of_a_field_is_an_input() -> None:
    compiled = differentiate(_loss, strict=True)
    x = torch.tensor([1.0, 3.0], requires_grad=True)
    for value in (2.0, 5.0):
        SCALE.fill_(value)
        assert compiled(x).item() == _loss(x).item() == 10 * value
    assert compiled.cache_info().misses == 1


def test_what_a_field_says_is_no_row_of_a_guard() -> None:
    compiled = differentiate(_loss)
    compiled(torch.ones(2, requires_grad=True))
    ((entry,),) = compiled._cache.entries.values()
    assert not any(isinstance(row[0], dataclasses.Field) for row in entry.state.others)


class Slotted:
    """What has slots alone."""

    __slots__ = ("bias", "scale")

    def __init__(self, scale: float, bias: float) -> None:
        self.scale, self.bias = scale, bias


def test_slots_of_the_users_own_are_compared() -> None:
    state = Slotted(2.0, 1.0)
    compiled = differentiate(lambda x: (x * state.scale).sum() + state.bias, strict=True)
    for scale, bias in ((2.0, 1.0), (2.0, 1.5), (3.0, 1.5), (2.0, 1.0)):
        state.scale, state.bias = scale, bias
        assert compiled(torch.ones(2)).item() == 2 * scale + bias
    del state.scale
    try:
        compiled(torch.ones(2))
    except AttributeError:
        return
    raise AssertionError("a slot that is not set is an error, as in eager")
