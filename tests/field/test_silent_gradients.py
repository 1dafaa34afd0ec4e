"""Further reports of section B: gradients and results that were wrong without a word."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gradof
from gradof import differentiate
from tests.runtime.compare import check, close

Tensor = torch.Tensor
F64 = torch.float64


def _leaf(*shape: int, seed: int = 0, dtype: torch.dtype = F64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=F64, generator=generator).to(dtype).requires_grad_()


def _add_to_a_column(x: Tensor) -> Tensor:
    y = x.clone()
    y[:, 0] += x[:, 2].abs()
    return y


def test_pytorch_136662_column_plus_equals_counts_twice() -> None:
    """The last column is read twice: as itself, and added to the first; one of the two was lost."""
    x = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=F64)
    fn = differentiate(_add_to_a_column)
    got = gradof.grad(lambda t: fn(t).sum())(x)
    torch.testing.assert_close(got, torch.tensor([[1.0, 1.0, 2.0]] * 2, dtype=F64))
    check(lambda t: _add_to_a_column(t).square().sum(), _leaf(2, 3), order=2)


def test_pytorch_136662_the_gradient_inside_the_compiled_function() -> None:
    """As reported: what is compiled is the gradient."""

    def gradient(x: Tensor) -> Tensor:
        (g,) = torch.autograd.grad(_add_to_a_column(x).square().sum(), x, create_graph=True)
        return g

    check(gradient, _leaf(2, 3))


def test_pytorch_185509_interpolation_convolution_pooling_and_where() -> None:
    """Values agreed and gradients were off by up to 77."""

    def fn(x: Tensor, weight: Tensor, bias: Tensor, mask: Tensor) -> Tensor:
        y = F.interpolate(x, scale_factor=(1.5, 1.25), mode="bilinear", align_corners=False)
        conv = F.conv2d(y[:, :, 1:7, 1:8], weight, bias, padding=1)
        return torch.where(mask, conv, F.max_pool2d(conv, kernel_size=3, stride=1, padding=1))

    mask = torch.rand(2, 4, 6, 7, generator=torch.Generator().manual_seed(3)) > 0.5
    check(fn, _leaf(2, 3, 6, 8), _leaf(4, 3, 3, 3, seed=1), _leaf(4, seed=2), mask)


def test_pytorch_185509_the_mask_is_computed_inside() -> None:
    """The threshold is a mean of the pooled values; the mask itself has no gradient."""

    def fn(x: Tensor, weight: Tensor) -> Tensor:
        conv = F.conv2d(x, weight, padding=1)
        pool = F.max_pool2d(conv, kernel_size=3, stride=1, padding=1)
        return torch.where(conv > pool.mean(dim=(2, 3), keepdim=True), conv, pool * 2)

    check(fn, _leaf(2, 3, 6, 7), _leaf(4, 3, 3, 3, seed=1), order=2)


def test_pytorch_182012_everything_but_the_diagonal_has_gradient_one() -> None:
    x, s = _leaf(8, 8), _leaf(8, seed=1)
    differentiate(lambda x, s: torch.diagonal_scatter(x, s).sum())(x, s).backward()
    assert torch.equal(x.grad, 1 - torch.eye(8, dtype=F64))  # type: ignore[arg-type]
    assert torch.equal(s.grad, torch.ones(8, dtype=F64))  # type: ignore[arg-type]


@pytest.mark.parametrize(("start", "end"), [(0, 6), (3, 9), (6, 13)])
def test_pytorch_180164_the_slice_may_begin_at_the_first_row(start: int, end: int) -> None:
    """Wrong in one way where the slice holds the first element, in another where it does not."""
    x, y = _leaf(2, 13, 5), _leaf(2, end - start, 5, seed=1)
    fn = differentiate(lambda x, y: torch.slice_scatter(x, y, 1, start, end).sum(dim=1))
    fn(x, y).sum().backward()
    wanted = torch.ones(2, 13, 5, dtype=F64)
    wanted[:, start:end] = 0
    assert torch.equal(x.grad, wanted)  # type: ignore[arg-type]


def test_pytorch_91468_hooks_of_parameters_and_modules_run() -> None:
    """A hook that scales a gradient, one after accumulation, and those of the module around."""

    def train(wrap: Callable[[nn.Module], Any]) -> tuple[list[Any], list[str]]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).to(F64)
        seen: list[str] = []
        weight: Any = model[0].weight
        weight.register_hook(lambda g: g * 10)
        weight.register_post_accumulate_grad_hook(lambda p: seen.append("accumulated"))
        run = wrap(model)
        run.register_forward_hook(lambda module, args, out: seen.append("forward"))
        run.register_full_backward_hook(lambda module, ins, outs: seen.append("backward"))
        x = _leaf(5, 3)
        run(x).square().sum().backward()
        return [x.grad, *(p.grad for p in model.parameters())], sorted(seen)

    ours, theirs = train(differentiate), train(lambda model: model)
    assert ours[1] == theirs[1] == ["accumulated", "backward", "forward"]
    for mine, wanted in zip(ours[0], theirs[0], strict=True):
        close(mine, wanted)


def test_pytorch_179804_autocast_switched_off_inside() -> None:
    """A product forced to float32 within bfloat16 has a float32 gradient, to the last bit."""
    torch.manual_seed(0)
    linear = nn.Linear(64, 64)

    def inner(x: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            return x.float() @ linear.weight.float().T

    grads: list[tuple[Tensor, Tensor]] = []
    for run in (differentiate(inner), inner):
        h = torch.randn(4, 64, generator=torch.Generator().manual_seed(1)).bfloat16()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = run(h.requires_grad_())
        assert out.dtype == torch.float32
        linear.weight.grad = None
        out.sum().backward()
        assert linear.weight.grad is not None and h.grad is not None
        grads.append((linear.weight.grad.clone(), h.grad))
    (mine, mine_h), (theirs, theirs_h) = grads
    assert torch.equal(mine_h, theirs_h)
    torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=0)  # bfloat16 is 4e-3 away


def test_pytorch_169545_results_of_earlier_steps_stay() -> None:
    """Elsewhere the next run wrote over the result of the last one."""
    torch.manual_seed(0)
    model = nn.Linear(10, 1)
    twin = copy.deepcopy(model)
    compiled = differentiate(model)
    kept, wanted = [], []
    for n in range(5):
        x = _leaf(10, seed=n, dtype=torch.float32)
        kept.append(compiled(x))
        wanted.append(twin(x))
    for mine, theirs in zip(reversed(kept), reversed(wanted), strict=True):  # the last one first
        mine.sum().backward()
        theirs.sum().backward()
        torch.testing.assert_close(mine, theirs)
    torch.testing.assert_close(model.weight.grad, twin.weight.grad)


def test_pytorch_96693_the_last_bias_gets_one_over_four_micro_batches() -> None:
    """Four backwards of a quarter each: one; the first gradient was kept, not added to."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    run = differentiate(model)
    kept = []
    for n in range(4):
        (run(torch.randn(5, 6)).mean() / 4).backward()
        bias = model[4].bias.grad
        assert bias is not None
        kept.append(bias)
        torch.testing.assert_close(bias, torch.tensor([(n + 1) / 4]))
    assert all(grad is kept[0] for grad in kept), "eager accumulates in place, and so it is here"


def test_mlx_3201_taking_one_then_more_elements() -> None:
    """Traced with one index, a sum over more of them was the first one's."""
    fn = differentiate(lambda buffer, index: torch.take_along_dim(buffer, index, 0).sum())
    plain = differentiate(lambda buffer, index: np.take(buffer, index).sum())
    buffer = torch.tensor([10.0, 20.0, 30.0, 40.0, 50.0], dtype=F64, requires_grad=True)
    for n in (1, 2, 3, 4):
        total = fn(buffer, torch.arange(n))
        assert float(total.detach()) == sum(10.0 * (i + 1) for i in range(n))
        (grad,) = torch.autograd.grad(total, buffer)
        assert torch.equal(grad, (torch.arange(5) < n).to(F64))
        assert plain(buffer.detach().numpy(), np.arange(n)) == float(total.detach())


def test_mlx_1234_pooling_as_a_maximum_over_two_axes() -> None:
    """The maximum was computed twice and compared with itself: gradients had NaN."""

    def pool(x: Any) -> Any:
        batch, height, width, channels = x.shape
        x = x.reshape(batch, height // 2, 2, width // 2, 2, channels)
        return x.max(axis=(2, 4)).sum()

    x = np.random.default_rng(0).random((5, 28, 28, 16), dtype=np.float32)
    grad = gradof.grad(pool)(x)
    blocks = x.reshape(5, 14, 2, 14, 2, 16)
    wanted = (blocks == blocks.max(axis=(2, 4), keepdims=True)).astype(np.float32)
    wanted /= wanted.sum(axis=(2, 4), keepdims=True)
    np.testing.assert_array_equal(grad, wanted.reshape(x.shape))


def test_pytorch_193061_three_norms_read_slices_of_one_table() -> None:
    """With halves and thirds of a table that a linear layer makes, as in adaptive norms."""
    torch.manual_seed(0)
    table = nn.Linear(7, 6 * 8).to(F64)

    def fn(x: Tensor, time: Tensor) -> Tensor:
        parts = table(F.silu(time)).chunk(6, dim=-1)
        for i in range(3):
            x = x + F.layer_norm(x, (8,)) * (1 + parts[2 * i]) + parts[2 * i + 1]
        return x.square().mean()

    check(fn, _leaf(5, 8), _leaf(7, seed=1), order=2)
    results = []
    for run in (differentiate(fn), fn):
        table.zero_grad()
        run(_leaf(5, 8), _leaf(7, seed=1)).backward()
        results.append([p.grad.clone() for p in table.parameters() if p.grad is not None])
    for mine, theirs in zip(*results, strict=True):
        close(mine, theirs)
