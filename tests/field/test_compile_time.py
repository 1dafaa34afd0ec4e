"""Further reports of section D: compile time, retraces and small functions.

Counts, never seconds: nodes of graphs, kernels compiled, entries, calls that found an entry.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import gradof
from gradof import differentiate
from gradof.codegen.machine import engine
from tests.runtime.compare import check, close

Tensor = torch.Tensor
F64 = torch.float64
native = pytest.mark.skipif(not engine.vector_bits(), reason=engine.status()[1])


def _leaf(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=F64, generator=generator).requires_grad_()


def _nodes(fn: Any, *args: Any) -> tuple[int, int]:
    """Nodes of f and of df."""
    gradient = differentiate(fn).gradient(*args)
    return len(list(gradient.f.walk())), len(list(gradient.df.walk()))


# --- compile time ---------------------------------------------------------------------------------


def test_jax_2777_two_values_that_mix_at_every_step() -> None:
    """Each step reads both twice: written out as a tree it doubles with every step."""

    def sample(steps: int) -> Any:
        def fn(a: Tensor, b: Tensor, gates: Tensor) -> Tensor:
            for n in range(steps):
                gate = gates[n].reshape(-1, 1)
                a, b = (
                    0.5 * (a + gate * a + (1 - gate) * b),
                    0.5 * (b + gate * a + (1 - gate) * b),
                )
            return a.sum()

        return fn

    gates = torch.rand(24, 8, dtype=F64)
    a, b = _leaf(8, 2), _leaf(8, 2, seed=1)
    sizes = [_nodes(sample(n), a, b, gates) for n in (6, 12, 24)]
    for at in (0, 1):
        small, middle, large = (size[at] for size in sizes)
        assert large - middle <= 2 * max(0, middle - small)  # 0 where steps are a loop
    check(sample(5), a, b, gates)


def test_jax_1832_a_linear_recurrence_by_assignment() -> None:
    """Elsewhere exponential in the length, and a hundred times slower than torch."""

    def recurrence(x: Any) -> Any:
        f = np.zeros(len(x))
        f[0] = x[0]
        for i in range(1, len(x)):
            f[i] = x[i] + f[i - 1]
        return f[-1] * f[0]

    sizes = [_nodes(recurrence, np.ones(n)) for n in (10, 20, 40)]
    for at in (0, 1):
        small, middle, large = (size[at] for size in sizes)
        assert large - middle <= 2 * max(0, middle - small)  # 0 where steps are a loop
    x = np.linspace(1.0, 2.0, 12)
    wanted = np.full(12, x[0])
    wanted[0] += x.sum()
    np.testing.assert_allclose(gradof.grad(recurrence)(x), wanted, rtol=1e-14)


def test_jax_4447_the_graph_does_not_grow_with_the_batch() -> None:
    """A convolution with pooling: the batch was unrolled, 10 minutes for 2048 examples."""

    def fn(x: Tensor, w: Tensor) -> Tensor:
        return F.max_pool2d(F.relu(F.conv2d(x, w, padding=1)), 2).square().mean()

    w = _leaf(4, 1, 3, 3)
    sizes = {_nodes(fn, _leaf(batch, 1, 8, 8), w) for batch in (2, 16, 128)}
    assert len(sizes) == 1


@native
def test_thunder_2700_identical_layers_share_their_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also thunder#229, sglang#2303: eighteen layers need no kernel that six do not need."""
    monkeypatch.setenv("GRADOF_BACKEND", "native")

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.linear = nn.LayerNorm(128), nn.Linear(128, 128)

        def forward(self, x: Tensor) -> Tensor:
            return x + F.gelu(self.linear(self.norm(x)))

    counts = []
    for n in (6, 6, 18):  # the first time also what the process has once, as kernels of products
        made: dict[Any, Any] = {}
        monkeypatch.setattr(engine, "_ENGINES", made)
        torch.manual_seed(0)
        model = nn.Sequential(*[Block() for _ in range(n)])
        differentiate(model)(torch.randn(512, 128)).square().mean().backward()
        counts.append(sum("@kernel(" in text for text, _ in made))  # not what runs the chunks
        engine._KEPT.append(made)  # of which the process has addresses now
    assert counts[1] > 0 and counts[1] == counts[2]


WARM = """
import torch, gradof
from gradof.codegen.machine import engine
torch.manual_seed(0)
x = torch.randn(300, 400, requires_grad=True)
fn = lambda t: torch.nn.functional.layer_norm(t, (400,)).sin().sum()
gradof.differentiate(fn)(x).backward()
mine, x.grad = x.grad, None
fn(x).backward()
torch.testing.assert_close(mine, x.grad, rtol=1e-4, atol=1e-5)
print(engine.COMPILED)
"""


@native
def test_pytorch_172547_a_second_process_compiles_nothing(tmp_path: Path) -> None:
    """Also pytorch#122540, a warm start: the first process leaves its machine code on disk."""
    env = {**os.environ, "GRADOF_CACHE_DIR": str(tmp_path), "GRADOF_BACKEND": "native"}
    compiled = [
        int(subprocess.run([sys.executable, "-c", WARM], env=env, capture_output=True, text=True,
                           check=True).stdout)
        for _ in range(2)
    ]  # fmt: skip
    assert compiled[0] > 0 and compiled[1] == 0


# --- retraces -------------------------------------------------------------------------------------


def test_tensorrt_llm_6142_no_batch_size_falls_back_to_eager() -> None:
    """After eight sizes other compilers give up; here twelve run compiled, and then hit."""
    fn = differentiate(lambda x: torch.softmax(x, -1).square().sum())
    sizes = [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256]
    for _ in range(2):
        for n in sizes:
            x, y = _leaf(n, 5), _leaf(n, 5)
            fn(x).backward()
            torch.autograd.backward(torch.softmax(y, -1).square().sum())
            close(x.grad, y.grad)
    info = fn.cache_info()
    assert (info.misses, info.hits) == (len(sizes), len(sizes))
    assert info.forward_runs == info.backward_runs == 2 * len(sizes)


def test_nano_vllm_105_a_prompt_of_any_length_then_tokens() -> None:
    """Prompts of new lengths trace once each; the tokens after them never."""
    torch.manual_seed(0)
    model = differentiate(nn.Sequential(nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, 8)).to(F64))
    with torch.no_grad():
        for prompt in (5, 9, 13):
            model(_leaf(prompt, 8).detach())
            for _ in range(4):
                model(_leaf(1, 8).detach())
    info = model.cache_info()
    assert info.misses == 4, "three lengths and one token"
    assert info.hits == 11


# --- small functions ------------------------------------------------------------------------------


def test_kernelbench_68_a_cross_entropy_is_called_without_the_general_path() -> None:
    """After the first call one generated function checks, runs and returns."""
    fn = differentiate(lambda logits, target: F.cross_entropy(logits, target))
    target = torch.tensor([1, 0, 2])
    for n in range(6):
        logits = _leaf(3, 4, seed=n).detach()
        close(fn(logits, target), F.cross_entropy(logits, target))
    (quick,) = fn.cache.quick
    close(quick((logits, target), {}), F.cross_entropy(logits, target))
    assert fn.cache_info().misses == 1


def test_pytorch_119611_a_call_that_fits_traces_and_derives_nothing() -> None:
    """Also pytorch#98441: f and df are derived once, whatever the number of calls."""
    fn = differentiate(lambda x, w: torch.tanh(x * w).sum())
    for n in range(20):
        fn(_leaf(3, seed=n), _leaf(3, seed=n + 1)).backward()
    info = fn.cache_info()
    assert (info.misses, info.hits, info.entries) == (1, 19, 1)
    (plan,) = fn.plans()
    (gradient,) = plan.gradients.values()
    assert len(gradient.dfs) == 1


def test_pytorch_196936_the_guard_of_a_call_is_code_one_can_read() -> None:
    """One line per fact about the arguments, the modes and the state; no tree that is walked."""
    fn = differentiate(lambda x, mode: x.sin() if mode == "a" else x)
    fn(torch.ones(3), "a")
    (fast,) = fn.cache.fast
    lines = fast.source.splitlines()
    assert len(lines) <= 11 and lines[0] == "def check(args, kwargs):"
    assert "a1 == 'a'" in fast.source and "a0.shape" in fast.source
    assert fast.check((torch.ones(3), "a"), {}) is not None
    for other in ((torch.ones(4), "a"), (torch.ones(3), "b"), (torch.ones(3, dtype=F64), "a")):
        assert fast.check(other, {}) is None
    fn(torch.ones(4), "a")
    assert fn.explain(torch.ones(4), "a").reason == "args[0] is float32[4], was float32[3]"


@pytest.mark.usefixtures("op_by_op")
def test_jax_4537_temporaries_are_written_over() -> None:
    """Slower than numpy is what allocates more than numpy: here results reuse dead operands."""

    def fn(x: Any, w: Any, b: Any) -> Any:
        return np.tanh(x @ w + b) * 0.5 + 1.0

    compiled = differentiate(fn)
    args = np.ones((16, 8)), np.ones((8, 4)), np.ones(4)
    np.testing.assert_array_equal(compiled(*args), fn(*args))
    (plan,) = compiled.plans()
    source = plan.executable.source
    assert source.count("out=") == 4, source  # the sum, the tanh, the product, the last sum


def test_jax_27460_a_loop_of_small_steps_is_straight_line_code() -> None:
    """A filter over a sequence, unrolled: one statement per op and step, no loop machinery."""

    def track(z: Any, gain: Any) -> Any:
        state = np.zeros(2)
        for measured in z:
            state = state + gain * (measured - state)
        return np.sum(state**2)

    z, gain = np.linspace(0.0, 1.0, 60).reshape(30, 2), np.array(0.3)
    value_and_grad = gradof.value_and_grad(track, argnums=(0, 1))
    value, (dz, dgain) = value_and_grad(z, gain)
    np.testing.assert_allclose(value, track(z, gain), rtol=1e-14)
    decay = 0.3 * 0.7 ** np.arange(29, -1, -1)
    np.testing.assert_allclose(dz, 2 * decay[:, None] * (decay @ z), rtol=1e-12)
    slope = (track(z, gain + 1e-6) - track(z, gain - 1e-6)) / 2e-6
    np.testing.assert_allclose(dgain, slope, rtol=1e-7)
    value_and_grad(z + 1, gain)
    assert value_and_grad.base.cache_info().misses == 1
