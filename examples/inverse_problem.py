"""Tomography: an image from its shadows, by a sparse operator and total variation, in plain numpy.

    python examples/inverse_problem.py

Handwritten digits, which scikit-learn ships, are the unknown image. What is measured are sums
along lines, as in a scanner: `b = A x + noise`, where A is a sparse matrix of scipy's. The image is
the minimum of |A x - b|^2 / 2 plus a smoothed total variation (Rudin, Osher and Fatemi, 1992) over
x >= 0. Nobody writes down a gradient: A is an argument like any other.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.datasets import load_digits

from gradof import value_and_grad

Array = NDArray[np.float64]


def objective(x: Any, A: Any, b: Array, weight: float) -> Any:
    """x f64[n*n], A sparse [m,n*n], b f64[m] -> f64[]."""
    misfit = A @ x - b
    n = int(np.sqrt(len(x)))
    image = np.reshape(x, (n, n))
    down, right = image[1:, :-1] - image[:-1, :-1], image[:-1, 1:] - image[:-1, :-1]
    variation = np.sum(np.sqrt(down**2 + right**2 + 1e-4))
    return 0.5 * misfit @ misfit + weight * variation


def projections(n: int, angles: int) -> scipy.sparse.csr_array:
    """Sums along parallel lines: each pixel is shared by the two nearest lines at each angle."""
    places = np.arange(n) - (n - 1) / 2
    y, x = (grid.reshape(-1) for grid in np.meshgrid(places, places, indexing="ij"))
    lines = int(np.ceil(np.sqrt(2) * n)) + 2
    blocks = []
    for angle in np.pi * np.arange(angles) / angles:
        at = x * np.cos(angle) + y * np.sin(angle) + (lines - 1) / 2
        low = np.floor(at).astype(int)
        part = at - low
        pixel = np.arange(n * n)
        data, rows = np.concatenate([1 - part, part]), np.concatenate([low, low + 1])
        columns = np.concatenate([pixel, pixel])
        blocks.append(scipy.sparse.coo_array((data, (rows, columns)), shape=(lines, n * n)))
    return scipy.sparse.csr_array(scipy.sparse.vstack(blocks))


def image_of_digits(side: int) -> Array:
    """side x side digits in one image, with values from 0 to 1."""
    digits = load_digits().images[: side * side] / 16.0
    rows = [np.concatenate(list(digits[i * side : (i + 1) * side]), axis=1) for i in range(side)]
    whole: Array = np.concatenate(rows, axis=0)
    return whole


def measured(side: int, angles: int) -> tuple[Array, scipy.sparse.csr_array, Array]:
    """The image, the operator, and its noisy shadows."""
    image = image_of_digits(side)
    A = projections(len(image), angles)
    exact = A @ image.reshape(-1)
    noise = np.random.default_rng(0).normal(size=exact.shape)
    return image, A, exact + 0.01 * exact.max() * noise


def example_inputs() -> tuple[Array, scipy.sparse.csr_array, Array, float]:
    """An image of two by two digits."""
    image, A, b = measured(2, 12)
    return np.full(image.size, 0.3), A, b, 0.05


def main(argv: list[str] | None = None) -> dict[str, float]:
    """Reconstruct; returns the errors of the image and of filtered least squares, and times."""
    parser = argparse.ArgumentParser(description="tomography")
    parser.add_argument("--side", type=int, default=5, help="digits along each side")
    parser.add_argument("--angles", type=int, default=32)
    options = parser.parse_args(argv)
    image, A, b = measured(options.side, options.angles)
    start, weight = np.full(image.size, 0.3), 0.05
    loss = value_and_grad(objective)
    began = time.perf_counter()
    loss(start, A, b, weight)
    first = time.perf_counter() - began
    began = time.perf_counter()
    found = minimize(
        loss, start, args=(A, b, weight), jac=True, method="L-BFGS-B",
        bounds=[(0.0, None)] * image.size, options={"maxiter": 150},
    )
    seconds = time.perf_counter() - began
    calls = 20
    began = time.perf_counter()
    for _ in range(calls):
        objective(start, A, b, weight)
    value = (time.perf_counter() - began) / calls
    began = time.perf_counter()
    for _ in range(calls):
        loss(start, A, b, weight)
    gradient = (time.perf_counter() - began) / calls
    least = scipy.sparse.linalg.lsqr(A, b, damp=1.0)[0]
    figures = {
        "error": float(np.linalg.norm(found.x - image.reshape(-1)) / np.linalg.norm(image)),
        "least_squares": float(np.linalg.norm(least - image.reshape(-1)) / np.linalg.norm(image)),
        "gradient_per_value": gradient / value,
    }
    print(f"{image.size} unknowns, {len(b)} sums, {A.nnz} elements; first gradient {first:.2f} s")
    print(f"{found.nit} iterations in {seconds:.2f} s; a value and its gradient take "
          f"{1e3 * gradient:.2f} ms, numpy's value {1e3 * value:.2f} ms")  # fmt: skip
    print(f"finite differences would take {value * (image.size + 1):.1f} s for one gradient")
    print(f"relative error of the image {figures['error']:.3f}, "
          f"of damped least squares {figures['least_squares']:.3f}")  # fmt: skip
    return figures


if __name__ == "__main__":
    main()
