"""A torch caller's bfloat16 and float16: native kernels over the tensors' own memory, judged by
float64 no worse than eager."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

import gradof
from gradof import differentiate, tuning
from gradof.codegen.llvm.kernel import NativeKernel
from gradof.ir.types import BF16, DType
from gradof.runtime.function import Differentiated
from gradof.runtime.torch_arrays import from_raw, to_raw
from gradof.tracer.aten.types import from_torch_dtype
from tests.gpu.judge import executables

HALVES = [torch.bfloat16, torch.float16]
Tensor = torch.Tensor
ROWS, COLUMNS = 260, 200  # more cells than `backend.SMALL`, and columns with a rest
TARGET = torch.randint(0, COLUMNS, (ROWS,), generator=torch.Generator().manual_seed(5))


def gelu_mse(x: Tensor, w: Tensor, y: Tensor) -> Tensor:
    return ((functional.gelu(x + w, approximate="tanh") - y) ** 2).mean()


def rms_norm(x: Tensor, w: Tensor, y: Tensor) -> Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w * y


def layer_norm(x: Tensor, w: Tensor, y: Tensor) -> Tensor:
    return functional.layer_norm(x, (x.shape[-1],), w, w) * y


def cross_entropy(x: Tensor, w: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(x * y + w, TARGET)


def swiglu(x: Tensor, w: Tensor, y: Tensor) -> Tensor:
    return functional.silu(x * w) * y


def softmax(x: Tensor, w: Tensor, y: Tensor) -> Tensor:
    return functional.softmax(x * w, -1) * y


PROGRAMS = [gelu_mse, rms_norm, layer_norm, cross_entropy, swiglu, softmax]
Program = Callable[[Tensor, Tensor, Tensor], Tensor]


def arguments(dtype: torch.dtype) -> list[Tensor]:
    torch.manual_seed(0)
    shapes = ((ROWS, COLUMNS), (COLUMNS,), (ROWS, COLUMNS))
    return [torch.randn(s).to(dtype).requires_grad_() for s in shapes]


def derivatives(fn: Program, args: list[Tensor], order: int) -> list[Tensor]:
    """The value, then the gradients of each order, for random cotangents."""
    leaves = [a.detach().clone().requires_grad_() for a in args]
    found = [fn(*leaves)]
    current = found
    for n in range(order):
        generator = torch.Generator().manual_seed(n)
        seeds = [torch.randn(t.shape, generator=generator).to(args[0].dtype) for t in current]
        current = [t for t in torch.autograd.grad(
            current, leaves, [s.to(t.dtype) for s, t in zip(seeds, current, strict=True)],
            create_graph=n + 1 < order,
        )]  # fmt: skip
        found = [*found, *current]
    return [t.detach() for t in found]


def relative(mine: Tensor, exact: Tensor) -> float:
    return float((mine.double() - exact).norm() / exact.norm())


def judged(fn: Program, dtype: torch.dtype, order: int) -> Differentiated:
    """No farther from float64 than eager, but for a tenth and a rounding of single numbers."""
    args = arguments(dtype)
    compiled: Differentiated = differentiate(fn)
    mine, theirs = derivatives(compiled, args, order), derivatives(fn, args, order)
    exact = derivatives(fn, [a.double() for a in args], order)
    eps = torch.finfo(dtype).eps
    for k, (a, b, c) in enumerate(zip(mine, theirs, exact, strict=True)):
        assert a.dtype == dtype == b.dtype and a.shape == b.shape
        assert relative(a, c) <= 1.1 * relative(b, c) + eps / 2, k
    return compiled


def kernels(compiled: Differentiated) -> list[NativeKernel]:
    """Those of f and of every df that ran, all of them native code."""
    found = [k for run in executables(compiled) for k in run.kernels]
    assert found and all(isinstance(k, NativeKernel) for k in found)
    return found


def cell_types(compiled: Differentiated) -> set[DType]:
    """The dtypes of the large arrays that kernels read and write."""
    buffers = [b for k in kernels(compiled) for b in (*k.nest.inputs, *k.nest.outputs)]
    return {b.dtype for b in buffers if np.prod(b.shape) == ROWS * COLUMNS}


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("fn", PROGRAMS)
def test_values_and_gradients(fn: Program, dtype: torch.dtype) -> None:
    compiled = judged(fn, dtype, 1)
    assert cell_types(compiled) == {from_torch_dtype(dtype)}
    sources = [run.source for run in executables(compiled)]
    assert not any("widen_bf16" in source for source in sources)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("fn", [gelu_mse, rms_norm, softmax])
def test_second_derivatives(fn: Program, dtype: torch.dtype) -> None:
    judged(fn, dtype, 2)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("fn", PROGRAMS)
def test_one_thread_and_two_give_the_same_bits(
    fn: Program, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "NATIVE_CHUNK", 2048)
    monkeypatch.setattr(tuning, "NATIVE_THREAD", 1)
    found = []
    for threads in ("1", "2"):
        monkeypatch.setenv("GRADOF_NUM_THREADS", threads)
        found.append(derivatives(differentiate(fn), arguments(dtype), 1))
    for a, b in zip(*found, strict=True):
        assert torch.equal(a.view(torch.int16), b.view(torch.int16))


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("fn", [gelu_mse, cross_entropy])
def test_value_and_gradients_in_one_run(fn: Program, dtype: torch.dtype) -> None:
    args, compiled = arguments(dtype), differentiate(fn)
    found = []
    for _ in range(5):  # the last of them from one kernel; see Note [Together]
        value = compiled(*args)
        found.append([value, *torch.autograd.grad(value, args)])
    for first, last in zip(found[0], found[-1], strict=True):
        torch.testing.assert_close(last, first, rtol=2 * torch.finfo(dtype).eps, atol=1e-6)
    assert compiled.cache_info().backward_runs == 5


def test_sums_of_sums_are_rounded_at_the_end() -> None:
    x = torch.full((300, 200), 1.0078125, dtype=torch.bfloat16, requires_grad=True)
    compiled = differentiate(lambda t: (t * 1.0).sum())
    assert compiled(x).item() == torch.tensor(60468.75).bfloat16().item()
    kernels(compiled)


# --- other things that hold, save or pass on bfloat16 -------------------------------------------


def views(x: Tensor, w: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    rows = torch.exp(x)
    part, flipped = rows[3:40, ::2], rows.T.flip(0)
    return rows.T, part * 2, (flipped @ y).float(), rows, w.expand(4, -1), x


def stacked(x: Tensor, w: Tensor, y: Tensor) -> Tensor:
    return torch.cat([torch.sigmoid(x) * y, torch.cumsum(y, 1)])[:, 5:] * w[5:]


def remade(x: Tensor, w: Tensor, y: Tensor) -> Tensor:
    again: Tensor = gradof.checkpoint(
        lambda a, b: torch.tanh(a * w) * b, torch.exp(x * 0.1), y
    )
    return again @ w


def branched(x: Tensor, w: Tensor, y: Tensor) -> Tensor:
    if (x * y).sum() > 1e4:
        return x
    return torch.tanh(x * y) + w


def unknown(x: Tensor, w: Tensor, y: Tensor) -> Tensor:
    return functional.hardshrink(torch.tanh(x * y), 0.25) * torch.renorm(y, 2, 0, 5.0)


@gradof.custom_vjp
def doubled(x: Tensor) -> Tensor:
    return torch.exp(x)


doubled.defvjp(lambda x: (torch.exp(x), x), lambda x, g: (2 * g * torch.exp(x),))


def of_my_own(x: Tensor, w: Tensor, y: Tensor) -> Tensor:
    result: Tensor = doubled(x * w) * y
    return result


@pytest.mark.parametrize("fn", [views, stacked, remade, branched, unknown, of_my_own])
@pytest.mark.parametrize("budget", [None, 0.0])
@pytest.mark.filterwarnings("ignore:.*renorm")
def test_programs_of_other_parts(fn: Callable[..., object], budget: float | None) -> None:
    found = []
    for run in (differentiate(fn, memory_budget=budget), fn):
        args = arguments(torch.bfloat16)
        result = run(*args)
        results = [t for t in (result if isinstance(result, tuple) else (result,))]
        seeds = [torch.ones_like(t) * 0.5 for t in results]
        grads = torch.autograd.grad(results, args, seeds, allow_unused=True)
        found.append([*results, *[g for g in grads if g is not None]])
    for mine, theirs in zip(*found, strict=True):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        off = (mine.double() - theirs.double()).norm()
        assert off <= 2**-6 * theirs.double().norm()


def test_tensors_are_read_and_written_where_they_are() -> None:
    x = torch.randn(5, 7).bfloat16().T
    raw = to_raw(x)
    assert raw.__array_interface__["data"][0] == x.data_ptr() and raw.dtype == np.uint16
    assert raw.shape == (7, 5) and raw.strides == (2, 14)
    back = from_raw(raw, BF16)
    assert back.data_ptr() == x.data_ptr() and torch.equal(back, x) and not back._is_view()
    empty = from_raw(to_raw(torch.zeros(0, 3, dtype=torch.bfloat16)), BF16)
    assert empty.shape == (0, 3) and to_raw(torch.tensor(1.5).bfloat16()).shape == ()


def test_results_may_be_changed_in_place() -> None:
    x, w, y = arguments(torch.bfloat16)
    result = differentiate(rms_norm)(x, w, y)
    result.mul_(2).add_(x)
    result.sum().backward()
    assert x.grad is not None and not result._is_view()
    with torch.no_grad():
        plain = differentiate(rms_norm)(x, w, y)
        plain.zero_()
        assert not plain.any()


def test_strided_and_broadcast_tensors() -> None:
    x, w, y = (a.detach() for a in arguments(torch.bfloat16))
    other = torch.randn(COLUMNS, ROWS).bfloat16().T
    for given in ((other, w, y), (x, w, other), (x[:, :1].expand(-1, COLUMNS), w, y),
                  (torch.randn(ROWS, 2 * COLUMNS).bfloat16()[:, ::2], w, y)):  # fmt: skip
        have = differentiate(rms_norm)(*given)
        want = differentiate(rms_norm)(*(t.contiguous() for t in given))
        torch.testing.assert_close(have, want, rtol=2**-7, atol=0)


PEAK = """
import re, torch
from pathlib import Path
from gradof import differentiate
from torch.nn.functional import gelu
def memory(name):
    return int(re.search(name + r":\\s*(\\d+) kB", Path("/proc/self/status").read_text())[1]) << 10
compiled = differentiate(lambda x, b, y: ((gelu(x + b) - y) ** 2).mean())
x, b, y = (torch.ones(s, dtype=torch.{dtype}) for s in ((4096, 4096), (4096,), (4096, 4096)))
x.requires_grad_()
compiled(x, b, y).backward()  # traced: runs as eager does
x.grad = None
before = memory("VmRSS")
Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
for _ in range(4):
    x.grad = None
    compiled(x, b, y).backward()
print((memory("VmHWM") - before) / (4096 * 4096))
"""


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_peak_memory_is_2_bytes_for_a_cell_of_a_result(dtype: str) -> None:
    """The gradient, which has memory that is used again; a float32 copy of anything were 4 more."""
    run = subprocess.run([sys.executable, "-c", PEAK.replace("{dtype}", dtype)], check=True,
                         capture_output=True, text=True, cwd=Path(__file__).parents[2])  # fmt: skip
    assert float(run.stdout) < 3, run.stdout
