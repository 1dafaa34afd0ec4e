"""Logistic regression in plain numpy on the breast-cancer data, fitted by scipy.

    gradof show examples/logistic_regression.py:loss --stage df
    python examples/logistic_regression.py

Data: Wolberg, Street & Mangasarian, Breast Cancer Wisconsin (Diagnostic), 1995, bundled with
scikit-learn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from gradof import value_and_grad

Array = NDArray[np.float64]
Params = dict[str, Any]


def loss(params: Params, x: Array, y: Array) -> Any:
    """Mean negative log-likelihood plus 1e-3 |w|^2: x f64[n,d], y f64[n] in {0,1} -> f64[]."""
    z = x @ params["w"] + params["b"]
    return np.mean(np.logaddexp(0.0, z) - y * z) + 1e-3 * np.sum(params["w"] ** 2)


def load_data() -> tuple[Array, Array, Array, Array]:
    """Standardised features and labels: train x, test x, train y, test y."""
    data = load_breast_cancer()
    train_x, test_x, train_y, test_y = train_test_split(
        data.data, data.target.astype(float), test_size=0.25, random_state=0
    )
    mean, std = train_x.mean(axis=0), train_x.std(axis=0)
    return (train_x - mean) / std, (test_x - mean) / std, train_y, test_y


def example_inputs() -> tuple[Params, Array, Array]:
    """Parameters of zero and the training data."""
    train_x, _, train_y, _ = load_data()
    return {"w": np.zeros(train_x.shape[1]), "b": np.zeros(())}, train_x, train_y


def main(argv: list[str] | None = None) -> float:
    """Fit; returns the test accuracy."""
    del argv
    train_x, test_x, train_y, test_y = load_data()
    d = train_x.shape[1]
    objective = value_and_grad(loss)

    def flat(theta: Array) -> tuple[float, Array]:
        value, grads = objective({"w": theta[:d], "b": theta[d]}, train_x, train_y)
        return float(value), np.append(grads["w"], grads["b"])

    result = minimize(flat, np.zeros(d + 1), jac=True, method="L-BFGS-B")
    z = test_x @ result.x[:d] + result.x[d]
    accuracy = float(np.mean((z > 0) == (test_y > 0.5)))
    print(f"{result.nit} iterations, loss {result.fun:.5f}, test accuracy {accuracy:.2%}")
    return accuracy


if __name__ == "__main__":
    main()
