"""gradof.checkpoint: what is inside is computed again, with the same numbers, in both libraries."""

from __future__ import annotations

import contextlib
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.checkpoint as torch_checkpoint
from torch import Tensor

import gradof
from gradof.autodiff.gradient import Gradient
from gradof.codegen.machine import python_entry
from gradof.codegen.machine.arena import arena_of
from gradof.errors import InputError, TraceError
from tests.runtime.compare import check

Block = Callable[..., Any]


def layer(h: Tensor, w: Tensor) -> Tensor:
    """One layer with an inner value that its gradient reads."""
    return torch.sin(torch.exp(h @ w))


def reentrant(fn: Block, *args: Any) -> Any:
    return torch_checkpoint.checkpoint(fn, *args, use_reentrant=True)


def not_reentrant(fn: Block, *args: Any) -> Any:
    return torch_checkpoint.checkpoint(fn, *args, use_reentrant=False)


def decorated(fn: Block, *args: Any) -> Any:
    return gradof.checkpoint(fn)(*args)


def plain(fn: Block, *args: Any) -> Any:
    return fn(*args)


FORMS = [gradof.checkpoint, decorated, reentrant, not_reentrant]


def three(form: Block) -> Callable[[Tensor, Tensor], Tensor]:
    def network(x: Tensor, w: Tensor) -> Tensor:
        for _ in range(3):
            x = form(layer, x, w)
        return x

    return network


def kinds(gradient: Gradient) -> list[str]:
    """The kinds of the temporaries."""
    temporaries = gradient.f.outputs[gradient.f_real_outputs :]
    return [v.node.kind for v in temporaries if v.node is not None]


def tensors(seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(5, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    w = torch.randn(4, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    return x, w


@pytest.mark.parametrize("form", FORMS)
def test_results_alone_are_saved(form: Block) -> None:
    x, w = tensors()
    gradient = gradof.differentiate(three(form)).gradient(x, w)
    assert kinds(gradient) == ["sin", "sin"], "the third is an output anyway"
    assert sum(n.kind == "mm" for n in gradient.df.walk()) == 6 + 3
    assert len(kinds(gradof.differentiate(three(plain)).gradient(x, w))) > 2
    assert not any("checkpoint" in n.kind for n in (*gradient.f.walk(), *gradient.df.walk()))


@pytest.mark.parametrize("form", [gradof.checkpoint, decorated, not_reentrant])
def test_gradients_are_eagers(form: Block) -> None:
    check(three(form), *tensors(), order=2)


def test_the_reentrant_form_has_eagers_first_gradient() -> None:
    (x, w), (x2, w2) = tensors(), tensors()
    seed = torch.randn(5, 4, dtype=torch.float64)
    compiled = gradof.differentiate(three(reentrant))
    torch.autograd.backward(compiled(x, w), seed)
    torch.autograd.backward(three(reentrant)(x2, w2), seed)
    torch.testing.assert_close((x.grad, w.grad), (x2.grad, w2.grad))
    assert compiled.cache_info().backward_runs == 1


def test_a_draw_comes_back_exactly() -> None:
    def noisy(h: Tensor, w: Tensor) -> Tensor:
        return torch.nn.functional.dropout(torch.exp(h @ w), 0.4) + torch.rand(4) * h.sin()

    def network(x: Tensor, w: Tensor) -> Any:
        return gradof.checkpoint(noisy, gradof.checkpoint(noisy, x, w), w)

    x, w = tensors()
    seed = torch.randn(5, 4, dtype=torch.float64)
    results, states = [], []
    for fn in (gradof.differentiate(network), network):
        torch.manual_seed(3)
        value = fn(x, w)
        results.append([value, *torch.autograd.grad(value, [x, w], seed)])
        states.append(torch.get_rng_state())
    for ours, eager in zip(*results, strict=True):
        torch.testing.assert_close(ours, eager, rtol=1e-12, atol=1e-12)
    assert torch.equal(*states)


def test_tensors_outside_of_a_trace_go_through_torchs() -> None:
    x, w = tensors()
    packed: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        packed.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = gradof.checkpoint(layer, x, w)
    arguments = {t.data_ptr() for t in (x, w)}
    assert {t.data_ptr() for t in packed} <= arguments, "its arguments, and nothing else"
    (ours,) = torch.autograd.grad(y.sum(), [w])
    (eager,) = torch.autograd.grad(layer(x, w).sum(), [w])
    torch.testing.assert_close(ours, eager)


def numpy_layer(h: Any, w: Any) -> Any:
    return np.sin(np.exp(h @ w))


def test_what_a_recomputed_function_writes_is_written_again() -> None:
    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.calls = torch.nn.BatchNorm1d(3), 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return torch.tanh(self.norm(x.exp()))

    eager, block = Block(), Block()
    compiled = gradof.differentiate(block)
    for i in range(4):
        x = torch.randn(5, 3, generator=torch.Generator().manual_seed(i), requires_grad=True)
        want, have = (torch.autograd.grad(not_reentrant(f, x).sum(), x) for f in (eager, compiled))
        torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-5)
        assert block.calls == eager.calls == 2 * i + 2
        torch.testing.assert_close(block.state_dict(), eager.state_dict())
    assert compiled.cache_info().eager_runs == 0


def test_numpy() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(5, 4)), rng.normal(size=(4, 4))

    def network(form: Block) -> Callable[..., Any]:
        def loss(x: Any, w: Any) -> Any:
            h = form(numpy_layer, x, w)
            return (form(numpy_layer, h, w) * np.cos(h)).sum()

        return loss

    np.testing.assert_array_equal(network(gradof.checkpoint)(x, w), network(plain)(x, w))
    ours = gradof.value_and_grad(network(gradof.checkpoint), argnums=(0, 1))
    value, grads = ours(x, w)
    want, wanted = gradof.value_and_grad(network(plain), argnums=(0, 1))(x, w)
    np.testing.assert_allclose(value, want, rtol=1e-12)
    for mine, other in zip(grads, wanted, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-10)
    assert kinds(ours.base.gradient(x, w)).count("exp") == 0
    graph = next(iter(ours.base._cache.entries.values()))[0].derived.popitem()[1].prepared
    assert sum(node.kind == "exp" for node in graph.walk()) == 4, "two forward, two again"


def test_regions_within_regions() -> None:
    def inner(h: Tensor, w: Tensor) -> Any:
        return gradof.checkpoint(layer, layer(h, w), w)

    def network(x: Tensor, w: Tensor) -> Any:
        return gradof.checkpoint(inner, x, w) * x

    compiled = check(network, *tensors(), order=2)
    assert kinds(compiled.gradient(*tensors())) == ["sin"]


def test_errors() -> None:
    with pytest.raises(InputError, match="checkpoint takes a function"):
        gradof.checkpoint(3)  # type: ignore[arg-type]

    def selective(x: Tensor, w: Tensor) -> Any:
        return torch_checkpoint.checkpoint(
            layer, x, w, use_reentrant=False,
            context_fn=lambda: (contextlib.nullcontext(), contextlib.nullcontext()),
        )  # fmt: skip

    with pytest.raises(TraceError, match="context_fn"):
        gradof.differentiate(selective, strict=True)(*tensors())
    helpers = torch_checkpoint.CheckpointFunction, not_reentrant(layer, *tensors())
    assert helpers[0].__module__ == "torch.utils.checkpoint" and helpers[1].requires_grad


@pytest.mark.usefixtures("products_of_mkl")  # those of AMD's are torch's, and not counted
def test_peak_memory_of_a_torch_training_step_falls_with_the_budget(monkeypatch: Any) -> None:
    """Twelve layers, forward and backward: numpy arrays, and the scratch of native functions."""
    scratch: list[int] = []

    def counted(size: int) -> Any:
        scratch.append(size)
        return arena_of(size)

    monkeypatch.setattr(python_entry, "arena_of", counted)
    torch.manual_seed(0)
    weights = [(torch.randn(32, 32) / 6).requires_grad_() for _ in range(12)]
    x = torch.randn(4096, 32)

    def loss(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        for w in weights:
            x = torch.tanh(x @ w)
        return x.square().mean()

    peaks, gradients = [], []
    for budget in (1.0, 0.5, 0.25, 0.0):
        compiled = gradof.differentiate(loss, memory_budget=budget)
        scratch[:] = [0]
        torch.autograd.grad(compiled(x, *weights), weights)  # traces and compiles
        gradof.release_memory()
        tracemalloc.start()
        gradients.append(torch.autograd.grad(compiled(x, *weights), weights))
        peaks.append(tracemalloc.get_traced_memory()[1] + max(scratch))
        tracemalloc.stop()
    assert peaks == sorted(peaks, reverse=True) and peaks[-1] < 0.6 * peaks[0], peaks
    for other in gradients[1:]:
        torch.testing.assert_close(other, gradients[0])
