"""Data frames that a function reads are data; objects among its arguments have state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradof
from gradof.errors import TraceError
from gradof.runtime.once import compiled_once

P = np.array([1.0, 2.0])


class Holder:
    """What `scipy.optimize.minimize(args=...)` hands on."""

    scale: float
    array: Any

    def __init__(self, **held: Any) -> None:
        vars(self).update(held)


def traces(fn: Any) -> int:
    return compiled_once(fn).cache_info().misses


def scaled(x: Any, holder: Any) -> Any:
    return np.sum(x * holder.scale * holder.array)


@pytest.mark.parametrize("change", [
    lambda h: setattr(h, "scale", 3.0),
    lambda h: h.array.__setitem__(0, 7.0),
    lambda h: setattr(h, "array", np.array([5.0, 6.0])),
])  # fmt: skip
def test_state_of_an_object_among_the_arguments_is_read_again(
    change: Callable[[Any], None]
) -> None:
    holder = Holder(scale=2.0, array=np.array([1.0, 2.0]))
    gradient = gradof.grad(scaled)
    for _ in range(2):
        np.testing.assert_array_equal(gradient(P, holder), holder.scale * holder.array)
        change(holder)
    np.testing.assert_array_equal(gradient(P, holder), holder.scale * holder.array)


def test_state_of_a_function_among_the_arguments_is_read_again() -> None:
    rate = 2.0

    def term(x: Any) -> Any:
        return rate * x**2

    def total(x: Any, term: Any) -> Any:
        return np.sum(term(x))

    np.testing.assert_array_equal(gradof.grad(total)(P, term), 2 * rate * P)
    rate = 5.0
    np.testing.assert_array_equal(gradof.grad(total)(P, term), 2 * rate * P)


def test_objects_of_one_class_share_a_trace() -> None:
    def loss(x: Any, holder: Any) -> Any:
        return np.sum(x * holder.scale * holder.array)

    for n in range(1, 6):
        holder = Holder(scale=2.0, array=np.full(2, float(n)))
        np.testing.assert_array_equal(gradof.grad(loss)(P, holder), 2.0 * holder.array)
    assert traces(loss) == 1
    holder = Holder(scale=3.0, array=np.ones(2))
    np.testing.assert_array_equal(gradof.grad(loss)(P, holder), 3.0 * holder.array)
    assert traces(loss) == 2


def frame_of(pandas: Any) -> Any:
    return pandas.DataFrame({"a": [1.0, 2.0], "b": [1, 2], "c": ["u", "v"]})


CHANGES: dict[str, Callable[[Any], Any]] = {
    "an element": lambda df: df.iloc.__setitem__((0, 0), 7.0),
    "a column": lambda df: df.__setitem__("a", [5.0, 6.0]),
    "another column": lambda df: df.__setitem__("b", [5, 6]),
    "text": lambda df: df.__setitem__("c", ["w", "v"]),
    "names of columns": lambda df: setattr(df, "columns", ["b", "a", "c"]),
    "the index": lambda df: setattr(df, "index", [3, 4]),
    "through an array": lambda df: df["a"].to_numpy(copy=False).__setitem__(0, 9.0),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_of_a_frame_are_noticed(change: str) -> None:
    frame = frame_of(pytest.importorskip("pandas"))

    def weights() -> Any:
        kept = frame[frame["c"] != "w"]
        return kept["a"].to_numpy() * frame["b"].mean() * frame.index[0] + kept["a"].to_numpy()

    def loss(x: Any) -> Any:
        found = weights()
        return np.sum(x[: len(found)] * found)

    def wanted() -> Any:
        found = weights()
        return np.concatenate([found, np.zeros(2 - len(found))])

    gradient = gradof.grad(loss)
    np.testing.assert_array_equal(gradient(P), wanted())
    assert gradient(P) is not None and traces(loss) == 1
    try:
        CHANGES[change](frame)
    except ValueError:
        pytest.skip("this pandas gives no array to write to")
    np.testing.assert_array_equal(gradient(P), wanted())


def test_instances_with_equal_frames_share_a_trace() -> None:
    pandas = pytest.importorskip("pandas")

    class Model:
        def __init__(self, frame: Any) -> None:
            self.frame = frame

        def loss(self, x: Any) -> Any:
            rows = self.frame[["a"]].to_numpy() @ x[:1]
            return np.sum(rows**2) + self.frame["b"].sum() * x[1]

    models = [Model(frame_of(pandas)) for _ in range(4)]
    found = [gradof.grad(model.loss)(P) for model in models]
    np.testing.assert_array_equal(found, [[10.0, 3.0]] * 4)
    assert sum(traces(model.loss) for model in models) == 1
    models[0].frame["b"] = [3, 4]
    np.testing.assert_array_equal(gradof.grad(models[0].loss)(P), [10.0, 7.0])


def test_a_function_that_changes_a_frame_is_refused_and_leaves_it_as_it_was() -> None:
    frame = frame_of(pytest.importorskip("pandas"))
    before = frame.copy()

    def loss(x: Any) -> Any:
        frame["d"] = frame["a"] * 2
        frame.iloc[0, 0] = 50.0
        return np.sum(x * frame["d"].to_numpy())

    with pytest.raises(TraceError, match="changed in place"):
        gradof.grad(loss)(P)
    assert frame.equals(before) and list(frame.columns) == ["a", "b", "c"]


def test_a_guard_does_not_follow_the_classes_of_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    frame, series = frame_of(pandas), pandas.Series([True, False], index=["x", "y"])

    def loss(x: Any) -> Any:
        return np.sum(x[~series] * frame.loc[[0], "a"].to_numpy())

    np.testing.assert_array_equal(gradof.grad(loss)(P), [0.0, 1.0])
    (entries,) = compiled_once(loss).cache.entries.values()
    assert entries[0].state.size < 40


def test_a_frame_may_be_an_argument() -> None:
    pandas = pytest.importorskip("pandas")

    def loss(x: Any, frame: Any, weights: Any = None) -> Any:
        rows = frame[["a", "b"]].to_numpy() @ x
        rows = rows if weights is None else rows * weights.to_numpy()
        return np.sum(rows) * (2.0 if frame["a"].max() > 4 else 1.0)

    frame = pandas.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]})
    gradient = gradof.grad(loss)
    for _ in range(3):
        np.testing.assert_array_equal(gradient(P, frame), [3.0, 7.0])
    assert traces(loss) == 1
    frame.loc[0, "a"] = 5.0  # in place: the branch as well
    np.testing.assert_array_equal(gradient(P, frame), [14.0, 14.0])
    np.testing.assert_array_equal(gradient(P, frame * 1.0), [14.0, 14.0])
    weights = pandas.Series([1.0, 0.0])
    np.testing.assert_array_equal(gradient(P, frame, weights=weights), [10.0, 6.0])
    weights[1] = 1.0
    np.testing.assert_array_equal(gradient(P, frame, weights=weights), [14.0, 14.0])
