"""What Python, `math` and numpy compute of a number that varies: one trace serves all its values.

Each expression is of a counter `s`, which is 0, 1, 2, ...; it scales a loss and is stored as text.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import gradof

X = torch.tensor([1.0, -2.0, 0.5])
EXPRESSIONS = [
    "s**2", "s**3", "s >> 1", "s << 2", "3 ** (s / 2)", "0.9**s",
    "int(s * 1.5)", "int(-s / 2)", "float(s) / 3", "round(s * 0.5)", "math.floor(-s / 2)",
    "math.ceil(s / 3)", "math.trunc(s / 2) % 2", "math.pow(2.0, s)", "math.cos(math.pi * s / 10)",
    "cos(s / 3) * exp(-s)", "floor(s / 2)", "min(1.0, s / 3)", "sum([s, 1])",
    "np.exp(-10 * s / 5)", "2.0 / (1.0 + np.exp(-s)) - 1", "np.sqrt(s)", "np.abs(-s / 2)",
    "np.floor(s / 2)", "np.rint(s / 2)", "np.power(2.0, s)", "np.maximum(0.5, s / 3)",
    "np.tanh(s) * np.float64(2)", "np.clip(s / 3, 0, 1)", "np.exp(s) ** 2",
]  # fmt: skip
# The value itself is asked for: as bits, a digit, or a whole number of numpy's.
PINNED = [
    "s & 1", "~s", "s | 1", "s ^ 3", "1 << s", "2**s", "math.pow(s, 2)", "np.abs(-s)",
    "np.minimum(s, 3)", "np.clip(s, 0, 3)", "round(s / 3, 1)", "(s / 2).is_integer() * 1.0",
    "np.log(s)", "np.true_divide(1.0, s)", "np.exp(1000.0 * s)",
    "[0.1, 0.2, 0.3, 0.4, 0.5, 0.6][s]",
]  # fmt: skip


class Run:
    """A loss with a scale by an expression of its own counter."""

    def __init__(self, expression: str) -> None:
        self.space: dict[str, Any] = {
            "state": {"s": 0}, "math": math, "np": np, "cos": math.cos, "exp": math.exp,
            "floor": math.floor,
        }  # fmt: skip
        lines = [
            "def loss(x):", "    s = state['s']", "    state['s'] += 1",
            f"    scale = {expression}", "    return (x**2).sum() * scale, scale",
        ]  # fmt: skip
        exec("\n".join(lines), self.space)

    def results(self, compiled: bool, n: int) -> tuple[list[tuple[Any, ...]], Any]:
        """Values, scales and gradients of `n` calls, and what traces there were."""
        loss = self.space["loss"]
        if compiled:
            loss = gradof.differentiate(loss)
        found: list[tuple[Any, ...]] = []
        for _ in range(n):
            x = X.clone().requires_grad_()
            value, scale = loss(x)
            value.backward()
            found.append((value.item(), x.grad, scale, type(scale)))
        return found, loss.cache_info() if compiled else None


def check(expression: str) -> Any:
    with np.errstate(all="ignore"):
        wanted, _ = Run(expression).results(False, 6)
        found, info = Run(expression).results(True, 6)
    for (value, slope, scale, kind), other in zip(wanted, found, strict=True):
        assert other[0] == pytest.approx(value, nan_ok=True) and other[3] is kind
        assert other[2] == pytest.approx(scale, nan_ok=True)
        torch.testing.assert_close(other[1], slope, equal_nan=True)
    return info


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_as_python_computes(expression: str) -> None:
    """Values and types; where a branch of Python's is crossed there is a path more."""
    info = check(expression)
    assert info.misses <= 2 and info.eager_runs == 0


@pytest.mark.filterwarnings("ignore::gradof.errors.RetraceWarning")
@pytest.mark.parametrize("expression", PINNED)
def test_where_the_value_is_asked_for(expression: str) -> None:
    """It is a constant, in a trace for each."""
    assert check(expression).eager_runs == 0


def test_a_whole_number_out_of_range_is_another_trace() -> None:
    """The graph's integers stay below 2**31."""
    compiled = gradof.differentiate(lambda x, s: x.sum() * int(s))
    for s in (1.5, 2.5, 3e9, -4e12):
        assert compiled(X, s).item() == pytest.approx(X.sum().item() * int(s))


def test_python_raises_as_it_does() -> None:
    """Whether at the first call or later."""

    def loss(x: torch.Tensor, s: float) -> torch.Tensor:
        return x.sum() * math.pow(s, 0.5) * (1 / math.floor(s))

    compiled = gradof.differentiate(loss)
    for s in (1.5, 2.5, 3.5):
        assert compiled(X, s).item() == pytest.approx(loss(X, s).item())
    with pytest.raises(ZeroDivisionError):
        compiled(X, 0.5)
    with pytest.raises(ValueError, match="domain"):
        compiled(X, -1.0)
    with pytest.raises(ValueError, match="NaN"):
        compiled(X, math.nan)


def _by_a_logarithm(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if np.log(x.norm().item()) > 0.0 else x * 3


def _halvings(x: torch.Tensor) -> torch.Tensor:
    d, steps = np.float64(x.sum().item()), 0
    while d > 1.0:
        d, steps = d * np.float64(0.5), steps + 1
    return x * steps * d


def _by_two_comparisons(x: torch.Tensor) -> torch.Tensor:
    d = np.sqrt(x.norm().item())
    return x * 2 if d != 2.0 and (d >= 1) != (d < 0.2) else x


@pytest.mark.parametrize("program", [_by_a_logarithm, _halvings, _by_two_comparisons])
def test_a_branch_on_a_number_of_numpys(program: Any) -> None:
    """geomloss's schedule of temperatures: numpy's numbers compare to a bool of numpy's."""
    f = gradof.differentiate(program)
    for scale in (1.0, 0.01, 3.0, 0.02):
        x = (torch.arange(1.0, 5.0) * scale).requires_grad_()
        y = x.detach().clone().requires_grad_()
        ours, eager = f(x), program(y)  # an EagerWarning would be an error
        ours.sum().backward()
        eager.sum().backward()
        torch.testing.assert_close(ours, eager)
        torch.testing.assert_close(x.grad, y.grad)
