"""Section F: what is drawn. Under a seed the numbers are eager's, in eager's order, in df too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import gradof
from gradof import differentiate

Tensor = torch.Tensor
F64 = torch.float64


def _leaf(*shape: int, seed: int = 0, dtype: torch.dtype = F64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=F64, generator=generator).to(dtype).requires_grad_()


def _seeded(fn: Callable[..., Tensor], *shapes: tuple[int, ...],
            dtype: torch.dtype = torch.float32) -> list[Tensor]:  # fmt: skip
    """Result, gradients, and the next number of the global generator, all under one seed."""
    leaves = [_leaf(*s, seed=n, dtype=dtype) for n, s in enumerate(shapes)]
    torch.manual_seed(1234)
    out = fn(*leaves)
    grads = torch.autograd.grad(out.float().square().sum(), leaves)
    return [out, *grads, torch.rand(1)]


def same_draws(fn: Callable[..., Tensor], *shapes: tuple[int, ...], **kw: Any) -> None:
    compiled = differentiate(fn, **{k: kw.pop(k) for k in ("memory_budget",) if k in kw})
    for mine, theirs in zip(_seeded(compiled, *shapes, **kw), _seeded(fn, *shapes, **kw),
                            strict=True):  # fmt: skip
        tolerance = {torch.bfloat16: 2**-7, torch.float16: 2**-10}.get(mine.dtype, 1e-5)
        torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=tolerance)
        assert torch.equal(mine == 0, theirs == 0), "the same elements are dropped"
    assert compiled.cache_info().backward_runs == 1


def test_pytorch_192635_independent_dropouts_are_drawn_in_the_order_of_the_program() -> None:
    """A large branch and a small one: a scheduler that saves memory drew the small one first."""

    def fn(encoder: Tensor, decoder: Tensor) -> Tensor:
        large = F.dropout(encoder, 0.3)
        large = (large * 2).reshape(64, 64).mean(0)
        small = F.dropout(decoder, 0.5)
        return large + small * 3

    for budget in (1.0, 0.0):
        same_draws(fn, (64 * 64,), (64,), memory_budget=budget)


def test_pytorch_172206_draws_that_decide_and_draws_that_replace() -> None:
    """`where(rand_like < p, randn_like, x)`: two kinds of numbers from one generator."""

    def fn(x: Tensor) -> Tensor:
        x = torch.tanh(x)
        x = torch.where(torch.rand_like(x) < 0.3, torch.randn_like(x), x)
        return torch.softmax(torch.sigmoid(x) * x, -1)

    same_draws(fn, (6, 20))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_pytorch_178843_dropout_between_pointwise_ops_drops_what_eager_drops(
    dtype: torch.dtype,
) -> None:
    """The mask is eager's in all three dtypes, though the neighbours are in the same loop."""
    same_draws(lambda x: F.dropout(F.gelu(x) * 2, 0.25) + x * 0, (300, 70), dtype=dtype)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_pytorch_142853_dropout_of_whole_channels(dims: int) -> None:
    drop = [F.dropout1d, F.dropout2d, F.dropout3d][dims - 1]
    same_draws(lambda x: drop(x, 0.5) * 1.5, (2, 6, *[5] * dims))


def test_pytorch_158643_dropout_and_relu_in_place() -> None:
    def fn(x: Tensor, w: Tensor) -> Tensor:
        h = x @ w
        F.relu_(h)
        h = F.dropout(h, 0.5)
        return torch.relu_(h - 0.1)

    same_draws(fn, (8, 12), (12, 30))


def test_pytorch_118735_seeded_inside_the_function() -> None:
    """`manual_seed` between calls gives eager's sequence; the calls before do not matter."""
    compiled = differentiate(lambda x: torch.rand_like(x) * x + torch.randn_like(x))
    for seed in (0, 1, 0):
        got: list[Tensor] = []
        want: list[Tensor] = []
        for runs, fn in ((got, compiled), (want, compiled.fn)):
            torch.manual_seed(seed)
            runs += [fn(torch.ones(7)) for _ in range(3)]
        for mine, theirs in zip(got, want, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-6)


def test_pytorch_102319_a_mask_is_not_drawn_again_in_the_backward() -> None:
    """Under no memory at all the forward is computed again, with the numbers it had."""

    def fn(x: Tensor) -> Tensor:
        for _ in range(4):
            x = F.dropout(torch.sin(x), 0.5) * 2
        return x

    same_draws(fn, (200,), memory_budget=0.0)


def test_pytorch_103330_two_dropouts_in_a_checkpoint_are_two_masks() -> None:
    def fn(x: Tensor) -> Tensor:
        inner = lambda t: F.dropout(t, 0.5) + 10 * F.dropout(t, 0.5)  # noqa: E731
        out: Tensor = gradof.checkpoint(inner, x) * 1.0
        return out

    x = torch.ones(400, requires_grad=True)
    out = differentiate(fn)(x)
    (grad,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(grad, out.detach())
    assert set(out.tolist()) == {0.0, 2.0, 20.0, 22.0}, "all four pairs occur"
