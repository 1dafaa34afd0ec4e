"""`type()` of what stands for a value in a trace is the type of that value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradof

X = np.array([0.5, 1.5, 2.0])
BY_TYPE = {np.ndarray: 2.0, np.float64: 3.0, int: 5.0, float: 7.0, type: 11.0}


def of_an_array(x: Any) -> Any:
    return np.sum(x * x) if type(x) is np.ndarray else np.sum(x) * 100.0


def of_a_sum(x: Any) -> Any:
    total = np.sum(x * x)
    return total if type(total) is np.float64 else total * 100.0


def as_a_key(x: Any) -> Any:
    return np.sum(x) * BY_TYPE[type(x)] + x[0] * BY_TYPE[type(np.sum(x))] * BY_TYPE[type(type(x))]


def of_the_number_of_a_step(x: Any) -> Any:
    total = 0.0
    for t in range(40):
        total = total + (x[0] * 0.9**t if type(t) is int else x[1] * 100.0)
    return total


def of_a_size(x: Any) -> Any:
    n = len(x)
    whole = type(n) is int and type(x.shape[0]) == int  # noqa: E721
    return np.sum(x * np.sin(x) + np.exp(-x)) * (n if whole else 100.0)


def given_to_map(x: Any) -> Any:
    kinds = set(map(type, (x, len(x), np.sum(x))))
    return np.sum(x * x) * (2.0 if kinds == {np.ndarray, int, np.float64} else 100.0)


def as_the_class_it_is(x: Any) -> Any:
    class Meta(type):
        pass

    class Made(metaclass=Meta):
        pass

    built = type("Built", (Made,), {"factor": 3.0})
    assert type(built) is Meta and isinstance(Made, type) and issubclass(Meta, type)
    assert type(int) is type and type.mro(built)[1] is Made and not isinstance(x, type)
    return np.sum(x * x) * built().factor


@pytest.mark.parametrize(
    "fn", [of_an_array, of_a_sum, as_a_key, of_the_number_of_a_step, of_a_size, given_to_map,
           as_the_class_it_is],
)  # fmt: skip
def test_it_is_that_of_the_value(fn: Callable[[Any], Any]) -> None:
    value, gradient = gradof.value_and_grad(fn)(X)
    assert value == pytest.approx(fn(X))
    step = 1e-6 * np.eye(3)
    wanted = [(fn(X + d) - fn(X - d)) / 2e-6 for d in step]
    np.testing.assert_allclose(gradient, wanted, rtol=1e-6, atol=1e-8)
    assert "type" not in globals()


def test_of_a_length_it_is_asked_for_any_length() -> None:
    function = gradof.value_and_grad(of_a_size)
    for n in (40, 33, 50, 64, 41):
        x = np.linspace(0.1, 1.0, n)
        value, gradient = function(x)
        assert value == pytest.approx(of_a_size(x))
        np.testing.assert_allclose(gradient, n * (np.sin(x) + x * np.cos(x) - np.exp(-x)))
    assert function.cache_info().misses == 2


@pytest.mark.parametrize("kind", [int, float])
def test_of_a_number_that_varies(kind: Callable[[int], Any]) -> None:
    function = gradof.value_and_grad(
        lambda x, k: np.sum(x * x) * (k if type(k) is kind else 100.0 * k)
    )
    for k in map(kind, (1, 2, 3, 4)):
        value, gradient = function(X, k)
        assert value == pytest.approx(np.sum(X * X) * k)
        np.testing.assert_allclose(gradient, 2 * k * X)
    assert function.cache_info().misses <= 2


RESULTS: list[Callable[[Any], Any]] = [
    lambda x: x[..., 3], lambda x: (x * 2)[..., 3], lambda x: np.where(x[0] > 0, x[1], x[2]),
    lambda x: np.full(x.shape[:-1], np.inf), lambda x: np.sum(x, axis=-1)[...],
    lambda x: np.asarray(np.sum(x)), lambda x: np.copy(x.sum()), lambda x: x[:1].squeeze(),
    lambda x: np.squeeze(x[:1]).T, lambda x: np.broadcast_to(x[0], ()), lambda x: np.cov(x),
    lambda x: np.tensordot(x, x, 1), lambda x: np.select([x[0] > 0], [x[1]], x[2]),
    lambda x: (np.squeeze(x[:1]), x[0], {"a": np.array(x[1]), "b": x.sum()}),
    lambda x: np.squeeze(x[:1]) + 1, lambda x: np.dot(x, x), lambda x: np.einsum("i,i->", x, x),
]  # fmt: skip


@pytest.mark.parametrize("at", range(len(RESULTS)))
def test_what_has_no_dims_is_an_array_or_a_number_as_numpys_is(at: int) -> None:
    function = RESULTS[at]
    compiled = gradof.differentiate(function)
    for x in (np.array([1.0, 2.0, 3.0, 4.0]), np.array([-1.0, 2.0, 5.0, 4.0])):
        for _ in range(2):
            found, want = _flat(compiled(x)), _flat(function(x))
            assert [type(v) for v in found] == [type(v) for v in want]
            np.testing.assert_allclose(found, want, rtol=1e-14)


def _flat(result: Any) -> list[Any]:
    if isinstance(result, tuple):
        return [*result[:2], *result[2].values()]
    return [result]


def test_a_view_without_dims_is_of_the_arguments_memory() -> None:
    x = np.arange(4.0)
    last = gradof.differentiate(lambda x: x[..., 3])(x)
    last[...] = 7.0
    assert x[3] == 7.0

    class Keeps:
        total: Any = None

        def __call__(self, x: Any) -> Any:
            self.total = np.asarray(x.sum())
            return x * 2

    keeps = Keeps()
    gradof.differentiate(keeps)(x)
    assert type(keeps.total) is np.ndarray and keeps.total == x.sum()
