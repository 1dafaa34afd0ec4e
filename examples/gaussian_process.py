"""Gaussian process regression in plain numpy: hyperparameters by gradients, on diabetes patients.

    python examples/gaussian_process.py

Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, section 5.4.1: the log
marginal likelihood of a squared exponential kernel with a length scale for each feature, and noise.
The data are those of Efron et al., Least Angle Regression, 2004, which scikit-learn ships. Its
GaussianProcessRegressor, with its own gradients, fits the same model from the same start.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray
from scipy.optimize import approx_fprime, minimize
from sklearn.datasets import load_diabetes
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from gradof import value_and_grad

Array = NDArray[np.float64]
BOUNDS = (1e-3, 1e3)  # of every hyperparameter


def kernel(theta: Any, X: Any, Z: Any) -> Any:
    """Covariances of f: theta f64[2 + d], X f64[n,d], Z f64[m,d] -> f64[n,m]."""
    scaled, other = X / np.exp(theta[2:]), Z / np.exp(theta[2:])
    squares = np.sum(scaled**2, axis=1)[:, None] + np.sum(other**2, axis=1)[None, :]
    return np.exp(theta[0] - 0.5 * (squares - 2.0 * scaled @ other.T))


def negative_log_likelihood(theta: Any, X: Array, y: Array) -> Any:
    """-log p(y | X): log variance, log noise and d log length scales -> f64[]."""
    K = kernel(theta, X, X) + (np.exp(theta[1]) + 1e-10) * np.eye(len(y))
    L = scipy.linalg.cholesky(K, lower=True)
    alpha = scipy.linalg.cho_solve((L, True), y)
    half_log_det = np.sum(np.log(np.diag(L)))
    return 0.5 * y @ alpha + half_log_det + 0.5 * len(y) * np.log(2.0 * np.pi)


def predict(theta: Array, X: Array, y: Array, Z: Array) -> Array:
    """The posterior mean at Z."""
    K = kernel(theta, X, X) + np.exp(theta[1]) * np.eye(len(y))
    mean: Array = kernel(theta, Z, X) @ scipy.linalg.cho_solve(scipy.linalg.cho_factor(K), y)
    return mean


def load(train: int) -> tuple[Array, Array, Array, Array]:
    """Features and progression of the disease, standardised: for training and for the test."""
    X, y = load_diabetes(return_X_y=True)
    X, y = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
    order = np.random.default_rng(0).permutation(len(y))
    X, y = X[order], y[order]
    return X[:train], y[:train], X[train:], y[train:]


def example_inputs() -> tuple[Array, Array, Array]:
    """Hyperparameters and a few patients."""
    X, y, _, _ = load(40)
    return np.zeros(2 + X.shape[1]), X, y


def fit_scikit_learn(X: Array, y: Array) -> GaussianProcessRegressor:
    """The same model, from the same start."""
    scales = RBF(np.ones(X.shape[1]), BOUNDS)
    model = ConstantKernel(1.0, BOUNDS) * scales + WhiteKernel(1.0, BOUNDS)
    with warnings.catch_warnings():  # of length scales at their bound: features that say nothing
        warnings.simplefilter("ignore")
        return GaussianProcessRegressor(model, alpha=1e-10).fit(X, y)


def main(argv: list[str] | None = None) -> dict[str, float]:
    """Fit, and compare with scikit-learn; returns figures."""
    parser = argparse.ArgumentParser(description="Gaussian process regression")
    parser.add_argument("--train", type=int, default=100)
    X, y, X_test, y_test = load(parser.parse_args(argv).train)
    start = np.zeros(2 + X.shape[1])
    bounds = [tuple(np.log(BOUNDS))] * len(start)
    loss = value_and_grad(negative_log_likelihood)
    began = time.perf_counter()
    loss(start, X, y)
    first = time.perf_counter() - began
    began = time.perf_counter()
    ours = minimize(loss, start, args=(X, y), jac=True, method="L-BFGS-B", bounds=bounds)
    seconds = time.perf_counter() - began
    began = time.perf_counter()
    for _ in range(5):
        loss(start, X, y)
    gradient = (time.perf_counter() - began) / 5
    began = time.perf_counter()
    approx_fprime(start, negative_log_likelihood, 1e-8, X, y)
    differences = time.perf_counter() - began
    began = time.perf_counter()
    theirs = fit_scikit_learn(X, y)
    seconds_theirs = time.perf_counter() - began
    errors = y_test - predict(ours.x, X, y, X_test)
    print(f"first gradient {first:.2f} s, then {1e3 * gradient:.1f} ms; "
          f"by finite differences {1e3 * differences:.1f} ms")  # fmt: skip
    for name, value, took in (
        ("gradof", -ours.fun, seconds),
        ("scikit-learn", theirs.log_marginal_likelihood_value_, seconds_theirs),
    ):
        print(f"{name:<13} log likelihood {value:.4f}  {took:.2f} s")
    figures = {
        "ours": float(-ours.fun), "theirs": float(theirs.log_marginal_likelihood_value_),
        "r2": float(1.0 - errors @ errors / (y_test @ y_test)),
        "r2_theirs": float(theirs.score(X_test, y_test)),
    }  # fmt: skip
    print(f"R2 of {len(y_test)} other patients: {figures['r2']:.3f}, "
          f"scikit-learn {figures['r2_theirs']:.3f}")  # fmt: skip
    return figures


if __name__ == "__main__":
    main()
