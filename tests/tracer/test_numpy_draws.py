"""Random numbers within numpy functions: drawn at every call, as plain numpy draws them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gradof import grad, hessian, jvp, value_and_grad, vjp
from gradof.errors import TraceError, UnsupportedOpError
from gradof.tracer.state.generators import set_state, state_of

X = np.array([0.5, -1.0, 2.0, 0.3])
_STATE = np.random.RandomState(0)
_GENERATOR = np.random.default_rng(1)


def _of_state(x: Any) -> Any:
    return np.sum((x + _STATE.randn(4)) ** 2)


def _of_generator(x: Any) -> Any:
    z = _GENERATOR.standard_normal(4) * x
    return np.sum(z[_GENERATOR.permutation(4)] * np.arange(4.0)) + _GENERATOR.uniform() * x[0]


def _of_the_global_state(x: Any) -> Any:
    np.random.rand(3)  # moves the generator on
    return np.sum(np.random.normal(size=4) * x) + random.gauss(0.0, 1.0) * x[1] ** 2


def _seeded(x: Any) -> Any:
    np.random.seed(3)
    return np.sum(np.random.randn(4) * x**2)


def _by_a_branch(x: Any) -> Any:
    if np.random.rand() < 0.5:
        return np.sum(x**2)
    return np.sum(np.random.rand(4) * x)


def _with(draws: np.random.Generator, x: Any) -> Any:
    return np.sum(draws.normal(size=4) * x**2)


class _Model:
    def __init__(self) -> None:
        self.rng = np.random.default_rng(5)

    def __call__(self, x: Any) -> Any:
        return np.mean(np.exp(x * self.rng.exponential(size=4)))


def _closure() -> Callable[[Any], Any]:
    draw, rng = np.random.default_rng(7).normal, random.Random(2)
    return lambda x: np.sum(draw(size=4) * x) + rng.uniform(0.0, 1.0) * x[0]


class _Move:
    def __init__(self, step: float) -> None:
        self.step = step


_MOVES: Any = [_Move(0.5), _Move(2.0), _Move(3.0)]


def _of_chosen(x: Any) -> Any:
    """As emcee's samplers choose their moves."""
    move = _STATE.choice(_MOVES, p=[0.2, 0.3, 0.5])
    name = _GENERATOR.choice(["a", "b"])
    sample = _GENERATOR.choice(x, 5) ** 2
    return np.sum(sample) * move.step + x[0] * (name == "a") + _GENERATOR.choice([0.5, 2.0])


def _of_pythons_chosen(x: Any) -> Any:
    return np.sum(x**2) * random.choice(_MOVES).step * random.choice([1.0, 4.0]) + random.random()


@pytest.fixture(autouse=True)
def seeds() -> None:
    np.random.seed(0)
    random.seed(0)


@pytest.mark.parametrize(
    "make",
    [lambda: _of_state, lambda: _of_generator, lambda: _of_the_global_state, lambda: _seeded,
     lambda: _by_a_branch, _Model, _closure, lambda: _of_chosen, lambda: _of_pythons_chosen],
)  # fmt: skip
def test_calls_draw_the_numbers_of_plain_numpy(make: Callable[[], Callable[[Any], Any]]) -> None:
    fn = make()
    gradient = value_and_grad(fn.__call__ if isinstance(fn, _Model) else fn)
    states = [(g, state_of(g)) for g in _generators(fn)]
    ours = [gradient(X)[0] for _ in range(5)]
    for generator, state in states:
        set_state(generator, state)
    plain = [fn(X) for _ in range(5)]
    assert ours == pytest.approx(plain, rel=1e-14, abs=0)
    assert gradient.cache_info().backward_runs == 5
    assert len(set(plain)) > 1 or fn is _seeded


def test_a_choice_of_numbers_is_one_trace() -> None:
    def chosen(x: Any) -> Any:
        return np.sum(x) * random.choice([1.0, 2.0, 3.0]) + random.choice(range(1000))

    gradient = value_and_grad(chosen)
    ours = [gradient(X)[0] for _ in range(9)]
    random.seed(0)
    assert ours == pytest.approx([chosen(X) for _ in range(9)])
    assert gradient.cache_info().misses == 1
    with pytest.raises(IndexError, match="Cannot choose from an empty sequence"):
        grad(lambda x: np.sum(x) * random.choice([]))(X)


def _generators(fn: Any) -> list[Any]:
    cells = [c.cell_contents for c in getattr(fn, "__closure__", None) or ()]
    inside = [getattr(c, "__self__", c) for c in cells]
    inside += [fn.rng] if isinstance(fn, _Model) else []
    return [*inside, _STATE, _GENERATOR, np.random.mtrand._rand, random._inst]


def test_the_gradient_is_that_of_the_numbers_drawn() -> None:
    rng, twin = np.random.RandomState(3), np.random.RandomState(3)
    gradient = value_and_grad(lambda x: np.sum((x + rng.randn(4)) ** 2))
    for _ in range(2):
        z = twin.randn(4)
        value, slope = gradient(X)
        assert value == np.sum((X + z) ** 2)
        np.testing.assert_allclose(slope, 2 * (X + z), rtol=1e-15)


def test_a_pullback_has_the_numbers_of_its_value_and_draws_none() -> None:
    rng, twin = np.random.default_rng(3), np.random.default_rng(3)

    def fn(x: Any) -> Any:
        return x**2 * rng.normal(size=4)

    value, pullback = vjp(fn, X)
    z = twin.normal(size=4)
    np.testing.assert_array_equal(value, X**2 * z)
    for _ in range(2):
        np.testing.assert_allclose(pullback(np.ones(4))[0], 2 * X * z, rtol=1e-15)
    z = twin.normal(size=4)
    value, tangent = jvp(fn, (X,), (np.ones(4),))
    np.testing.assert_array_equal(value, X**2 * z)
    np.testing.assert_allclose(tangent, 2 * X * z, rtol=1e-15)
    assert rng.normal() == twin.normal()


def test_second_derivatives_draw_once() -> None:
    rng, twin = np.random.default_rng(3), np.random.default_rng(3)
    found = hessian(lambda x: np.sum(rng.normal(size=4) * x**3))(X)
    np.testing.assert_allclose(np.diag(found), 6 * X * twin.normal(size=4), rtol=1e-14)
    inner = grad(lambda x: np.sum(grad(lambda y: np.sum(rng.normal(size=4) * y**3))(x)))(X)
    np.testing.assert_allclose(inner, 6 * X * twin.normal(size=4), rtol=1e-14)
    assert rng.normal() == twin.normal()


def test_an_argument_is_drawn_from() -> None:
    twin = np.random.default_rng(9)
    rng = np.random.default_rng(9)
    gradient = grad(_with, 1)
    for _ in range(2):
        np.testing.assert_allclose(gradient(rng, X), 2 * X * twin.normal(size=4), rtol=1e-15)


def test_gradients_go_to_the_parameters_of_scaled_numbers() -> None:
    def of(p: Any) -> Any:
        z = np.random.normal(p[1], p[0], 3)
        uniform = np.random.uniform(p[2], 3.0, size=2)
        return np.sum(z**2) + np.sum(uniform**3) + np.random.exponential(p[0]) ** 2

    def at(p: Any) -> Any:
        np.random.seed(1)
        return of(p)

    np.random.seed(1)
    value, slope = value_and_grad(of)(X)
    assert value == pytest.approx(at(X), rel=1e-15)
    steps = np.eye(4) * 1e-6
    expected = [(at(X + e) - at(X - e)) / 2e-6 for e in steps]
    np.testing.assert_allclose(slope, expected, rtol=1e-7, atol=1e-8)


def test_a_gradient_by_other_parameters_is_an_error_with_the_line() -> None:
    def fn(x: Any) -> Any:
        return np.sum(np.random.gamma(np.exp(x)))

    with pytest.raises(UnsupportedOpError, match="by its parameters") as caught:
        grad(fn)(X)
    assert "test_numpy_draws.py" in str(caught.value)


def test_an_unseeded_generator_within_draws_other_numbers_at_each_call() -> None:
    gradient = grad(lambda x: np.sum(np.random.default_rng().normal(size=4) * x))
    first, second = gradient(X), gradient(X)
    assert not np.array_equal(first, second)
    with pytest.raises(TraceError, match="unseeded"):
        grad(lambda x: np.sum(np.random.Generator(np.random.PCG64()).normal(size=4) * x))(X)


def test_bytes_are_refused_and_leave_the_generator() -> None:
    def fn(x: Any) -> Any:
        return np.sum(x * np.random.bytes(3)[0])

    before = np.random.get_state()[1].copy()  # type: ignore[index]
    with pytest.raises(TraceError, match="random numbers are drawn"):
        grad(fn)(X)
    assert np.array_equal(before, np.random.get_state()[1])  # type: ignore[index]


def test_names_are_numpys_own_again_after_a_trace() -> None:
    rng = np.random.default_rng(0)
    holder = {"rng": rng}
    grad(lambda x: np.sum(holder["rng"].normal(size=4) * x))(X)
    assert holder["rng"] is rng
    assert isinstance(np.random.default_rng(0), np.random.Generator)
