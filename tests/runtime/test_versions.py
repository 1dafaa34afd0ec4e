"""Version counters that the user's code reads, as packages do to see what was changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from gradof import differentiate
from gradof.errors import EagerWarning, TraceError

Tensor = torch.Tensor


class Drawn(torch.nn.Module):
    """Keeps what it has drawn, and by which its result is right as long as nobody changes it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(0.5, 1.5, 3))
        self.params: dict[str, Tensor] = {}
        self.seen: tuple[tuple[str, Tensor, int], ...] = ()

    def forward(self, x: Tensor) -> Tensor:
        angle = torch.rand(3)
        self.params = {"angle": angle, "flip": angle > 0.5, "order": torch.argsort(angle)}
        self.seen = tuple((name, value, value._version) for name, value in self.params.items())
        scaled = torch.where(self.params["flip"], x * angle, x)[self.params["order"]]
        return (scaled * self.weight).sum()

    def is_as_drawn(self) -> bool:
        return all(
            self.params[name] is value and value._version == number
            for name, value, number in self.seen
        )


def test_what_a_call_makes_is_new() -> None:
    found = []
    for wraps in (False, True):
        net = Drawn()
        model: Any = differentiate(net) if wraps else net
        for seed in range(4):
            torch.manual_seed(seed)
            x = torch.arange(3.0, requires_grad=True)
            model(x).backward()
            assert net.is_as_drawn()
            found.append([x.grad, *net.params.values()])
        net.params["angle"].mul_(2)
        assert not net.is_as_drawn()
        if wraps:
            assert model.cache_info().eager_runs == 0
    for theirs, mine in zip(found[:4], found[4:], strict=True):
        for a, b in zip(theirs, mine, strict=True):
            torch.testing.assert_close(a, b)


def test_a_result_that_is_written_to_by_native_code_is_new() -> None:
    def fn(x: Tensor) -> tuple[Tensor, int]:
        large = torch.cat([torch.relu(x), x.exp()])
        return large, large._version

    compiled = differentiate(fn, strict=True)
    x = torch.linspace(-1, 1, 300_000)
    for _ in range(3):
        y, version = compiled(x)
        assert y._version == version == 0
        assert torch.equal(y[:300_000], torch.relu(x))


def test_an_argument_that_was_never_changed() -> None:
    def fn(x: Tensor) -> Tensor:
        return x * (x._version + x.view(-1)._version + x.detach()._version + 1)

    compiled = differentiate(fn)
    x = torch.ones(3)
    for _ in range(2):
        assert torch.equal(compiled(x.clone()), x)
    assert (compiled.cache_info().misses, compiled.cache_info().eager_runs) == (1, 0)
    with pytest.warns(EagerWarning, match="a tensor that was changed in place"):
        assert torch.equal(compiled(x.add_(1)), fn(x))
    assert torch.equal(compiled(torch.ones(3)), torch.ones(3))
    assert compiled.cache_info().eager_runs == 1


def test_parameters_that_are_trained_are_not_traced_for_each_step() -> None:
    weight = torch.nn.Parameter(torch.ones(3))

    def fn(x: Tensor) -> Tensor:
        return (x * weight).sum() * (weight._version + 1)

    compiled = differentiate(fn)
    with pytest.warns(EagerWarning, match="_version"):
        for _ in range(5):
            weight.grad = None
            compiled(torch.ones(3)).backward()
            assert weight.grad is not None
            assert torch.equal(weight.grad, torch.full((3,), weight._version + 1.0))
            with torch.no_grad():
                weight.sub_(0.1)
    assert compiled.cache_info().misses <= 2


def changed(x: Tensor) -> tuple[Tensor, int]:
    y = x * 2
    before = y._version
    y.add_(1)
    return y.sum(), y._version - before


def of_a_gradient(x: Tensor) -> tuple[Tensor, int]:
    y = x * 2
    return y, y._version


def of_two_views(x: Tensor) -> tuple[Tensor, Tensor, int]:
    y = x.detach() * 2
    return y, y.view(3, 1), y._version


@pytest.mark.parametrize(("fn", "what"), [
    (changed, "that the traced function changes in place"),
    (of_a_gradient, "a result that requires grad"),
    (of_two_views, "shares its memory with another"),
])  # fmt: skip
def test_what_a_call_would_not_have(fn: Callable[[Tensor], object], what: str) -> None:
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(TraceError, match=what):
        differentiate(fn, strict=True)(x)
    with pytest.warns(EagerWarning, match=what):
        assert str(differentiate(fn)(x)) == str(fn(x))
