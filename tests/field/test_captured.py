"""Reports of what a function reads from outside: arrays in closures, and what it leaves there.

Expected numbers are eager's, numpy's or a closed formula's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import gradof
from gradof import differentiate
from gradof.errors import ShapeError

Tensor = torch.Tensor


def test_jax_14655_sparse_indices_in_a_closure() -> None:
    """A sparse product by indices: they are inputs, read again at each call, not folded."""
    rows, columns = np.array([0, 1, 1, 2]), np.array([1, 0, 2, 2])
    values = np.array([1.0, 2.0, 3.0, 4.0])

    def fn(x: Any) -> Any:
        out = np.zeros(3)
        np.add.at(out, rows, values * x[columns])
        return np.sum(out**2)

    x = np.array([1.0, -1.0, 0.5])
    compiled = gradof.grad(fn)
    dense = np.zeros((3, 3))
    dense[rows, columns] = values
    np.testing.assert_allclose(compiled(x), 2 * dense.T @ dense @ x)
    columns[:] = [2, 0, 1, 1]
    dense = np.zeros((3, 3))
    np.add.at(dense, (rows, columns), values)
    np.testing.assert_allclose(compiled(x), 2 * dense.T @ dense @ x)


def test_jax_14655_small_captured_arrays_are_inputs_too() -> None:
    """Indices and weights by closure, whatever their size: none of their values is in the graph."""
    alpha, idx = np.full((4, 2), 3.0), np.array([0, 2, 1, 1])

    def fn(p: Any) -> Any:
        return np.sum(p[idx] * alpha * p[idx[::-1]])

    p = np.arange(6.0).reshape(3, 2)
    compiled = differentiate(fn)
    graph = compiled.trace(p)
    assert len(graph.inputs) == 3
    for node in graph.walk():
        if node.kind == "Constant" and node.outputs[0].type.shape:
            value = np.frombuffer(node.attrs["value"].data, np.int64)
            np.testing.assert_array_equal(value, [3, 2, 1, 0], "positions of the slice alone")
    assert compiled(p) == fn(p)
    alpha[:], idx[:] = np.arange(8.0).reshape(4, 2), [2, 0, 0, 1]
    assert compiled(p) == fn(p)
    assert compiled.cache_info().misses == 1


def test_jax_16278_weights_of_a_closure_train() -> None:
    """Captured weights that are updated in place and rebound are seen at the next call."""
    w = np.zeros(3)

    def loss(x: Any) -> Any:
        return np.sum((w * x - 1.0) ** 2)

    gradient = gradof.grad(loss)
    x = np.array([1.0, 2.0, 4.0])
    for _ in range(3):
        np.testing.assert_allclose(gradient(x), 2 * (w * x - 1.0) * w)
        w += 0.25
    w = np.full(3, -1.0)
    np.testing.assert_allclose(gradient(x), 2 * (w * x - 1.0) * w)
    assert gradient.base.cache_info().misses == 1


def test_jax_21300_a_captured_array_of_another_shape_is_noticed() -> None:
    table = np.ones((2, 3))
    fn = differentiate(lambda x: np.sum(table @ x))
    assert fn(np.ones(3)) == 6.0
    table = np.ones((5, 3), np.float32)
    assert fn(np.ones(3)) == 15.0
    table = np.ones((4, 4))
    with pytest.raises(ShapeError, match="matmul"):
        fn(np.ones(3))


def test_jax_28157_captured_bytes_are_reported() -> None:
    """What a call reads from outside is named by explain(), instead of a warning at 1 GB."""
    table = np.ones((100, 30))
    said = differentiate(lambda x: np.sum(table @ x)).explain(np.ones(30))
    assert any("table" in name for name in said.free)
    assert "read at every call" in str(said)


def test_mlx_2632_results_whose_structure_depends_on_an_argument() -> None:
    """The same function returns a pair of arrays, or an array and None."""

    def fn(x: Tensor, y: Any) -> Any:
        return (x + 1, x * 2) if y is None else (x * y, None)

    compiled = differentiate(fn)
    for y in (0, None, 3, None):
        got, want = compiled(torch.ones(2), y), fn(torch.ones(2), y)
        assert [v is None for v in got] == [v is None for v in want]
        for mine, theirs in zip(got, want, strict=True):
            assert theirs is None or torch.equal(mine, theirs)


def test_mlx_2900_a_traced_value_kept_outside_is_a_value() -> None:
    """Appending to a list of the caller's would keep a placeholder: each call appends its value."""
    state: list[Any] = []

    def fn(x: Any) -> Any:
        z = x * 2
        state.append(z)
        return np.exp(z)

    compiled = differentiate(fn)
    for n in range(3):
        compiled(np.full(2, n + 1.0))
        assert type(state[n]) is np.ndarray and state[n].tolist() == [2 * n + 2.0] * 2
    assert compiled.cache_info().misses == 1 and compiled.cache_info().forward_runs == 3
