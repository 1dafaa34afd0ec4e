"""Numbers of numpy's beside tensors: numbers, as in eager; one that varies is an input.

    model.beta = schedule[epoch]        a np.float64: read anew at every call, without a new trace
    loss(x, np.float32(0.5))            a constant of the trace, by its type and value
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from gradof import differentiate, value_and_grad
from gradof.errors import DataDependentError

LINES: dict[str, Callable[[Tensor, Any], Any]] = {
    "product": lambda x, t: x * t,
    "first": lambda x, t: t * x,
    "quotient": lambda x, t: 1.0 / t * x,
    "power": lambda x, t: t**0.5 * x + t**2,
    "ufunc": lambda x, t: x * np.maximum(np.exp(-t), 0.1),
    "clip": lambda x, t: x * np.clip(t, 0.5, 1.5),
    "branch": lambda x, t: x * t if t > 1.5 else x - t,
    "tensor": lambda x, t: torch.tensor(t) * x,
    "tensor of a list": lambda x, t: torch.tensor([[t], [2.0]]) * x,
    "full": lambda x, t: torch.full((3,), t) * x,
    "method": lambda x, t: x * t.item() + t.dtype.itemsize,
    "class": lambda x, t: x * isinstance(t, np.floating) + (type(t) is np.float64),
    "returned": lambda x, t: (x, t * 2),
}
VALUES = [1.0, 1.7, 2.3, 1.2, 3.0]
pytestmark = pytest.mark.filterwarnings("ignore::gradof.errors.RetraceWarning")


def _described(result: Any) -> Any:
    if isinstance(result, tuple):
        return [_described(part) for part in result]
    if isinstance(result, Tensor):
        return result.dtype, result.detach().numpy().round(12).tolist()
    return type(result), result


def _same(f: Callable[..., Any], g: Callable[..., Any], *args: Any) -> None:
    gradients, found = [], []
    for function in (f, g):
        x = torch.tensor([0.3, 0.7, 1.2], dtype=torch.float64, requires_grad=True)
        result = function(x, *args)
        (result[0] if isinstance(result, tuple) else result).sum().backward()
        assert x.grad is not None
        gradients.append(x.grad)
        found.append(_described(result))
    assert found[0] == found[1]
    torch.testing.assert_close(gradients[0], gradients[1])


@pytest.mark.parametrize("number", [np.float64, np.float32, np.int64, np.float16])
@pytest.mark.parametrize("line", LINES)
def test_an_argument_is_a_number(line: str, number: type) -> None:
    f = LINES[line]
    g = differentiate(f)
    for value in VALUES:
        _same(f, g, number(value))


def test_an_argument_that_varies_is_an_input() -> None:
    g = differentiate(LINES["ufunc"], strict=True)
    for value in np.linspace(0.1, 2.0, 12):
        _same(LINES["ufunc"], g, value)
    assert g.cache_info().misses == 2  # a constant, and an input


def test_types_are_told_apart() -> None:
    f = LINES["tensor"]
    g = differentiate(f)
    for value in (1.0, np.float64(1.0), np.float32(1.0), 1, np.int64(1), np.float64(2.0), 2.0):
        _same(f, g, value)


class Box:
    value: Any = 0.0


@pytest.mark.parametrize("line", LINES)
def test_an_attribute_is_a_number(line: str) -> None:
    box = Box()

    def f(x: Tensor) -> Any:
        return LINES[line](x, box.value)

    g = differentiate(f)
    for value in VALUES:
        box.value = np.float64(value)
        _same(f, g)


@pytest.mark.parametrize("start", [1.0, np.float64(1.0)], ids=repr)
def test_a_temperature_that_is_annealed_is_an_input(start: float) -> None:
    def run(compiled: bool) -> tuple[list[Any], int]:
        box, found = Box(), []
        box.value = start

        def f(x: Tensor) -> Any:
            box.value = np.maximum(box.value * np.exp(-0.1), 0.5)
            return x * box.value

        g = differentiate(f, strict=True)
        for _ in range(10):
            x = torch.ones(2, dtype=torch.float64, requires_grad=True)
            result = (g if compiled else f)(x)
            found.append((result.tolist(), type(box.value), round(box.value, 12)))
        return found, g.cache_info().misses

    (expected, _), (found, traces) = run(False), run(True)
    assert [f[1:] for f in found] == [e[1:] for e in expected]
    np.testing.assert_allclose([f[0] for f in found], [e[0] for e in expected], rtol=1e-14)
    assert traces <= 4


@pytest.mark.parametrize(
    "then", [True, 2.5, np.int64(2), np.float64(1.5), np.float32(1.5), 2**40], ids=repr
)
def test_a_counter_that_becomes_something_else_counts_on(then: Any) -> None:
    def run(compiled: bool) -> list[Any]:
        box, found = Box(), []
        box.value = 0

        def f(x: Tensor) -> Any:
            box.value += 1
            return x * box.value

        g = differentiate(f) if compiled else f
        for i in range(6):
            if i == 2:
                box.value = then
            x = torch.ones(2, dtype=torch.float64, requires_grad=True)
            found.append((g(x).tolist(), type(box.value), float(box.value)))
        return found

    assert run(True) == run(False)


def test_a_module_takes_one_without_a_tensor() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, t: Any) -> Any:
            return self.weight * t

    module = Scaled()
    compiled = differentiate(module, strict=True)
    for value in VALUES:
        assert torch.equal(compiled(np.float64(value)), module(np.float64(value)))


def test_a_tensor_that_meets_an_array_is_refused() -> None:
    with pytest.raises(DataDependentError, match="an array meets a tensor"):
        differentiate(LINES["product"], strict=True)(torch.ones(3), np.ones(3))


def test_a_number_and_an_array_without_dims_are_told_apart() -> None:
    """`y += 1` changes the array, and gives another number."""

    def f(x: Any) -> Any:
        y = x
        y += 1
        return x * 2 + isinstance(x, np.ndarray)

    box = Box()

    def counted(x: Any) -> Any:
        box.value += 1
        return x * box.value

    for order in ((np.array(2.0), np.float64(2.0)), (np.float64(2.0), np.array(2.0))):
        g, h = differentiate(f), differentiate(counted)
        for value in order * 3:
            assert g(value.copy()) == f(value.copy())
            box.value = value.copy()
            found = [h(np.ones(2))[0] for _ in range(3)]
            assert found == [3, 4, 5] and box.value == 5 and type(box.value) is type(value)


@pytest.mark.parametrize("line", [
    "s.a, s.b = s.b, s.a + 1", "s.b = s.a; s.a = x.mean()",
    "s.kept.append(x.sum()); s.a = s.kept[0]",
])  # fmt: skip
@pytest.mark.parametrize("value", ["np.float64(1.5)", "np.float32(1.5)", "np.int64(2)", "1.5",
                                   "np.array(1.5)", "np.array([1.5, 2.0])"])  # fmt: skip
def test_a_number_that_moves_within_the_state_stays_one(line: str, value: str) -> None:
    def run(compiled: bool) -> list[Any]:
        state = SimpleNamespace(a=None, b=None, kept=deque([1.0], maxlen=2))
        space: dict[str, Any] = {"np": np, "s": state}
        exec(f"s.a, s.b = {value}, {value}", space)
        exec(f"def f(x):\n    {line}\n    return (x * s.a).sum()", space)
        f, both, found = space["f"], value_and_grad(space["f"]), []
        for call in range(5):
            x = np.array([0.3, 0.7]) * (call + 1)
            result = both(x)[0] if compiled else f(x)
            found.append((round(float(result), 9), repr(state)))
        return found

    assert run(True) == run(False)


@pytest.mark.parametrize("value", [np.float64(2.0), np.float32(2.0), np.array(2.0)], ids=repr)
def test_an_argument_is_returned_as_what_it_is(value: Any) -> None:
    found = differentiate(lambda x: (x, x * 2))(value)
    assert type(found[0]) is type(value) and type(found[1]) is type(value * 2)


@dataclasses.dataclass
class Options:
    rate: float = 0.1
    step: int = 0


def test_a_number_in_a_place_with_two_names_is_one_input() -> None:
    """The place of an object that was replaced, and of the new one, are one to the trace."""

    class Decayed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.options = Options()

        def forward(self, x: Tensor) -> Any:
            self.options.step += 1
            return x * (1 - self.options.rate) ** self.options.step

    module, plain = Decayed(), Decayed()
    compiled = differentiate(module, strict=True)
    for call in range(6):
        for one in (module, plain):
            if call == 1:
                one.options = dataclasses.replace(one.options, step=0)
            if call == 3:
                one.options.rate = 0.3
        x = torch.rand(4, 3, dtype=torch.float64, requires_grad=True)
        torch.testing.assert_close(compiled(x), plain(x))
        assert module.options == plain.options
