"""Arrays whose elements Python decides by are guarded, also where they are inputs of the graph."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradof
from gradof.tracer.state.tested import Decisions

W = np.array([1.0, 2.0, 3.0, 4.0])


def _is_large(rows: Any) -> bool:
    return bool(rows.max() > 3)


def _largest(rows: Any) -> Any:
    return rows[np.argmax(rows)]


def _keep(rows: Any) -> Any:
    return rows


class Model:
    """Losses that look at `rows`, in all of which it is an input as well."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows
        self.rate = 0.5
        self.kind = "large"

    def total(self, w: Any) -> Any:
        return np.sum(w * self.rows)

    def test(self, w: Any) -> Any:
        if self.rows.max() > 3:
            return self.total(w) * 2
        return self.total(w)

    def element(self, w: Any) -> Any:
        return self.total(w) if self.rows[0] < 1 else -self.total(w)

    def both(self, w: Any) -> Any:
        return self.total(w) * (2 if np.isfinite(self.rows).all() and (self.rows[0] == 0) else 1)

    def either(self, w: Any) -> Any:
        if (self.rate > 1 or self.rows[1]) > 0.5:
            return self.total(w) * 3
        return self.total(w)

    def chained(self, w: Any) -> Any:
        return self.total(w) * (3 if 0 < self.rows[1] < 2 else 1)

    def variable(self, w: Any) -> Any:
        rows = self.rows
        largest = rows.max()
        scale = 2.0
        if largest > 3:
            scale = 3.0
        return self.total(w) * scale

    def whole(self, w: Any) -> Any:
        n = int(self.rows.sum())
        return self.total(w) * n

    def root(self, w: Any) -> Any:
        return self.total(w) * math.sqrt(abs(self.rows[0]) + 1)

    def listed(self, w: Any) -> Any:
        numbers = self.rows.tolist()
        return self.total(w) * numbers[-1]

    def contained(self, w: Any) -> Any:
        flag = 3.0 in self.rows
        return self.total(w) * (1 + flag)

    def builtin(self, w: Any) -> Any:
        return self.total(w) * (2 if max(self.rows) > 3 else 1)

    def helper(self, w: Any) -> Any:
        return self.total(w) * (2 if _is_large(self.rows) else 1)

    def helper_of_computed(self, w: Any) -> Any:
        return self.total(w) * (2 if _is_large(self.rows * 0.5 + 1.6) else 1)

    def helper_gives(self, w: Any) -> Any:
        return self.total(w) * (2 if _largest(_keep(self.rows)) > 3 else 1)

    def method(self, w: Any) -> Any:
        return self.total(w) * (2 if self._positive() else 1)

    def _positive(self) -> Any:
        return (self.rows >= 0).all()

    @property
    def level(self) -> Any:
        return self.rows[1]

    def by_property(self, w: Any) -> Any:
        return self.total(w) * (2 if self.level > 3 else 1)

    def loop(self, w: Any) -> Any:
        found = np.sum(w) * 0.0
        for k, row in enumerate(self.rows):
            if row > 1.5:
                found = found + w[k] * self.rows[k]
        return found

    def comprehension(self, w: Any) -> Any:
        large = [k for k, row in enumerate(self.rows) if row > 1.5]
        return self.total(w) * (1 + len(large))

    def generator(self, w: Any) -> Any:
        return self.total(w) * (2 if any(row > 3 for row in self.rows) else 1)

    def inner(self, w: Any) -> Any:
        largest = self.rows.max()

        def scale() -> float:
            return 2.0 if largest > 3 else 1.0

        return self.total(w) * scale()

    def kept(self, w: Any) -> Any:
        self.largest = self.rows.max()
        return self.total(w) * self._scale_by_kept()

    def _scale_by_kept(self) -> float:
        return 2.0 if self.largest > 3 else 1.0

    def in_a_list(self, w: Any) -> Any:
        found = []
        found.append(self.rows.max())
        return self.total(w) * (2 if found[0] > 3 else 1)

    def in_a_dict(self, w: Any) -> Any:
        found: dict[str, Any] = {}
        found["max"] = self.rows.max()
        return self.total(w) * (2 if found["max"] > 3 else 1)

    def picked(self, w: Any) -> Any:
        parts = [w[0] * 1.0, w[1] * 10.0, w[2] * 100.0, w[3] * 1000.0]
        found = self.total(w)
        for k in np.argsort(self.rows)[:2]:
            found = found + parts[k]
        return found

    def while_plain(self, w: Any) -> Any:
        level, steps = self.rows.max(), 0
        while level > 1:
            level, steps = level / 2, steps + 1
        return self.total(w) * steps

    def first_plain(self, w: Any) -> Any:
        error, found = np.abs(self.rows).max(), self.total(w)
        for _ in range(3):
            if error > 3:
                found = found * 1.5
            error = np.sum(w) * 0.4
        return found

    def unpacked(self, w: Any) -> Any:
        low, high = self.rows.min(), self.rows.max()
        if high - low > 3:
            return self.total(w) * 2
        return self.total(w)

    def text(self, w: Any) -> Any:
        return self.total(w) * (2 if str(self.rows[:2]) == "[0. 1.]" else 1)

    def handled(self, w: Any) -> Any:
        try:
            return self.total(w) * [1.0, 2.0, 3.0, 4.0][int(self.rows[3])]
        except IndexError:
            return self.total(w) * (5.0 if self.rows[0] > 4 else 6.0)

    def walrus(self, w: Any) -> Any:
        if (largest := self.rows.max()) > 3:
            return self.total(w) * 2 + largest
        return self.total(w)

    def both_kinds(self, w: Any) -> Any:
        return sum(self._clipped(v) for v in (w[0], self.rows[0], self.rows[3])) + self.total(w)

    def _clipped(self, value: Any) -> Any:
        return value if value > 0.5 else 0.5 * value


class Shared(Model):
    """Its rows are the class's."""

    shared = np.arange(4.0)

    def loss(self, w: Any) -> Any:
        return np.sum(w * self.shared) * (2 if self.shared.max() > 3 else 1)


def test_elements_of_an_attribute_of_a_class() -> None:
    model = Shared(ROWS[0])
    both = gradof.value_and_grad(model.loss)
    for rows in ROWS:
        Shared.shared = rows.copy()
        _agree(both(W), model.loss)


LOSSES = sorted(name for name, fn in vars(Model).items() if name[0] != "_" and callable(fn)
                if name != "total")  # fmt: skip
ROWS = [np.arange(4.0), np.arange(4.0) + 5, np.array([0.0, 1.0, 2.0, -1.0]), np.zeros(4),
        np.arange(4.0)[::-1].copy(), np.arange(4.0)]  # fmt: skip


def _agree(found: tuple[Any, Any], loss: Callable[[Any], Any]) -> None:
    steps = np.eye(4) * 1e-6
    expected = [(loss(W + step) - loss(W - step)) / 2e-6 for step in steps]
    np.testing.assert_allclose(found[0], loss(W))
    np.testing.assert_allclose(found[1], expected, atol=1e-6)


@pytest.mark.filterwarnings("ignore::gradof.errors.RetraceWarning")  # of `kept`, which changes
@pytest.mark.parametrize("name", LOSSES)
def test_elements_that_decide(name: str) -> None:
    model = Model(ROWS[0].copy())
    loss = getattr(model, name)
    both = gradof.value_and_grad(loss)
    for n, rows in enumerate(ROWS):
        if n % 2:
            model.rows = rows.copy()
        else:
            model.rows[:] = rows
        _agree(both(W), loss)


@pytest.mark.parametrize("name", LOSSES)
def test_elements_that_decide_in_another_instance(name: str) -> None:
    for rows in ROWS:
        loss = getattr(Model(rows.copy()), name)
        _agree(gradof.value_and_grad(loss)(W), loss)


class Batches:
    """What it decides by has nothing to do with the rows."""

    def __init__(self) -> None:
        self.rows = np.arange(4.0)
        self.decay = 0.1
        self.kind = "squares"
        self.names = ("a", "b")

    def loss(self, w: Any) -> Any:
        n, found = len(self.rows), 0.0
        if self.rows.ndim != 1 or self.rows.shape[0] != 4 or n == 0 or self.rows is None:
            raise ValueError(f"rows of shape {self.rows.shape}")
        if self.kind == "squares" and isinstance(self.rows, np.ndarray):
            found = np.mean((w - self.rows) ** 2)
        if self.decay > 0 and "a" in self.names:
            found = found + self.decay * np.sum(w**2)
        if found > 1e6:  # a Guard
            found = found / 2
        for k in range(2):
            if k % 2:
                found = found * 1.5
        return found


def test_rows_that_decide_nothing_are_inputs() -> None:
    model = Batches()
    both = gradof.value_and_grad(model.loss)
    for seed in range(4):
        model.rows = np.random.default_rng(seed).random(4)
        np.testing.assert_allclose(both(W)[0], model.loss(W))
    (entries,) = both.base.cache.entries.values()
    assert len(entries) == 1 and entries[0].traced.content == ()
    assert len(entries[0].traced.origins) == 1


def test_names_that_decide() -> None:
    def loss(self: Any, w: Any) -> Any:
        scale = self.rows.max()
        if scale > 3:
            return np.sum(w)
        return np.sum(w * self.weights) * int(self.labels[0])

    names = Decisions().tested([loss.__code__], lambda _: True, ()).names
    assert {"rows", "labels"} <= names
    assert "weights" not in names
