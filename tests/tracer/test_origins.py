"""Every way a function can reach an array that is no argument, found and read again."""

import functools
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from gradof import grad
from gradof.tracer.state.origins import Origin, Origins

GLOBAL = np.ones(2)
CONFIG = {"layers": [np.zeros(1), {"w": np.ones(3)}]}
SETTINGS = ModuleType("settings")
SETTINGS.W = np.ones(4)  # type: ignore[attr-defined]


class Model:
    shared = np.ones(7)
    __slots__ = ("__dict__", "slot")

    def __init__(self) -> None:
        self.weight = np.ones(2)
        self.parts = [np.zeros(2), {"b": np.ones(1)}]
        self.slot = np.ones(5)

    def __call__(self, x: Any) -> Any:
        return x * self.weight * GLOBAL

    def forward(self, x: Any) -> Any:
        return self(x)


def helper(x: Any) -> Any:
    return x + GLOBAL


def find(fn: Any, array: Any) -> Origin:
    origin = Origins(fn, lambda o: isinstance(o, np.ndarray)).find(array)
    assert origin is not None
    assert origin.read(fn) is array
    assert hash(origin) == hash(Origin(origin.steps)) and origin == Origin(origin.steps)
    return origin


def closure() -> tuple[Callable[[Any], Any], Any]:
    w, model = np.ones(2), Model()

    def fn(x: Any) -> Any:
        return model(x) * w

    return fn, (w, model)


def test_closures_and_attributes_of_what_they_hold() -> None:
    fn, (w, model) = closure()
    assert str(find(fn, w)) == "closure 'w'"
    assert str(find(fn, model.weight)) == "closure 'model'.weight"
    assert str(find(fn, model.parts[1]["b"])) == "closure 'model'.parts[1]['b']"
    assert str(find(fn, model.slot)) == "closure 'model'.slot"
    assert str(find(fn, model.shared)) == "closure 'model'.shared"
    assert "GLOBAL" in str(find(fn, GLOBAL))


def test_a_rebound_variable_is_read_anew() -> None:
    w = np.ones(1)

    def fn(x: Any) -> Any:
        return x * w

    origin = find(fn, w)
    w = np.zeros(1)
    assert origin.read(fn) is w


def test_globals_of_helpers_nested_functions_and_modules() -> None:
    assert str(find(helper, GLOBAL)) == "global 'GLOBAL'"
    assert str(find(lambda x: helper(x), GLOBAL)) == "global 'GLOBAL' of global 'helper'"
    assert str(find(lambda x: (lambda y: y * GLOBAL)(x), GLOBAL)) == "global 'GLOBAL'"
    weights = CONFIG["layers"][1]["w"]  # type: ignore[index]
    assert str(find(lambda x: x * CONFIG["layers"][1]["w"], weights)) == (  # type: ignore[index]
        "global 'CONFIG'['layers'][1]['w']"
    )
    assert str(find(lambda x: x * SETTINGS.W, SETTINGS.W)) == "global 'SETTINGS.W'"


def test_defaults_partials_and_bound_methods() -> None:
    def fn(x: Any, a: Any = GLOBAL, *, k: Any = CONFIG) -> Any:
        return x

    assert str(find(fn, GLOBAL)) == "default of 'a'"
    assert str(find(fn, CONFIG["layers"][0])) == "default of 'k'['layers'][0]"
    w, model = np.ones(1), Model()
    assert str(find(functools.partial(fn, w), w)) == "partial argument 0"
    assert str(find(functools.partial(fn, k=w), w)) == "partial argument 'k'"
    assert str(find(model.forward, model.weight)) == "self.weight"
    assert str(find(model, model.weight)) == "self.weight"
    assert "GLOBAL" in str(find(model, GLOBAL))


def test_wrapped_functions_are_followed() -> None:
    w = np.ones(1)

    @functools.wraps(helper)
    def wrapper(x: Any) -> Any:
        return helper(x) * w

    assert str(find(wrapper, w)) == "closure 'w'"


def test_unreachable_arrays_and_unset_cells_give_none() -> None:
    def fn(x: Any) -> Any:
        return x + later  # noqa: F821

    origins = Origins(fn, lambda o: isinstance(o, np.ndarray))
    assert origins.find(np.ones(1)) is None and origins.complete
    later = np.ones(1)
    origin = find(fn, later)
    del later
    with pytest.raises(LookupError, match="later"):
        origin.read(fn)


def test_cycles_end() -> None:
    ring: list[Any] = []
    ring.append(ring)
    assert Origins(lambda: ring, lambda o: isinstance(o, np.ndarray)).find(np.ones(1)) is None


def test_what_code_of_another_package_reads_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "otherpkg.py").write_text("""
import numpy as np
TABLE, CALLS = np.ones(3), np.zeros(1)
def scale(x):
    return x * TABLE
class Frame:
    def scaled(self, x):
        return scale(x)
def count(x):
    CALLS[0] += 1
    return x
""")
    monkeypatch.syspath_prepend(str(tmp_path))
    other: Any = importlib.import_module("otherpkg")
    frame = other.Frame()
    try:
        for fn in (lambda x: np.sum(other.scale(x)), lambda x: np.sum(frame.scaled(x))):
            slope = grad(fn)
            for value in (1.0, 5.0):
                other.TABLE[:] = value
                assert slope(np.ones(3)).tolist() == [value] * 3
            other.TABLE = np.full(3, 7.0)  # another object of that name
            assert slope(np.ones(3)).tolist() == [7.0] * 3
        slope = grad(lambda x: np.sum(other.count(x)))
        for calls in (1, 2, 3):
            assert slope(np.ones(3)).tolist() == [1.0] * 3 and other.CALLS.tolist() == [calls]
    finally:
        del sys.modules["otherpkg"]
