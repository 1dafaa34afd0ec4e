"""Python's collector while graphs are made: looked at rarely, and left as the caller has it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator

import pytest

from gradof.autodiff.differentiate import differentiate
from gradof.ir import garbage
from gradof.ir.garbage import MOST_WAITS, YOUNG, few_collections, let_full_collections_wait
from gradof.ir.parser import parse_graph


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[tuple[int, int, int]]:
    """Those of the test, 700 new objects; the process gets its own back."""
    before = gc.get_threshold()
    gc.set_threshold(700, *before[1:])
    yield gc.get_threshold()
    gc.set_threshold(*before)


def test_within_new_objects_are_looked_at_rarely(thresholds: tuple[int, int, int]) -> None:
    with few_collections():
        assert gc.get_threshold() == (YOUNG, *thresholds[1:])
        with few_collections():
            assert gc.get_threshold() == (YOUNG, *thresholds[1:])
        assert gc.get_threshold() == (YOUNG, *thresholds[1:])
    assert gc.get_threshold() == thresholds


def test_an_error_puts_them_back(thresholds: tuple[int, int, int]) -> None:
    with pytest.raises(KeyError), few_collections():
        raise KeyError
    assert gc.get_threshold() == thresholds


@pytest.mark.parametrize("first", [0, YOUNG * 2])
def test_a_caller_who_wants_fewer_still_is_left_alone(first: int) -> None:
    gc.set_threshold(first, 10, 10)
    with few_collections():
        assert gc.get_threshold() == (first, 10, 10)
    assert gc.get_threshold() == (first, 10, 10)


def test_what_is_set_within_stays() -> None:
    with few_collections():
        gc.set_threshold(1234, 5, 6)
    assert gc.get_threshold() == (1234, 5, 6)


def test_a_collector_switched_off_stays_off() -> None:
    gc.disable()
    try:
        with few_collections():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_long_graph_is_differentiated_in_few_collections() -> None:
    steps = "".join(f"%v{i + 1} : f32[3] = tanh(%v{i}) " for i in range(1000))
    graph = parse_graph(f"graph f(%v0 : f32[3]): {steps} return (%v1000)")
    seen: list[int] = []

    def watch(phase: str, info: dict[str, int]) -> None:
        seen.append(info["generation"])

    gc.callbacks.append(watch)
    try:
        differentiate(graph)
    finally:
        gc.callbacks.remove(watch)
    assert len(seen) <= 8, "a thousand ops are some fifty thousand objects"


@pytest.fixture
def full_is_due(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ten generations of objects have grown old since the last full look, and none is frozen."""
    monkeypatch.setattr(garbage, "_frozen", 0)
    gc.unfreeze()
    gc.collect()
    for _ in range(11):
        gc.collect(1)
    assert gc.get_count()[2] > gc.get_threshold()[2]
    yield
    gc.freeze()  # as the tests do


@pytest.mark.usefixtures("full_is_due")
@pytest.mark.skipif(sys.version_info >= (3, 14), reason="the collector counts otherwise")
def test_a_full_collection_waits_until_others_have_come() -> None:
    let_full_collections_wait()
    assert gc.get_count()[2] == 0


@pytest.mark.usefixtures("full_is_due")
def test_it_does_not_wait_for_ever() -> None:
    for _ in range(MOST_WAITS):
        let_full_collections_wait()
    for _ in range(11):
        gc.collect(1)
    before = gc.get_count()[2]
    let_full_collections_wait()
    assert gc.get_count()[2] == before > 0


@pytest.mark.usefixtures("full_is_due")
def test_what_others_have_frozen_stays_frozen() -> None:
    mine = [[1]]  # not the count: threads of other tests free frozen objects at any time
    gc.freeze()
    try:
        let_full_collections_wait()
        assert not any(one is mine for one in gc.get_objects()), "these are the ones not frozen"
    finally:
        gc.unfreeze()
    assert any(one is mine for one in gc.get_objects())


def test_what_others_have_frozen_is_counted_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = []

    def count() -> int:
        counted.append(1)
        return 700_000

    monkeypatch.setattr(garbage, "_frozen", 0)
    monkeypatch.setattr(garbage, "_waits", (0, 0))
    monkeypatch.setattr(gc, "get_freeze_count", count)
    for _ in range(2 * garbage.FROZEN_FOR + 3):
        let_full_collections_wait()
    assert len(counted) == 3
