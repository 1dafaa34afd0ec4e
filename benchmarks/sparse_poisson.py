"""An inverse problem with a sparse matrix: the gradient beside the solves that it is made of.

    python benchmarks/sparse_poisson.py [--side 316] [--rounds 3]

The conductivity of a square plate, side^2 unknowns, from its temperature: -div(exp(theta) grad u)
is f, as differences between neighbouring cells, solved by `scipy.sparse.linalg.spsolve`; the
objective is |u - data|^2 / 2. The function is plain scipy, its matrix made of traced data.
Times are this thread's, the least of the rounds, interleaved; a forward solve is the function.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import spsolve

sys.path.insert(0, str(Path(__file__).parents[1]))
import gradof
from benchmarks.tables import shown


def differences(side: int) -> Any:
    """Between neighbouring cells of a plate, both ways: sparse [2*side*(side-1), side^2]."""
    step = sp.diags([-np.ones(side - 1), np.ones(side - 1)], [0, 1], shape=(side - 1, side))
    one = sp.eye(side)
    return sp.vstack([sp.kron(step, one), sp.kron(one, step)]).tocsc()


def problem(side: int) -> tuple[Callable[[Any], Any], np.ndarray[Any, Any]]:
    """The objective of f64[side^2], and where to take it."""
    rng = np.random.default_rng(0)
    D, n = differences(side), side * side
    mean = abs(D) / 2  # from cells to the edges between them
    heat, data = rng.normal(size=n), rng.normal(size=n) * 0.1

    def objective(theta: Any) -> Any:
        edges = mean @ np.exp(theta)
        A = D.T @ sp.diags(edges) @ D + 0.01 * sp.eye(n)
        u = spsolve(A.tocsc(), heat)
        return np.sum((u - data) ** 2) / 2

    return objective, rng.normal(size=n) * 0.3


def checked(objective: Any, gradient: Any, theta: Any) -> float:
    """How far the gradient is from a central difference along a random direction, relatively."""
    direction = np.random.default_rng(1).normal(size=theta.size)
    h = 1e-5
    along = (objective(theta + h * direction) - objective(theta - h * direction)) / (2 * h)
    return abs(float(gradient @ direction) / along - 1)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--side", type=int, default=316)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    objective, theta = problem(options.side)
    both = gradof.value_and_grad(objective)
    start = time.thread_time()
    value, gradient = both(theta)
    first = time.thread_time() - start
    times: dict[str, list[float]] = {"forward": [], "gradient": []}
    for k in range(1, options.rounds + 1):
        for name, run in (("forward", objective), ("gradient", both)):
            at = theta * (1 + k / 10)  # another matrix: one that was factorised is known
            start = time.thread_time()
            run(at)
            times[name].append(time.thread_time() - start)
    forward, reverse = min(times["forward"]), min(times["gradient"])
    print(f"{theta.size} unknowns: a forward solve {shown(forward)}, value and gradient "
          f"{shown(reverse)}: {reverse / forward:.2f} solves; first {shown(first)}")  # fmt: skip
    off = checked(objective, gradient, theta)
    print(f"value {value:.6e}; the derivative along a random direction is off by {off:.0e}")


if __name__ == "__main__":
    main()
