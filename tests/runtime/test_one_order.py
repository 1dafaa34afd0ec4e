"""A value alone, with its gradients or before them, on any number of threads: the same bits."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import gradof
from gradof import tuning
from gradof.codegen.machine.engine import vector_bits
from gradof.runtime.joint import ENOUGH

FOLDER = Path(__file__).parents[2] / "benchmarks"
FUSED = (
    "gelu-bias-mse 4096x1024", "rmsnorm 4096x1024", "layernorm 4096x1024",
    "cross-entropy 1024x4096", "swiglu 4096x1024", "bias-residual-layernorm", "Adam update 1M",
    "heat 512x512 f64, 4 steps", "Black-Scholes 1M f64", "mixture 65536x16 f64",
)  # fmt: skip
SHAPES = [(133, 517), (1100, 31), (37, 1100)]
Function = Callable[..., Any]


@pytest.fixture(params=["native", "tiles"])
def small_parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Either backend, with many tiles and chunks, of sizes that follow from what is computed."""
    if request.param == "native" and not vector_bits():
        pytest.skip("no native code here")
    monkeypatch.setenv("GRADOF_BACKEND", request.param)
    monkeypatch.setattr(tuning, "TILE_CELLS", 1 << 13)
    monkeypatch.setattr(tuning, "TILE_SCRATCH", 1 << 17)
    monkeypatch.setattr(tuning, "SUM_CELLS", 1 << 11)
    monkeypatch.setattr(tuning, "SUM_COLUMNS", 1 << 9)
    monkeypatch.setattr(tuning, "NATIVE_CHUNK", 1 << 11)
    monkeypatch.setattr(tuning, "NATIVE_THREAD", 1 << 12)


def of_torch(fn: Function, arrays: list[Any], argnums: tuple[int, ...]) -> list[list[Any]]:
    """Value and gradients as a torch caller may get them, or the value alone."""
    given = [torch.from_numpy(a) for a in arrays]
    with torch.no_grad():
        found = [[gradof.differentiate(fn)(*given)]]
    value, gradients = gradof.value_and_grad(fn, argnums=argnums)(*given)
    found.append([value, *gradients])
    for i in argnums:
        given[i].requires_grad_()
    compiled = gradof.differentiate(fn)
    for _ in range(ENOUGH + 1):  # the last time both are one run
        value = compiled(*given)
        found.append([value, *torch.autograd.grad(value, [given[i] for i in argnums])])
    return [[a.detach().numpy() for a in each] for each in found]


def of_numpy(fn: Function, arrays: list[Any], argnums: tuple[int, ...]) -> list[list[Any]]:
    """The same of a numpy caller."""
    value, gradients = gradof.value_and_grad(fn, argnums=argnums)(*arrays)
    return [[gradof.differentiate(fn)(*arrays)], [value, *gradients]]


def check(run: Callable[[], list[list[Any]]], monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for threads in ("1", "2"):
        monkeypatch.setenv("GRADOF_NUM_THREADS", threads)
        found += run()
    whole = found[1]
    for each in found:
        for mine, other in zip(each, whole, strict=False):  # some are the value alone
            assert np.asarray(mine).tobytes() == np.asarray(other).tobytes()


@pytest.mark.cases(8)
@pytest.mark.parametrize("shape", SHAPES[:2])
@pytest.mark.parametrize("name", FUSED)
@pytest.mark.usefixtures("small_parts")
def test_sums_of_workloads_are_the_same_bits(
    name: str, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    workloads = importlib.import_module("workloads").WORKLOADS
    assert FUSED == tuple(w.name for w in workloads if w.kind == "fused")
    (w,) = (w for w in workloads if w.name == name)
    rows, columns = shape
    sizes = {4096: rows, 1024: columns, 65536: rows * columns // 16, 1_000_000: rows * columns}
    if name.startswith("cross-entropy"):
        sizes = {1024: rows, 4096: columns}
    arrays = []
    for a in w.make(np.random.default_rng(0)):
        places = [slice(sizes.get(n, min(shape[k], n))) for k, n in enumerate(a.shape)]
        arrays.append(np.ascontiguousarray(a[tuple(places)]))
    if name.startswith("cross-entropy"):
        arrays[1] %= columns
    if name.startswith("mixture"):
        arrays[1:] = [a[:16] for a in w.make(np.random.default_rng(0))[1:]]
    if w.torch is not None:
        check(lambda: of_torch(w.torch, arrays, w.argnums), monkeypatch)
    if w.array is not None:
        check(lambda: of_numpy(lambda *a: w.array(np, *a), arrays, w.argnums), monkeypatch)


def program(seed: int) -> Function:
    """A loss of up to eight random steps: cells, rows, and what reads these."""
    rng = np.random.default_rng(seed)
    steps = rng.integers(0, 10, (rng.integers(3, 9), 3))

    def fn(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        made = [x, y]
        for kind, first, second in steps:
            a, c = made[first % len(made)], made[second % len(made)]
            made.append([
                lambda a, c: torch.tanh(a), lambda a, c: -a * c, lambda a, c: torch.exp(-a.abs()),
                lambda a, c: a + c, lambda a, c: a * w + b, lambda a, c: F.silu(a) * c,
                lambda a, c: a - a.mean(-1, keepdim=True),
                lambda a, c: a * torch.rsqrt((a * a).mean(-1, keepdim=True) + 1e-3),
                lambda a, c: torch.softmax(a, -1) * c,
                lambda a, c: F.layer_norm(a, (a.shape[-1],), w, b),
            ][kind](a, c))  # fmt: skip
        out = made[-1] + x * w + b
        return (out * y).sum() if seed % 2 else out.square().mean()

    return fn


@pytest.mark.cases(8)
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.usefixtures("small_parts")
def test_sums_of_random_programs_are_the_same_bits(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, columns = SHAPES[seed % len(SHAPES)]
    rng = np.random.default_rng(seed)
    dtype = np.float64 if seed % 4 == 3 else np.float32
    shapes = ((rows, columns), (columns,), (columns,), (rows, columns))
    arrays = [rng.standard_normal(s).astype(dtype) for s in shapes]
    check(lambda: of_torch(program(seed), arrays, (0, 1, 2)), monkeypatch)
