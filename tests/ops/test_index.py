"""Indexing against torch to second order: negative and repeated indices, adjacency, diagonals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as tf

from gradof.errors import InferenceError
from gradof.ir.attrs import Dense
from gradof.ir.types import F64
from gradof.ops.expr import F
from gradof.passes.pipeline import run_passes
from tests.ops.reference import build_graph, compare, forward, randn, type_of

ROWS, COLUMNS = np.array([0, -1, 2, 0]), np.array([[1], [-2], [1]])


@pytest.mark.parametrize("dims", [(0,), (1,), (0, 1), (1, 2), (0, 2), (0, 1, 2)], ids=str)
def test_index(dims: tuple[int, ...]) -> None:
    arrays = [ROWS, COLUMNS, ROWS][: len(dims)]

    def eager(x: torch.Tensor, *indices: torch.Tensor) -> torch.Tensor:
        places: list[Any] = [slice(None)] * 3
        for d, i in zip(dims, indices, strict=True):
            places[d] = i
        return x[tuple(places)]

    compare(lambda x, *i: F.index(x, *i, dims=dims), eager, randn(3, 4, 5), *arrays)


@pytest.mark.parametrize("step", [1, -1])
def test_one_element_a_row(step: int) -> None:
    """x[arange(n), t] is a gather; with the rows in another order it is not."""
    x, t = randn(4, 5), np.array([0, -1, 4, 2])
    rows = np.arange(4)[::step].copy()

    def build(x: Any, t: Any) -> Any:
        return F.index(x, Dense.of(rows), t, dims=(0, 1))

    compare(build, lambda x, t: x[torch.from_numpy(rows), t], x, t)
    graph = build_graph(build, type_of(x), type_of(t))
    run_passes(graph, ("expand-composites",))
    gathers = {n.kind for n in graph.walk()} & {"gather", "index_select"}
    assert gathers == ({"gather"} if step == 1 else {"index_select"})


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("dims", [(1,), (0, 1), (0, 2)], ids=str)
def test_index_put(dims: tuple[int, ...], accumulate: bool) -> None:
    # without repeats, where eager leaves open which value stays
    one, two = np.array([0, -1, 1]), np.array([[1], [-2]])
    arrays = [one, two][: len(dims)]
    x = randn(3, 4, 5)
    places: list[Any] = [slice(None)] * 3
    for d, i in zip(dims, arrays, strict=True):
        places[d] = i

    def eager(x: torch.Tensor, v: torch.Tensor, *indices: torch.Tensor) -> torch.Tensor:
        slots: list[Any] = [None] * 3
        for d, i in zip(dims, indices, strict=True):
            slots[d] = i
        return torch.ops.aten.index_put(x, slots, v, accumulate)  # type: ignore[no-any-return]

    def build(x: Any, v: Any, *indices: Any) -> Any:
        return F.index_put(x, v, *indices, dims=dims, accumulate=accumulate)

    compare(build, eager, x, randn(*x[tuple(places)].shape), *arrays)
    compare(build, eager, x, randn(1), *arrays)


def test_index_put_accumulates_repeats() -> None:
    compare(
        lambda x, v, i: F.index_put(x, v, i, dims=(0,), accumulate=True),
        lambda x, v, i: torch.ops.aten.index_put(x, [i], v, True), randn(3, 4), randn(4, 4), ROWS,
    )  # fmt: skip


def test_take() -> None:
    compare(F.take, torch.take, randn(3, 4), np.array([[0, -1], [5, 5]]))


@pytest.mark.parametrize("padding_idx", [-1, 2])
def test_embedding(padding_idx: int) -> None:
    index = np.array([[0, 2], [2, 4]])
    pad = None if padding_idx < 0 else padding_idx
    compare(lambda w, i: F.embedding(w, i, padding_idx=padding_idx),
            lambda w, i: tf.embedding(i, w, padding_idx=pad), randn(5, 3), index)  # fmt: skip


def test_one_hot() -> None:
    (have,) = forward(lambda i: F.one_hot(i, n=4, dtype=F64), np.array([[0, 3]]))
    assert have.tolist() == [[[1.0, 0, 0, 0], [0, 0, 0, 1.0]]]
    assert have.dtype == np.float64


def test_masked_fill() -> None:
    mask = np.array([[True, False, True]])
    compare(F.masked_fill, lambda x, m, v: x.masked_fill(m, v), randn(4, 3), mask, randn())


def test_select_takes_negative_places() -> None:
    compare(lambda x: F.select(x, dim=1, index=-2), lambda x: x.select(1, -2), randn(3, 4, 5))


@pytest.mark.parametrize("offset", [0, 1, -2, 3, -3, 9])
def test_diagonals(offset: int) -> None:
    for shape in ((4, 4), (3, 5), (5, 3)):
        compare(lambda x: F.diagonal(x, offset=offset, dim1=0, dim2=1),
                lambda x: torch.diagonal(x, offset), randn(*shape))  # fmt: skip
    compare(lambda x: F.diagonal(x, offset=offset, dim1=2, dim2=0),
            lambda x: torch.diagonal(x, offset, 2, 0), randn(3, 4, 5))  # fmt: skip
    compare(lambda x: F.diag_embed(x, offset=offset, dim1=0, dim2=2),
            lambda x: torch.diag_embed(x, offset, 0, 2), randn(2, 3))  # fmt: skip


def test_roll() -> None:
    compare(lambda x: F.roll(x, shifts=(2, -7, 4), dims=(0, 1, 1)),
            lambda x: torch.roll(x, (2, -7, 4), (0, 1, 1)), randn(3, 5))  # fmt: skip


@pytest.mark.parametrize("repeats", [(2, 3), (2, 1, 3), (0, 2)], ids=str)
def test_repeat(repeats: tuple[int, ...]) -> None:
    compare(lambda x: F.repeat(x, repeats=repeats), lambda x: x.repeat(repeats), randn(2, 3))


def test_unfold() -> None:
    compare(lambda x: F.unfold(x, dim=1, size=3, step=2), lambda x: x.unfold(1, 3, 2),
            randn(2, 8, 3))  # fmt: skip


def test_wrong_indices_are_refused() -> None:
    with pytest.raises(InferenceError, match="integers are due"):
        forward(lambda x, i: F.index(x, i, dims=(0,)), randn(3), randn(2))
    with pytest.raises(InferenceError, match="index arrays for the dims"):
        forward(lambda x, i: F.index(x, i, dims=(0, 1)), randn(3, 3), ROWS)
    with pytest.raises(InferenceError, match="rank"):
        forward(lambda x: F.repeat(x, repeats=(2,)), randn(3, 3))
