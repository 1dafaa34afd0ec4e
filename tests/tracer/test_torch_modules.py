"""Whole models: every parameter's gradient, buffers, and no op left to torch."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from gradof.tracer.core.result import Traced
from tests.tracer.eager import check, trace

LABELS = torch.tensor([0, 2])


def seeded(make: Any) -> Any:
    torch.manual_seed(1)
    return make()


def test_mlp() -> None:
    model = seeded(lambda: nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)))
    traced = check(lambda x, y: F.mse_loss(model(x), y), torch.randn(4, 3), torch.randn(4, 2))
    assert [str(o) for o in traced.origins] == [
        f"closure 'model'[{i}].{name}" for i in (0, 2) for name in ("weight", "bias")
    ]
    assert traced.requires_grad == (False, False, True, True, True, True)


@pytest.mark.parametrize("train", [True, False])
def test_lenet_with_batch_norm(train: bool) -> None:
    model = seeded(
        lambda: nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(4, 8, 3), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(8, 10),
        )
    ).train(train)  # fmt: skip
    traced = check(lambda x: F.cross_entropy(model(x), LABELS), torch.randn(2, 1, 8, 8), rtol=1e-4)
    names = [traced.input_names[w.input] for w in traced.writebacks]
    buffers = ["num_batches_tracked", "running_mean", "running_var"]
    assert names == [f"closure 'model'[1].{b}" for b in buffers if train]


def test_running_statistics_are_read_anew_within_the_call() -> None:
    norm = nn.BatchNorm1d(3)
    check(lambda x: norm(2 * x) + norm(x) * norm.running_mean, torch.randn(4, 3))


@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_cells_in_a_loop(cell: Any) -> None:
    step = seeded(lambda: cell(3, 5))

    def loop(x: torch.Tensor) -> Any:
        state = None
        for t in range(20):
            state = step(x[t % 4], state)
        return state

    check(loop, torch.randn(4, 2, 3))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize(
    "options", [{}, {"num_layers": 2, "bidirectional": True, "batch_first": True}], ids=str
)
def test_recurrent_layers(kind: Any, options: dict[str, Any]) -> None:
    layer = seeded(lambda: kind(3, 5, **options))
    check(lambda x: layer(x), torch.randn(4, 6, 3, requires_grad=True))


@pytest.mark.parametrize(
    "options",
    [{}, {"norm_first": True, "activation": "gelu"}, {"batch_first": True, "bias": False}],
    ids=str,
)
@pytest.mark.parametrize("train", [True, False])
def test_transformer_encoder_layer(options: dict[str, Any], train: bool) -> None:
    layer = seeded(lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, **options))
    layer.train(train)
    check(lambda x: layer(x), torch.randn(2, 5, 8, requires_grad=True), rtol=1e-4, atol=1e-5)


def test_transformer_decoder_layer() -> None:
    layer = seeded(lambda: nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0))
    memory = torch.randn(5, 2, 8)
    check(lambda x: layer(x, memory), torch.randn(3, 2, 8), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("weights", [True, False])
def test_multihead_attention(weights: bool) -> None:
    attention = seeded(lambda: nn.MultiheadAttention(8, 2))
    mask = torch.ones(5, 5).triu(1).bool()
    check(
        lambda x: attention(x, x, x, need_weights=weights, attn_mask=mask),
        torch.randn(5, 2, 8, requires_grad=True), rtol=1e-4, atol=1e-5,
    )  # fmt: skip


def test_fully_masked_rows_of_attention() -> None:
    mask = torch.ones(5, 5).tril(-1).bool()  # the first row sees nothing
    q = torch.randn(2, 5, 8, requires_grad=True)
    check(lambda x: F.scaled_dot_product_attention(x, x, x, attn_mask=mask), q)
    check(lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True), q)


def test_embedding_with_padding() -> None:
    table = seeded(lambda: nn.Embedding(10, 3, padding_idx=0))
    check(lambda x: table(torch.tensor([[1, 2], [0, 1]])) * x, torch.randn(2, 1))


def test_layer_and_group_norm_with_scale() -> None:
    layer, group = nn.LayerNorm([4, 3]), nn.GroupNorm(2, 4)
    with torch.no_grad():
        for parameter in (*layer.parameters(), *group.parameters()):
            parameter.normal_()
    check(lambda x: layer(x) + group(x), torch.randn(2, 4, 3, requires_grad=True))


def test_rosenbrock_and_black_scholes() -> None:
    def rosenbrock(p: torch.Tensor) -> torch.Tensor:
        return torch.sum(100 * (p[1:] - p[:-1] ** 2) ** 2 + (1 - p[:-1]) ** 2)

    check(rosenbrock, torch.randn(5, dtype=torch.float64, requires_grad=True))

    def call(s: torch.Tensor, k: torch.Tensor, t: torch.Tensor, v: torch.Tensor) -> Any:
        root = v * torch.sqrt(t)
        d1 = (torch.log(s / k) + 0.5 * v**2 * t) / root
        return s * torch.special.ndtr(d1) - k * torch.special.ndtr(d1 - root)

    check(call, *(torch.rand(6).add(0.5).requires_grad_() for _ in range(4)))


def test_a_module_itself_is_a_function() -> None:
    traced = check(seeded(lambda: nn.Linear(3, 2)), torch.randn(4, 3))
    assert traced.input_names == ("args[0]", "self.weight", "self.bias")


def test_non_leaf_arguments_may_be_changed_in_place() -> None:
    def change(x: torch.Tensor) -> torch.Tensor:
        x.mul_(3)
        return x * 2

    leaf = torch.ones(3, requires_grad=True)
    traced = trace(change, leaf * 2)
    (back,) = traced.writebacks
    assert (back.input, back.requires_grad) == (0, True)


def test_threads_trace_without_disturbing_each_other() -> None:
    layers = [nn.LSTM(3, 5) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(trace, layer, torch.ones(4, 2, 3)) for layer in layers * 3]
        graphs = {str(job.result().graph) for job in jobs}
    assert len(graphs) == 1
    assert torch._C._get_mkldnn_enabled()


def kinds(traced: Traced) -> set[str]:
    return {node.kind for node in traced.graph.nodes()}


def test_an_optimizer_step_inside_is_written_back() -> None:
    w = torch.randn(3, requires_grad=True)

    def step(x: torch.Tensor) -> torch.Tensor:
        loss = ((w * x) ** 2).sum()
        (grad,) = torch.autograd.grad(loss, w)
        with torch.no_grad():
            w.sub_(0.1 * grad)
        return loss.detach()

    traced = trace(step, torch.randn(3))
    assert [(b.input, b.requires_grad) for b in traced.writebacks] == [(1, False)]
    assert "detach" in kinds(traced)
