"""Python numbers as arguments: new values do not trace anew, and results stay what they were."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import gradof
from gradof import differentiate
from gradof.errors import RetraceWarning
from tests.runtime.compare import close

Tensor = torch.Tensor


def _leaf(seed: int, dtype: torch.dtype = torch.float32, shape: tuple[int, ...] = (4, 3)) -> Tensor:
    torch.manual_seed(seed)
    return (torch.rand(shape, dtype=torch.float64) + 0.5).to(dtype).requires_grad_()


TORCH: dict[str, Callable[..., Any]] = {
    "mul": lambda x, s: (x * s).sin().sum(),
    "rmul": lambda x, s: (s * x).sin().sum(),
    "rsub": lambda x, s: (s - x).square().sum(),
    "div": lambda x, s: (x / s).sum() + (s / x).sum(),
    "pow": lambda x, s: (x**s).sum() + (s**x).sum(),
    "compare": lambda x, s: torch.where(x > s, x * x, x).sum(),
    "where": lambda x, s: torch.where(x > 1, x, s).square().sum(),
    "clamp": lambda x, s: x.clamp(min=s).square().sum() + torch.clamp(x, 0.1, s).sum(),
    "masked_fill": lambda x, s: x.masked_fill(x < 1, s).square().sum(),
    "lerp": lambda x, s: torch.lerp(x, x * x, s).sum(),
    "add alpha": lambda x, s: torch.add(x, x * x, alpha=s).sum(),
    "addcmul": lambda x, s: torch.addcmul(x, x, x.sin(), value=s).sum(),
    "number first": lambda x, s: (x * (1 - s * s) / (2 * s + 1)).sum(),
    "negated": lambda x, s: (x * -s + abs(s) * x).sum(),
    "tensor": lambda x, s: (x * torch.tensor(s) + torch.tensor([s, 1.0, 2 * s])).square().sum(),
    "full_like": lambda x, s: (x * torch.full_like(x, s)).sum(),
    "floor": lambda x, s: (x % s + (x.detach() // s) * x).sum(),
    "isinstance": lambda x, s: (x * s if isinstance(s, float) else x).sum(),
    "integers": lambda x, s: (x * torch.arange(3) * s).sum(),
}


@pytest.mark.parametrize("name", TORCH)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_float_argument_of_a_torch_function(name: str, dtype: torch.dtype) -> None:
    fn = TORCH[name]
    compiled = differentiate(fn)
    for n, s in enumerate((0.7, 1.3, 0.9, 1.1, 0.4)):
        x, y = _leaf(n, dtype), _leaf(n, dtype)
        got, want = compiled(x, s), fn(y, s)
        close(got.detach(), want.detach(), name)
        (mine,) = torch.autograd.grad(got, x, create_graph=True)
        (theirs,) = torch.autograd.grad(want, y, create_graph=True)
        close(mine.detach(), theirs.detach(), f"gradient of {name}")
        if mine.requires_grad and theirs.requires_grad:
            (second,) = torch.autograd.grad(mine.sin().sum(), x, allow_unused=True)
            (due,) = torch.autograd.grad(theirs.sin().sum(), y, allow_unused=True)
            close(second, due, f"second derivative of {name}")
    assert compiled.cache_info().entries == 2, "0.7 as a constant, and any other as an input"


NUMPY: dict[str, Callable[..., Any]] = {
    "mul": lambda x, s: np.sum(np.sin(x * s)),
    "rmul": lambda x, s: np.sum(np.sin(s * x)),
    "ufunc": lambda x, s: np.sum(np.power(x, s) + np.maximum(x, s)),
    "of the number": lambda x, s: np.sum(x * np.sqrt(s) + np.exp(-s)),
    "where": lambda x, s: np.sum(np.where(x > s, x * x, s)),
    "clip": lambda x, s: np.sum(np.clip(x, 0.1, s) ** 2),
    "full": lambda x, s: np.sum(x * np.full(3, s) * np.full_like(x, s)),
    "array": lambda x, s: np.sum(x * np.array([s, 1.0, 2 * s])),
    "assign": lambda x, s: _assigned(x, s),
    "number first": lambda x, s: np.sum(x * (1 - s * s) / (2 * s + 1)),
}


def _assigned(x: Any, s: Any) -> Any:
    y = x * x
    y[0] = s
    y[1:] *= s
    return np.sum(y * x)


@pytest.mark.parametrize("name", NUMPY)
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=str)
def test_a_float_argument_of_a_numpy_function(name: str, dtype: Any) -> None:
    fn = NUMPY[name]
    gradient = gradof.value_and_grad(fn)
    for n, s in enumerate((0.7, 1.3, 0.9, 1.1)):
        x = (np.random.default_rng(n).random((4, 3)) + 0.5).astype(dtype)
        value, got = gradient(x, s)
        want = fn(x, s)
        assert got.dtype == x.dtype and value.dtype == want.dtype
        np.testing.assert_allclose(value, want, rtol=2e-6 if dtype is np.float32 else 1e-12)
        direction = np.random.default_rng(n).standard_normal(x.shape)
        wide = x.astype(np.float64)
        step = 1e-6
        slope = (fn(wide + step * direction, s) - fn(wide - step * direction, s)) / (2 * step)
        np.testing.assert_allclose(np.sum(got * direction), slope, rtol=2e-4, atol=1e-5)
    assert gradient.base.cache_info().entries == 2


MATH: dict[str, tuple[float, ...]] = {  # what they are asked for; the last one is out of the domain
    **dict.fromkeys(("sqrt", "log", "log2", "log10", "log1p"), (0.3, 0.7, 1.3, -2.0)),
    **dict.fromkeys(("exp", "expm1", "sinh", "cosh", "exp2"), (0.3, -0.7, 1.3, 2000.0)),
    **dict.fromkeys(("asin", "acos", "atanh"), (0.3, -0.7, 0.9, 1.1)),
    **dict.fromkeys(
        ("sin", "cos", "tan", "tanh", "atan", "erf", "erfc", "fabs", "cbrt", "asinh"),
        (0.3, -0.7, 1.3),
    ),
    "acosh": (1.3, 1.7, 2.3, 0.9), "lgamma": (0.3, 0.7, 1.3, -1.0),
}  # fmt: skip


@pytest.mark.cases(4)
@pytest.mark.parametrize("name", MATH)
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_math_of_a_number_that_varies(name: str, library: str) -> None:
    of = getattr(math, name)

    def fn(x: Any, s: float) -> Any:
        return x.sum() * of(s)

    x: Any = np.ones(3) if library == "numpy" else torch.ones(3, dtype=torch.float64)
    compiled = differentiate(fn)
    for s in MATH[name][:3]:
        assert float(compiled(x, s)) == pytest.approx(3 * of(s), rel=1e-14)
    assert compiled.cache_info().misses == 2
    for s in MATH[name][3:]:
        with pytest.raises((ValueError, OverflowError)) as want:
            of(s)
        with pytest.raises(want.type):
            compiled(x, s)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_math_of_two_numbers_that_vary(library: str) -> None:
    def fn(x: Any, s: float, t: float) -> Any:
        return x.sum() * (math.atan2(s, t) + math.hypot(s, 2) + math.pow(0.5, t) + math.atan2(1, s))

    x: Any = np.ones(3) if library == "numpy" else torch.ones(3, dtype=torch.float64)
    compiled = differentiate(fn)
    for s, t in ((0.3, 0.2), (-0.7, -0.4), (0.5, 0.6)):
        assert float(compiled(x, s, t)) == pytest.approx(float(fn(x, s, t)), rel=1e-14)
    assert compiled.cache_info().misses == 2


def test_adam_with_a_step_counter_and_a_schedule_traces_twice() -> None:
    """Bias correction reads the step, the learning rate follows a schedule."""

    def update(p: Any, g: Any, m: Any, v: Any, step: int, lr: float) -> Any:
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g * g
        hat = m / (1 - 0.9**step)
        return p - lr * hat / (np.sqrt(v / (1 - 0.999**step)) + 1e-8), m, v

    compiled = differentiate(update)
    rng = np.random.default_rng(0)
    state: Any = [rng.standard_normal(5), np.zeros(5), np.zeros(5)]
    other: Any = [a.copy() for a in state]
    for step in range(1, 30):
        g, lr = rng.standard_normal(5), 0.1 / step
        state = compiled(state[0], g, state[1], state[2], step, lr)
        other = update(other[0], g, other[1], other[2], step, lr)
        for a, b in zip(state, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-13)
    assert compiled.cache_info().entries == 2


def test_a_number_whose_value_is_needed_stays_a_constant() -> None:
    """Sizes, indices, math functions: one trace for each value, and the right one."""

    def fn(x: Tensor, n: int, s: float) -> Tensor:
        return x[:n].sum() * math.sqrt(s) + x.softmax(n - 1).sum()

    compiled = differentiate(fn)
    x = _leaf(0, torch.float64)
    for n, s in ((1, 0.5), (2, 0.5), (2, 0.7), (1, 0.7), (1, 0.5)):
        torch.testing.assert_close(compiled(x, n, s), fn(x, n, s))
    assert compiled.cache_info().entries == 4


def test_pinned_beside_varying() -> None:
    """One number is a size, the other a factor: only the first costs traces."""
    compiled = differentiate(lambda x, n, s: x[:n].sum() * s)
    x = _leaf(0, torch.float64)
    for n in (1, 2):
        for s in (0.1, 0.2, 0.3, 0.4):
            torch.testing.assert_close(compiled(x, n, s), x[:n].sum() * s)
    assert compiled.cache_info().entries <= 4


def test_a_branch_on_a_float_is_a_path() -> None:
    def fn(x: Tensor, s: float) -> Tensor:
        return (x * s).sum() if s > 0.5 else (x / (1 + s)).sum()

    compiled = differentiate(fn)
    x = _leaf(0, torch.float64)
    for s in (0.7, 0.9, 0.1, 0.2, 0.8, 0.3):
        torch.testing.assert_close(compiled(x, s), fn(x, s))
    assert compiled.cache_info().entries == 3, "0.7, above 0.5, below"


def test_division_by_a_number_that_becomes_zero_raises_as_python_does() -> None:
    compiled = differentiate(lambda x, s: x * (1.0 / s))
    x = _leaf(0)
    for s in (1.0, 2.0, 4.0):
        compiled(x, s)
    with pytest.raises(ZeroDivisionError):
        compiled(x, 0.0)


def test_nan_and_signed_zero_pass_through() -> None:
    compiled = differentiate(lambda x, s: x * s)
    x = torch.ones(2)
    for s in (1.0, 2.0, math.nan, -0.0, 0.0, math.inf):
        got = compiled(x, s)
        np.testing.assert_array_equal(got.numpy(), (x * s).numpy())
        assert torch.equal(torch.signbit(got), torch.signbit(x * s))
    assert compiled.cache_info().entries == 2


def test_a_number_returned_or_stored_is_a_plain_one() -> None:
    kept: list[Any] = []

    def fn(x: Tensor, s: float) -> tuple[Tensor, float]:
        kept.append(s)
        return x * s, s

    compiled = differentiate(fn)
    for s in (1.0, 2.0, 3.0):
        assert compiled(torch.ones(2), s)[1] == s
    assert all(type(s) is float for s in kept)


def test_many_values_of_a_number_that_is_needed_give_a_warning() -> None:
    compiled = differentiate(lambda x, s: x * math.gamma(1 + s))
    with pytest.warns(RetraceWarning, match=r"args\[1\], because its value is read at .*numbers"):
        for n in range(12):
            compiled(torch.ones(2), 0.1 * n)


def test_dtypes_give_way_as_to_a_python_number() -> None:
    compiled = differentiate(lambda x, s: (x * s, x + 1, x > s))
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.int64, torch.bool):
        x = torch.tensor([0, 1, 1]).to(dtype)
        for s in (0.5, 1.5, 2.5):
            for got, want in zip(compiled(x, s), (x * s, x + 1, x > s), strict=True):
                assert got.dtype == want.dtype
                torch.testing.assert_close(got, want)


def test_functions_of_numbers_in_functional_and_custom_rules() -> None:
    """A number reaches dropout, a rule of the user's own, and a nested gradient as a plain one."""

    @gradof.custom_vjp
    def scaled(x: Any, s: float) -> Any:
        return x * s

    scaled.defvjp(lambda x, s: (x * s, s), lambda s, g: (g * s * 10, None))

    def fn(x: Tensor, s: float) -> Tensor:
        y: Tensor = F.leaky_relu(x - 1, s) + scaled(x, s)
        inner: Tensor = gradof.grad(lambda t: (t**2 * s).sum())(x)
        return y.sum() + inner.sum()

    for s in (0.3, 0.4, 0.6):
        x = _leaf(1, torch.float64)
        y = x.detach().clone().requires_grad_()
        compiled = differentiate(fn)
        for value in (0.1, 0.2, s):
            (got,) = torch.autograd.grad(compiled(x, value), x)
        (leaky,) = torch.autograd.grad(F.leaky_relu(y - 1, s).sum(), y)
        torch.testing.assert_close(got, leaky + 10 * s + 2 * s)


def test_explain_says_why_and_what_a_trace_cost() -> None:
    compiled = differentiate(lambda x, s: (x * s).sum())
    compiled(torch.ones(3), 0.5)
    compiled(torch.ones(4), 0.5)
    compiled(torch.ones(4), 0.6)
    said = compiled.explain(torch.ones(4), 0.7)
    assert [reason for reason, _ in said.traces] == [
        "the first call", "args[0] is float32[4], was float32[3]",
        "args[1] varies, and is an input from now on",
    ]  # fmt: skip
    assert all(seconds > 0 for _, seconds in said.traces)
    assert "traced 3 times" in str(said) and "args[1] varies" in str(said)
