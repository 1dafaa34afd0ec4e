"""autograd's primitives that are short functions of numpy are recorded as graphs."""

# mypy: disable-error-code="attr-defined"
from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradof.autograd.numpy as agnp
from gradof import autograd as ag
from gradof.autodiff.compose import value_and_gradient_graph
from gradof.autograd.extend import defvjp, primitive
from gradof.autograd.tracer import getval
from gradof.errors import OutputError, UnsupportedOpError
from gradof.passes.pipeline import PREPARE, run_passes
from gradof.runtime import kin
from gradof.runtime.once import compiled_once

X = np.array([0.5, 2.0, 900.0])


def kinds_of(fn: Callable[..., Any], *args: Any) -> set[str]:
    return {node.kind for node in compiled_once(fn).trace(*args).walk()}


def test_a_short_primitive_is_a_graph_with_its_rule() -> None:
    largest = np.log(np.finfo(float).max) - 75

    @primitive
    def safe_exp(x: Any) -> Any:
        return np.exp(np.clip(x, -np.inf, largest))

    defvjp(safe_exp, lambda ans, x: lambda g: g * ans)

    def loss(x: Any) -> Any:
        return agnp.sum(safe_exp(x) * 1e-300)

    def pulled(x: Any) -> Any:
        return ag.grad(loss)(x)

    wanted = np.exp(np.minimum(X, largest)) * 1e-300
    np.testing.assert_allclose(ag.grad(loss)(X), wanted)  # clip has none at 900
    np.testing.assert_allclose(ag.elementwise_grad(pulled)(X), wanted)
    assert "CustomRule" in kinds_of(loss, X) and "python_call" not in kinds_of(loss, X)


def test_a_rule_may_be_set_anew() -> None:
    @primitive
    def double(x: Any) -> Any:
        return 2 * x

    for slope in (2.0, 5.0):
        defvjp(double, lambda ans, x, slope=slope: lambda g: slope * g)
        found = ag.grad(lambda x: agnp.sum(double(x)))(X)
        np.testing.assert_array_equal(found, np.full(3, slope))


def branches(x: Any) -> Any:
    return np.sin(x) if x[0] > 0 else np.cos(x)


def asks(x: Any) -> Any:
    assert type(x) is np.ndarray
    return np.sin(x)


def compiled_in_c(x: Any) -> Any:
    return np.frombuffer(x.tobytes()) * 1.0


@pytest.mark.parametrize("fn", [branches, asks, compiled_in_c])
def test_others_are_called_at_each_run(fn: Callable[[Any], Any]) -> None:
    called = primitive(fn)
    defvjp(called, lambda ans, x: lambda g: g * agnp.cos(x))

    def loss(x: Any) -> Any:
        return agnp.sum(called(x))

    for x in (X, -X):
        value, gradient = ag.value_and_grad(loss)(x)
        np.testing.assert_allclose(value, np.sum(fn(x)))
        np.testing.assert_allclose(gradient, np.cos(x))
    assert "python_call" in kinds_of(loss, X)


def test_what_a_primitive_writes_it_writes_at_each_call() -> None:
    calls: list[int] = []

    @primitive
    def counted(x: Any) -> Any:
        calls.append(1)
        return np.sin(x)

    defvjp(counted, lambda ans, x: lambda g: g * agnp.cos(x))
    gradient = ag.grad(lambda x: agnp.sum(counted(x)))
    gradient(X)
    before = len(calls)
    for _ in range(3):
        np.testing.assert_allclose(gradient(X), np.cos(X))
    assert len(calls) == before + 3


def test_a_rule_that_calls_its_primitive_is_called() -> None:
    @primitive
    def cube(x: Any) -> Any:
        return x**3

    def slope(ans: Any, x: Any) -> Any:
        return lambda g: g * (cube(x + 1e-3) - cube(x - 1e-3)) / 2e-3

    defvjp(cube, slope)
    x = X[:2]

    def loss(x: Any) -> Any:
        return agnp.sum(cube(x))

    np.testing.assert_allclose(ag.grad(loss)(x), 3 * x**2, rtol=1e-5)
    np.testing.assert_allclose(np.diag(ag.hessian(loss)(x)), 6 * x, rtol=1e-5)


def test_gradients_of_constant_arguments_are_not_asked_for() -> None:
    @primitive
    def scaled(x: Any, scale: Any) -> Any:
        return x * scale

    defvjp(scaled, lambda ans, x, scale: lambda g: g * scale)  # none for scale
    scale = np.array([1.0, 2.0, 3.0])
    np.testing.assert_array_equal(ag.grad(lambda x: agnp.sum(scaled(x, 2 * scale)))(X), 2 * scale)


SHIFT = 1.0


def shifted(x: Any) -> Any:
    return np.sin(x) * SHIFT


def quotient(fn: Any) -> Any:
    """A primitive whose rule is a difference quotient of itself."""
    made = primitive(fn)
    defvjp(made, lambda ans, x: lambda g: g * (made(x + 1e-4) - made(x - 1e-4)) / 2e-4)
    return made


def squares(fn: Any) -> Callable[[Any], Any]:
    return lambda x: agnp.sum(fn(x) ** 2)


@pytest.mark.parametrize("fn", [np.sin, shifted], ids=["ufunc", "function"])
def test_a_rule_that_calls_its_own_function_is_a_graph(fn: Any) -> None:
    def called(x: Any) -> Any:
        return fn(x) if isinstance(x, np.ndarray) else None  # asks for types: stays a call

    graph, call = squares(quotient(fn)), squares(quotient(called))
    np.testing.assert_allclose(ag.grad(graph)(X), ag.grad(call)(X), rtol=1e-9)
    found, wanted = (ag.elementwise_grad(ag.grad(f))(X) for f in (graph, call))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    for f, calls in ((graph, 0), (call, 2)):
        traced = compiled_once(f).trace(X)
        gradient = value_and_gradient_graph(traced, (0,))
        recorded = [n for n in gradient.walk() if n.kind == "python_call"]
        run_passes(gradient, PREPARE)
        left = [n for n in gradient.walk() if n.kind == "python_call"]
        assert recorded and (len(left) > 0) == (calls > 0)


def test_what_a_function_reads_is_no_part_of_its_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    fn = quotient(shifted)
    before = ag.grad(lambda x: agnp.sum(fn(x)))(X)
    monkeypatch.setattr(f"{__name__}.SHIFT", 3.0)
    np.testing.assert_allclose(ag.grad(lambda x: agnp.sum(fn(x)))(X), 3.0 * before, rtol=1e-7)


def test_calls_of_one_function_with_equal_operands_are_one() -> None:
    fn = quotient(np.sin)
    gradient = value_and_gradient_graph(compiled_once(lambda x: fn(x) * fn(x)).trace(X[0]), (0,))
    run_passes(gradient, PREPARE)
    assert sum(n.kind == "sin" for n in gradient.walk()) == 3  # at x, and at both sides of it


def test_no_trace_is_kept_for_a_call_whose_graph_is_known() -> None:
    fn = quotient(shifted)
    data = np.ones(3)

    def once() -> weakref.ref[Any]:
        scale = data.copy()
        ag.grad(lambda x: agnp.sum(fn(x) * scale))(X)
        return weakref.ref(scale)

    gone = once()
    kin.forget()
    gc.collect()
    assert gone() is None


def test_a_rule_that_takes_values_and_branches_is_called() -> None:
    """As surpyval's: differences of a function of scipy's, of what `getval` gives."""

    @primitive
    def cubed(x: Any) -> Any:
        return np.array([v**3 for v in np.asarray(x)])

    @primitive
    def slope(x: Any) -> Any:
        return np.array([3 * v**2 if v > 1 else 3 * v * v for v in np.asarray(x)])

    def curvature(ans: Any, x: Any) -> Any:
        value = getval(x)
        found = np.array([6 * v if v > 1 else 6 * v + 0.0 for v in value])
        return lambda g: getval(g) * found

    defvjp(cubed, lambda ans, x: lambda g: g * slope(x))
    defvjp(slope, curvature)
    fn = ag.grad(lambda x: agnp.sum(cubed(x)))
    np.testing.assert_allclose(fn(X), 3 * X**2)
    compiled_hessian = ag.hessian(lambda x: agnp.sum(cubed(x)))
    for x in (X, X + 1, X / 3):
        np.testing.assert_allclose(compiled_hessian(x), np.diag(6 * x))
    with pytest.raises(UnsupportedOpError, match=r"no derivative|no rule"):
        ag.grad(lambda x: agnp.sum(ag.elementwise_grad(ag.elementwise_grad(cubed))(x)))(X)


def test_a_value_within_a_rule_has_no_gradient() -> None:
    @primitive
    def product(x: Any) -> Any:
        return np.sin(x)

    defvjp(product, lambda ans, x: lambda g: g * np.cos(getval(x)) * x / getval(x))
    second = ag.elementwise_grad(ag.elementwise_grad(product))
    np.testing.assert_allclose(second(X), np.cos(X) / X)  # of the factor x alone


def test_a_called_rule_gives_the_gradients_that_it_gave() -> None:
    """One that comes later would be left out, and is an error."""

    @primitive
    def product(x: Any, y: Any) -> Any:
        return x * y

    def of_y(ans: Any, x: Any, y: Any) -> Any:
        return (lambda g: g * x) if np.asarray(getval(x)).sum() > 100 else (lambda g: None)

    defvjp(product, lambda ans, x, y: lambda g: g * y if getval(y)[0] > 0 else g * y * 1.0, of_y)
    fn = ag.grad(lambda x, y: agnp.sum(product(x, y)), (0, 1))
    small = np.array([0.5, 2.0, 3.0])
    dx, dy = fn(small, X)
    np.testing.assert_allclose(dx, X)
    np.testing.assert_allclose(dy, np.zeros(3))
    with pytest.raises(OutputError, match="gives gradients of other arguments than it did"):
        fn(X, X)
