"""autograd's tape: vectors of classes of one's own, tracers of one's own, and both nested."""

# mypy: disable-error-code="untyped-decorator, no-untyped-call, no-any-return, attr-defined"
from __future__ import annotations

from typing import Any

import numpy as onp
import pytest

import gradof.autograd.numpy as np
from gradof import autograd as ag
from gradof.autograd.extend import Box, VSpace, defvjp, primitive
from gradof.autograd.tracer import Node, getval, isbox, trace
from gradof.autograd.util import func


class Mixture:
    """A weighted sum of bumps, by their places: a vector that is no array."""

    def __init__(self, weights: dict[float, Any]) -> None:
        self.weights = weights

    @primitive
    def __call__(self, x: Any) -> Any:
        return sum(a * onp.exp(-((x - at) ** 2)) for at, a in self.weights.items())

    def __add__(self, other: Any) -> Any:
        return MixtureSpace(self).add(self, other)

    def __mul__(self, a: Any) -> Any:
        return Mixture({at: w * a for at, w in self.weights.items()})


defvjp(func(Mixture.__call__), lambda ans, f, x: lambda g: Mixture({x: 1.0}) * g)


class MixtureBox(Box, Mixture):
    """What stands for one on a tape."""


MixtureBox.register(Mixture)


class MixtureSpace(VSpace):
    def zeros(self) -> Any:
        return Mixture({})

    def _add(self, x: Any, y: Any) -> Any:
        places = {*x.weights, *y.weights}
        return Mixture({p: x.weights.get(p, 0.0) + y.weights.get(p, 0.0) for p in places})


MixtureSpace.register(Mixture)


def test_a_gradient_by_a_vector_of_the_users_own() -> None:
    def loss(f: Any, xs: Any, offset: float = 0.0) -> Any:
        values = [f(x) for x in xs]
        boxes: Any = values
        assert all(map(isbox, boxes)) and all(isinstance(b, Box) for b in boxes)
        return np.sum((values[0] - offset) ** 2) + np.sin(values[1]) * values[0]

    f: Any = Mixture({0.5: 2.0})
    a, b = f(0.0), f(1.0)
    value, gradient = ag.value_and_grad(loss)(f, [0.0, 1.0], offset=0.25)
    onp.testing.assert_allclose(value, (a - 0.25) ** 2 + onp.sin(b) * a)
    assert set(gradient.weights) == {0.0, 1.0}
    onp.testing.assert_allclose(gradient.weights[0.0], 2 * (a - 0.25) + onp.sin(b))
    onp.testing.assert_allclose(gradient.weights[1.0], onp.cos(b) * a)
    for _ in range(50):
        f = f + ag.grad(lambda f: -((f(0.0) - 1.0) ** 2))(f) * 0.2
    onp.testing.assert_allclose(f(0.0), 1.0, rtol=1e-6)
    with pytest.warns(UserWarning, match="independent"):
        assert ag.grad(lambda f: 3.0)(f).weights == {}


class Lines(Node):
    """Keeps the name and the value of each call."""

    __slots__ = ("lines",)

    def __init__(
        self, value: Any, fun: Any, args: Any, kwargs: Any, parent_argnums: Any, parents: Any
    ) -> None:
        self.lines = parents[0].lines
        self.lines.append((fun.__name__, getval(value), parent_argnums))

    def initialize_root(self) -> None:
        self.lines = []


def test_a_tracer_of_the_users_own_sees_each_call() -> None:
    def fun(x: Any) -> Any:
        y = np.sin(x + x)
        return (y + y) / 2

    value, node = trace(Lines.new_root(), fun, 1.23)
    assert abs(value - onp.sin(2.46)) < 1e-15
    assert [(name, at) for name, _, at in node.lines] == [
        ("add", (0, 1)), ("sin", (0,)), ("add", (0, 1)), ("divide", (0,)),
    ]  # fmt: skip
    slope, node = trace(Lines.new_root(), ag.grad(fun), 1.23)  # a tape within the tracer's
    onp.testing.assert_allclose(slope, 2 * onp.cos(2.46))
    assert "vjp_of_sin" in [name for name, *_ in node.lines]


def test_arrays_on_a_tape() -> None:
    x = onp.arange(6.0).reshape(2, 3)

    def fun(x: Any) -> Any:
        assert x.shape == (2, 3) and x.ndim == 2 and len(x) == 2
        return np.sum(x.T[0] * x[:, 1]) + x.sum(axis=0)[2] + np.where(x > 2.0, x, 0.0).mean()

    value = trace(Lines.new_root(), lambda x: fun(x) * 1.0, x)[0]
    onp.testing.assert_allclose(value, fun(x))
    second = trace(Lines.new_root(), ag.grad(ag.grad(lambda x: x**3 + np.exp(x))), 0.5)[0]
    onp.testing.assert_allclose(second, 3.0 + onp.exp(0.5))
    with pytest.raises(TypeError, match="Can't differentiate"):
        trace(Lines.new_root(), lambda x: x, "text")
