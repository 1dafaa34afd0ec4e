"""Every formula: the op computes it, and the rule is its derivative, in float64 and float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sympy
from numpy.typing import NDArray

import gradof.ops
from gradof.ops.expr import Expr, F
from gradof.ops.registry import Op, all_ops
from tests.ops.reference import forward, gradient

assert gradof.ops is not None
SETTINGS: dict[str, dict[str, Any]] = {
    "celu": {"alpha": 0.75},
    "elu": {"alpha": 1.5, "scale": 1.25, "input_scale": 0.5},
    "gelu": {"approximate": "none"},
    "gelu_grad": {"approximate": "none"},
    "leaky_relu": {"negative_slope": 0.1},
    "logit": {"eps": None},
    "polygamma": {"n": 2},
    "softplus": {"beta": 1.5, "threshold": 20.0},
}
OPS = [record for record in all_ops() if record.formula is not None]
# A scalar stands in for kinks inside the domain: Abs, Max and Min have derivatives of their own.
NAMES = {"Max": sympy.Max, "Min": sympy.Min, "Abs": sympy.Abs}


def _samples(record: Op, dtype: type) -> list[NDArray[Any]]:
    rng = np.random.default_rng(len(record.name))
    return [rng.uniform(low, high, 17).astype(dtype) for low, high in record.domain]


def _exact(expression: sympy.Expr, symbols: list[Any], points: list[NDArray[Any]]) -> Any:
    # mpmath, at the very points, so that float32 is held to the exact value
    function = sympy.lambdify(symbols, expression, "mpmath")
    rows = zip(*(p.astype(np.float64).tolist() for p in points), strict=True)
    return np.array([float(function(*row)) for row in rows])


@pytest.mark.parametrize("dtype", [np.float64, np.float32], ids=["f64", "f32"])
@pytest.mark.parametrize("record", OPS, ids=lambda r: r.name)
def test_op_is_its_formula(record: Op, dtype: type) -> None:
    settings = SETTINGS.get(record.name, {})
    assert set(settings) == set(record.attrs)
    symbols = [sympy.Symbol(name, real=True) for name in record.inputs]
    scope = {**NAMES, **dict(zip(record.inputs, symbols, strict=True)), **settings}
    expression = sympy.sympify(record.formula, locals=scope)
    points = _samples(record, dtype)

    def build(*operands: Expr) -> Expr:
        return F.__getattr__(record.name)(*operands, **settings)

    tolerance = 1e-9 if dtype is np.float64 else 2e-5
    (value,) = forward(build, *points)
    exact = _exact(expression, symbols, points)
    np.testing.assert_allclose(value, exact, rtol=tolerance, atol=tolerance)
    grads = gradient(build, *points)
    for symbol, grad in zip(symbols, grads, strict=True):
        assert grad.dtype == dtype
        exact = _exact(sympy.diff(expression, symbol), symbols, points)
        np.testing.assert_allclose(grad, exact, rtol=tolerance, atol=tolerance)
