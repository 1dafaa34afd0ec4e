"""bfloat16, float16 and complex32: eager's numbers, dtypes and gradients, autocast included."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

from gradof import differentiate
from gradof.codegen.lowering.half import round_bf16, round_c32

HALVES = [torch.bfloat16, torch.float16]
Tensor = torch.Tensor


def attention(q: Tensor, k: Tensor, b: Tensor) -> Tensor:
    scores = functional.softmax(q @ k.T * 0.5 + b, dim=-1)
    return functional.layer_norm(functional.gelu(scores @ k), (k.shape[-1],))


def close(mine: Tensor, theirs: Tensor, exact: Tensor) -> None:
    """As near to float64 as eager, with 4 ulps of the largest number to spare."""
    assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
    spare = 4 * torch.finfo(theirs.dtype).eps * exact.abs().max()
    off = (mine.double() - exact).abs().max()
    assert off <= 8 * (theirs.double() - exact).abs().max() + spare, off


@pytest.mark.parametrize("dtype", HALVES)
def test_values_and_gradients(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    args = [torch.randn(s, dtype=dtype).requires_grad_() for s in ((5, 8), (6, 8), (6,))]
    wide = [a.detach().double().requires_grad_() for a in args]
    compiled = differentiate(attention)
    outs = [fn(*a) for fn, a in ((compiled, args), (attention, args), (attention, wide))]
    seed = torch.randn(outs[0].shape).to(dtype)
    grads = [
        torch.autograd.grad(out, a, seed.to(out.dtype), create_graph=True)
        for out, a in zip(outs, (args, args, wide), strict=True)
    ]
    seconds = [
        torch.autograd.grad(sum(g.sin().sum() for g in gs), a)  # type: ignore[arg-type]
        for gs, a in zip(grads, (args, args, wide), strict=True)
    ]
    for mine, theirs, exact in zip(*[(o, *g) for o, g in zip(outs, grads, strict=True)],
                                   strict=True):  # fmt: skip
        close(mine, theirs, exact)
    for mine, _, exact in zip(*seconds, strict=True):
        assert mine.dtype == dtype
        assert (mine.double() - exact).norm() <= 0.1 * exact.norm()
    assert compiled.cache_info().backward_runs >= 2


@pytest.mark.parametrize("dtype", HALVES)
def test_casts_between_precisions_round_once(dtype: torch.dtype) -> None:
    def fn(x: Tensor) -> Tensor:
        low = x.to(dtype)
        return (low * low).float() + low.double().float()

    x = torch.tensor([1.0, 1 + 2**-8, 1 + 3 * 2**-9, -3.3e38, 65519.0, 1e-40, torch.nan, -0.0])
    leaf, other = x.clone().requires_grad_(), x.clone().requires_grad_()
    mine, theirs = differentiate(fn)(leaf), fn(other)
    torch.testing.assert_close(mine, theirs, rtol=0, atol=0, equal_nan=True)
    seed = torch.linspace(-1, 1, 8)
    torch.autograd.backward([mine, theirs], [seed, seed])
    torch.testing.assert_close(leaf.grad, other.grad, rtol=0.01, atol=0, equal_nan=True)


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_rounding_is_torchs() -> None:
    bits = torch.randint(-(2**31), 2**31 - 1, (20000,), dtype=torch.int64).to(torch.int32)
    x = torch.cat([bits.view(torch.float32), torch.tensor([torch.inf, -torch.inf, 0.0])])
    mine = torch.from_numpy(round_bf16(x.numpy()))
    torch.testing.assert_close(mine, x.bfloat16().float(), rtol=0, atol=0, equal_nan=True)
    z = torch.complex(x[:100].clamp(-1e4, 1e4), x[100:200].clamp(-1e4, 1e4))
    want = z.to(torch.complex32).to(torch.complex64)
    have = torch.from_numpy(round_c32(z.numpy()))
    torch.testing.assert_close(have, want, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("inside", [False, True])
def test_autocast_trains_float32_parameters(dtype: torch.dtype, inside: bool) -> None:
    torch.manual_seed(1)
    nets = [nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 3))
            for _ in range(2)]  # fmt: skip
    nets[1].load_state_dict(nets[0].state_dict())
    x, y = torch.randn(10, 6), torch.randint(0, 3, (10,))

    def step(net: nn.Module) -> Tensor:
        with torch.autocast("cpu", dtype=dtype) if inside else contextlib.nullcontext():
            logits = net(x)
            assert logits.dtype == dtype
            with torch.autocast("cpu", enabled=False):
                return functional.cross_entropy(logits.float(), y)

    compiled = differentiate(nets[0])
    losses = []
    for net in (compiled, nets[1]):
        with torch.autocast("cpu", dtype=dtype, enabled=not inside):
            loss = step(net)
        torch.autograd.backward(loss)
        losses.append(loss)
    torch.testing.assert_close(losses[0], losses[1], rtol=0.01, atol=0.01)
    for mine, theirs in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        assert mine.grad is not None and theirs.grad is not None
        assert mine.grad.dtype == torch.float32
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=0.05, atol=0.01)
    assert compiled.cache_info().backward_runs == 1


def test_a_gradient_scaler_scales_and_unscales() -> None:
    weight = torch.randn(4, 3, requires_grad=True)
    other = weight.detach().clone().requires_grad_()
    x = torch.randn(5, 4)
    for w, wrap in ((weight, differentiate), (other, lambda fn: fn)):
        scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        optimizer = torch.optim.SGD([w], lr=0.1)
        with torch.autocast("cpu", dtype=torch.float16):
            loss = wrap(lambda v: (x @ v).float().square().mean())(w)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    torch.testing.assert_close(weight, other, rtol=1e-2, atol=1e-3)


NUMBERS = [
    lambda x: x * 1e5, lambda x: x * 0.1, lambda x: x + 0.25, lambda x: x / 7e4, lambda x: 3 - x,
    lambda x: (x > 0.1).half(), lambda x: torch.where(x > 0, x, 0.1),
]  # fmt: skip


@pytest.mark.parametrize("fn", NUMBERS)
@pytest.mark.parametrize("size", [4, 70000])
@pytest.mark.parametrize("dtype", HALVES)
def test_numbers_beside_tensors_are_eagers(
    fn: Callable[[Tensor], Tensor], size: int, dtype: torch.dtype
) -> None:
    """In float16 1e5 is infinity, and 0.1 another number."""
    x = torch.linspace(-1e-3, 1e-3, size).to(dtype).requires_grad_()
    mine, theirs = differentiate(fn)(x), fn(x)
    assert torch.equal(mine, theirs)
    if theirs.requires_grad:
        (have,), (want,) = (torch.autograd.grad(y.sum(), x) for y in (mine, theirs))
        assert torch.equal(have, want)


def test_a_norm_in_float16_does_not_overflow() -> None:
    x = torch.full((8,), 300.0, dtype=torch.float16, requires_grad=True)
    norm = differentiate(torch.linalg.vector_norm)(x)
    norm.backward()
    assert norm.item() == pytest.approx(300 * 8**0.5, rel=1e-3)
    assert x.grad is not None and torch.isfinite(x.grad).all()


def test_dropout_in_bfloat16_draws_eagers_masks() -> None:
    x = torch.ones(400, dtype=torch.bfloat16)
    torch.manual_seed(3)
    want = functional.dropout(x, 0.3)
    torch.manual_seed(3)
    have = differentiate(lambda t: functional.dropout(t, 0.3))(x)
    torch.testing.assert_close(have, want, rtol=0, atol=0)
