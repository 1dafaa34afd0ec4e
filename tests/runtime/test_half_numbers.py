"""Numbers beside half precision, masks, and what torch's kernels round once: eager's bits."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

from gradof import differentiate
from tests.runtime.compare import assert_compiled

HALVES = [torch.bfloat16, torch.float16]
NUMBERS = (0.1, 0.3, -0.7)  # none of them is a number of half precision
SIZES = (40, 40_000)  # statements of numpy and torch, and kernels

WITH_NUMBER: dict[str, Callable[[Any, float], Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "rsub": lambda x, s: s - x, "rdiv": lambda x, s: s / x, "fmod": torch.fmod,
    "remainder": operator.mod, "floor_divide": operator.floordiv,
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "eq": operator.eq, "ne": operator.ne, "pow": operator.pow,
    "clamp": lambda x, s: x.clamp(-abs(s), abs(s)), "where": lambda x, s: torch.where(x > s, x, s),
    "masked_fill": lambda x, s: x.masked_fill(x > s, s),
    "leaky_relu": lambda x, s: functional.leaky_relu(x, abs(s)),
    "hardshrink": functional.hardshrink,
    "softshrink": lambda x, s: functional.softshrink(x, abs(s)),
    "threshold": lambda x, s: functional.threshold(x, s, 0.0),
    "copysign": torch.copysign,
    "a mask of a product": lambda x, s: (x * x * s > s) & (x + s <= 2 * s),
}  # fmt: skip


def _same(got: torch.Tensor, want: torch.Tensor) -> None:
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


def _sample(dtype: torch.dtype, size: int, at: float) -> torch.Tensor:
    x = torch.randn(size).to(dtype)
    x[: size // 4] = torch.tensor(at, dtype=dtype)  # what the number would be, were it rounded
    return x.requires_grad_()


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", WITH_NUMBER)
def test_numbers_are_rounded_where_eager_rounds_them(name: str, dtype: torch.dtype) -> None:
    fn = WITH_NUMBER[name]
    varying = differentiate(fn)
    for size in SIZES:
        for number in NUMBERS:
            x = _sample(dtype, size, number)
            constant = differentiate(lambda x, s=number: fn(x, s))
            for got in (constant(x), varying(x, number)):
                _same(got, fn(x, number))
                assert_compiled([got])


VALUES: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda x: torch.softmax(x, -1) * (x.shape[-1] / 4),
    "layer_norm": lambda x: functional.layer_norm(x, x.shape[-1:]),
    "polynomial": lambda x: x * 1.1 + x * x, "gelu": functional.gelu,
    "exponential": lambda x: torch.exp(x) * 0.3,
    "gate": lambda x: torch.sigmoid(x) * torch.tanh(x),
}  # fmt: skip


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("shape", [(40,), (3_000,), (40_000,), (400, 100)], ids=str)
def test_a_mask_and_what_it_selects(name: str, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    def fn(x: torch.Tensor) -> Any:
        v = VALUES[name](x)
        mask = v > 0.1
        return v, mask, v[mask], mask.sum(), torch.where(mask, v, 0.0), (v == 0.1).sum()

    values, mask, chosen, count, kept, ties = differentiate(fn)(torch.randn(shape).to(dtype))
    assert mask.equal(values > 0.1)
    assert chosen.equal(values[mask])
    assert count == chosen.numel() == mask.sum()
    assert kept.equal(torch.where(mask, values, 0.0))
    assert ties == (values == 0.1).sum()


# --- rounded once -------------------------------------------------------------------------------

ONCE: dict[str, Callable[..., Any]] = {
    "addcmul": lambda x, a, b: torch.addcmul(x, a, b, value=0.01),
    "addcmul of one": torch.addcmul,
    "addcdiv": lambda x, a, b: torch.addcdiv(x, a, b * 1e-3 + 1, value=0.001),
    "lerp": lambda x, a, b: torch.lerp(x, a * 100, 0.7),
    "lerp by a tensor": lambda x, a, b: torch.lerp(x, a * 100, b / 1000),
    "addmm": lambda x, a, b: torch.addmm(x, a, b, alpha=1e-3),
    "addmm of two": lambda x, a, b: torch.addmm(x, a, b, alpha=1e-3, beta=0.3),
    "baddbmm": lambda x, a, b: torch.baddbmm(x[None], a[None], b[None], alpha=1e-3, beta=0.3),
    "addbmm": lambda x, a, b: torch.addbmm(x, a[None], b[None], alpha=1e-3),
    "addmv": lambda x, a, b: torch.addmv(x[0], a, b[0], alpha=1e-3),
    "addr": lambda x, a, b: torch.addr(x, a[0], b[0], alpha=1e-3),
    "add": lambda x, a, b: torch.add(x, a, alpha=100.3),
    "sub": lambda x, a, b: torch.sub(x, a, alpha=100.3),
    "rsub": lambda x, a, b: torch.rsub(x, a, alpha=100.3),
}


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", ONCE)
@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_rounded_once(name: str, dtype: torch.dtype, scale: float) -> None:
    # of float16 the steps overflow where eager's result is finite
    args = [(torch.randn(60, 60) * scale).to(dtype).requires_grad_() for _ in range(3)]
    fn = ONCE[name]
    got, want = differentiate(fn)(*args), fn(*args)
    assert_compiled([got])
    assert got.dtype == want.dtype == dtype
    assert got.isfinite().equal(want.isfinite())
    exact = fn(*(a.double() for a in args))
    finite = want.isfinite()
    error, eager = ((v.double() - exact)[finite].abs().amax() for v in (got, want))
    assert error <= 1.5 * eager
    weights = torch.randn(want.shape).to(dtype)
    for mine, theirs in zip(*(
        torch.autograd.grad(v, args, weights, allow_unused=True) for v in (got, want)
    ), strict=True):  # fmt: skip
        if theirs is not None:
            finite = theirs.isfinite()
            assert mine.isfinite().logical_or(~finite).all()
            torch.testing.assert_close(mine[finite], theirs[finite], rtol=0.02, atol=0.02 * scale)
        else:
            assert mine is None


BESIDE: list[Callable[[Any, Any], Any]] = [
    lambda x, s: x * s, lambda x, s: s * x, lambda x, s: x / s, lambda x, s: s / x,
    lambda x, s: x + s, lambda x, s: x > s, lambda x, s: x // s,
]  # fmt: skip


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_numbers_that_are_tensors(dtype: torch.dtype) -> None:
    x = torch.randn(4_000).to(dtype).requires_grad_()
    for number in NUMBERS:
        s = torch.tensor(number, dtype=torch.float64)
        for fn in BESIDE:
            _same(differentiate(fn)(x, s), fn(x, s))
