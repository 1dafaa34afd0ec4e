"""torch.autograd.grad inside a traced function, through ops whose backward is an op of its own.

A gradient penalty differentiates these again; `strict=True` forbids that torch's autograd does it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import gradof

Tensor = torch.Tensor
LINE, PLANE, SPACE = (2, 4, 12), (2, 4, 6, 8), (1, 2, 4, 5, 6)
Case = tuple[Callable[..., Tensor], tuple[tuple[int, ...], ...]]


def _resized(**options: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: F.interpolate(x, **options)


def _padded(*padding: int) -> Callable[[Tensor], Tensor]:
    return lambda x: F.pad(x, padding, mode="replicate")


CASES: dict[str, Case] = {
    "conv1d": (lambda x, w: F.conv1d(x, w, padding="same", dilation=2), (LINE, (3, 4, 3))),
    "conv2d": (
        lambda x, w, b: F.conv2d(x, w, b, (2, 1), (1, 0), (1, 2), 2), (PLANE, (6, 2, 3, 3), (6,)),
    ),
    "conv2d without a batch": (lambda x, w: F.conv2d(x[0], w), (PLANE, (3, 4, 2, 2))),
    "conv3d": (lambda x, w: F.conv3d(x, w, stride=2, padding=1), (SPACE, (3, 2, 3, 3, 3))),
    "conv_transpose1d": (
        lambda x, w, b: F.conv_transpose1d(x, w, b, 2, 1, 1), (LINE, (4, 3, 4), (3,)),
    ),
    "conv_transpose2d": (
        lambda x, w: F.conv_transpose2d(x, w, stride=2, groups=2, dilation=2),
        (PLANE, (4, 2, 3, 3)),
    ),
    "avg_pool1d": (
        lambda x: F.avg_pool1d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False), (LINE,),
    ),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, (3, 2), 2, (1, 0), divisor_override=3), (PLANE,)),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2, ceil_mode=True), (SPACE,)),
    "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, (None, 3)), (PLANE,)),
    "adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x, (2, 3, 2)), (SPACE,)),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2), (SPACE,)),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, (4, 3)), (PLANE,)),
    "adaptive_max_pool3d": (lambda x: F.adaptive_max_pool3d(x, 2), (SPACE,)),
    "fractional_max_pool2d": (
        lambda x: F.fractional_max_pool2d(
            x, 2, output_size=(3, 3), _random_samples=x.new_full((2, 4, 2), 0.3)
        ), (PLANE,),
    ),
    "linear": (_resized(scale_factor=2.0, mode="linear", align_corners=True), (LINE,)),
    "bilinear": (_resized(size=(9, 5), mode="bilinear"), (PLANE,)),
    "bilinear by scale": (_resized(scale_factor=1.6, mode="bilinear"), (PLANE,)),
    "bicubic": (_resized(size=(9, 5), mode="bicubic", align_corners=True), (PLANE,)),
    "antialiased": (_resized(size=(4, 5), mode="bicubic", antialias=True), (PLANE,)),
    "trilinear": (_resized(scale_factor=(1.5, 1.0, 2.0), mode="trilinear"), (SPACE,)),
    "nearest, twice": (_resized(scale_factor=2.0), (PLANE,)),
    "nearest": (_resized(size=(9, 5)), (PLANE,)),
    "nearest in space": (_resized(scale_factor=(1.5, 1.0, 2.0)), (SPACE,)),
    "nearest exact": (_resized(size=30, mode="nearest-exact"), (LINE,)),
    "replication_pad1d": (_padded(2, 1), (LINE,)),
    "replication_pad2d": (_padded(2, 1, 1, 2), (PLANE,)),
    "replication_pad3d": (_padded(2, 1, 0, 1, 1, 1), (SPACE,)),
    "log_sigmoid": (F.logsigmoid, (PLANE,)),
    "hardshrink": (lambda x: F.hardshrink(x, 0.3), (PLANE,)),
    "softshrink": (lambda x: F.softshrink(x, 0.3), (PLANE,)),
}  # fmt: skip


def _inputs(name: str, seed: int, dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    made = [torch.randn(s, generator=generator, dtype=torch.float64) for s in CASES[name][1]]
    return [x.to(dtype).requires_grad_() for x in made]


def _penalty(name: str) -> Callable[..., tuple[Tensor, ...]]:
    fn = CASES[name][0]

    def gradients(*inputs: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(fn(*inputs).pow(3).sum(), inputs, create_graph=True)

    return gradients


def _pulled(made: tuple[Tensor, ...], inputs: list[Tensor], seed: int) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shares = [torch.randn(g.shape, generator=generator, dtype=torch.float64) for g in made]
    total: Any = sum((g * s.to(g.dtype)).sum() for g, s in zip(made, shares, strict=True))
    return list(torch.autograd.grad(total, inputs))


@pytest.mark.parametrize("name", CASES)
def test_of_a_penalty(name: str) -> None:
    fn = _penalty(name)
    compiled = gradof.differentiate(fn, strict=True)
    for seed in range(2):
        inputs = _inputs(name, seed, torch.float64)
        expected, found = fn(*inputs), compiled(*inputs)
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(_pulled(found, inputs, seed), _pulled(expected, inputs, seed))
    info = compiled.cache_info()
    assert info.misses == 1 and info.backward_runs == 2


@pytest.mark.parametrize("name", ["conv2d", "avg_pool2d", "bilinear", "nearest, twice"])
def test_in_half_precision(name: str) -> None:
    compiled = gradof.differentiate(_penalty(name), strict=True)
    exact = _penalty(name)(*_inputs(name, 0, torch.float64))
    found = compiled(*_inputs(name, 0, torch.float16))
    for mine, wanted in zip(found, exact, strict=True):
        assert mine.dtype == torch.float16
        assert (mine.double() - wanted).abs().max() < 0.02 * wanted.abs().max()


def test_of_some_operands() -> None:
    def of_weights(x: Tensor, w: Tensor, b: Tensor) -> Any:
        y = F.conv2d(x, w, b).pow(3).sum()
        return torch.autograd.grad(y, [w, b], create_graph=True)

    def of_no_one(x: Tensor, w: Tensor, b: Tensor) -> Any:
        with torch.enable_grad():
            y = F.conv2d(x, w, b).pow(3).sum()
        return torch.autograd.grad(y, x)[0] * w.sum()  # a constant for a gradient

    generator = torch.Generator().manual_seed(0)
    inputs = [
        torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
        for shape in ((2, 3, 5, 5), (4, 3, 2, 2), (4,))
    ]
    for fn in (of_weights, of_no_one):
        expected = fn(*inputs)
        found = gradof.differentiate(fn, strict=True)(*inputs)
        torch.testing.assert_close(found, expected)
        total = [sum(y.sum() for y in (z if isinstance(z, tuple) else (z,)))
                 for z in (found, expected)]  # fmt: skip
        torch.testing.assert_close(*(
            torch.autograd.grad(t, inputs, allow_unused=True, materialize_grads=True)
            for t in total
        ))  # fmt: skip


@pytest.mark.parametrize("name", ["layer_norm", "batch_norm", "instance_norm", "weight_norm"])
def test_a_norms_gradients_are_those_of_differences(name: str) -> None:
    # torch's second derivative of weight_norm and third derivatives of the others leave something
    # out: it takes what it saved of the forward pass for a constant.
    norms: dict[str, Callable[[Tensor], Tensor]] = {
        "layer_norm": lambda x: F.layer_norm(x, (5,)),
        "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
        "instance_norm": lambda x: F.instance_norm(x[None]),
        "weight_norm": lambda x: torch._weight_norm(x, x[:, :1].exp(), 0),
    }

    def gradient(x: Tensor) -> Tensor:
        return torch.autograd.grad(norms[name](x).pow(3).sum(), x, create_graph=True)[0]

    compiled = gradof.differentiate(gradient, strict=True)
    torch.manual_seed(0)
    x, share, way = torch.randn(3, 3, 5, dtype=torch.float64)

    def second(at: Tensor) -> tuple[Tensor, Tensor]:
        at = at.detach().requires_grad_()
        return torch.autograd.grad((compiled(at) * share).sum(), at, create_graph=True)[0], at

    found, at = second(x)
    (third,) = torch.autograd.grad((found * share).sum(), at)
    sides = [compiled((x + step * way).requires_grad_()) for step in (1e-6, -1e-6)]
    first = (sides[0] - sides[1]) / 2e-6
    ahead, behind = second(x + 1e-6 * way)[0], second(x - 1e-6 * way)[0]
    torch.testing.assert_close((found * way).sum(), (first * share).sum(), rtol=1e-5, atol=1e-6)
    differences = (ahead - behind) / 2e-6
    torch.testing.assert_close(
        (third * way).sum(), (differences * share).sum(), rtol=1e-5, atol=1e-6
    )
