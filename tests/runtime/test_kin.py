"""Functions of one code share traces, right for each, and are traced where they differ."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradof
from gradof import autograd as ag
from gradof import tuning
from gradof.autograd.extend import defvjp, primitive
from gradof.runtime import kin
from gradof.runtime.function import Differentiated
from gradof.runtime.once import compiled_once
from gradof.runtime.record import Tracing
from gradof.tracer.numpy.active import OVERRIDES

P = np.array([1.0, -2.0, 0.5])
UNIT = object()


class Model:
    """Data and options on an instance, as fitters have them."""

    def __init__(self, seed: int, scale: float = 2.0, rows: int = 7) -> None:
        rng = np.random.default_rng(seed)
        self.X, self.y = rng.normal(size=(rows, 3)), rng.normal(size=rows)
        self.scale, self.names, self.options = scale, ["a", "b"], {"power": 2}
        self.link: Callable[[Any], Any] = np.tanh
        self.marker: Any = UNIT

    def penalty(self, p: Any) -> Any:
        return np.sum(p ** self.options["power"]) * self.scale * len(self.names)

    def loss(self, p: Any) -> Any:
        residual = self.link(self.X @ p) - self.y
        sign = 1.0 if self.marker is UNIT else -1.0
        return np.sum(residual**2) + sign * self.penalty(p)


def traces(fn: Any) -> int:
    return compiled_once(fn).cache_info().misses


def checked(model: Model) -> int:
    """The gradient is that of the model itself; how often it was traced."""
    for _ in range(2):
        found = gradof.grad(model.loss)(P)
        wanted = [
            (model.loss(P + h) - model.loss(P - h)) / 2e-6 for h in 1e-6 * np.eye(3)
        ]  # fmt: skip
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
    return traces(model.loss)


def test_another_instance_is_served_by_the_trace_of_the_first() -> None:
    first, second = Model(0), Model(1)
    assert checked(first) == 1
    assert checked(second) == 0
    second.X *= 3.0  # data are inputs
    assert checked(second) == 0
    second.scale = 5.0  # and the guard of the second is its own
    assert checked(second) == 1
    assert checked(first) == 1


def changed(change: Callable[[Model], None]) -> Model:
    model = Model(1)
    change(model)
    return model


@pytest.mark.parametrize("change", [
    lambda m: setattr(m, "scale", 3.0),
    lambda m: m.names.append("c"),
    lambda m: m.options.update(power=4),
    lambda m: setattr(m, "link", np.arctan),
    lambda m: setattr(m, "marker", object()),
    lambda m: setattr(m, "penalty", lambda p: np.sum(p)),
    lambda m: setattr(m, "X", m.X.astype(np.float32)),
    lambda m: setattr(m, "scale", 2),
])  # fmt: skip
def test_what_differs_is_traced(change: Callable[[Model], None]) -> None:
    checked(Model(0))
    model = changed(change)
    assert np.isfinite(gradof.grad(model.loss)(P)).all()
    assert checked_loosely(model) == 1


def checked_loosely(model: Model) -> int:
    found = gradof.grad(model.loss)(P)
    wanted = [(model.loss(P + h) - model.loss(P - h)) / 2e-4 for h in 1e-4 * np.eye(3)]
    np.testing.assert_allclose(found, wanted, rtol=1e-3)
    return traces(model.loss)


def test_one_array_in_two_places_is_no_likeness_of_two() -> None:
    def made(a: Any, b: Any) -> Callable[[Any], Any]:
        def loss(p: Any) -> Any:
            return np.sum(a * p) + np.sum(b * p**2) if a is not b else np.sum(a * p)

        return loss

    x, z = np.ones(3), np.full(3, 2.0)
    np.testing.assert_allclose(gradof.grad(made(x, z))(P), 1 + 4 * P)
    np.testing.assert_allclose(gradof.grad(made(z, z))(P), [2.0, 2.0, 2.0])
    np.testing.assert_allclose(gradof.grad(made(z, x))(P), 2 + 2 * P)


def test_a_constant_of_plain_numpy_is_of_its_own_data() -> None:
    class Scaled:
        def __init__(self, x: Any) -> None:
            self.x = x

        def loss(self, p: Any) -> Any:
            return np.sum(p * (self.x / self.x.std()))  # plain numpy: a constant of the trace

    for factor in (1.0, 1.0, 5.0):
        x = np.array([1.0, 2.0, 4.0]) ** factor
        np.testing.assert_allclose(gradof.grad(Scaled(x).loss)(P), x / x.std())


def test_what_a_guard_takes_for_fixed_is_compared() -> None:
    def power(p: Any, n: Any, sizes: Any) -> Any:
        return np.sum(p**n) * sizes[0]

    def made(sizes: Any) -> Callable[[Any], Any]:
        def loss(p: Any, sizes: Any = sizes) -> Any:
            return np.sum(p) * sizes[0] + len(sizes[1])

        return loss

    for n in (2, 3, 2):  # parts of a partial
        fn = functools.partial(power, n=n, sizes=(1.0, [0]))
        np.testing.assert_allclose(gradof.grad(lambda p, f=fn: f(p))(P), n * P ** (n - 1))
    for size in (2.0, 3.0, 2.0):  # a tuple among defaults that is not plain
        np.testing.assert_allclose(gradof.grad(made((size, [1])))(P), np.full(3, size))
    for axis in (None, 0):  # a closure of a library's
        summed = ag.jacobian(lambda x, axis=axis: np.sum(x, axis=axis))(np.ones((2, 2)))
        assert summed.shape == ((2, 2) if axis is None else (2, 2, 2))
        slopes = ag.make_jvp(np.sum)(np.ones((2, 2)), axis=axis)(np.ones((2, 2)))[1]
        np.testing.assert_allclose(slopes, 4.0 if axis is None else [2.0, 2.0])


def test_branches_by_value_are_found_among_kin() -> None:
    def made(limit: Any) -> Callable[[Any], Any]:
        def loss(p: Any) -> Any:
            return np.sum(p**2) if np.sum(p) > limit[0] else np.sum(p)

        return loss

    low, high = np.array([-9.0]), np.array([9.0])
    for limit, slope in ((low, 2 * P), (high, np.ones(3)), (low, 2 * P), (high, np.ones(3))):
        fn = made(limit)
        np.testing.assert_allclose(gradof.grad(fn)(P), slope)
    assert traces(fn) == 0


def test_a_black_box_of_the_instance_is_not_shared() -> None:
    class Solver:
        def __init__(self, factor: float) -> None:
            self.factor = factor
            self.solve = gradof.primitive(
                lambda b: np.asarray(b) / self.factor, vjp=lambda g, x, b: (g / self.factor,)
            )

        def loss(self, p: Any) -> Any:
            return np.sum(self.solve(p))

    for factor in (2.0, 4.0):
        np.testing.assert_allclose(gradof.grad(Solver(factor).loss)(P), np.full(3, 1 / factor))


def test_what_a_function_writes_is_written_to_its_own_object() -> None:
    class Counting:
        def __init__(self) -> None:
            self.calls = 0

        def loss(self, p: Any) -> Any:
            self.calls += 1
            return np.sum(p**2)

    first, second = Counting(), Counting()
    for counting in (first, second, second):
        gradof.grad(counting.loss)(P)
    assert (first.calls, second.calls) == (1, 2)


def test_no_instance_is_kept() -> None:
    model = Model(0)
    gradof.grad(model.loss)(P)
    gone, data = weakref.ref(model), weakref.ref(model.X)
    del model
    gc.collect()
    gc.collect()  # what a first one finds lets go of more
    assert gone() is None and data() is None
    assert checked(Model(1)) == 0


def test_other_shapes_and_settings_are_traced() -> None:
    checked(Model(0))
    assert checked(Model(1, rows=9)) == 1
    safe = gradof.grad(Model(2).loss, numerics="nan_safe")
    safe(P)
    assert safe.cache_info().misses == 1
    kin.forget()
    assert checked(Model(3)) == 1


def test_other_thresholds_are_another_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    def loss() -> Any:
        def fn(x: Any) -> Any:
            for _ in range(40):
                x = np.sin(x) + 0.1
            return np.sum(x)

        return fn

    def kinds() -> set[str]:
        compiled = Differentiated(loss())
        compiled(np.ones(3))
        return {node.kind for node in compiled.trace(np.ones(3)).walk()}

    assert "Loop" in kinds()
    monkeypatch.setattr(tuning, "LOOP_STEPS", 1 << 60)
    assert "Loop" not in kinds()


def test_a_number_that_varies_is_an_input_of_the_first_call_of_another_function() -> None:
    def made(data: np.ndarray) -> Callable[..., Any]:
        return lambda p, a: np.sum((p - data) ** 2 * a)

    first = made(P)
    for a in (1.0, 2.0, 3.0):
        np.testing.assert_allclose(gradof.grad(first)(2 * P, a), 2 * a * P)
    second = made(3 * P)
    for a in (4.0, 5.0, 1.0):
        np.testing.assert_allclose(gradof.grad(second)(2 * P, a), -2 * a * P)
    assert traces(second) == 0


@primitive
def cube(x: Any) -> Any:
    return np.asarray(x) ** 3 if isinstance(x, np.ndarray) else x**3


defvjp(cube, lambda ans, x: lambda g: 3 * g * x**2)


def test_calls_of_a_primitive_are_shared() -> None:
    def made(scale: np.ndarray) -> Callable[[Any], Any]:
        return lambda p: np.sum(cube(p) * scale)

    for scale in (P, 5 * P):
        fn = made(scale)
        np.testing.assert_allclose(gradof.grad(fn)(P), 3 * P**2 * scale)
    assert traces(fn) == 0


def test_a_number_that_differs_between_instances_is_an_input_from_then_on() -> None:
    first, second, third = Model(0, scale=2.0), Model(1, scale=3.0), Model(2, scale=7.0)
    assert (checked(first), checked(second), checked(third)) == (1, 1, 0)
    third.scale = 11.0  # its own number is the input, too
    assert checked(third) == 0
    fourth = Model(3, scale=4)  # a whole number is another type
    assert checked(fourth) == 1
    fifth = Model(4, scale=2.0)
    fifth.options["power"] = 4  # needed by its value
    assert checked(fifth) == 1
    sixth = Model(5, scale=9.0)
    sixth.options["power"] = 6
    assert checked(sixth) <= 1
    assert checked(Model(6, scale=13.0)) == 0


class Steps:
    def __init__(self, n: int) -> None:
        self.n, self.A = n, np.eye(3) * 2

    def loss(self, p: Any) -> Any:
        for _ in range(self.n):
            p = np.tanh(self.A @ p)
        return np.sum(p)


def test_a_number_that_is_needed_is_tried_as_an_input_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs: list[Any] = []
    record = Tracing._record

    def counted(self: Tracing, call: Any) -> Any:
        runs.append(call)
        return record(self, call)

    monkeypatch.setattr(Tracing, "_record", counted)
    counts = []
    for n in (1, 2, 3, 4):
        runs.clear()
        gradof.grad(Steps(n).loss)(P)
        counts.append(len(runs))
    assert counts == [1, 2, 1, 1]


class Part:
    def __init__(self, unit: float) -> None:
        self.unit = unit

    def apply(self, p: Any) -> Any:
        return p * self.unit if self.unit < 100 else p


def test_numbers_of_objects_among_the_arguments_that_differ_are_inputs() -> None:
    def loss(p: Any, parts: list[Part], data: np.ndarray) -> Any:
        return np.sum((parts[0].apply(p) - parts[1].apply(data)) ** 2)

    compiled = gradof.grad(loss)
    for k, (a, b) in enumerate([(2.0, 3.0), (4.0, 5.0), (6.0, 7.0), (1.5, 1.5), (200.0, 2.0)]):
        gradient = compiled(P, [Part(a), Part(b)], P + k)
        scale = a if a < 100 else 1.0
        np.testing.assert_allclose(gradient, 2 * scale * (scale * P - b * (P + k)))
        if k == 3:
            assert compiled.cache_info().misses == 2


def test_calls_of_a_function_of_numpys_that_was_given_a_rule_are_shared() -> None:
    defvjp(np.i0, lambda ans, x: lambda g: g * 2.0)  # any, to see that it is taken
    try:

        def made(scale: np.ndarray) -> Callable[[Any], Any]:
            return lambda p: np.sum(np.i0(p) * scale)

        for scale in (P, 5 * P):
            fn = made(scale)
            np.testing.assert_allclose(gradof.grad(fn)(P), 2 * scale)
        assert traces(fn) == 0
    finally:
        del OVERRIDES[np.i0]
