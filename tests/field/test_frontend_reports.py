"""Reports of code that compilers refuse, or run with stale values: branches, assignment, closures.

And of a CPU without a C compiler, of rounding, of random numbers, and of NaN behind `where`.
Expected numbers are eager's, a closed formula's or finite differences'.
"""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gradof
from gradof import differentiate
from gradof.errors import DataDependentShapeError
from tests.runtime.compare import check

Tensor = torch.Tensor
F64 = torch.float64


def _leaf(*shape: int, seed: int = 0, dtype: torch.dtype = F64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=F64, generator=generator).to(dtype).requires_grad_()


def _slope(fn: Any, x: Any, direction: Any, step: float = 1e-6) -> float:
    return float((fn(x + step * direction) - fn(x - step * direction)) / (2 * step))


# --- control flow by value ------------------------------------------------------------------------


def test_torchdynamo_96_a_branch_on_a_tensor() -> None:
    def fn(x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x.sin().sum()
        return (x * x).sum()

    check(fn, torch.tensor([1.0, 2.0], dtype=F64, requires_grad=True), order=2)
    check(fn, torch.tensor([-1.0, -2.0], dtype=F64, requires_grad=True), order=2)


def test_pytorch_117807_a_loop_until_convergence() -> None:
    """Newton's method for a square root, as often as it takes."""

    def root(a: Tensor) -> Tensor:
        x = a
        while (x * x - a).abs() > 1e-10:
            x = 0.5 * (x + a / x)
        return x

    compiled = differentiate(root)
    for value in (2.0, 9.0, 100.0, 2.5):
        a = torch.tensor(value, dtype=F64, requires_grad=True)
        (grad,) = torch.autograd.grad(compiled(a), a)
        torch.testing.assert_close(grad, torch.tensor(0.5 / math.sqrt(value), dtype=F64))


def test_jax_16430_bool_of_an_array_and_of_a_comparison() -> None:
    def fn(x: Any) -> Any:
        total = 0.0
        for value in x:
            if value > 1.0 and not value > 3.0:
                total = total + value**2
        return total * 1.0

    got = gradof.grad(fn)(np.array([0.5, 2.0, 4.0, 1.5]))
    np.testing.assert_array_equal(got, [0.0, 4.0, 0.0, 3.0])


def test_jax_18979_max_and_sorted_of_python() -> None:
    """Builtins that compare take the branch that the numbers give."""

    def fn(x: Any) -> Any:
        a, b = x[0], x[1]
        return max(a, b) ** 2 + min(a, b) + abs(a)

    for values in ([3.0, 1.0], [-1.0, 2.0]):
        x = np.array(values)
        direction = np.array([0.3, 0.7])
        np.testing.assert_allclose(gradof.grad(fn)(x) @ direction, _slope(fn, x, direction),
                                   rtol=1e-7)  # fmt: skip


def test_a_shape_that_depends_on_values_is_refused_by_name() -> None:
    """pytorch#117807's cousin: there is no shape to compile for, and the message says so."""
    with pytest.raises(DataDependentShapeError, match="unique"):
        differentiate(lambda x: torch.unique(x).sum(), strict=True)(_leaf(4))


# --- assignment -----------------------------------------------------------------------------------


def test_hips_58_assignment_into_an_array() -> None:
    """`A[i] = x` was an opaque TypeError."""

    def fn(x: Any) -> Any:
        table = np.zeros((3, 3))
        for i in range(3):
            table[i, i] = x[i] ** 2
        table[0, 1:] = x[1:]
        return np.sum(np.sin(table))

    x, direction = np.array([0.3, 0.7, 1.1]), np.array([0.2, -0.4, 0.9])
    np.testing.assert_allclose(gradof.grad(fn)(x) @ direction, _slope(fn, x, direction), rtol=1e-7)


def test_jax_2219_updates_in_a_loop_of_a_stencil() -> None:
    """Heat on a line, written with slices in place."""

    def fn(u: Any) -> Any:
        u = u.copy()
        for _ in range(10):
            u[1:-1] += 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
        return np.sum(u**2)

    u = np.random.default_rng(0).random(8)
    direction = np.random.default_rng(1).standard_normal(8)
    np.testing.assert_allclose(gradof.grad(fn)(u) @ direction, _slope(fn, u, direction), rtol=1e-7)


# --- what is captured -----------------------------------------------------------------------------


def test_jax_14655_a_large_array_in_a_closure_is_no_constant() -> None:
    table = np.random.default_rng(0).random((200, 300))
    fn = differentiate(lambda x: np.sum(table @ x))
    graph = fn.trace(np.ones(300))
    assert len(graph.inputs) == 2 and not any(n.kind == "Constant" for n in graph.walk())
    before = fn(np.ones(300))
    table *= 2
    np.testing.assert_allclose(fn(np.ones(300)), 2 * before)


def test_jax_16278_captured_arrays_are_not_copied() -> None:
    """The array itself is read: its memory, at each call."""
    table = np.random.default_rng(0).random(1000)
    fn = differentiate(lambda x: np.sum(table * x))
    bound = fn.bind((np.ones(1000),), {})
    assert any(array is table for array in bound.inputs)


def test_jax_21300_a_captured_parameter_is_differentiated_where_it_is_an_argument() -> None:
    w = torch.ones(3, dtype=F64, requires_grad=True)
    x = torch.arange(3.0, dtype=F64)
    differentiate(lambda t: (t * w).sum())(x).backward()
    torch.testing.assert_close(w.grad, x)


def test_mlx_closures_are_not_stale() -> None:
    """MLX documents that a compiled function keeps the first value of what it closes over."""
    scale = 2.0
    array = np.ones(2)

    def fn(x: Any) -> Any:
        return np.sum(x * scale * array)

    compiled = differentiate(fn)
    assert compiled(np.ones(2)) == 4.0
    scale = 3.0
    assert compiled(np.ones(2)) == 6.0
    array = np.full(2, 5.0)
    assert compiled(np.ones(2)) == 30.0


# --- a machine without a C compiler ---------------------------------------------------------------


@pytest.mark.parametrize("backend", ["native", "tiles", "numpy"])
def test_pytorch_92745_no_compiler_on_the_path(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also pytorch#167062, #90768, #154127, bitsandbytes#1251: no cc, and gradients still."""
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("GRADOF_BACKEND", backend)
    x = torch.randn(300, 300, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    torch.autograd.backward(F.gelu(x).square().sum())
    compiled = differentiate(lambda t: F.gelu(t).square().sum())
    compiled(y).backward()
    torch.testing.assert_close(x.grad, y.grad, rtol=2e-5, atol=1e-6)


def test_pytorch_179135_the_kernels_say_who_made_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for backend in ("native", "tiles"):
        monkeypatch.setenv("GRADOF_BACKEND", backend)
        said = differentiate(lambda t: torch.tanh(t * 2).sum()).explain(torch.rand(400, 400))
        assert said.kernels and backend in said.kernels[0], said.kernels


# --- rounding and random numbers ------------------------------------------------------------------


def test_pytorch_168126_layer_norm_then_a_product_in_bfloat16() -> None:
    """Judged by float64: as near to it as eager is."""
    torch.manual_seed(0)
    norm, linear = nn.LayerNorm(64), nn.Linear(64, 64)
    x = torch.randn(32, 64)

    def fn(x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = linear(norm(x))
            return torch.mean((h * torch.sigmoid(h)).float().square())

    double = nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 64)).to(F64)
    double.load_state_dict({**{f"0.{k}": v for k, v in norm.state_dict().items()},
                            **{f"1.{k}": v for k, v in linear.state_dict().items()}})  # fmt: skip
    h = double(x.double())
    exact = (h * torch.sigmoid(h)).square().mean()
    ours, eager = differentiate(fn)(x), fn(x)
    assert abs(ours - exact) <= 2 * abs(eager - exact) + 1e-3 * abs(exact)


def test_pytorch_168186_chunks_of_a_product_in_bfloat16() -> None:
    """A sum of two halves of a product of two projections, which rounded otherwise compiled."""
    torch.manual_seed(0)
    p, g = nn.Linear(32, 64, bias=False), nn.Linear(32, 64, bias=False)

    def fn(x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a, b = torch.chunk(p(x) * g(x), 2, dim=-1)
            return a + b

    x = torch.randn(16, 32)
    got, want = differentiate(fn)(x), fn(x)
    assert got.dtype == want.dtype == torch.bfloat16
    torch.testing.assert_close(got, want, rtol=2**-7, atol=2**-7)


def test_pytorch_141436_division_in_bfloat16_and_a_cumulative_sum() -> None:
    x = torch.randn(6, 32).bfloat16()
    y = torch.randn(6) + 3

    def fn(a: Tensor, b: Tensor) -> Tensor:
        return a / b.to(a.dtype).unsqueeze(-1)

    assert torch.equal(differentiate(fn)(x, y), fn(x, y))
    z = torch.randn(1000)
    torch.testing.assert_close(differentiate(lambda t: t.cumsum(0))(z), z.cumsum(0),
                               rtol=1e-5, atol=1e-5)  # fmt: skip


@pytest.mark.parametrize("shape", [(5,), (64, 64), (3, 4, 5)])
def test_pytorch_118735_dropout_has_eagers_mask(shape: tuple[int, ...]) -> None:
    """Also pytorch#192635, #172206: one seed, one mask, compiled or not, forward and backward."""
    runs = []
    for wrap in (differentiate, lambda f: f):
        x = torch.ones(shape, requires_grad=True)
        torch.manual_seed(3)
        y = wrap(lambda t: F.dropout(t, 0.4) * 2)(x)
        y.sum().backward()
        runs.append((y.detach(), x.grad, torch.rand(1)))
    for mine, theirs in zip(*runs, strict=True):
        assert mine is not None and torch.equal(mine, theirs)


def test_pytorch_178843_dropout_in_a_checkpointed_block_replays() -> None:
    def fn(x: Tensor) -> Tensor:
        return torch.sum(gradof.checkpoint(lambda t: F.dropout(t.sin(), 0.5).exp(), x))

    x = _leaf(50)
    torch.manual_seed(1)
    y = differentiate(fn)(x)
    y.backward()
    torch.manual_seed(1)
    mask = F.dropout(torch.ones(50, dtype=F64), 0.5)
    inner = x.detach().sin() * mask
    torch.testing.assert_close(x.grad, inner.exp() * mask * x.detach().cos())


# --- NaN behind where -----------------------------------------------------------------------------



def test_jax_347_square_root_at_zero() -> None:
    x = np.array([0.0, 4.0])
    fn = lambda x: np.sum(np.where(x > 0, np.sqrt(x), 0.0))  # noqa: E731
    assert np.isnan(gradof.grad(fn)(x)[0]), "the default is eager's"
    np.testing.assert_array_equal(gradof.grad(fn, numerics="nan_safe")(x), [0.0, 0.25])


def test_jax_1052_a_norm_at_the_origin() -> None:
    def fn(x: Tensor) -> Tensor:
        norm = (x * x).sum(-1).sqrt()
        return torch.where(norm > 0, norm, torch.zeros_like(norm)).sum()

    x = torch.tensor([[0.0, 0.0], [3.0, 4.0]], dtype=F64, requires_grad=True)
    (grad,) = torch.autograd.grad(differentiate(fn, numerics="nan_safe")(x), x)
    torch.testing.assert_close(grad, torch.tensor([[0.0, 0.0], [0.6, 0.8]], dtype=F64))


def test_jax_5798_division_in_the_branch_that_is_not_taken() -> None:
    fn = lambda x: np.sum(np.where(x == 0, 1.0, np.sin(x) / x))  # noqa: E731
    x = np.array([0.0, 1.0])
    got = gradof.grad(fn, numerics="nan_safe")(x)
    np.testing.assert_allclose(got, [0.0, math.cos(1.0) - math.sin(1.0)], rtol=1e-12)


def test_jax_19089_second_derivative_behind_where() -> None:
    fn = lambda x: np.sum(np.where(x > 0, np.log(x) * x, 0.0))  # noqa: E731
    x = np.array([0.0, 2.0])
    got = gradof.hessian(fn, numerics="nan_safe")(x)
    np.testing.assert_allclose(got, np.diag([0.0, 0.5]), atol=1e-14)


def test_jax_faq_where_of_a_power_and_its_lint() -> None:
    def fn(x: Tensor) -> Tensor:
        return torch.where(x > 0, x**0.5, x * 0.0).sum()

    x = torch.tensor([0.0, 1.0], dtype=F64, requires_grad=True)
    compiled = differentiate(fn, numerics="nan_safe")
    (grad,) = torch.autograd.grad(compiled(x), x)
    torch.testing.assert_close(grad, torch.tensor([0.0, 0.5], dtype=F64))
    (found,) = differentiate(fn).lint(x)
    assert str(fn.__code__.co_firstlineno + 1) in str(found)
