"""`find_nan` on planted cases: the op, its line and the pass it names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import gradof

F = torch.nn.functional

# expression of x with one op that fails, elements of x, the pass, nan or inf, and a name of the op
CASES: list[tuple[str, list[float], str, str, str]] = [
    ("torch.log(x)", [0.0, 1.0], "f", "inf", "log"),
    ("torch.log(x)", [-1.0, 1.0], "f", "nan", "log"),
    ("1 / x", [0.0, 2.0], "f", "inf", "div reciprocal"),
    ("x / x.sum()", [1.0, -1.0], "f", "inf", "div"),
    ("x * 0 / x", [0.0, 1.0], "f", "nan", "div"),
    ("torch.exp(x)", [1000.0, 0.0], "f", "inf", "exp"),
    ("torch.acos(x)", [1.5, 0.0], "f", "nan", "acos"),
    ("torch.sqrt(x)", [-4.0, 1.0], "f", "nan", "sqrt"),
    ("torch.fmod(x, 0.0)", [3.0], "f", "nan", "fmod"),
    ("torch.softmax(x.masked_fill(x < 9, -torch.inf), 0)", [0.0, 1.0], "f", "nan", "softmax"),
    ("torch.lgamma(x)", [0.0, 1.0], "f", "inf", "lgamma"),
    ("(x ** -2.0)", [0.0, 1.0], "f", "inf", "pow"),
    ("torch.sqrt(x)", [0.0, 1.0], "df", "inf", "div"),
    ("torch.logit(x)", [1.0, 0.5], "f", "inf", "logit"),
    ("torch.where(x > 0, torch.log(x), x)", [0.0, 1.0], "df", "nan", "div"),
    ("torch.where(x > 0, torch.sqrt(x), x)", [0.0, 1.0], "df", "nan", "div mul"),
    ("torch.asin(x)", [1.0, 0.0], "df", "inf", "rsqrt"),
    ("x.abs() ** 1.5", [0.0, 1.0], "second", "nan inf", "mul div pow"),
    ("torch.acosh(x)", [1.0, 2.0], "df", "inf", "rsqrt"),
    ("(x * x).sum().sqrt()", [0.0, 0.0], "df", "nan", "mul"),
    ("torch.log1p(x)", [-1.0, 0.0], "f", "inf", "log1p"),
]  # fmt: skip


def _function(text: str) -> Callable[[Any], Any]:
    space: dict[str, Any] = {"torch": torch, "F": F}
    exec(compile(f"def f(x):\n    y = x * 1\n    x = y\n    z = {text}\n    return z * 2",
                 "planted.py", "exec"), space)  # fmt: skip
    found: Callable[[Any], Any] = space["f"]
    return found


@pytest.mark.parametrize(("text", "at", "within", "what", "ops"), CASES)
def test_planted(text: str, at: list[float], within: str, what: str, ops: str) -> None:
    x = torch.tensor(at, dtype=torch.float64, requires_grad=True)
    found = gradof.differentiate(_function(text)).find_nan(x)
    assert found is not None
    assert found.within == within and found.what in what.split(), found
    assert found.op in ops.split() and found.loc.line == 4, found
    assert found.op in str(found) and f"in {within}" in str(found)


def test_an_infinity_that_is_masked_away_is_none() -> None:
    def attention(x: Any) -> Any:
        scores = torch.where(torch.tril(torch.ones(3, 3)) > 0, x[:, None] * x, -torch.inf)
        return torch.softmax(scores, -1).square().sum()

    assert gradof.differentiate(attention).find_nan(torch.ones(3, requires_grad=True)) is None


def test_the_infinity_a_nan_is_made_of_has_its_line() -> None:
    def loss(x: Any) -> Any:
        far = 1 / x
        return (far - far).sum()

    found = gradof.differentiate(loss).find_nan(torch.zeros(2, requires_grad=True))
    assert (found.op, found.what, found.count) == ("sub", "nan", 2)
    assert found.source.loc.line == loss.__code__.co_firstlineno + 1
    assert "of the inf of" in str(found)


def test_an_input_that_is_not_finite_is_named() -> None:
    found = gradof.differentiate(lambda x: x * 2).find_nan(np.array([np.nan, 1.0]))
    assert found.op.startswith("input") and "x" in found.op


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_precisions(dtype: torch.dtype) -> None:
    compiled = gradof.differentiate(lambda x: torch.log(x).sum())
    assert compiled.find_nan(torch.zeros(3, dtype=dtype, requires_grad=True)).op == "log"
    assert compiled.find_nan(torch.ones(3, dtype=dtype, requires_grad=True)) is None


def test_of_numpy_and_of_a_module() -> None:
    compiled = gradof.differentiate(lambda x: np.sum(np.sqrt(x)))
    assert compiled.find_nan(np.array([0.0, 1.0])).within == "df"
    assert compiled.find_nan(np.array([2.0, 1.0])) is None
    net = gradof.differentiate(torch.nn.Linear(2, 2))
    assert net.find_nan(torch.ones(1, 2)) is None
