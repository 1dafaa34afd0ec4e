"""Forward and backward on a CPU: gradof beside torch eager, interleaved in one process.

    python benchmarks/bench_cpu.py

Prints medians and ratios (eager / gradof: above 1 gradof is faster), and the time to the first
gradient.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from gradof import differentiate, value_and_grad

REPEATS = 30


def chain(x: Tensor, w: Tensor) -> Tensor:
    """Small arrays: what is measured is overhead."""
    return torch.tanh(x @ w).mul(2.0).add(1.0).square().sum()


def gelu_mse(x: Tensor, b: Tensor, y: Tensor) -> Tensor:
    """Large elementwise arrays: what is measured is memory traffic."""
    return ((torch.nn.functional.gelu(x + b) - y) ** 2).mean()


def mlp(x: Tensor, w1: Tensor, w2: Tensor) -> Tensor:
    """Matrix products: what is measured is the library underneath."""
    return torch.relu(x @ w1).matmul(w2).logsumexp(1).mean()


def weights(*shape: int) -> Tensor:
    """A normal tensor that requires grad."""
    return torch.randn(*shape).requires_grad_()


WORKLOADS: dict[str, tuple[Callable[..., Tensor], Callable[[], list[Tensor]]]] = {
    "chain 16x16": (chain, lambda: [torch.randn(16, 16), weights(16, 16)]),
    "gelu-bias-mse 4096x1024": (
        gelu_mse, lambda: [weights(4096, 1024), weights(1024), torch.randn(4096, 1024)],
    ),
    "mlp 128x784-512-10": (
        mlp, lambda: [torch.randn(128, 784), weights(784, 512), weights(512, 10)],
    ),
}  # fmt: skip


def backward(fn: Callable[..., Tensor], args: list[Tensor]) -> None:
    """One value and its gradients."""
    torch.autograd.grad(fn(*args), [a for a in args if a.requires_grad])


def timed(run: Callable[[], object]) -> float:
    """Seconds of one run."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def interleaved(runs: list[Callable[[], object]]) -> list[float]:
    """Median seconds of each run, taken in turns after one warm-up."""
    samples: list[list[float]] = [[] for _ in runs]
    for run in runs:
        run()
    for _ in range(REPEATS):
        for sample, run in zip(samples, runs, strict=True):
            sample.append(timed(run))
    return [statistics.median(s) for s in samples]


def rosenbrock(p: np.ndarray) -> np.ndarray:
    """The numpy workload."""
    result: np.ndarray = np.sum(100 * (p[1:] - p[:-1] ** 2) ** 2 + (1 - p[:-1]) ** 2)
    return result


def main() -> None:
    """Print the table."""
    torch.manual_seed(0)
    table = Table("workload", "eager ms", "gradof ms", "eager / gradof", "first gradient ms")
    for name, (fn, make) in WORKLOADS.items():
        args = make()
        compiled = differentiate(fn)
        first = timed(lambda f=compiled, a=args: backward(f, a))  # type: ignore[misc]
        eager, ours = interleaved(
            [lambda f=fn, a=args: backward(f, a), lambda f=compiled, a=args: backward(f, a)]  # type: ignore[misc]
        )
        table.add_row(name, f"{eager * 1e3:.3f}", f"{ours * 1e3:.3f}", f"{eager / ours:.2f}",
                      f"{first * 1e3:.0f}")  # fmt: skip
    p = np.linspace(-1, 1, 1000)
    both = value_and_grad(rosenbrock)
    first = timed(lambda: both(p))
    value, ours = interleaved([lambda: rosenbrock(p), lambda: both(p)])
    Console().print(table)
    print(f"rosenbrock 1000, numpy: value {value * 1e6:.0f} us, "
          f"value and gradient {ours * 1e6:.0f} us (first {first * 1e3:.0f} ms)")  # fmt: skip


if __name__ == "__main__":
    main()
