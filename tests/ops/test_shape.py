"""Shape ops: numpy forward, torch gradients to second order, and each adjoint against its op."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gradof.ops.expr import Expr, F
from tests.ops.reference import Array, compare, forward, gradient, randn

# A factor behind each op, since the second derivative of a linear op is none.
Build = Callable[..., Expr]


def check(build: Build, eager: Callable[..., Any], *arrays: Array) -> None:
    compare(lambda *xs: F.sin(build(*xs)), lambda *xs: torch.sin(eager(*xs)), *arrays)


@pytest.mark.parametrize("shape", [(24,), (4, 6), (2, 3, 4), (1, 24, 1), (2, 2, 2, 3)], ids=str)
def test_reshape(shape: tuple[int, ...]) -> None:
    check(lambda x: F.reshape(x, shape=shape), lambda x: x.reshape(shape), randn(2, 3, 4))


def test_reshape_of_one_element_and_of_none() -> None:
    check(lambda x: F.reshape(x, shape=()), lambda x: x.reshape(()), randn(1, 1))
    check(lambda x: F.reshape(x, shape=(1, 1)), lambda x: x.reshape(1, 1), randn())
    assert gradient(lambda x: F.reshape(x, shape=(3, 0)), np.zeros((0, 2)))[0].shape == (0, 2)


@pytest.mark.parametrize("dims", list(itertools.permutations(range(3))), ids=str)
def test_permute(dims: tuple[int, ...]) -> None:
    check(lambda x: F.permute(x, dims=dims), lambda x: x.permute(dims), randn(2, 3, 4))


@pytest.mark.parametrize(
    ("source", "target"),
    [((), (2, 3)), ((3,), (2, 3)), ((1, 3), (2, 3)), ((2, 1), (4, 2, 3)), ((1, 1), (2, 3)),
     ((2, 3), (2, 3)), ((1,), (0,)), ((1, 3), (0, 3)), ((1,), (1, 1))], ids=str,
)  # fmt: skip
def test_expand_and_its_adjoint(source: tuple[int, ...], target: tuple[int, ...]) -> None:
    x, y = randn(*source), randn(*target)
    check(lambda x: F.expand(x, shape=target), lambda x: x.expand(target), x)
    check(lambda y: F.sum_to(y, shape=source), lambda y: y.sum_to_size(source), y)
    (wide,) = forward(lambda x: F.expand(x, shape=target), x)
    (narrow,) = forward(lambda y: F.sum_to(y, shape=source), y)
    assert wide.shape == target and narrow.shape == source
    np.testing.assert_allclose(np.sum(wide * y), np.sum(x * narrow), rtol=1e-12)


SLICES = [(0, 0, 2, 1), (1, 1, 5, 2), (1, 0, 5, 3), (2, 3, 3, 1), (2, 0, 4, 4), (1, 4, 5, 1)]


@pytest.mark.parametrize(("dim", "start", "stop", "step"), SLICES)
def test_slices_and_their_adjoints(dim: int, start: int, stop: int, step: int) -> None:
    where = {"dim": dim, "start": start, "stop": stop, "step": step}
    at = (slice(None),) * dim + (slice(start, stop, step),)
    x = randn(2, 5, 4)
    part = x[at] * 2.0
    check(lambda x: F.slice(x, **where), lambda x: x[at], x)

    def scatter(x: torch.Tensor, src: torch.Tensor) -> torch.Tensor:
        return torch.slice_scatter(x, src, dim, start, stop, step)

    check(lambda x, src: F.slice_scatter(x, src, **where), scatter, x, part)
    check(lambda g: F.unslice(g, shape=x.shape, **where),
          lambda g: scatter(torch.zeros(x.shape, dtype=torch.float64), g), part)  # fmt: skip
    (back,) = forward(lambda g: F.unslice(g, shape=x.shape, **where), part)
    np.testing.assert_allclose(np.sum(x[at] * part), np.sum(x * back), rtol=1e-12)


@pytest.mark.parametrize("dim", [0, 1])
def test_cat(dim: int) -> None:
    shapes = [(2, 3), (2, 3), (0, 3) if dim == 0 else (2, 0)]
    check(lambda *xs: F.cat(*xs, dim=dim), lambda *xs: torch.cat(xs, dim),
          *(randn(*s, seed=i) for i, s in enumerate(shapes)))  # fmt: skip
    check(lambda x: F.cat(x, x, dim=dim), lambda x: torch.cat([x, x], dim), randn(2, 3))
    check(lambda x: F.cat(x, dim=dim), lambda x: torch.cat([x], dim), randn(2, 3))


@pytest.mark.parametrize("dims", [(), (0,), (1, 2), (0, 1, 2)], ids=str)
def test_flip(dims: tuple[int, ...]) -> None:
    check(lambda x: F.flip(x, dims=dims), lambda x: torch.flip(x, dims), randn(2, 3, 4))


@pytest.mark.parametrize("pads", [((0, 0), (0, 0)), ((1, 2), (0, 3)), ((0, 1), (2, 0))], ids=str)
@pytest.mark.parametrize("value", [0.0, -1.5])
def test_pad(pads: tuple[tuple[int, int], ...], value: float) -> None:
    flat = [n for low, high in reversed(pads) for n in (low, high)]
    check(lambda x: F.pad(x, pads=pads, value=value),
          lambda x: torch.nn.functional.pad(x, flat, value=value), randn(2, 3))  # fmt: skip


INDEX = np.array([2, 0, 0, 1])


@pytest.mark.parametrize("dim", [0, 1])
def test_index_select_and_index_add(dim: int) -> None:
    x = randn(3, 3)
    src = randn(*(4 if i == dim else 3 for i in range(2)))
    check(lambda x, i: F.index_select(x, i, dim=dim),
          lambda x, i: torch.index_select(x, dim, i), x, INDEX)  # fmt: skip
    check(lambda x, i, s: F.index_add(x, i, s, dim=dim),
          lambda x, i, s: torch.index_add(x, dim, i, s), x, INDEX, src)  # fmt: skip


@pytest.mark.parametrize("dim", [0, 1])
def test_gather_and_scatter(dim: int) -> None:
    x, src = randn(3, 3), randn(2, 2, seed=4)
    repeated = np.array([[0, 2], [0, 1]]) if dim else np.array([[0, 2], [0, 2]])
    distinct = np.array([[0, 2], [1, 0]])
    check(lambda x, i: F.gather(x, i, dim=dim), lambda x, i: torch.gather(x, dim, i), x, repeated)
    check(lambda x, i, s: F.scatter_add(x, i, s, dim=dim),
          lambda x, i, s: torch.scatter_add(x, dim, i, s), x, repeated, src)  # fmt: skip
    check(lambda x, i, s: F.scatter(x, i, s, dim=dim),
          lambda x, i, s: torch.scatter(x, dim, i, s), x, distinct, src)  # fmt: skip


@pytest.mark.parametrize("name", ["flip", "permute", "slice", "expand", "reshape"])
def test_views_of_any_dtype(name: str) -> None:
    attrs: dict[str, dict[str, Any]] = {
        "flip": {"dims": (0,)}, "permute": {"dims": (1, 0)}, "expand": {"shape": (2, 2, 3)},
        "slice": {"dim": 1, "start": 0, "stop": 3, "step": 2}, "reshape": {"shape": (3, 2)},
    }  # fmt: skip
    for dtype in (np.bool_, np.int8, np.uint64, np.float16, np.float32):
        x = np.arange(6).reshape(2, 3).astype(dtype)
        (have,) = forward(lambda x: F.__getattr__(name)(x, **attrs[name]), x)
        want: Any = {
            "flip": x[::-1], "permute": x.T, "expand": np.broadcast_to(x, (2, 2, 3)),
            "slice": x[:, ::2], "reshape": x.reshape(3, 2),
        }[name]  # fmt: skip
        assert have.dtype == dtype
        np.testing.assert_array_equal(have, want)


@settings(max_examples=40)
@given(st.data())
def test_random_broadcasts_are_undone_at_each_op(data: st.DataObject) -> None:
    """(a + b) * c with random broadcastable shapes: gradients have the shapes of the operands."""
    full = data.draw(st.lists(st.integers(1, 3), max_size=3))
    shapes = []
    for _ in range(3):
        cut = data.draw(st.integers(0, len(full)))
        shapes.append(tuple(1 if data.draw(st.booleans()) else n for n in full[cut:]))
    arrays = [randn(*s, seed=i) for i, s in enumerate(shapes)]
    compare(lambda a, b, c: F.tanh(a + b) * c, lambda a, b, c: torch.tanh(a + b) * c, *arrays)
