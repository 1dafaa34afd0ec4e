"""Indexing and mutation: every form numpy has, views of views, scalars that are rebound."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gradof
from gradof.errors import DataDependentShapeError, ShapeError
from gradof.tracer.core.result import InputOut
from tests.tracer.numpy_eager import check, run, trace

M = np.random.default_rng(0).standard_normal((4, 5))
T = np.random.default_rng(1).standard_normal((2, 3, 4))
V = np.random.default_rng(2).standard_normal(6)
I = np.array([2, 0, -1])  # noqa: E741

READS: list[Callable[[Any], Any]] = [
    lambda x: x[0],
    lambda x: x[-1, 2],
    lambda x: x[np.int64(1)],
    lambda x: x[1:3],
    lambda x: x[::-1],
    lambda x: x[3:0:-2, ::2],
    lambda x: x[5:2],
    lambda x: x[..., 1],
    lambda x: x[None, :, None, -2:],
    lambda x: x[()],
    lambda x: x[...],
    lambda x: x[[0, 2]],
    lambda x: x[np.array([[0, 3], [1, 1]])],
    lambda x: x[[0, 2], [1, -1]],
    lambda x: x[[0, 2], 1:3],
    lambda x: x[1:3, [0, 2, 2]],
    lambda x: x[:, None, [0, 1]],
    lambda x: x[np.arange(20).reshape(4, 5) % 3 == 0],
    lambda x: x[np.array([True, False, True, False])],
    lambda x: x[np.ix_([0, 2], [1, 3])],
    lambda x: x[True],
    lambda x: [row[0] * 2 for row in x],
    lambda x: sum(x) * x[0],
]


@pytest.mark.parametrize("at", range(len(READS)))
def test_reads(at: int) -> None:
    fn = READS[at]
    empty = fn(M)
    check(fn, M, gradient=not isinstance(empty, np.ndarray) or empty.size > 0)


ARRAY_READS: list[Callable[[Any, Any], Any]] = [
    lambda x, i: x[i],
    lambda x, i: x[0, i],
    lambda x, i: x[:, i],
    lambda x, i: x[:, i, i],
    lambda x, i: x[i, :, i],
    lambda x, i: x[..., i],
    lambda x, i: x[:, 1:, i],
    lambda x, i: x[i % 2, [0, 1, 1]],
    lambda x, i: x[i[0]],
    lambda x, i: x[i[0], 1, i],
    lambda x, i: x[i[:, None] % 2, i],
    lambda x, i: np.take(x, i, axis=1),
]


@pytest.mark.parametrize("at", range(len(ARRAY_READS)))
def test_reads_at_index_arguments(at: int) -> None:
    fn = ARRAY_READS[at]
    traced = check(fn, T, np.array([1, 0, -1]))
    for other in (np.array([0, 0, 1]), np.array([-1, -2, 0])):
        np.testing.assert_array_equal(run(traced, fn, (T, other)), fn(T, other))


def write(index: Any, value: Any) -> Callable[[Any], Any]:
    def fn(x: Any) -> Any:
        y = x * 1.0
        y[index] = value(x) if callable(value) else value
        return y * np.arange(y.size).reshape(y.shape)

    return fn


WRITES: list[tuple[Any, Any]] = [
    (0, 3.0),
    ((1, 2), lambda x: x[0, 0] * 2),
    (slice(1, 3), lambda x: x[:2] ** 2),
    ((slice(None), 1), lambda x: x[:, 0]),
    ((slice(None, None, -2), slice(4, 0, -1)), lambda x: x[:2, :4]),
    ((Ellipsis, None, 2), lambda x: x[:, :1]),
    (Ellipsis, lambda x: x[0]),
    ([0, 2], lambda x: x[1]),
    ([0, 0, 1], lambda x: x[:3]),  # the last write counts
    (([1, 1, 2], [0, 0, 3]), lambda x: x[0, :3]),
    ((slice(None), [1, 3]), lambda x: x[:, :1]),
    (np.arange(20).reshape(4, 5) % 3 == 0, 0.0),
    (np.array([True, False, True, False]), lambda x: x[:1]),
    (slice(0, 0), 1.0),
    ((0,), lambda x: [x[0, 0], 1.0, 2.0, x[1, 1], x[2, 2]]),
]


@pytest.mark.parametrize("at", range(len(WRITES)))
def test_writes(at: int) -> None:
    check(write(*WRITES[at]), M)


def test_writes_at_index_arguments() -> None:
    def at_rows(x: Any, i: Any) -> Any:
        y = np.zeros_like(x)
        y[i] = x[:3]
        y[i[0], 1:] = x[0, 0]
        y[1, i] = x[2, 2] * 3
        return y * M

    def last_wins(x: Any, i: Any) -> Any:
        y = np.zeros_like(x)
        y[i] = x
        return y * np.arange(1.0, 7.0)

    check(at_rows, M, I)
    check(at_rows, M, np.array([1, 1, 0]))
    check(last_wins, V, np.array([2, 0, 2, 2, 5, 0]))


def test_writes_under_a_mask_of_values() -> None:
    def fn(x: Any) -> Any:
        y = x * 2
        y[y > 1] = 0.5
        y[x < -1] = x[0, 0]
        y[np.isnan(y)] = 0
        return y * x

    check(fn, M)


def test_in_place_operators() -> None:
    def fn(x: Any) -> Any:
        y = x.copy()
        y += x
        y[1:3] *= 2
        y[0] -= x[1]
        y[:, 1] /= 3
        y **= 2
        y[[0, 0, 1]] += 1.0
        np.add.at(y, ([0, 0, 1], [2, 2, 3]), x[0, :3])
        np.subtract.at(y, 2, x[1])
        return y

    check(fn, M)


def test_views_see_writes_and_write_through() -> None:
    def fn(x: Any) -> Any:
        y = x * 1.0
        row, column, turned = y[1], y[:, 2], y.T
        flat, corner = y.reshape(-1), y[1:3][:, 1:3]
        flipped, diagonal = y[::-1], np.diagonal(y)
        y[1] = 2.0
        column[0] = x[0, 0]
        turned[3, 3] *= 5
        flat[-1] = x[1, 1] * x[2, 2]
        corner[...] = corner * x[0, 0]
        flipped[0, 0] = 7.0
        wide = np.broadcast_to(y, (2, 4, 5))
        y[2, 2] = x[3, 3]
        return y, row, column, turned, flat, corner, flipped, diagonal, wide

    check(fn, M)


def test_copies_are_no_views() -> None:
    def fn(x: Any) -> Any:
        y = x * 1.0
        copies = [
            y[[0, 1]], y.copy(), y.flatten(), y.T.reshape(-1), y + 0, y.astype(float),
            np.concatenate([y]), copy.deepcopy(y), copy.copy(y), np.array(y),
        ]  # fmt: skip
        same = [y[...], y.ravel(), y.astype(float, copy=False), np.asarray(y)]
        y[...] = 0.0
        return copies, same

    check(fn, M)


def test_scalars_are_rebound_not_changed() -> None:
    def fn(x: Any) -> Any:
        a = x[0]
        b = a
        a += x[1]
        total = np.sum(x)
        before = total
        total *= 2
        x = x * 1.0
        c = x[2]
        x[2] = 0.0
        return a, b, total, before, c

    check(fn, V)
    with pytest.raises(TypeError, match="does not support item assignment"):
        trace(lambda x: x.sum().__setitem__(..., 1.0), V)


def test_zero_dimensional_arrays_are_changed() -> None:
    def fn(x: Any) -> Any:
        y = x * 1.0
        a = y[0, ...]
        b = a
        a += 1.0
        return b, y

    check(fn, V)


def test_arguments_are_written_back() -> None:
    def fn(x: Any, y: Any) -> Any:
        x[0] = y[1]
        x[1:] *= 2
        y += 1
        return x * y

    traced = check(fn, V, V * 2 + 1)
    assert [b.input for b in traced.writebacks] == [0, 1]

    def through_a_view(x: Any) -> Any:
        x.reshape(2, 3).T[0] = 5.0
        return x

    traced = check(through_a_view, V, gradient=False)
    assert traced.outputs == (InputOut(0),)


def test_fill_and_sort_in_place() -> None:
    def fn(x: Any) -> Any:
        y = x.copy()
        y.sort()
        z = y[1:4]
        z.fill(x[0])
        return y

    check(fn, V)


def test_functions_that_change_their_argument() -> None:
    def fn(x: Any) -> Any:
        y, z = np.zeros_like(x), x * 1.0
        np.copyto(y, x[0])
        np.copyto(y, 2.0, where=x > 0)
        np.fill_diagonal(z, x[0, 0])
        np.fill_diagonal(z[:, 1:], x[0, :4])
        np.put(y, [0, 7, -1], x[0, :3])
        np.putmask(z, x > 1, 0.0)
        np.put_along_axis(y, np.array([[1], [2], [0], [1]]), x[:, :1], axis=1)
        return y * z

    check(fn, M)


def test_loops_over_elements() -> None:
    def recurrence(x: Any) -> Any:
        y = np.zeros(6)
        y[0] = x[0]
        for i in range(1, 6):
            y[i] = 0.5 * y[i - 1] + x[i]
        return y

    check(recurrence, V)


# --- random programs ------------------------------------------------------------------------------

slices = st.builds(
    slice, st.none() | st.integers(-6, 6), st.none() | st.integers(-6, 6),
    st.sampled_from([None, 1, 2, -1, -2]),
)  # fmt: skip
basic = st.integers(-3, 2) | slices
indices = st.one_of(
    basic, st.tuples(basic, basic), st.tuples(basic, st.none(), slices), st.just(Ellipsis),
    st.lists(st.integers(-3, 2), min_size=1, max_size=4),
    st.tuples(slices, st.lists(st.integers(-3, 2), min_size=1, max_size=3)),
)  # fmt: skip


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(["read", "write", "view"]), indices), max_size=6))
def test_random_reads_and_writes(steps: list[tuple[str, Any]]) -> None:
    def fn(x: Any) -> Any:
        y, kept = x * 1.0, []
        for n, (what, index) in enumerate(steps):
            if what == "read":
                kept.append(y[index] * (n + 1.0))
            elif what == "write":
                y[index] = np.sin(y[index]) + n
            else:
                part = y[index]
                kept.append(part)
                if np.ndim(part):
                    part *= 1.5
        return y, kept

    check(fn, M[:3, :3], gradient=not any(0 in np.shape(k) for k in fn(M[:3, :3])[1]))


# --- refused --------------------------------------------------------------------------------------


def test_shapes_that_depend_on_values() -> None:
    def fn(x: Any) -> Any:
        return np.unique_values(x)

    with pytest.raises(DataDependentShapeError, match=r"depends on values(.|\n)*test_numpy_index"):
        trace(fn, M)


def test_errors_of_numpy_stay_numpys() -> None:
    with pytest.raises(IndexError):
        trace(lambda x: x[7], M)
    with pytest.raises(IndexError):
        trace(lambda x: x[0, 0, 0], M)
    with pytest.raises(ShapeError, match=r"could not broadcast(.|\n)*test_numpy_indexing"):
        trace(lambda x: x.__setitem__(0, np.ones(3)), M)
    with pytest.raises(ShapeError, match="read-only"):
        trace(lambda x: np.broadcast_to(x, (2, 4, 5)).__setitem__(0, 1.0), M)
    with pytest.raises(TypeError):
        trace(lambda x: len(x[0, 0]), M)


def test_new_dims_among_traced_indices() -> None:
    check(lambda x, i: x[None, i], M, I)
    check(lambda x, i: x[i, None, i], M, I)


def test_a_mask_without_dims_selects_all_or_nothing() -> None:
    def fn(x: Any) -> Any:
        total = np.sum(x**3)
        return np.sum(total[total > 0]) + np.sum(x[x.sum() > 10])

    compiled = gradof.value_and_grad(fn)
    a = np.array([1.0, 2.0, 3.0])
    cases = ((a, 3 * a**2), (-a, 0 * a), (a * 10, 300 * a**2 + 1), (a, 3 * a**2))
    for x, slope in cases:
        value, gradient = compiled(x)
        np.testing.assert_allclose(value, fn(x))
        np.testing.assert_allclose(gradient, slope)
