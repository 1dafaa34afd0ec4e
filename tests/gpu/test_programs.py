"""Whole programs on a device: training, accumulation, draws, views, buffers, nested gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gradof
from gradof import differentiate
from gradof.errors import CotangentError, OpaqueOpWarning, UnsupportedOpError
from tests.gpu.judge import close, derivatives, executables, fresh, judge, kernels

pytestmark = [
    pytest.mark.gpu,
    # said once, by whichever thread of autograd multiplies first
    pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS"),
]
Tensor = torch.Tensor


class Block(nn.Module):
    """Attention and an MLP behind norms, as small as it goes."""

    def __init__(self, width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        mixed = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]
        x = x + self.dropout(self.out(mixed))
        return x + self.down(F.gelu(self.up(self.second(x))))  # type: ignore[no-any-return]


def test_training_follows_eager(device: str) -> None:
    torch.manual_seed(1)
    nets = [Block(8).to(device), Block(8).to(device), Block(8).to(device).double()]
    for net in nets[1:]:
        net.load_state_dict(nets[0].state_dict())
    x = torch.randn(4, 5, 8, device=device)
    losses: list[list[float]] = []
    for net, model in zip(nets, (differentiate(nets[0]), *nets[1:]), strict=True):
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.5)
        losses.append([])
        for _ in range(5):
            optimizer.zero_grad()
            given = x.to(next(net.parameters()).dtype)
            loss = (model(given) - given.roll(1, 1)).square().mean()
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
    np.testing.assert_allclose(losses[0], losses[2], rtol=1e-4)
    for mine, exact in zip(nets[0].parameters(), nets[2].parameters(), strict=True):
        torch.testing.assert_close(mine.double(), exact, rtol=1e-3, atol=1e-4)


def test_gradients_accumulate(device: str) -> None:
    w = torch.randn(9, device=device)
    mine, theirs = w.clone().requires_grad_(), w.clone().requires_grad_()

    def loss(x: Tensor, w: Tensor) -> Tensor:
        return F.softmax(x * w, -1).square().sum()

    compiled = differentiate(loss)
    first: Tensor | None = None
    for step in range(4):
        x = torch.randn(6, 9, device=device)
        compiled(x, mine).backward()
        loss(x, theirs).backward()  # type: ignore[no-untyped-call]
        if step == 0:
            assert mine.grad is not None
            first = mine.grad
    assert first is not None and theirs.grad is not None
    torch.testing.assert_close(mine.grad, theirs.grad)
    assert mine.grad is first  # added to in place
    held = compiled(torch.randn(6, 9, device=device), mine)
    before = first.clone()
    held.backward(retain_graph=True)
    held.backward()  # what was saved is still what it was
    grown = (first - before) / 2
    before += grown
    torch.testing.assert_close(first - before, grown)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_dropout_draws_what_eager_draws(dtype: torch.dtype, device: str) -> None:
    x = torch.randn(64, 33, device=device).to(dtype).requires_grad_()
    w = torch.randn(33, device=device).to(dtype).requires_grad_()

    def fn(x: Tensor, w: Tensor) -> Tensor:
        return F.layer_norm(F.dropout(x, 0.3) + x, (33,), w)

    compiled = differentiate(fn)
    runs = []
    for call in (compiled, compiled, fn, fn):
        torch.manual_seed(11)
        runs.append(derivatives(call, fresh((x, w)), 1))
    torch.manual_seed(11)
    exact = derivatives(fn, fresh((x, w)), 1)
    for mine, again, theirs, wide in zip(runs[0], runs[1], runs[2], exact, strict=True):
        for a, b, c, d in zip(mine, again, theirs, wide, strict=True):
            assert torch.equal(a, b)  # the second call draws from the seed too
            kept = 4 * float(torch.finfo(dtype).eps) * float(d.abs().max())
            assert float((a - c).abs().max()) <= (64 if dtype == torch.float32 else 8) * kept


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("eps", [None, 1e-2])
def test_rms_norm(eps: float | None, dtype: torch.dtype, device: str) -> None:
    x = (torch.randn(7, 33, device=device) * 0.1).to(dtype).requires_grad_()
    w = torch.randn(33, device=device).to(dtype).requires_grad_()
    order = 2 if dtype == torch.float32 else 1
    compiled = judge(lambda x, w: F.rms_norm(x, (33,), w, eps), x, w, order=order)
    assert kernels(compiled) >= 2


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell])
def test_recurrent_cells(kind: Any, bias: bool, device: str) -> None:
    torch.manual_seed(3)
    cell = kind(5, 6, bias=bias).to(device)
    weights = [p.detach() for p in cell.parameters()]
    x, h = torch.randn(4, 5, device=device), torch.randn(4, 6, device=device)
    one = torch.lstm_cell if kind is nn.LSTMCell else torch.gru_cell

    def fn(x: Tensor, h: Tensor, *weights: Tensor) -> Any:
        state = (h, h * 0.5) if kind is nn.LSTMCell else h
        return one(x, state, *weights)  # type: ignore[arg-type]

    judge(fn, *(t.requires_grad_() for t in (x, h, *weights)))


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers(kind: Any, train: bool, device: str) -> None:
    """One call of the library's in training; its second derivative is that of the steps."""
    torch.manual_seed(3)
    layers = kind(5, 6, 2, batch_first=True, bidirectional=True).to(device)
    weights = [p.detach() for p in layers.parameters()]
    x, h = torch.randn(4, 7, 5, device=device), torch.randn(4, 4, 6, device=device)
    one: Any = {nn.LSTM: torch.lstm, nn.GRU: torch.gru, nn.RNN: torch.rnn_tanh}[kind]

    def fn(x: Tensor, h: Tensor, *weights: Tensor) -> Any:
        state = [h, h * 0.5] if kind is nn.LSTM else h
        with torch.backends.cudnn.flags(enabled=train):  # eager has no other backward then
            return one(x, state, list(weights), True, 2, 0.0, train, True, True)[0]

    judge(fn, *(t.requires_grad_() for t in (x, h, *weights)), order=1 if train else 2)


def test_random_state_is_as_eager_leaves_it(device: str) -> None:
    x = torch.randn(8, device=device, requires_grad=True)

    def fn(x: Tensor) -> Tensor:
        return x * torch.rand_like(x) + torch.randn(8, device=x.device)

    compiled = differentiate(fn)
    after = []
    for call in (compiled, compiled, fn):  # the first traces
        torch.manual_seed(3)
        value = call(x)
        after.append((value.detach(), torch.rand(3, device=device)))
    for a, b in (*zip(after[0], after[2], strict=True), *zip(after[1], after[2], strict=True)):
        torch.testing.assert_close(a, b)


def test_batch_norm_writes_its_statistics_back(device: str) -> None:
    nets = [nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU()).to(device) for _ in "ab"]
    nets[1].load_state_dict(nets[0].state_dict())
    compiled = differentiate(nets[0])
    for _ in range(3):
        x = torch.randn(16, 4, device=device)
        torch.testing.assert_close(compiled(x), nets[1](x))
    for a, b in zip(nets[0].buffers(), nets[1].buffers(), strict=True):
        torch.testing.assert_close(a, b)


def test_views_of_arguments_and_changes_in_place(device: str) -> None:
    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        x.add_(1.0)
        return x[1:], torch.tanh(x).sum()

    mine, theirs = (torch.arange(6.0, device=device).reshape(3, 2) for _ in "ab")
    compiled = differentiate(fn)
    for _ in range(2):
        view, total = compiled(mine)
        want, other = fn(theirs)
        torch.testing.assert_close((view, total), (want, other))
        assert view.data_ptr() == mine[1:].data_ptr()
        assert torch.equal(mine, theirs)


def test_a_number_that_varies_is_no_new_trace(device: str) -> None:
    compiled: Any = differentiate(lambda x, lr: (x * lr).tanh().sum())
    x = torch.randn(5, device=device, requires_grad=True)
    for lr in (0.5, 0.25, 0.125, 3.0):
        torch.testing.assert_close(compiled(x, lr), (x * lr).tanh().sum())
    assert compiled.cache_info().entries <= 2


def test_a_cpu_tensor_without_dims_goes_along(device: str) -> None:
    scale = torch.tensor(1.5, requires_grad=True)
    x = torch.randn(4, device=device, requires_grad=True)
    compiled = differentiate(lambda x, scale: (x * scale).exp().sum())
    got = torch.autograd.grad(compiled(x, scale), (x, scale))
    want = torch.autograd.grad((x * scale).exp().sum(), (x, scale))
    torch.testing.assert_close(got, want)
    assert got[1].device.type == "cpu"


def test_constants_of_the_graph(device: str) -> None:
    table = torch.tensor([1.0, -2.0, 0.5]).to(device)

    def fn(x: Tensor) -> Tensor:
        plain = torch.tensor([3.0, 1.0, 2.0], device=x.device)
        mixed = torch.eye(3, device=x.device).to(x.dtype) @ x
        return x * plain + mixed + table[torch.tensor([2, 0, 1])]

    judge(lambda x: fn(x).tanh(), torch.randn(3, device=device, requires_grad=True), order=1)


def test_branches_by_value(device: str) -> None:
    def fn(x: Tensor) -> Tensor:
        return (x * 2 if x.sum() > 0 else x.exp()).sum() * int((x > 0).sum())

    compiled = differentiate(fn)
    for values in ([1.0, 2.0], [-1.0, -2.0], [3.0, -1.0], [1.0, 5.0]):
        x = torch.tensor(values, device=device, requires_grad=True)
        torch.testing.assert_close(compiled(x), fn(x))
        got, want = (torch.autograd.grad(f(x), x)[0] for f in (compiled, fn))
        torch.testing.assert_close(got, want)


def test_a_gradient_inside_the_function(device: str) -> None:
    def penalty(x: Tensor, w: Tensor) -> Tensor:
        energy = (torch.tanh(x @ w)).square().sum()
        (force,) = torch.autograd.grad(energy, x, create_graph=True)
        return force.square().sum()

    x = torch.randn(4, 3, device=device, requires_grad=True)
    w = torch.randn(3, 2, device=device, requires_grad=True)
    judge(penalty, x, w)


def test_functional_transforms(device: str) -> None:
    def energy(x: Tensor) -> Tensor:
        return (x.sin() * x.exp()).sum()

    x = torch.randn(4, device=device, dtype=torch.float64)
    want = torch.autograd.functional.hessian(energy, x)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(gradof.hessian(energy)(x), want)
    (product,) = gradof.hvp(energy, (x,), (torch.ones_like(x),))
    torch.testing.assert_close(product, want @ torch.ones_like(x))
    value, pullback = gradof.vjp(lambda x: x.tanh(), x)
    torch.testing.assert_close(pullback(torch.ones_like(value))[0], 1 - x.tanh() ** 2)
    _, tangent = gradof.jvp(lambda x: x.tanh(), (x,), (torch.ones_like(x),))
    torch.testing.assert_close(tangent, 1 - x.tanh() ** 2)
    if device != "cpu":
        with pytest.raises(CotangentError, match="on cpu"):
            pullback(torch.ones(4, dtype=torch.float64))


def test_rules_of_the_users_own(device: str) -> None:
    class Clipped(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x.clamp(-1, 1)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            slope: Tensor = g * (x.abs() < 2)
            return slope

    x = torch.linspace(-3, 3, 13, device=device, requires_grad=True)
    compiled = differentiate(lambda x: Clipped.apply(x).exp())  # type: ignore[no-untyped-call]
    got, want = (
        torch.autograd.grad(f(x).sum(), x)[0]
        for f in (compiled, lambda x: Clipped.apply(x).exp())  # type: ignore[no-untyped-call]
    )
    torch.testing.assert_close(got, want)


def test_an_op_without_a_rule_is_run_by_torch(device: str) -> None:
    def fn(x: Tensor) -> Tensor:
        return torch.special.bessel_j1(x.exp()) * 2 + torch.igamma(x.exp(), torch.ones_like(x))  # type: ignore[no-any-return]

    x = torch.rand(5, device=device)
    compiled = differentiate(fn)
    with pytest.warns(OpaqueOpWarning, match="runs under torch's own autograd"):
        value = compiled(x)
    torch.testing.assert_close(value, fn(x))
    strict = differentiate(fn, strict=True)
    with pytest.raises(UnsupportedOpError):
        strict(x)


def test_autocast_is_recorded_once(device: str) -> None:
    kind = torch.device(device).type
    x = torch.randn(6, 8, device=device, requires_grad=True)
    w = torch.randn(8, 4, device=device, requires_grad=True)

    def fn(x: Tensor, w: Tensor) -> Tensor:
        return F.softmax(x @ w, -1) + 1

    compiled = differentiate(fn)
    wide = compiled(x, w)
    with torch.autocast(kind, dtype=torch.bfloat16):
        mine, theirs = compiled(x, w), fn(x, w)
    assert mine.dtype == theirs.dtype and wide.dtype == torch.float32
    torch.testing.assert_close(mine, theirs, rtol=0.02, atol=0.02)
    mine.sum().backward()
    assert x.grad is not None and x.grad.dtype == torch.float32


def test_memory_budget_and_checkpoint(device: str) -> None:
    def layer(x: Tensor) -> Tensor:
        return torch.tanh(x).exp().sin()

    def fn(x: Tensor) -> Tensor:
        return gradof.checkpoint(layer, layer(x)).cos().sum()  # type: ignore[no-any-return]

    x = torch.randn(7, 5, device=device, requires_grad=True)
    wants = torch.autograd.grad(fn(x), x)
    for budget in (None, 0.0, 0.5):
        got = torch.autograd.grad(differentiate(fn, memory_budget=budget)(x), x)
        torch.testing.assert_close(got, wants)


def test_saved_tensors_are_where_the_function_ran(device: str) -> None:
    compiled = differentiate(lambda x: torch.tanh(x).exp())
    x = torch.randn(8, device=device, requires_grad=True)
    out = compiled(x)
    saved = out.grad_fn.saved_tensors
    assert saved and all(t.device == x.device for t in saved)
    assert kernels(compiled) == 1 and len(executables(compiled)) == 1
    close(out.detach(), torch.tanh(x).exp().detach(), torch.tanh(x.double()).exp().detach())
