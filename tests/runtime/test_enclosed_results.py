"""Functions, iterators and views that a call gives are its own, with its own tensors in them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from gradof import differentiate
from gradof.errors import EagerWarning

Tensor = torch.Tensor


class Kept:
    def __init__(self, h: Tensor) -> None:
        self.h = h

    def get(self) -> Tensor:
        return self.h


def _closure(x: Tensor) -> Any:
    h = x.exp()
    return lambda: h


def _default(x: Tensor) -> Any:
    made = x.exp()

    def get(h: Tensor = made) -> Tensor:
        return h

    return get


def _attribute(x: Tensor) -> Any:
    def get() -> Any:
        return get.h  # type: ignore[attr-defined]

    get.h = x.exp()  # type: ignore[attr-defined]
    return get


def _counter(x: Tensor) -> Any:
    n = 0

    def count() -> int:
        nonlocal n
        n += 1
        return n

    return count


MADE: dict[str, tuple[Callable[[Tensor], Any], Callable[[Any], Any]]] = {
    "closure": (_closure, lambda r: r()),
    "default": (_default, lambda r: r()),
    "attribute": (_attribute, lambda r: r()),
    "counter": (_counter, lambda r: r()),
    "wraps": (lambda x: functools.wraps(x)(lambda: None), lambda r: r.__wrapped__ * 2),  # type: ignore[arg-type]
    "method": (lambda x: Kept(x.exp()).get, lambda r: r()),
    "in an object": (lambda x: Kept((lambda h: lambda: h)(x.exp())), lambda r: r.h()),  # type: ignore[arg-type]
    "iterator": (lambda x: iter([x.exp()]), next),
    "map": (lambda x: map(torch.exp, [x]), next),
    "generator": (lambda x: (x * i for i in range(3)), lambda r: sum(r)),
    "view": (lambda x: {"a": x.exp()}.values(), lambda r: next(iter(r))),
}  # fmt: skip


COMPILED = ("closure", "default", "in an object")  # which are made anew by each call


def _three_calls(name: str, wrap: Callable[..., Any]) -> list[Any]:
    fn, use = MADE[name]
    call, found = wrap(lambda x: fn(x)), list[Any]()
    for i in range(3):
        x = torch.full((2,), float(i), requires_grad=True)
        value = use(call(x))
        if isinstance(value, Tensor):
            value.sum().backward()  # type: ignore[no-untyped-call]
            value = value.detach()
        found.append((value, x.grad))
    return found


@pytest.mark.cases(10)
@pytest.mark.parametrize("name", sorted({*MADE} - {*COMPILED}))
def test_each_call_gives_its_own(name: str) -> None:
    with pytest.warns(EagerWarning, match="of the result"):
        have = _three_calls(name, differentiate)
    assert str(have) == str(_three_calls(name, lambda fn: fn))


@pytest.mark.parametrize("name", COMPILED)
def test_functions_over_tensors_are_made_anew(name: str) -> None:
    have = _three_calls(name, lambda fn: differentiate(fn, strict=True))
    assert str(have) == str(_three_calls(name, lambda fn: fn))


def test_functions_that_were_there_are_handed_on() -> None:
    call = differentiate(lambda x: (x.exp(), torch.exp, _closure))
    x = torch.ones(2)
    for _ in range(2):
        value, one, other = call(x)
        assert one is torch.exp and other is _closure
        torch.testing.assert_close(value, x.exp())
    assert call.cache_info().eager_runs == 0
