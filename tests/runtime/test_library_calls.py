"""Recurrent layers, attention and the like as calls of torch's: values, gradients, what is kept."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import gradof
from gradof import tuning
from gradof.codegen.lowering import library

Tensor = torch.Tensor
KINDS = (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN)


@pytest.fixture
def plain() -> Iterator[None]:
    """Without oneDNN, whose recurrent layers have no second derivative."""
    torch._C._set_mkldnn_enabled(False)
    yield
    torch._C._set_mkldnn_enabled(True)


def gradients(call: Any, model: Any, x: Tensor) -> list[Tensor]:
    model.zero_grad()
    x.grad = None
    y, state = call(x)
    last = state[0] + state[1] if isinstance(state, tuple) else state
    (y.sin().sum() + last.square().sum()).backward()
    return [y.detach(), *(p.grad for p in (x, *model.parameters()))]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("settings", [
    {}, {"num_layers": 2, "bidirectional": True, "batch_first": True}, {"bias": False},
])  # fmt: skip
def test_a_layer_is_one_call(kind: Any, settings: dict[str, Any]) -> None:
    model, x = kind(8, 16, **settings), torch.randn(5, 3, 8, requires_grad=True)
    compiled = gradof.differentiate(model, strict=True)
    want = gradients(model, model, x)
    for run in range(2):
        for mine, other in zip(gradients(compiled, model, x), want, strict=True):
            torch.testing.assert_close(mine, other)
        assert compiled.cache_info().backward_runs == run + 1
    kinds = [node.kind for node in compiled.trace(x).nodes()]
    assert kinds.count("library_call") == 1 and "mm" not in kinds


@pytest.mark.parametrize("kind", KINDS)
def test_derivatives_of_second_order(kind: Any, plain: None) -> None:
    model = kind(3, 4).double()
    x = torch.randn(4, 2, 3, dtype=torch.float64, requires_grad=True)
    compiled = gradof.differentiate(lambda x: model(x)[0].square().sum())
    assert torch.autograd.gradgradcheck(compiled, (x,))


def test_a_gradient_inside_the_function(plain: None) -> None:
    model, x = torch.nn.GRU(3, 4), torch.randn(4, 2, 3, requires_grad=True)

    def penalty(x: Tensor) -> Tensor:
        (g,) = torch.autograd.grad(model(x)[0].square().sum(), x, create_graph=True)
        return g.square().sum()

    compiled = gradof.differentiate(penalty)
    found, want = (torch.autograd.grad(f(x), x)[0] for f in (compiled, penalty))
    torch.testing.assert_close(found, want)


def test_steps_where_numbers_are_drawn_or_rounded() -> None:
    """Dropout between layers, half precision and packed sequences are recorded in steps."""
    x = torch.randn(4, 2, 8)
    for model in (torch.nn.LSTM(8, 8, 2, dropout=0.5), torch.nn.GRU(8, 8).bfloat16()):
        given = x.to(next(model.parameters()).dtype)
        kinds = {node.kind for node in gradof.differentiate(model).trace(given).nodes()}
        assert "library_call" not in kinds and "mm" in kinds


def test_what_is_kept_goes_with_what_was_saved() -> None:
    gc.collect()
    before = len(library._LIVE)
    model, x = torch.nn.GRU(4, 4), torch.randn(3, 2, 4)
    compiled = gradof.differentiate(model)
    y, _ = compiled(x)
    assert len(library._LIVE) == before + 1
    y.sum().backward(retain_graph=True)
    first = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    y.sum().backward()
    for p, g in zip(model.parameters(), first, strict=True):
        torch.testing.assert_close(p.grad, 2 * g)
    del y
    assert len(library._LIVE) == before
    with torch.no_grad():
        compiled(x)
    assert len(library._LIVE) == before


def test_saved_copies_run_the_call_again() -> None:
    model, x = torch.nn.LSTM(4, 4), torch.randn(3, 2, 4, requires_grad=True)
    compiled = gradof.differentiate(model)
    want = gradients(model, model, x)
    with torch.autograd.graph.save_on_cpu():
        compiled(x)
        for mine, other in zip(gradients(compiled, model, x), want, strict=True):
            torch.testing.assert_close(mine, other)


def test_operands_changed_before_the_backward_are_an_error() -> None:
    model, x = torch.nn.GRU(4, 4), torch.randn(3, 2, 4)
    y, _ = gradof.differentiate(model)(x)
    with torch.no_grad():
        next(model.parameters()).mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


F: Any = torch.nn.functional
ATTENTION: list[tuple[dict[str, Any], tuple[int, ...] | None]] = [
    ({}, None), ({"is_causal": True, "scale": 0.3}, None), ({"enable_gqa": True}, None),
    ({}, (9, 7)), ({"scale": 0.5}, (2, 1, 9, 7)),
]  # fmt: skip


@pytest.mark.parametrize(("settings", "mask"), ATTENTION)
def test_attention_with_many_scores_is_one_call(
    settings: dict[str, Any], mask: tuple[int, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads = 2 if "enable_gqa" in settings else 4
    q, k, v = (torch.randn(2, h, t, 8, requires_grad=True)
               for h, t in ((4, 9), (heads, 7), (heads, 7)))  # fmt: skip
    given = [q, k, v]
    if mask is not None:
        shift = torch.randn(mask)
        given.append(shift.requires_grad_() if len(mask) == 4 else shift > -1.0)

    def attend(*given: Tensor) -> Tensor:
        result: Tensor = F.scaled_dot_product_attention(*given, **settings)
        return result

    few = gradof.differentiate(attend)
    assert "library_call" not in {n.kind for n in few.trace(*given).nodes()}
    monkeypatch.setattr(tuning, "ATTENTION_SCORES", 1)
    many = gradof.differentiate(attend)
    assert "library_call" in {n.kind for n in many.trace(*given).nodes()}
    live = [t for t in given if t.requires_grad]
    seed = torch.randn(2, 4, 9, 8)
    found, want = (torch.autograd.grad(f(*given), live, seed) for f in (many, attend))
    for mine, other in zip(found, want, strict=True):
        torch.testing.assert_close(mine, other)
    assert many.cache_info().backward_runs == 1


def test_second_derivatives_of_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "ATTENTION_SCORES", 1)
    q = torch.randn(1, 2, 3, 2, dtype=torch.float64, requires_grad=True)
    compiled = gradof.differentiate(
        lambda q: F.scaled_dot_product_attention(q, q.sin(), q, is_causal=True)
    )
    assert torch.autograd.gradgradcheck(compiled, (q,))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products_of_experts_are_one_call(dtype: torch.dtype) -> None:
    """Of each expert some rows; how many is known at each call alone."""
    def routed(x: Tensor, w: Tensor, chosen: Tensor) -> Tensor:
        counts = torch.histc(chosen.float(), bins=3, min=0, max=2)
        ends = counts.cumsum(0).int()
        return torch._grouped_mm(x[chosen.argsort()], w, offs=ends)

    compiled = gradof.differentiate(routed, strict=True)
    w = torch.randn(3, 16, 8, dtype=dtype, requires_grad=True)
    for run in range(3):
        x = torch.randn(24, 16, dtype=dtype, requires_grad=True)
        chosen = torch.randint(0, 3 if run else 1, (24,))
        seed = torch.randn(24, 8, dtype=dtype)
        found = []
        for call in (compiled, routed):
            y = call(x, w, chosen)
            first = torch.autograd.grad(y, (x, w), seed, create_graph=True)
            second = torch.autograd.grad(first[0].sin().sum(), w)
            found.append([y, *first, *second])
        for mine, other in zip(*found, strict=True):
            torch.testing.assert_close(mine, other)
    info = compiled.cache_info()
    assert info.misses == 1 and info.backward_runs >= 3
    kinds = [node.kind for node in compiled.trace(x, w, chosen).nodes()]
    assert kinds.count("library_call") == 2
