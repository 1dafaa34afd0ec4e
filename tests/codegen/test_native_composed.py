"""Native code of ops that are made of several functions: exact remainders, and soft maxima."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import gradof
from gradof.codegen.llvm.kernel import NativeKernel
from gradof.codegen.machine.llvm_types import Instructions
from tests.codegen.test_native import nests
from tests.runtime.compare import check


def kernel_of(op: str, dtype: str) -> NativeKernel:
    (nest,) = nests(f"graph f(%x : {dtype}[64], %y : {dtype}[64]):\n"
                    f" %z : {dtype}[64] = {op}(%x, %y)\n return (%z)")  # fmt: skip
    return NativeKernel(nest)


def numbers(dtype: Any, kind: str, n: int) -> Any:
    """Pairs of which the quotient is small, or anything, or a whole number up to a rounding."""
    rng = np.random.default_rng(5)
    a, b = rng.normal(size=(2, n)) * 10.0 ** rng.integers(-3, 4, (2, n))
    if kind == "any":
        bits = rng.bytes(2 * n * np.dtype(dtype).itemsize)
        return np.frombuffer(bits, dtype).reshape(2, n)
    if kind == "whole":
        b = b.astype(dtype)
        a = b * rng.integers(-(2**20), 2**20, n).astype(dtype)
        a = np.nextafter(a, rng.choice([-np.inf, 0, np.inf], n).astype(dtype))
    if kind == "special":
        few = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -2.5, 1e-310, 3e38, 5e-324, -1e-45, 0.1]
        a, b = np.array(np.meshgrid(few, few)).reshape(2, -1).repeat(16, axis=1)  # whole vectors
    with np.errstate(over="ignore"):
        return a.astype(dtype), b.astype(dtype)


@pytest.mark.parametrize("kind", ["small", "whole", "any", "special"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("op", ["fmod", "remainder"])
def test_remainders_are_exact(op: str, dtype: str, kind: str) -> None:
    type_ = {"f32": np.float32, "f64": np.float64}[dtype]
    a, b = numbers(type_, kind, 20_000)
    (have,) = kernel_of(op, dtype)(a, b)
    with np.errstate(all="ignore"):
        want = getattr(np, op)(a, b)
    np.testing.assert_array_equal(have, want)
    if op == "fmod":
        some = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(have[some]), np.signbit(want[some]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_remainders_of_two_widths_in_one_function(dtype: torch.dtype) -> None:
    """Beside whole numbers of 64 bits fewer numbers are in one vector."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        turned = torch.cat([torch.remainder(x[:, :1], 6.0), x[:, 1:]], 1)
        return torch.remainder(turned[:, 0], 4.0).long()

    x = torch.linspace(1, 9, 120, dtype=dtype).reshape(2, 3, 20)
    assert torch.equal(gradof.differentiate(fn)(x), fn(x))


def test_a_function_has_one_type() -> None:
    text = Instructions()
    text.declare("f", "declare float @f(float)")
    text.declare("f", "declare float @f(float)")
    with pytest.raises(AssertionError, match="two functions named f"):
        text.declare("f", "declare double @f(double)")


LOSSES = {
    "logaddexp": lambda x, y: torch.logaddexp(x, y) * y,
    "softplus": lambda x, y: F.softplus(x, beta=2.0, threshold=3.0) * y,
    "log_sigmoid": lambda x, y: F.logsigmoid(x * 9) * y,
    "with_logits": lambda x, y: F.binary_cross_entropy_with_logits(x, torch.sigmoid(y).detach()),
    "fmod": lambda x, y: torch.fmod(x, 0.7) * y + torch.fmod(y, x.abs() + 0.3),
    "remainder": lambda x, y: torch.remainder(x, -0.7) * y + torch.remainder(y, x.abs() + 0.3),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_eagers(
    name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADOF_BACKEND", "native")
    generator = torch.Generator().manual_seed(2)
    x, y = (torch.randn(300, 130, generator=generator, dtype=dtype).requires_grad_()
            for _ in range(2))  # fmt: skip
    compiled = check(LOSSES[name], x, y, order=2 if dtype == torch.float64 else 1)
    (plan,) = compiled.plans()
    ran = [g.f.executable.kernels for g in plan.gradients.values()]
    assert any(isinstance(kernel, NativeKernel) for kernels in ran for kernel in kernels)


def test_numpy_callers_have_them_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADOF_BACKEND", "native")

    def fn(x: Any, y: Any) -> Any:
        return np.sum(np.logaddexp(x, y) * np.fmod(x, 1.3) + np.remainder(y, -0.4))

    x, y = np.random.default_rng(1).normal(size=(2, 300, 40))
    value, (dx, dy) = gradof.value_and_grad(fn, argnums=(0, 1))(x, y)
    tx, ty = (torch.from_numpy(a).requires_grad_() for a in (x, y))
    want = (torch.logaddexp(tx, ty) * torch.fmod(tx, 1.3) + torch.remainder(ty, -0.4)).sum()
    np.testing.assert_allclose(value, want.detach(), rtol=1e-12)
    for have, g in zip((dx, dy), torch.autograd.grad(want, (tx, ty)), strict=True):
        np.testing.assert_allclose(have, g, rtol=1e-12, atol=1e-13)
