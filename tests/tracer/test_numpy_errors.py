"""What a numpy trace refuses, by name and line, and what it leaves as it was."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import numpy as np
import pytest

from gradof.errors import DataDependentError, DtypeError, ShapeError, TraceError, UnsupportedOpError
from gradof.ir.verify import verify
from gradof.tracer.numpy.tracer import trace_numpy
from tests.tracer.numpy_eager import check, trace

V = np.array([0.3, -1.2, 2.0])
X = np.random.default_rng(0).standard_normal((5, 3))

# --- what tracing leaves alone --------------------------------------------------------------------


def test_generators_are_left_as_they_were() -> None:
    generator = np.random.default_rng(1)
    state = np.random.RandomState(2)

    def draws(kind: str) -> Callable[[Any], Any]:
        return {
            "closure": lambda x: x + generator.standard_normal(3),
            "state": lambda x: x + state.rand(3),
            "global": lambda x: x + np.random.rand(3),
            "python": lambda x: x * random.random(),
        }[kind]

    before = generator.bit_generator.state
    expected = random.getstate()
    for kind in ("closure", "state", "global", "python"):
        traced = trace_numpy(draws(kind), (V,), {})
        assert "python_draw" in str(traced.graph)
        verify(traced.graph)
        assert len(traced.generators) == 1
    trace_numpy(lambda x, g: x + g.random(3), (V, generator), {}, static_argnames=("g",))
    assert generator.bit_generator.state == before
    assert random.getstate() == expected
    check(lambda x: x * np.random.default_rng(7).random(3), V)


def test_a_bit_generator_of_the_state_is_refused() -> None:
    bits = np.random.PCG64(0)
    before = bits.state
    for fn in (
        lambda x: x * np.random.Generator(bits).random(3),
        lambda x: x * float(np.random.Generator(bits).random()),
        lambda x: x * (bits.random_raw() % 3),
    ):
        with pytest.raises(TraceError, match="random numbers are drawn from a PCG64"):
            trace(fn, V)
        assert bits.state == before


def test_plain_arrays_changed_in_place_are_refused() -> None:
    count = np.zeros(1)

    def fn(x: Any) -> Any:
        count[0] += 1
        return x * 2

    with pytest.raises(TraceError, match="closure 'count' is changed in place"):
        trace(fn, V)


def test_free_arrays_are_not_changed() -> None:
    buffer = np.zeros(3)

    def adds(x: Any) -> Any:
        local = buffer
        local += x
        return local

    def sets(x: Any) -> Any:
        buffer[0] = x[0]
        return buffer

    for fn in (adds, sets):
        with pytest.raises(UnsupportedOpError, match="plain"):
            trace(fn, V)
    assert not buffer.any()


def test_arguments_that_share_memory() -> None:
    def changes(x: Any, y: Any) -> Any:
        x += 1
        return x * y

    check(lambda x, y: x * y, V, V)
    with pytest.raises(TraceError, match="shares memory"):
        trace(changes, V, V[::-1])


def test_traced_arrays_left_behind() -> None:
    kept: list[Any] = []

    def attribute(x: Any) -> Any:
        attribute.last = x * 2  # type: ignore[attr-defined]
        return kept.append(x * 3)

    stores = trace(attribute, V).stores  # the calls write, the trace does not
    assert {store.mode for store in stores} == {"set", "grow"}
    assert kept == [] and not hasattr(attribute, "last")


def test_arrays_of_a_finished_trace() -> None:
    variable: ContextVar[Any] = ContextVar("variable")

    def fn(x: Any) -> Any:
        variable.set(x * 2)
        return x

    trace(fn, V)
    with pytest.raises(TraceError, match="finished trace"):
        np.tanh(variable.get())
    with pytest.raises(TraceError, match=r"another trace|finished trace"):
        trace(lambda x, k: x + k[0], V, [variable.get()])


def test_a_plain_array_is_put_back() -> None:
    held = [np.ones(3), np.ones(3)]

    def fn(x: Any) -> Any:
        held[1][0] += 1.0
        return x * held[1]

    with pytest.raises(TraceError, match="changed in place by plain numpy"):
        trace(fn, V)
    assert held[1].tolist() == [1.0, 1.0, 1.0]


def test_the_callers_arrays_are_unchanged_when_a_trace_fails() -> None:
    x = V.copy()

    def fn(x: Any) -> Any:
        x *= 0
        return np.power.reduce(x)

    with pytest.raises(UnsupportedOpError):
        trace(fn, x)
    np.testing.assert_array_equal(x, V)


# --- errors ---------------------------------------------------------------------------------------

LOST_GRADIENTS: list[Callable[[Any], Any]] = [
    lambda x: x * (float,)[0](x[0]),
    lambda x: (complex,)[0](x[0]),
]


@pytest.mark.parametrize("at", range(len(LOST_GRADIENTS)))
def test_python_values_of_traced_arrays(at: int) -> None:
    with pytest.raises(DataDependentError, match=r"(.|\n)*test_numpy_errors.py:\d+(.|\n)*hint"):
        trace(LOST_GRADIENTS[at], V)


def _made() -> Any:
    return X * 1.0


UNSUPPORTED: list[tuple[Callable[[Any], Any], str]] = [
    (lambda x: np.packbits(x > 0), "numpy.packbits"),
    (lambda x: np.sum(x, out=_made().reshape(-1)[:1].reshape(())), "plain array"),
    (lambda x: x.setfield(1, np.int64), "ndarray.setfield"),
    (lambda x: x.view(np.int64), "ndarray.view"),
    (lambda x: np.frompyfunc(abs, 1, 1)(x), "ufunc abs"),
    (lambda x: min([_made()], key=len).dot(x), "X @ x"),
    (lambda x: np.quantile(x, 0.5, weights=x * x, method="inverted_cdf"), "weights"),
    (lambda x: np.ravel(np.outer(x, x)[:, ::2], order="K"), "order"),
]


@pytest.mark.parametrize("at", range(len(UNSUPPORTED)))
def test_unsupported_functions_are_named(at: int) -> None:
    fn, word = UNSUPPORTED[at]
    with pytest.raises(UnsupportedOpError) as caught:
        trace(fn, V)
    assert word in str(caught.value), str(caught.value)
    assert "test_numpy_errors.py:" in str(caught.value)
    assert caught.value.hint


def test_wrong_shapes_and_dtypes() -> None:
    with pytest.raises(ShapeError, match=r"reshape(.|\n)*test_numpy_errors"):
        trace(lambda x: x.reshape(2, 2), V)
    with pytest.raises(ShapeError, match="concatenate"):
        trace(lambda x: np.concatenate([x, X]), V)
    with pytest.raises(np.linalg.LinAlgError):
        trace(lambda x: np.linalg.inv(x), np.zeros((2, 2)))
    with pytest.raises(np.exceptions.AxisError):
        trace(lambda x: x.sum(axis=3), V)
    with pytest.raises(DtypeError, match="a float64 result into a int64"):
        trace(lambda x: x.__iadd__(0.5), np.arange(3))


def test_pickling_is_refused() -> None:
    with pytest.raises(TraceError, match="pickled"):
        trace(lambda x: pickle.dumps(x * 2), V)


def test_an_attribute_no_array_has() -> None:
    with pytest.raises(AttributeError, match="frobnicate"):
        trace(lambda x: x.frobnicate(), V)
