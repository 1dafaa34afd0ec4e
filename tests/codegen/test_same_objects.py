"""Places of Python's state compared natively: any that holds another object is seen."""

from __future__ import annotations

import gc
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import pytest

from gradof.codegen.machine import same_objects as module
from gradof.codegen.machine.engine import vector_bits
from gradof.codegen.machine.same_objects import Places, has_versions, same_objects

pytestmark = pytest.mark.skipif(not vector_bits(), reason="no native code here")


class _Thing:
    pass


class _World:
    def __init__(self) -> None:
        self.names: dict[Any, Any] = {"a": 1.5, "b": [], 3: None}
        self.ordered: OrderedDict[str, Any] = OrderedDict(x=())
        self.names_in_order = {"p": 1, "q": 2}
        self.items, self.thing = [1, 2], _Thing()
        self.function: Any = eval("lambda x, y=(): x")
        places = self.places = Places()
        for key, value in self.names.items():
            assert places.add_item(self.names, key, value)
        assert places.add_item(self.ordered, "x", self.ordered["x"])
        assert places.add_size(self.items, 2) and places.add_size(self.ordered, 1)
        assert places.add_order(self.names_in_order, ("p", "q"))
        places.add_absent(self.names_in_order, "r")
        places.types.append((self.thing, _Thing))
        places.codes.append((self.function, self.function.__code__))
        places.defaults.append((self.function, self.function.__defaults__))


CHANGES: dict[str, Callable[[_World], Any]] = {
    "another value": lambda w: w.names.update(a=float("1.5")),
    "a value under a number": lambda w: w.names.update({3: 0}),
    "a name is gone": lambda w: w.names.pop("b"),
    "of an ordered dict": lambda w: w.ordered.update(x=[]),
    "more items": lambda w: w.items.append(3),
    "more names": lambda w: w.ordered.update(y=1),
    "another order": lambda w: w.names_in_order.update(p=w.names_in_order.pop("p")),
    "a name that was not there": lambda w: w.names_in_order.update(r=1),
    "another class": lambda w: setattr(w.thing, "__class__", type("_Other", (_Thing,), {})),
    "other code": lambda w: setattr(w.function, "__code__", (lambda x, y=(): y).__code__),
    "other defaults": lambda w: setattr(w.function, "__defaults__", (1,)),
}


@pytest.mark.parametrize("versions", [True, False])
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen(name: str, versions: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    world = _World()
    if not versions:  # as where a dict has none: every row is looked at each time
        monkeypatch.setattr(module, "has_versions", lambda: False)
    same = same_objects(world.places)
    assert same is not None
    assert same() is True and same() is True
    CHANGES[name](world)
    assert same() is False


def test_what_is_written_and_put_back_is_the_same() -> None:
    world = _World()
    same = same_objects(world.places)
    assert same is not None and same() is True
    value = world.names.pop("b")
    assert same() is False
    world.names["b"] = value
    assert same() is True and same() is True
    world.names["another"] = 1  # its size is not asked for
    assert same() is True
    world.names["b"] = []
    assert same() is False


def test_versions_are_those_of_this_python() -> None:
    assert has_versions() == (sys.version_info < (3, 13))


def test_of_nothing_all_is_the_same_and_odd_dicts_are_refused() -> None:
    empty = same_objects(Places())
    assert empty is not None and empty() is True
    odd = type("Odd", (dict,), {"__getitem__": lambda self, key: 1})()
    assert not Places().add_item(odd, "a", 1) and not Places().add_item({}, (1,), 1)
    assert not Places().add_size(odd, 0) and not Places().add_size("ab", 2)
    assert not Places().add_order(OrderedDict(a=1), ("a",)) and not Places().add_order({1: 1}, (1,))


def test_objects_live_as_long_as_the_function() -> None:
    world = _World()
    gone = weakref.ref(world.thing)
    same = same_objects(world.places)
    del world
    gc.collect()
    assert gone() is not None and same is not None and same() is True
    del same
    gc.collect()
    assert gone() is None
