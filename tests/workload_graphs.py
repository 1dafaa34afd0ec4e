"""The benchmark's workloads as graphs of f and df, for small arrays; traced once a process.

    f, df = graphs_of("rmsnorm")
    for nest in nests_of("rmsnorm", "tiles"):
        run_nest(nest, arrays_for(nest))
"""

from __future__ import annotations

import functools
import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np

from gradof.codegen.loops.ir import LoopNest
from gradof.codegen.loops.lower import schedule
from gradof.codegen.targets.choose import all_targets
from gradof.codegen.targets.passes import run_target
from gradof.ir.attrs import to_numpy_dtype
from gradof.ir.core import Graph

FOLDER = Path(__file__).parents[1] / "benchmarks"
# The name of a workload in a test: its first word.
NAMES = (
    "gelu-bias-mse", "rmsnorm", "layernorm", "cross-entropy", "swiglu", "bias-residual-layernorm",
    "bias-dropout-residual-layernorm", "Adam", "heat", "Black-Scholes", "mixture", "mlp", "LSTM",
    "attention", "linear", "scalar", "chain", "Rosenbrock", "logistic",
)  # fmt: skip
# Rows are few, and columns enough for what is done to long rows alone.
SMALLER = {4096: 6, 1024: 96, 1_000_000: 200, 65536: 40, 784: 12, 569: 20}
OTHERWISE = {
    "cross-entropy": {1024: 6, 4096: 96}, "LSTM": {256: 24, 1024: 96}, "heat": {512: 16},
    "attention": {8: 2, 128: 64}, "linear": {256: 32, 1024: 96},
    "mlp": {784: 12, 512: 96, 128: 8},
}  # fmt: skip


@functools.cache
def workloads() -> dict[str, Any]:
    """The benchmark's records, by the first words of their names."""
    sys.path.insert(0, str(FOLDER))
    try:
        records = importlib.import_module("workloads").WORKLOADS
    finally:
        sys.path.remove(str(FOLDER))
    return {w.name.split()[0]: w for w in records}


def library_of(name: str) -> str:
    """The library in which a workload is traced: torch where it is written for it."""
    return "numpy" if workloads()[name].torch is None else "torch"


@functools.cache
def graphs_of(name: str) -> tuple[Graph, Graph]:
    """f and df as they are given to `compile_graph`."""
    from gradof.api import differentiate
    from gradof.runtime.results import gradient_flags

    w = workloads()[name]
    sizes = OTHERWISE.get(name, SMALLER)
    args = [_small(a, sizes) for a in w.make(np.random.default_rng(0))]
    if name == "cross-entropy":
        args[1] %= 96
    if w.torch is None:
        fn = lambda *a: w.array(np, *a)  # noqa: E731
    else:
        import torch

        fn = w.torch
        args = [torch.from_numpy(a).requires_grad_(k in w.argnums) for k, a in enumerate(args)]
    compiled = differentiate(fn)
    bound = compiled.bind(tuple(args), {})
    plan = bound.entry.plan.gradient(gradient_flags(bound))
    vjps = plan.gradient.df_input_vjps
    defined = tuple(i < plan.gradient.f_real_outputs for i in vjps)
    df = plan.df(defined, (True,) * len(plan.gradient.df_output_vjps)).plan
    return plan.f.prepared, df.prepared


def _small(array: Any, sizes: dict[int, int]) -> Any:
    array = np.asarray(array)
    places = tuple(slice(sizes.get(n, n)) for n in array.shape)
    return np.ascontiguousarray(array[places])


def nests_of(name: str, target: str) -> list[LoopNest]:
    """The loop nests of f and df for one of `all_targets`."""
    (chosen,) = (t for t in all_targets() if t.name == target)
    nests = []
    for which, graph in zip(("f", "df"), graphs_of(name), strict=True):
        groups = [n for n in run_target(graph, chosen).nodes() if n.kind == "FusionGroup"]
        nests += [schedule(node, f"{which}{k}") for k, node in enumerate(groups)]
    return nests


def arrays_for(nest: LoopNest, seed: int = 0) -> list[Any]:
    """Random operands: floats near one, whole numbers that are in range of every axis."""
    rng = np.random.default_rng(seed)
    found = []
    for b in nest.inputs:
        array = rng.uniform(0.5, 1.5, b.shape) if b.dtype.is_float else rng.integers(0, 2, b.shape)
        found.append(np.asarray(array).astype(to_numpy_dtype(b.dtype)))
    return found
