"""primitive, stop_gradient, value_of: what is not traced, and what leaves the derivative."""

# mypy: disable-error-code="untyped-decorator, arg-type"
from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
import scipy.sparse.linalg
import torch

import gradof
from gradof.errors import ArgnumsError, CustomRuleError, OutputError, UnsupportedOpError

X = np.array([0.3, 0.7, 1.1])
S = scipy.sparse.csc_array(np.diag(np.arange(1.0, 7.0)) + np.diag(np.ones(5), 1))
calls: list[int] = []


@gradof.primitive
def solve(a: Any, b: Any) -> Any:
    calls.append(1)
    assert type(b) is np.ndarray
    return scipy.sparse.linalg.splu(a).solve(b)


solve.defvjp(lambda g, x, a, b: (None, solve(a.T.tocsc(), g)))


@gradof.primitive(vjp=lambda g, y, x: g * y)
def exponential(x: Any) -> Any:
    return np.array([math.exp(v) for v in x])


@gradof.primitive(jvp=lambda tangents, r, a: tangents[0] / (3 * r**2))
def cube_root(a: Any) -> Any:
    return scipy.optimize.brentq(lambda r: r**3 - a, 0, 10, xtol=1e-14)


def differences(fn: Callable[[Any], Any], step: float = 1e-6) -> Any:
    columns = [(fn(X + d) - fn(X - d)) / (2 * step) for d in np.eye(3) * step]
    return np.stack(columns, axis=-1)


def of_solve(x: Any) -> Any:
    return np.sum(solve(S, np.concatenate([x, x**2])) ** 2)


def of_exponential(x: Any) -> Any:
    return np.sum(exponential(x * x) * x)


def of_cube_root(x: Any) -> Any:
    return cube_root(x[0]) ** 2 * cube_root(x[1] * x[2])


@pytest.mark.parametrize("fn", [of_solve, of_exponential, of_cube_root])
def test_derivatives_to_second_order(fn: Any) -> None:
    compiled = gradof.value_and_grad(fn)
    for x in (X, X * 1.1):
        np.testing.assert_allclose(compiled(x)[0], fn(x))
    np.testing.assert_allclose(compiled(X)[1], differences(fn), rtol=1e-6)
    np.testing.assert_allclose(gradof.hessian(fn)(X), differences(gradof.grad(fn)), rtol=1e-5)
    v = np.array([1.0, -2.0, 0.5])
    np.testing.assert_allclose(gradof.jvp(fn, (X,), (v,))[1], differences(fn) @ v, rtol=1e-6)
    assert compiled.cache_info().misses == 1


def test_a_third_derivative_through_the_result() -> None:
    def third(x: Any) -> Any:
        inner = gradof.grad(lambda x: np.sum(gradof.grad(lambda x: np.sum(exponential(x)))(x)))
        return np.sum(inner(x))

    np.testing.assert_allclose(gradof.grad(third)(X), np.exp(X))


def test_the_function_runs_at_every_call_on_the_values_of_the_call() -> None:
    compiled = gradof.value_and_grad(of_solve)
    compiled(X)
    before = len(calls)
    compiled(X * 2)
    assert len(calls) == before + 2  # once forward, once for the gradient


def test_what_the_function_reads_costs_no_trace() -> None:
    scale = [1.0]

    @gradof.primitive(vjp=lambda g, y, x: g * 2)
    def scaled(x: Any) -> Any:
        return x * scale[0]

    compiled = gradof.value_and_grad(lambda x: np.sum(scaled(x)))
    assert compiled(X)[0] == np.sum(X)
    scale[0] = 3.0
    np.testing.assert_allclose(compiled(X)[0], 3 * np.sum(X))
    assert compiled.cache_info().misses == 1


def test_an_example_in_place_of_a_run() -> None:
    ran: list[int] = []

    @gradof.primitive(vjp=lambda g, y, x: g * 3, example=lambda x: np.empty(2))
    def slow(x: Any) -> Any:
        ran.append(1)
        return x[:2] * 3

    fn = gradof.differentiate(lambda x: np.sum(slow(x)))
    fn.trace(X)
    assert not ran
    np.testing.assert_allclose(fn(X), 3.0)


def test_several_results_and_static_arguments() -> None:
    @gradof.primitive(nondiff_argnums=0)
    def parts(kind: str, x: Any) -> Any:
        assert kind == "both"
        return {"s": np.sin(x), "n": 3, "c": np.cos(x)}

    parts.defvjp(lambda g, y, kind, x: g["s"] * y["c"] - g["c"] * y["s"])

    def fn(x: Any) -> Any:
        found = parts("both", x)
        return np.sum(found["s"] * found["c"] ** 2) * found["n"]

    np.testing.assert_allclose(gradof.grad(fn)(X), differences(fn), rtol=1e-6)
    np.testing.assert_allclose(gradof.hessian(fn)(X), differences(gradof.grad(fn)), rtol=1e-6)


def test_custom_vjp_may_call_one_in_its_forward() -> None:
    @gradof.primitive
    def raw(x: Any) -> Any:
        return np.array([math.sin(v) for v in x])

    @gradof.custom_vjp
    def sine(x: Any) -> Any:
        return raw(x)

    sine.defvjp(lambda x: (raw(x), x), lambda x, g: (g * np.cos(x),))
    np.testing.assert_allclose(gradof.grad(lambda x: np.sum(sine(x) * x))(X),
                               np.sin(X) + X * np.cos(X))  # fmt: skip


def test_without_a_rule_a_gradient_is_an_error_that_names_the_call() -> None:
    @gradof.primitive
    def box(x: Any) -> Any:
        return x * 2

    np.testing.assert_allclose(gradof.differentiate(lambda x: np.sum(box(x)))(X), 2 * X.sum())
    with pytest.raises(UnsupportedOpError, match=r"box(.|\n)*test_primitive.py:\d+(.|\n)*vjp="):
        gradof.grad(lambda x: np.sum(box(x)))(X)
    gradient = gradof.grad(lambda x: np.sum(box(gradof.stop_gradient(x)) * x))
    np.testing.assert_allclose(gradient(X), 2 * X)


def test_what_does_not_fit_is_refused() -> None:
    grows: list[int] = []

    @gradof.primitive
    def growing(x: Any) -> Any:
        grows.append(1)
        return np.ones(len(grows))

    fn = gradof.differentiate(lambda x: np.sum(growing(x)))
    assert fn(X) == 1.0
    with pytest.raises(OutputError, match=r"growing gives float64\[2\], where"):
        fn(X)
    wrong = gradof.primitive(lambda x: x * 2, vjp=lambda g, y, x: g[:1])
    with pytest.raises(CustomRuleError, match="not like it"):
        gradof.grad(lambda x: np.sum(wrong(x)))(X)
    many = gradof.primitive(lambda x: x * 2, vjp=lambda g, y, x: (g, g, g))
    with pytest.raises(CustomRuleError, match="3 gradients for 1"):
        gradof.grad(lambda x: np.sum(many(x)))(X)
    with pytest.raises(CustomRuleError, match="a primitive is a int"):
        gradof.primitive(np.sin, vjp=3)
    with pytest.raises(ArgnumsError):
        gradof.primitive(lambda x: x, nondiff_argnums=2)
    with pytest.raises(OutputError, match="returns a str"):
        gradof.differentiate(lambda x: gradof.primitive(lambda x: "text")(x))(X)


def test_of_torch_tensors() -> None:
    @gradof.primitive(vjp=lambda g, y, x: g * y)
    def box(x: Any) -> Any:
        return torch.exp(x)

    x = torch.tensor([0.5, 1.0], dtype=torch.float64, requires_grad=True)
    box(x * 2).sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad.numpy(), 2 * np.exp([1.0, 2.0]))
    np.testing.assert_allclose(gradof.stop_gradient({"a": x})["a"].requires_grad, False)


def test_values_that_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    def fn(x: Any) -> Any:
        seen = gradof.value_of({"x": x, "first": x[0]})
        assert type(seen["x"]) is np.ndarray and float(seen["first"]) == 0.3
        print(f"{x[0]:.2f}", seen["x"][1], np.sum(x))
        return np.sum(x**2)

    np.testing.assert_allclose(gradof.grad(fn)(X), 2 * X)
    assert capsys.readouterr().out == "0.30 0.7 2.1\n"
    assert gradof.value_of(X) is X and gradof.stop_gradient(X) is X


def test_a_primitive_is_freed_with_what_called_it() -> None:
    class Scale:
        pass

    def run() -> weakref.ref[Scale]:
        scale = Scale()

        def doubled(x: Any) -> Any:
            assert scale is not None
            return 2.0 * x

        box = gradof.primitive(doubled, vjp=lambda g, y, x: (2.0 * g,))
        assert np.all(gradof.grad(lambda x: np.sum(box(x) ** 2))(np.ones(3)) == 8.0)
        return weakref.ref(scale)

    alive = run()
    gc.collect()
    assert alive() is None
