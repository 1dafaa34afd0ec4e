"""Models people really use: values, gradients and side effects equal to torch eager's.

Each comparison asserts that gradof's own backward ran: torch is never compared with itself.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import gradof
from gradof.runtime.function import Differentiated

DTYPES = [torch.float32, torch.float64]
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12}


def tensors(result: Any) -> list[Tensor]:
    """The tensors of a result."""
    if isinstance(result, Tensor):
        return [result]
    return [t for part in result if part is not None for t in tensors(part)]


def run(
    fn: Callable[..., Any], args: Sequence[Tensor], params: Sequence[Tensor]
) -> tuple[Any, Any]:
    """Outputs, and gradients for random cotangents, under one seed."""
    torch.manual_seed(7)
    outputs = [t for t in tensors(fn(*args)) if t.requires_grad]
    generator = torch.Generator().manual_seed(3)
    cotangents = [torch.randn(t.shape, dtype=t.dtype, generator=generator) for t in outputs]
    wanted = [p for p in (*args, *params) if p.requires_grad]
    return outputs, torch.autograd.grad(outputs, wanted, cotangents, allow_unused=True)


def close(ours: Any, eager: Any, dtype: torch.dtype) -> None:
    """Equal up to the tolerance, relative to the largest element of all.

    None exactly where None.
    """
    assert [t is None for t in ours] == [t is None for t in eager]
    scale = max([1.0, *(t.abs().max().item() for t in eager if t is not None and t.numel())])
    rounding = 32 * torch.finfo(dtype).eps * scale  # where large terms cancel to a small gradient
    for a, b in zip(ours, eager, strict=True):
        if b is not None:
            assert a.dtype == b.dtype and a.shape == b.shape
            own = b.abs().max().item() if b.numel() else 0.0
            torch.testing.assert_close(a, b, rtol=0, atol=TOLERANCE[dtype] * own + rounding)


def compare(
    fn: Callable[..., Any], eager: Callable[..., Any], args: Sequence[Tensor],
    params: Sequence[Tensor], eager_params: Sequence[Tensor], dtype: torch.dtype,
) -> None:  # fmt: skip
    """Values and gradients of `fn`, compiled, against `eager`."""
    compiled: Any = gradof.differentiate(fn)
    outputs, grads = run(compiled, args, params)
    expected, expected_grads = run(eager, args, eager_params)
    info = compiled.cache_info()
    assert info.forward_runs >= 1 and info.backward_runs >= 1
    assert all("_CompiledBackward" in str(t.grad_fn) for t in outputs)
    close(outputs, expected, dtype)
    close(grads, expected_grads, dtype)
    kinds = {node.kind for node in compiled.trace(*args).walk()}
    assert kinds <= {"Loop"} | {op.name for op in gradof_ops()} - {"Opaque"}


def compare_module(module: nn.Module, args: list[Tensor], dtype: torch.dtype) -> None:
    """A module against a copy of itself; parameters, buffers and their updates."""
    module = module.to(dtype)
    twin = copy.deepcopy(module)
    compare(module, twin, args, list(module.parameters()),
            list(twin.parameters()), dtype)  # fmt: skip
    for (name, ours), theirs in zip(module.named_buffers(), twin.buffers(), strict=True):
        assert ours.dtype == theirs.dtype, name
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6, msg=name)


def random(*shape: int, dtype: torch.dtype) -> Tensor:
    """A normal tensor that requires grad."""
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, dtype=dtype, generator=generator).requires_grad_()


@pytest.mark.parametrize("dtype", DTYPES)
def test_mlp(dtype: torch.dtype) -> None:
    """Three layers with different activations."""
    net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8), nn.GELU(), nn.Linear(8, 3))
    compare_module(net, [random(5, 6, dtype=dtype)], dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_lenet_with_batch_norm(dtype: torch.dtype) -> None:
    """Convolutions, batch norm in train mode (running statistics too), both poolings."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 8, 3), nn.BatchNorm2d(8), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(),
        nn.Linear(8 * 2 * 2, 10),
    )  # fmt: skip
    compare_module(net, [random(4, 1, 12, 12, dtype=dtype)], dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_lstm_cell_loop(dtype: torch.dtype) -> None:
    """Twenty steps of an LSTM cell written by hand."""
    w, u, b = random(4, 12, dtype=dtype), random(3, 12, dtype=dtype), random(12, dtype=dtype)

    def loop(x: Tensor, w: Tensor, u: Tensor, b: Tensor) -> Tensor:
        h = torch.zeros(x.shape[1], 3, dtype=x.dtype)
        c = torch.zeros_like(h)
        for step in range(20):
            i, f, g, o = (x[step] @ w + h @ u + b).chunk(4, dim=1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
        return h

    compare(loop, loop, [random(20, 2, 4, dtype=dtype), w, u, b], [], [], dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", [{}, {"num_layers": 2}, {"bidirectional": True}])
def test_nn_lstm(dtype: torch.dtype, options: dict[str, Any]) -> None:
    """nn.LSTM with all its outputs."""
    torch.manual_seed(0)
    module = nn.LSTM(3, 4, batch_first=True, **options)
    compare_module(module, [random(2, 5, 3, dtype=dtype)], dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("norm_first", [False, True])
def test_transformer_encoder_layer(dtype: torch.dtype, norm_first: bool) -> None:
    """Train mode with dropout: under one seed the masks are eager's."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.3, batch_first=True, norm_first=norm_first)
    compare_module(layer.train(), [random(2, 5, 8, dtype=dtype)], dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("need_weights", [False, True])
def test_multihead_attention(dtype: torch.dtype, need_weights: bool) -> None:
    """Self-attention, with and without the weights as a second output."""
    torch.manual_seed(0)
    attention = nn.MultiheadAttention(8, 2, batch_first=True).to(dtype)

    def forward(x: Tensor) -> Any:
        return attention(x, x, x, need_weights=need_weights)

    params = list(attention.parameters())
    compare(forward, forward, [random(2, 5, 8, dtype=dtype)], params, params, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_black_scholes(dtype: torch.dtype) -> None:
    """The price of a call in torch."""

    def price(spot: Tensor, strike: Tensor, rate: Tensor, sigma: Tensor, t: Tensor) -> Tensor:
        d1 = (torch.log(spot / strike) + (rate + sigma**2 / 2) * t) / (sigma * torch.sqrt(t))
        d2 = d1 - sigma * torch.sqrt(t)
        cdf = torch.special.ndtr
        value: Tensor = spot * cdf(d1) - strike * torch.exp(-rate * t) * cdf(d2)
        return value

    args = [(0.5 + torch.rand(7, dtype=dtype)).requires_grad_() for _ in range(5)]
    compare(price, price, args, [], [], dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_logistic_regression(dtype: torch.dtype) -> None:
    """Binary cross-entropy with logits, and weight decay."""
    y = (torch.arange(9) % 2).to(dtype)

    def loss(w: Tensor, x: Tensor) -> Tensor:
        return nn.functional.binary_cross_entropy_with_logits(x @ w, y) + 0.1 * (w**2).sum()

    compare(loss, loss, [random(4, dtype=dtype), random(9, 4, dtype=dtype)], [], [], dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rosenbrock_torch(dtype: torch.dtype) -> None:
    """Slices of one tensor."""

    def rosenbrock(p: Tensor) -> Tensor:
        return (100 * (p[1:] - p[:-1] ** 2) ** 2 + (1 - p[:-1]) ** 2).sum()

    compare(rosenbrock, rosenbrock, [random(8, dtype=dtype)], [], [], dtype)


def test_rosenbrock_numpy() -> None:
    """The same in numpy: value and gradient equal torch's."""

    def rosenbrock(p: Any) -> Any:
        return (100 * (p[1:] - p[:-1] ** 2) ** 2 + (1 - p[:-1]) ** 2).sum()

    p = random(8, dtype=torch.float64)
    value, gradient = gradof.value_and_grad(rosenbrock)(p.detach().numpy())
    expected = rosenbrock(p)
    (expected_gradient,) = torch.autograd.grad(expected, p)
    np.testing.assert_allclose(value, expected.item(), rtol=1e-14)
    np.testing.assert_allclose(gradient, expected_gradient.numpy(), rtol=1e-12)


def test_nothing_is_opaque() -> None:
    """Graphs hold registered ops only; there is no node that torch's autograd runs."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    graph = Differentiated(lambda x: layer(x)).trace(torch.randn(2, 5, 8))
    kinds = {node.kind for node in graph.walk()}
    assert "Opaque" not in kinds and kinds <= {op.name for op in gradof_ops()}


def gradof_ops() -> list[Any]:
    """Every registered op."""
    from gradof.ops.registry import all_ops

    return all_ops()
