"""Rosenbrock's valley in plain numpy, minimised by scipy with compiled gradients.

    gradof show examples/rosenbrock.py:rosenbrock --stage numpy
    python examples/rosenbrock.py

Rosenbrock, An automatic method for finding the greatest or least value of a function, 1960. The
minimum is 0 at (1, ..., 1).
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from gradof import hvp, value_and_grad

Vector = NDArray[np.float64]


def rosenbrock(p: Vector) -> Any:
    """sum 100 (p[i+1] - p[i]^2)^2 + (1 - p[i])^2: p f64[n] -> f64[]."""
    valley = p[1:] - p[:-1] ** 2
    return np.sum(100.0 * valley**2 + (1.0 - p[:-1]) ** 2)


def example_inputs() -> tuple[Vector]:
    """A start in six dimensions."""
    return (np.linspace(-1.2, 1.2, 6),)


def main(argv: list[str] | None = None) -> dict[str, float]:
    """Minimise with BFGS and with Newton-CG; returns the largest distance from the minimum."""
    parser = argparse.ArgumentParser(description="Rosenbrock's function")
    parser.add_argument("--n", type=int, default=20)
    n = parser.parse_args(argv).n
    start = np.full(n, -1.2)
    start[1::2] = 1.0
    fun = value_and_grad(rosenbrock)
    bfgs = minimize(fun, start, jac=True, method="L-BFGS-B", options={"ftol": 1e-14, "gtol": 1e-9})
    newton = minimize(
        fun, start, jac=True, method="Newton-CG", options={"xtol": 1e-12},
        hessp=lambda p, v: hvp(rosenbrock, (p,), (v,))[0],
    )  # fmt: skip
    distances = {}
    for name, result in (("L-BFGS-B", bfgs), ("Newton-CG", newton)):
        distances[name] = float(np.abs(result.x - 1.0).max())
        print(f"{name:<9}  {result.nit:>3} iterations  f = {result.fun:.2e}  "
              f"largest |x - 1| = {distances[name]:.1e}")  # fmt: skip
    return distances


if __name__ == "__main__":
    main()
