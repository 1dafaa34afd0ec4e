"""numpy's types called on traced values: `np.float64(x)`, `self.dtype(x)`, `map(np.float32, x)`."""

from __future__ import annotations

import math as calculus
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradof
from gradof import differentiate, grad, vjp

X = np.array([1.25, 2.5, 3.75])
NAMED = np.float32
NUMPY: Any = np


class Settings:
    dtype = np.float32


class Layer:
    def __init__(self) -> None:
        self.settings = Settings()
        self.act = np.tanh

    def __call__(self, x: Any) -> Any:
        return self.settings.dtype(self.act(x)) * 2


def _of_default(x: Any, kind: Any = np.float64) -> Any:
    return kind(x) * 2


def _of_deep_names(x: Any, scale: Any) -> Any:
    return scale * np.float64(x).sum() + x.dtype.type(x[0] * 2)


CALLS: list[Callable[[Any], Any]] = [
    lambda x: np.float64(x) * 2,
    lambda x: np.float32(x) * 2,
    lambda x: np.float64(x[0]) * x,
    lambda x: NAMED(x) * 2,
    _of_default,
    lambda x: _of_default(x, np.float32),
    lambda x: _of_deep_names(x, 3.0),
    lambda x: x.dtype.type(x.sum()) * x,
    lambda x: np.float64(x[:1].sum()) * x,
    lambda x: NUMPY.float64([x[0], x[1]]) * x[2],
    lambda x: np.array(list(map(np.float64, x))) * x,
    lambda x: np.int64(x) * x,
    lambda x: np.bool_(x - x[0]) * x,
    lambda x: abs(np.complex128(x) * 2j),
    lambda x: abs(complex(x[0], x[1])) * x,
    lambda x: (complex(x[0]) * complex(x[0] + 1j, x[1])).imag * x,
    lambda x: Layer()(x),
    lambda x: x.astype("f4", order="C", casting="same_kind", subok=False, copy=False) * 2,
    lambda x: x * calculus.sqrt(x[0]) + (lambda m: m.exp(x[1]))(calculus),
]


@pytest.mark.parametrize("at", range(len(CALLS)))
def test_a_type_that_is_called_converts(at: int) -> None:
    call = CALLS[at]
    compiled, want = differentiate(call), call(X)
    for x in (X, X, X * 1.01):
        want, found = call(x), compiled(x)
        assert type(found) is type(want) and found.dtype == want.dtype
        np.testing.assert_allclose(found, want, rtol=1e-6)
    value, pull = vjp(call, X)
    assert value.dtype == want.dtype
    (gradient,) = pull(np.ones(np.shape(want), want.dtype))
    step = 1e-2 if want.dtype == np.float32 else 1e-6
    for i in range(3):
        e = step * np.eye(3)[i]
        slope = (np.sum(call(X + e)) - np.sum(call(X - e))) / (2 * step)
        if slope < 100:  # no jump of whole numbers, or of truth
            np.testing.assert_allclose(gradient[i], slope, rtol=2e-3, atol=1e-5)


def test_types_that_are_only_named_are_numpys_own() -> None:
    def told(x: Any) -> Any:
        y = NUMPY.float64(x)
        assert y.dtype.type is np.float64 and np.float64 in {np.float64: 1}
        return y * isinstance(y[0], np.float64) + np.zeros(3, np.float64)

    np.testing.assert_array_equal(grad(lambda x: told(x).sum())(X), np.ones(3))
    assert np.float64.__module__ == "numpy"


class Slotted:
    __slots__ = ("dtype",)

    def __init__(self) -> None:
        self.dtype = np.float32


class Named:
    """Attributes that are called as ours are."""

    def __init__(self) -> None:
        self._value, self._calls = np.eye(3) * 2, np.float64

    def matrix(self) -> Any:
        return self._value

    def of_all(self, x: Any) -> Any:
        return self._value.T.dot(x) + self.matrix().dot(self._calls(x))


def test_attributes_of_any_class_lead_to_a_type() -> None:
    slotted, named = Slotted(), Named()
    np.testing.assert_allclose(grad(lambda x: np.sum(slotted.dtype(x) ** 2))(X), 2 * X, rtol=1e-6)
    np.testing.assert_allclose(grad(lambda x: np.sum(named.of_all(x)))(X), [4.0] * 3)


def test_a_property_that_leads_to_a_type_is_read_as_the_code_reads_it() -> None:
    class Counts:
        kind, reads = np.float32, 0

        @property
        def dtype(self) -> Any:
            self.reads += 1
            return np.float64

    counts = Counts()

    def told(x: Any) -> Any:
        if x.shape[0] == 7:
            return counts.dtype(x)
        return np.float64(x) * counts.kind(x)

    np.testing.assert_allclose(grad(lambda x: told(x).sum())(X), 2 * X, rtol=1e-6)
    assert counts.reads == 0
    compiled = differentiate(told)
    for n in range(1, 3):
        np.testing.assert_array_equal(compiled(np.arange(7.0)), np.arange(7.0))
        assert counts.reads == n


def test_numbers_of_the_module_math_are_pythons_own() -> None:
    kept: list[Any] = []

    def told(x: Any) -> Any:
        kept.append(calculus.log(x[0]))
        return calculus.sqrt(x[1]), calculus.modf(x[2]), complex(x[0], x[1])

    compiled = differentiate(told)
    for x in (X, X * 2):
        found, want = compiled(x), told(x)
        assert [type(v) for v in (*found[:1], *found[1], found[2])] == [float] * 3 + [complex]
        assert found == want
    assert {type(v) for v in kept} == {float} and kept[0] == kept[1]


def test_a_number_that_is_a_key_is_an_error_with_its_line() -> None:
    with pytest.raises(gradof.errors.DataDependentError, match=r"key of a dict(.|\n)*conversions"):
        grad(lambda x: x * {2.5: 1.0}[x[1]])(X)
    with pytest.raises(TypeError, match=r"unhashable type: 'numpy.ndarray'"):
        grad(lambda x: x * {2.5: 1.0}[x])(X)
    chosen = differentiate(lambda x: x * {0: 2.0, 2: 5.0}[x.argmax()])
    np.testing.assert_array_equal(chosen(X), X * 5.0)
    np.testing.assert_array_equal(chosen(X[::-1].copy()), X[::-1] * 2.0)
