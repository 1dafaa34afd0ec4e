"""Workloads whose kernels are interpreted and compiled: those of both benchmarks, cut small."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

FOLDER = Path(__file__).parents[2] / "benchmarks"
# sizes of the benchmark → sizes here; an LSTM cell has 4 times as many gates as units
SIZES = {4096: 8, 1024: 24, 256: 6, 512: 12, 784: 20, 128: 10, 64: 16, 65536: 50, 1_000_000: 100,
         1000: 30, 569: 23, 30: 5}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A function, its arrays, and the positions of those that gradients are taken of."""

    name: str
    fn: Callable[..., Any]
    arrays: list[Any]
    argnums: tuple[int, ...]
    is_numpy: bool = False  # fn takes numpy as its first argument


def of_the_cpu_benchmark() -> Iterator[Case]:
    """Each workload, once for every library that it is written for."""
    sys.path.insert(0, str(FOLDER))
    from workloads import WORKLOADS  # type: ignore[import-not-found,unused-ignore]  # a script's

    for w in WORKLOADS:
        arrays = [_cut(a) for a in w.make(np.random.default_rng(0))]
        if w.torch is not None:
            yield Case(w.name, w.torch, arrays, w.argnums)
        if w.array is not None:
            yield Case(f"{w.name}, numpy", w.array, arrays, w.argnums, is_numpy=True)


def _cut(array: Any) -> Any:
    small = np.asarray(array)[tuple(slice(SIZES.get(n, n)) for n in array.shape)]
    return np.ascontiguousarray(small % 8 if small.dtype.kind == "i" else small)


def of_gpus(dtype: torch.dtype) -> Iterator[Case]:
    """Each workload of the GPU benchmark in one dtype, in the smallest of its sizes."""
    sys.path.insert(0, str(FOLDER))
    from gpu_workloads import WORKLOADS  # type: ignore[import-not-found,unused-ignore]  # a script's

    for w in WORKLOADS:
        args = w.arguments(w.tiny[0], dtype, "cpu")
        wanted = tuple(k for k, a in enumerate(args) if a.requires_grad)
        yield Case(w.name, w.fn, [a.detach() for a in args], wanted)
