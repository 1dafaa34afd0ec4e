"""What is an equal object, or is held where no name leads to: it is read again at each call."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import gradof

X = np.arange(1.0, 4.0)
SCALES = (2.0, 3.0, 5.0, 7.0)


class Named:
    """Equal by its name, whatever else it holds."""

    def __init__(self, scale: float) -> None:
        self.name = "a"
        self.scale = scale
        self.rows = np.full(3, scale)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


class Count(int):
    """A number that carries another."""

    scale = 0.0


def by_scale(x: Any, held: Any) -> Any:
    return np.sum(x * held.scale)


def by_rows(x: Any, held: Any) -> Any:
    return np.sum(x * held.rows)


def by_keys(x: Any, held: Any) -> Any:
    return np.sum(x * sum(key.scale for key in held))


def by_number(x: Any, number: Any) -> Any:
    return np.sum(x * float(number))


def counted(scale: float) -> Count:
    made = Count(1)
    made.scale = scale
    return made


@pytest.mark.parametrize(("fn", "make"), [
    (by_scale, Named), (by_rows, Named), (by_scale, counted),
    (by_keys, lambda scale: {Named(scale): 1.0}),
    (by_keys, lambda scale: frozenset([Named(scale)])),
    (by_number, Decimal), (by_number, Fraction),
])  # fmt: skip
@pytest.mark.parametrize("again", [True, False], ids=["one function", "a function for each call"])
def test_arguments_that_are_equal(
    fn: Callable[..., Any], make: Callable[[float], Any], again: bool
) -> None:
    grad = gradof.grad(fn)
    found = [(grad if again else gradof.grad(fn))(X, make(scale))[0] for scale in SCALES]
    assert found == list(SCALES)


def test_keys_of_dicts_that_are_equal() -> None:
    def loss(x: Any, given: dict[Any, float]) -> Any:
        (key,) = given
        return np.sum(x * (3.0 if type(key) is float else 2.0))

    grad = gradof.grad(loss)
    assert [grad(X, {key: 1.0})[0] for key in (1, 1.0, True, 1.0)] == [2.0, 3.0, 2.0, 3.0]


def test_elements_of_sets_that_are_equal() -> None:
    def loss(x: Any, given: frozenset[Any]) -> Any:
        (key,) = given
        return np.sum(x * (3.0 if type(key) is float else 2.0))

    grad = gradof.grad(loss)
    assert [grad(X, frozenset([key]))[0] for key in (1, 1.0)] == [2.0, 3.0]


class Held:
    def __init__(self) -> None:
        self.scale = 2.0
        self.rows = np.full(3, 2.0)


def _objects(held: Held) -> Any:
    found = np.empty((1, 2), object)
    found[:] = held
    return found


HOLDERS: dict[str, tuple[Callable[[Held], Any], Callable[[Any], Held]]] = {
    "set": (lambda held: {held}, lambda holder: next(iter(holder))),
    "frozenset": (lambda held: frozenset([held]), lambda holder: next(iter(holder))),
    "key": (lambda held: {held: 1}, lambda holder: next(iter(holder))),
    "proxy": (lambda held: MappingProxyType({"a": held}), lambda holder: holder["a"]),
    "view": (lambda held: {"a": held}.values(), lambda holder: next(iter(holder))),
    "reference": (weakref.ref, lambda holder: holder()),
    "array": (_objects, lambda holder: holder[0, 1]),
}


@pytest.mark.parametrize("name", HOLDERS)
@pytest.mark.parametrize("attribute", ["scale", "rows"])
def test_what_is_held_without_a_name(name: str, attribute: str) -> None:
    make, held_in = HOLDERS[name]
    held = Held()
    holder = make(held)

    def scaled(x: Any) -> Any:
        return np.sum(x * held_in(holder).scale)

    def by_row(x: Any) -> Any:
        return np.sum(x * held_in(holder).rows)

    grad = gradof.grad(scaled if attribute == "scale" else by_row)
    found = []
    for scale in SCALES:
        held.scale = scale
        if scale == 5.0:
            held.rows[:] = scale
        else:
            held.rows = np.full(3, scale)
        found.append(grad(X)[0])
    assert found == list(SCALES)


def test_arrays_in_an_array_of_objects() -> None:
    parts = np.empty(2, object)
    parts[0], parts[1] = np.ones(3), np.ones(3)

    def loss(x: Any) -> Any:
        return np.sum(x * sum(parts))

    grad = gradof.grad(loss)
    found = [grad(X)[0]]
    parts[1] = np.full(3, 2.0)
    found.append(grad(X)[0])
    parts[1][:] = 4.0
    found.append(grad(X)[0])
    assert found == [2.0, 3.0, 5.0]


def test_the_mask_of_a_masked_array() -> None:
    data = np.ma.masked_array([1.0, 2.0, 3.0], mask=[True, False, False])

    def loss(x: Any) -> Any:
        return np.sum(x * data.filled(0.0))

    grad = gradof.grad(loss)
    assert grad(X).tolist() == [0.0, 2.0, 3.0]
    data.mask = [False, True, False]
    assert grad(X).tolist() == [1.0, 0.0, 3.0]
