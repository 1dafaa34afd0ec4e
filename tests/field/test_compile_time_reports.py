"""Reports of compile time, retraces, small functions and code one cannot look into, written anew.

Counts, never seconds: nodes of graphs, entries of the cache, kernels that are shared.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gradof
from gradof import differentiate
from gradof.codegen.machine import engine
from gradof.errors import OpaqueOpWarning, UnsupportedOpError
from tests.runtime.compare import check

Tensor = torch.Tensor
F64 = torch.float64


def _leaf(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=F64, generator=generator).requires_grad_()


def _sizes(fn: Any, *args: Any) -> tuple[int, int, int]:
    """Nodes of f, of df, and of the gradient's gradient."""
    compiled = differentiate(fn)
    gradient = compiled.gradient(*args)
    again = gradof.grad(lambda *a: np.sum(gradof.grad(fn)(*a) ** 2))
    second = again.base.trace(*args)
    return len(list(gradient.f.walk())), len(list(gradient.df.walk())), len(list(second.walk()))


def _unrolled(steps: int) -> Any:
    def fn(x: Any) -> Any:
        for _ in range(steps):
            x = np.sin(x) * 1.1 + x
        return np.sum(x)

    return fn


def test_jax_2777_graphs_grow_linearly_in_the_unrolled_length() -> None:
    """Elsewhere the time to compile a gradient was exponential in the number of steps."""
    x = np.linspace(0.1, 1.0, 4)
    small, middle, large = (_sizes(_unrolled(n), x) for n in (40, 80, 160))
    for a, b, c in zip(small, middle, large, strict=True):
        assert c - b <= 2 * max(0, b - a), "no more nodes for each further step"


def test_jax_4924_a_gradient_has_a_fixed_multiple_of_the_functions_nodes() -> None:
    """The gradient of a long chain of products and sums is not much longer than the chain."""

    def chain(x: Any) -> Any:
        for i in range(200):
            x = x * (1.0 + 0.001 * i) + np.cos(x)
        return np.sum(x)

    forward, backward, _ = _sizes(chain, np.ones(3))
    assert backward < 6 * forward


def test_jax_4447_shared_work_is_done_once() -> None:
    """The same expression many times is one node, in f and in df."""

    def fn(x: Any) -> Any:
        return sum(np.tanh(x) * float(n) for n in range(1, 9)).sum()

    compiled = differentiate(fn)
    compiled(np.ones(3))
    (plan,) = compiled.plans()
    assert [n.kind for n in plan.prepared.walk()].count("tanh") == 1


@pytest.mark.skipif(not engine.vector_bits(), reason=engine.status()[1])
def test_pytorch_150706_each_resolution_costs_one_trace_and_no_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Other sizes trace anew; the machine code of the kernels is the one there is."""
    monkeypatch.setenv("GRADOF_BACKEND", "native")
    made: dict[Any, Any] = {}
    monkeypatch.setattr(engine, "_ENGINES", made)
    engine._KEPT.append(made)  # what adds up the chunks is called as long as the process runs
    fn = differentiate(lambda x: torch.softmax(x, -1).square().sum())
    kernels = []
    for n in (200, 300, 400, 300, 200):
        x = torch.rand(n, 512, requires_grad=True)
        y = x.detach().clone().requires_grad_()
        fn(x).backward()
        torch.autograd.backward(torch.softmax(y, -1).square().sum())
        torch.testing.assert_close(x.grad, y.grad)
        kernels.append(len(engine._ENGINES))
    assert fn.cache_info().misses == 3
    assert kernels[0] >= 2 and kernels == [kernels[0]] * 5, "those of the first size"


def test_pytorch_114516_a_counter_does_not_retrace() -> None:
    fn = differentiate(lambda x, step: x * (1.0 / (1.0 + 0.1 * step)))
    for step in range(1, 40):
        torch.testing.assert_close(fn(torch.ones(3), step), torch.ones(3) / (1.0 + 0.1 * step))
    assert fn.cache_info().misses == 2


def test_dion_23_a_schedule_of_learning_rates_does_not_retrace() -> None:
    def update(p: Tensor, g: Tensor, momentum: Tensor, lr: float, beta: float) -> Tensor:
        momentum.mul_(beta).add_(g)
        return p - lr * momentum

    fn = differentiate(update)
    p, momentum = torch.zeros(3), torch.zeros(3)
    other, twin = p.clone(), momentum.clone()
    for n in range(20):
        g, lr = torch.full((3,), float(n)), 0.1 * 0.9**n
        p, other = fn(p, g, momentum, lr, 0.9), update(other, g, twin, lr, 0.9)
    torch.testing.assert_close(p, other)
    torch.testing.assert_close(momentum, twin)
    assert fn.cache_info().misses == 2


def test_heavyball_16_changed_hyperparameters_of_an_object_are_noticed() -> None:
    """A float in an attribute is guarded: another value is another trace, and the right result."""

    class Settings:
        scale = 2.0

    settings = Settings()
    fn = differentiate(lambda x: (x * settings.scale).sum())
    assert fn(torch.ones(3)).item() == 6.0
    settings.scale = 5.0
    assert fn(torch.ones(3)).item() == 15.0
    assert "scale" in fn.explain(torch.ones(3)).reason


def test_pytorch_140229_the_last_smaller_batch_is_one_more_trace() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    compiled = differentiate(model)
    for _ in range(3):
        for rows in (16, 16, 5):
            compiled(torch.randn(rows, 4)).sum().backward()
    (stats,) = {compiled.cache_info().misses}
    assert stats == 2
    reasons = [reason for reason, _ in compiled.explain(torch.randn(5, 4)).traces]
    assert "[5,4]" in reasons[1] and "[16,4]" in reasons[1]


def test_mlx_4460_cumulative_sums_of_every_length() -> None:
    fn = differentiate(lambda x: (torch.cumsum(x, 0) * x).sum())
    for n in (1, 2, 7, 0):
        x, y = _leaf(n), _leaf(n)
        (mine,) = torch.autograd.grad(fn(x), x)
        (theirs,) = torch.autograd.grad((torch.cumsum(y, 0) * y).sum(), y)
        torch.testing.assert_close(mine, theirs)


@pytest.mark.usefixtures("op_by_op")
def test_thunder_1502_a_small_function_is_a_few_statements() -> None:
    """No machinery in the compiled code of a small function: one line per op."""
    fn = differentiate(lambda x: np.sum(np.tanh(x) * 2.0 + 1.0))
    fn(np.ones(3))
    (plan,) = fn.plans()
    lines = [line for line in plan.executable.source.splitlines() if line.strip()]
    assert len(lines) <= 8, plan.executable.source


def test_pytorch_136263_gradient_of_cumprod() -> None:
    """Right at zeros, to second order; and of few ops, where it was a hundred times slower."""
    x = torch.tensor([[1.0, 2.0, 0.0, 3.0], [0.0, 0.0, 1.0, 2.0]], dtype=F64, requires_grad=True)
    check(lambda t: torch.cumprod(t, 1).sin().sum(), x)
    check(lambda t: torch.cumprod(t, 1).sin().sum(), _leaf(3, 5), order=2)
    sizes = [
        len(list(differentiate(lambda t: torch.cumprod(t, 0).sum()).gradient(_leaf(n)).df.walk()))
        for n in (8, 64, 512)
    ]
    assert sizes[2] - sizes[1] <= sizes[1] - sizes[0], "steps as the logarithm of the length"


def test_pytorch_110611_tanh_and_log_in_every_lane() -> None:
    """Vector code of the special functions, at all remainders of the vector width."""
    for n in (1, 7, 8, 15, 16, 17, 1000):
        x = torch.rand(n, dtype=F64) * 6 + 0.01
        check(lambda t: (torch.tanh(t) + torch.log(t)).sum(), x.requires_grad_())


def test_jax_3595_many_small_arrays_as_arguments() -> None:
    """A hundred parameters in a list: one trace, gradients in the list's structure."""
    weights = [np.full(3, float(n)) for n in range(100)]
    fn = gradof.grad(lambda ws: sum(np.sum(w**2) for w in ws))
    for _ in range(3):
        grads = fn(weights)
    assert fn.base.cache_info().misses == 1
    for w, g in zip(weights, grads, strict=True):
        np.testing.assert_array_equal(g, 2 * w)


# --- what one can see -----------------------------------------------------------------------------


def test_pytorch_119186_nothing_is_left_to_eager_in_silence() -> None:
    """An op without a rule is named when it is traced; with strict it is an error."""

    def fn(x: Tensor) -> Tensor:
        return torch.sum(torch.linalg.lstsq(x, x)[0])

    x = torch.rand(4, 3, dtype=F64)
    with pytest.warns(OpaqueOpWarning, match="lstsq"):
        said = differentiate(fn).explain(x)
    assert any("lstsq" in op and ".py:" in op for op in said.opaque)
    with pytest.raises(UnsupportedOpError, match="lstsq"):
        differentiate(fn, strict=True)(x)


def test_pytorch_112334_explain_names_the_kernels() -> None:
    x = torch.rand(512, 512, requires_grad=True)
    said = differentiate(lambda t: torch.softmax(t * 2, -1).sum()).explain(x)
    assert said.kernels and "512" in said.kernels[0]
    assert "fused kernels of the forward" in str(said)


def test_pytorch_141560_every_node_has_its_line() -> None:
    def fn(x: Tensor) -> Tensor:
        h = torch.tanh(x)
        return (h * h).sum()

    graph = differentiate(fn).trace(_leaf(3))
    first = fn.__code__.co_firstlineno
    lines = {n.kind: n.loc.line for n in graph.walk() if n.loc is not None}
    assert lines["tanh"] == first + 1 and lines["sum"] == first + 2
    assert f"test_compile_time_reports.py:{first + 1}" in str(graph)


def test_pytorch_190535_names_of_the_users_variables() -> None:
    def fn(x: Tensor) -> Tensor:
        hidden = torch.tanh(x)
        energy = (hidden * hidden).sum()
        return energy

    text = str(differentiate(fn).trace(_leaf(3)))
    assert "%hidden" in text and "%energy" in text


def test_pytorch_133383_dead_code_is_not_shown() -> None:
    def fn(x: Tensor) -> Tensor:
        for _ in range(5):
            torch.exp(x).cos()
        return x.sin().sum()

    kinds = [n.kind for n in differentiate(fn).trace(_leaf(3)).walk()]
    assert "exp" not in kinds and "cos" not in kinds


def test_torchlens_28_the_ledger_names_bytes_line_and_reader() -> None:
    def fn(x: Tensor, w: Tensor) -> Tensor:
        h = torch.tanh(x @ w)
        return h.sum()

    said = differentiate(fn).explain(_leaf(4, 3), _leaf(3, 2, seed=1))
    by_name = {s.name: s for s in said.saved}
    assert by_name["h"].nbytes == 4 * 2 * 8
    assert by_name["h"].loc.endswith(f"reports.py:{fn.__code__.co_firstlineno + 1}")
    assert any("tanh" in reader for reader in by_name["h"].readers)
    assert sum(s.nbytes for s in said.saved if s.kind == "an input") == 8 * (12 + 6)


def test_pytorch_141881_no_copy_of_the_weights_is_saved() -> None:
    """A cast of a parameter is computed again, not kept beside the parameter."""

    def fn(x: Tensor, w: Tensor) -> Tensor:
        return (x @ w.to(F64).t()).square().sum()

    w = torch.rand(300, 200, requires_grad=True)
    said = differentiate(fn, memory_budget=0.0).explain(_leaf(10, 200), w)
    assert said.saved_bytes < 300 * 200 * 8
    assert {s.type for s in said.saved if s.kind == "an input"} >= {"f32[300,200]"}


def test_pytorch_197838_bytes_fall_with_the_budget() -> None:
    """A smaller budget never saves more; elsewhere 0.05 took four times the best."""

    def fn(x: Tensor, *weights: Tensor) -> Tensor:
        for w in weights:
            x = F.gelu(x @ w) + x.sin()
        return x.square().mean()

    x = torch.rand(256, 64)
    weights = [(torch.rand(64, 64) / 8).requires_grad_() for _ in range(6)]
    saved = [
        differentiate(fn, memory_budget=budget).explain(x, *weights).saved_bytes
        for budget in (1.0, 0.8, 0.5, 0.3, 0.15, 0.05, 0.0)
    ]
    assert saved == sorted(saved, reverse=True) and saved[-1] < saved[0] / 3


def test_pytorch_59114_the_comparison_knows_that_our_code_ran() -> None:
    """A compiled result has one node behind it; eager's own would have four."""
    x = _leaf(3)
    fn = differentiate(lambda t: (t.sin() * t).sum())
    fn(x).backward()
    info = fn.cache_info()
    assert (info.forward_runs, info.backward_runs) == (1, 1)
    with pytest.raises(AssertionError):
        check(lambda t: (t.sin() * t).sum().item(), x)  # no compiled gradient there
