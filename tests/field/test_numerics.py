"""Section F: what is rounded. Judged by eager's bits, or by float64.

A chain of bfloat16 ops rounds where eager rounds; what is reduced is as near to float64 as eager
is.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from gradof import differentiate
from tests.runtime.compare import assert_compiled

Tensor = torch.Tensor
F64 = torch.float64
HALVES = (torch.bfloat16, torch.float16)


def _leaf(*shape: int, seed: int = 0, dtype: torch.dtype = F64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=F64, generator=generator).to(dtype).requires_grad_()


def _eighths(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Multiples of 1/8 whose products and sums float32 holds exactly, in any order."""
    generator = torch.Generator().manual_seed(seed)
    return (torch.randint(-16, 17, shape, generator=generator) / 8).to(dtype).requires_grad_()


def _run(fn: Callable[..., Any], leaves: list[Tensor]) -> list[Tensor]:
    """The result, and the gradients of its weighted sum with respect to the leaves."""
    leaves = [x.detach().clone().requires_grad_() for x in leaves]
    out = fn(*leaves)
    if fn.__class__.__module__.startswith("gradof"):
        assert_compiled([out])
    weights = torch.arange(out.numel(), dtype=F64).cos().view(out.shape)
    return [out, *torch.autograd.grad((out * weights.to(out.dtype)).sum(), leaves)]


def same_bits(fn: Callable[..., Any], *leaves: Tensor) -> None:
    """Result and gradients are eager's, bit for bit."""
    for mine, theirs in zip(_run(differentiate(fn), [*leaves]), _run(fn, [*leaves]), strict=True):
        assert mine.dtype == theirs.dtype
        assert torch.equal(mine, theirs), (mine - theirs).abs().max()


def as_near_as_eager(fn: Callable[..., Any], *leaves: Tensor) -> None:
    """Result and gradients are at most twice as far from float64 as eager's, in the mean square."""
    exact = _run(fn, [x.to(F64) for x in leaves])
    ours, eager = _run(differentiate(fn), [*leaves]), _run(fn, [*leaves])
    for mine, theirs, true in zip(ours, eager, exact, strict=True):
        right = true.detach()
        assert mine.dtype == theirs.dtype

        def error(got: Tensor, right: Tensor = right) -> float:
            return float((got.detach().double() - right).square().mean().sqrt())

        resolution = torch.finfo(mine.dtype).eps * float(right.square().mean().sqrt())
        assert error(mine) <= 2 * error(theirs) + 0.1 * resolution
        assert error(mine) < 0.1 * float(right.square().mean().sqrt()), "and near at all"


def _rotate_half(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), -1)


@pytest.mark.parametrize("dtype", HALVES)
def test_pytorch_159239_rotary_embedding_rounds_where_eager_rounds(dtype: torch.dtype) -> None:
    """Two products and a sum, each rounded: fused, they were rounded once."""

    def fn(q: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        return (q * cos) + (_rotate_half(q) * sin)

    q, cos, sin = (_leaf(1, 2, 7, 16, seed=n, dtype=dtype) for n in range(3))
    same_bits(fn, q, cos, sin)


@pytest.mark.parametrize("dtype", HALVES)
def test_pytorch_182225_rotary_embedding_of_queries_and_keys_with_tables(
    dtype: torch.dtype,
) -> None:
    """The tables are broadcast over heads, and their gradients are sums over them."""

    def fn(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        rotated = [x * cos + _rotate_half(x) * sin for x in (q, k)]
        return torch.cat(rotated, 1)

    q, k = _leaf(1, 4, 7, 16, dtype=dtype), _leaf(1, 1, 7, 16, seed=1, dtype=dtype)
    cos, sin = (_leaf(1, 7, 16, seed=n, dtype=dtype) for n in (2, 3))
    assert torch.equal(differentiate(fn)(q, k, cos, sin), fn(q, k, cos, sin))
    as_near_as_eager(fn, q, k, cos, sin)


def test_pytorch_181568_a_product_cast_down_before_a_float32_sum() -> None:
    """The cast to bfloat16 is not dropped, forward or backward."""

    def fn(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return (x @ w).to(torch.bfloat16) + b

    x, w, b = _eighths(15, 32, seed=0), _eighths(32, 17, seed=1), _leaf(17, dtype=torch.float32)
    got, want = _run(differentiate(fn), [x, w, b]), _run(fn, [x, w, b])
    assert torch.equal(got[0], want[0])
    assert not torch.equal(want[0], x @ w + b), "the cast shows"
    for mine, theirs in zip(got[1:], want[1:], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-5)


def test_pytorch_182131_casts_before_a_sum_are_kept() -> None:
    c = torch.arange(24).reshape(2, 3, 4) % 5 == 0

    def fn(x: Tensor) -> Tensor:
        z = torch.where(c, torch.full_like(x, 0.5), torch.full_like(x, -0.5))
        return z.to(torch.float16) + x.to(torch.float16)

    same_bits(fn, (torch.arange(24.0).reshape(2, 3, 4) / 10).requires_grad_())
    same_bits(lambda x: fn(x).float() * 3 + x, (torch.arange(24.0) / 7).reshape(2, 3, 4))


def test_pytorch_180575_down_and_up_again_is_no_identity() -> None:
    """float32, bfloat16, float32: the pair of casts rounds, and was removed."""

    def fn(x: Tensor) -> Tensor:
        y = x.to(torch.bfloat16).float()
        return y * torch.sigmoid(y)

    x = _leaf(40, dtype=torch.float32)
    got, want = _run(differentiate(fn), [x]), _run(fn, [x])
    for mine, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-7)
    rounded = (x.to(torch.bfloat16).float() - x).abs().max()
    assert rounded > 1e-3, "what a dropped cast would leave out"


def test_pytorch_195214_ties_are_counted_after_rounding() -> None:
    """Elements that are equal once rounded share the gradient of a maximum written by hand."""

    def fn(x: Tensor) -> Tensor:
        scaled = x / 3
        top = scaled.amax(-1, keepdim=True)
        ties = (scaled == top).to(x.dtype)
        return (scaled * ties).sum(-1) / ties.sum(-1)

    x = torch.tensor([[1.0, 1.0078125, 1.0, 0.5], [-2.0, -2.0, -2.0, -2.015625]]).bfloat16()
    same_bits(fn, x)
    (_, grad) = _run(differentiate(fn), [x])
    assert torch.isfinite(grad).all()


def test_pytorch_136896_a_zero_dimensional_tensor_cast_to_half() -> None:
    """The scalar is rounded to half before the product: 1.0005 becomes 1."""

    def fn(x: Tensor, y: Tensor) -> Tensor:
        return x * y.to(torch.float16)

    x, y = torch.tensor([9.734375], dtype=torch.float16), torch.tensor(1.00048828125)
    same_bits(fn, x, y)
    assert differentiate(fn)(x, y).item() == 9.734375


@pytest.mark.parametrize("dtype", HALVES)
def test_pytorch_168186_chunks_of_a_product_judged_by_float64(dtype: torch.dtype) -> None:
    def fn(x: Tensor, p: Tensor, g: Tensor) -> Tensor:
        a, b = torch.chunk((x @ p) * (x @ g), 2, -1)
        return a + b

    x = _leaf(16, 32, dtype=dtype)
    p, g = (_leaf(32, 64, seed=n).detach().div(6).to(dtype).requires_grad_() for n in (1, 2))
    as_near_as_eager(fn, x, p, g)


class _Triangle(nn.Module):
    """The outgoing triangle multiplication of the report, small."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm_in, self.norm_out = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.p_in, self.g_in = (nn.Linear(dim, 2 * dim, bias=False) for _ in range(2))
        self.p_out, self.g_out = (nn.Linear(dim, dim, bias=False) for _ in range(2))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.norm_in(x)
        kept = x
        x = self.p_in(x) * self.g_in(x).sigmoid() * mask.unsqueeze(-1)
        a, b = torch.chunk(x.to(mask.dtype), 2, dim=-1)
        x = torch.einsum("bikd,bjkd->bijd", a, b)
        out: Tensor = self.p_out(self.norm_out(x)) * self.g_out(kept).sigmoid()
        return out


def test_pytorch_168126_a_triangle_multiplication_trains_like_eager_in_bfloat16() -> None:
    """Every parameter's gradient is as near to float64 as eager's, under autocast."""
    torch.manual_seed(0)
    net = _Triangle(16)
    x, mask = torch.randn(2, 6, 6, 16), (torch.rand(2, 6, 6) < 0.8).float()

    def gradients(run: Any, module: nn.Module, half: bool) -> list[Tensor]:
        kind = F64 if not half else torch.float32
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
            out = run(x.to(kind), mask.to(kind))
        loss = (out.to(kind) * torch.arange(out.numel()).cos().view(out.shape)).sum()
        return list(torch.autograd.grad(loss, list(module.parameters())))

    exact = copy.deepcopy(net).double()
    right = gradients(exact, exact, False)
    compiled = differentiate(net)
    ours, eager = gradients(compiled, net, True), gradients(net, net, True)
    assert compiled.cache_info().backward_runs == 1
    for (name, _), mine, theirs, true in zip(
        net.named_parameters(), ours, eager, right, strict=True
    ):
        scale = float(true.norm())
        assert float((mine - true).norm()) <= 2 * float((theirs - true).norm()) + 1e-4 * scale, name


@pytest.mark.parametrize("dtype", HALVES)
def test_pytorch_150638_log_probabilities_of_half_logits(dtype: torch.dtype) -> None:
    """A half product and bias, a float32 log-softmax, and a gather of the chosen tokens."""
    chosen = torch.randint(0, 50, (4, 6), generator=torch.Generator().manual_seed(0))

    def fn(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        wide = F64 if x.dtype == F64 else torch.float32
        logits = F.log_softmax((torch.matmul(x, w.t()) + b).to(wide), dim=-1)
        return logits.gather(-1, chosen.unsqueeze(-1)).squeeze(-1)

    as_near_as_eager(fn, *(_leaf(*s, seed=n, dtype=dtype)
                           for n, s in enumerate([(4, 6, 32), (50, 32), (50,)])))  # fmt: skip


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_pytorch_173307_second_derivative_of_gelu_in_bfloat16(approximate: str) -> None:
    """The derivative of gelu's derivative, judged by float64."""

    def second(wrap: Any, x: Tensor) -> Tensor:
        x = x.detach().clone().requires_grad_()
        (g,) = torch.autograd.grad(wrap(x).sum(), x, create_graph=True)
        (h,) = torch.autograd.grad(g.sum(), x)
        return h.double()

    def fn(x: Tensor) -> Tensor:
        return F.gelu(x, approximate=approximate)

    x = _leaf(300, dtype=torch.bfloat16)
    right, ours, eager = second(fn, x.double()), second(differentiate(fn), x), second(fn, x)
    assert (ours - right).norm() <= 2 * (eager - right).norm()
    assert (ours - right).norm() <= 0.02 * right.norm()


@pytest.mark.parametrize("dtype", HALVES)
def test_pytorch_143182_layer_norm_judged_by_float64(dtype: torch.dtype) -> None:
    def fn(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.layer_norm(x, (64,), w, b) * torch.sigmoid(x)

    as_near_as_eager(fn, *(_leaf(*s, seed=n, dtype=dtype)
                           for n, s in enumerate([(8, 64), (64,), (64,)])))  # fmt: skip


@pytest.mark.parametrize("backend", ["native", "tiles"])
def test_pytorch_189422_eager_numerics_are_the_default(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No switch to find: nothing is flushed to zero, reordered or assumed finite."""
    monkeypatch.setenv("GRADOF_BACKEND", backend)
    special = torch.tensor([1e-40, -1e-40, 0.0, -0.0, float("inf"), float("-inf"), float("nan"),
                            3.4e38, 1e-45, 1.0000001])  # fmt: skip
    x = special.repeat(4000).requires_grad_()
    y = torch.tensor([1e8, -1.0, 3.0]).repeat(13334)[: len(x)].requires_grad_()

    def fn(x: Tensor, y: Tensor) -> Tensor:
        return ((x + y) - y) * 0.5 + x * 0.0 + (x - x)

    got, want = _run(differentiate(fn), [x, y]), _run(fn, [x, y])
    for mine, theirs in zip(got, want, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(torch.signbit(mine[~mine.isnan()]), torch.signbit(theirs[~mine.isnan()]))


def test_pytorch_145401_variance_of_values_far_from_zero() -> None:
    """A mean of ten thousand: a variance by differences of squares would have no digit right."""

    def fn(x: Tensor) -> Tensor:
        var, mean = torch.var_mean(x, -1, correction=0)
        return var + mean * 1e-4

    x = (torch.randn(5, 384, generator=torch.Generator().manual_seed(0)) + 1e4).requires_grad_()
    as_near_as_eager(fn, x)
