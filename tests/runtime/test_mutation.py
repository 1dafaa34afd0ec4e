# mypy: disable-error-code="no-untyped-call"
"""Mutation and views in both libraries: values, gradients, what the caller's arrays hold after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gradof import differentiate, grad
from gradof.errors import LeafMutationError, TraceError
from tests.runtime.compare import check, close

Tensor = torch.Tensor


def leaf(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=dtype, generator=g).requires_grad_()


def column_added_to_twice(x: Tensor) -> Tensor:  # pytorch#136662: was counted once
    y = x * 2
    y[:, 0] += x[:, 1] * x[:, 0]
    y[:, 0] += y[:, 1] * 2
    return y.sin()


def views_of_views(x: Tensor) -> Any:
    y = x.clone()
    inner = y[1:][:, ::2]
    inner += x[1:, :2]
    inner *= inner.detach() + 2
    y[1:][0] = x[0] * 3
    return y * inner.sum()


def written_through_views(x: Tensor) -> Tensor:
    y = x * 2
    y.diagonal().copy_(x[0] ** 2)
    y.t()[0].add_(x[1])
    y.as_strided((2, 2), (5, 1), 1).mul_(x[:2, :2].detach())
    y.view(-1)[3:6] = x.reshape(-1)[:3].sin()
    y[2].mul_(x[3].detach())
    return y.sin()


def base_then_view(x: Tensor) -> Tensor:
    y = x.sin()
    view = y[1:, 1:]
    y.mul_(x)
    z = view * 2  # sees the change of its base
    view.add_(x[0, 0])
    return (y * 3).sum() + (z**2).sum()


def out_of_a_constant(x: Tensor) -> Tensor:
    y = torch.empty_like(x.detach())
    torch.mul(x.detach(), 2.0, out=y)
    return y * x


def assigned_by_mask_and_index(x: Tensor) -> Tensor:
    y = x * 1
    y[y > 0] = x.sum()
    y[torch.tensor([0, 2])] = y[torch.tensor([2, 1])] * x[0]
    y[1, ...] = 0.5
    return y * x


def several_results(x: Tensor) -> Any:
    y = x.sin()
    y += x
    return y, y, y[1:] * 2, y.sum()


SUPPORTED: dict[str, Callable[..., Any]] = {
    "pytorch#136662": column_added_to_twice,
    "views of views": views_of_views,
    "through views": written_through_views,
    "base, then view": base_then_view,
    "out=": out_of_a_constant,
    "by mask and index": assigned_by_mask_and_index,
    "results": several_results,
    "pytorch#180164": lambda x: torch.slice_scatter(x, x[:, :3].sin(), 1, 0, 3).sum(1),
    "of a broadcast source": lambda x: torch.slice_scatter(
        x[:1].expand(4, 4), x[1:3].cos(), 0, 1, 3
    ).sum(0),
    "select_scatter": lambda x: torch.select_scatter(x * 2, x[1].sin(), 0, 2) * x,
    "into zeros": lambda x: torch.zeros(2, 4, 4, dtype=x.dtype).index_copy_(
        0, torch.tensor([1]), (x * x)[None]
    ),
}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", SUPPORTED)
def test_in_place_and_views_are_as_in_eager(name: str, dtype: torch.dtype) -> None:
    check(SUPPORTED[name], leaf(4, 4, dtype=dtype), order=2)


def test_an_operand_that_is_no_contiguous_one() -> None:
    check(column_added_to_twice, leaf(4, 4).detach().t().requires_grad_(), order=2)


@pytest.mark.parametrize("rows", [0, 1])
def test_empty_and_single_rows(rows: int) -> None:
    check(column_added_to_twice, leaf(rows, 4), order=2)


def overwritten(x: Tensor, buffer: Tensor) -> Tensor:
    buffer.add_(x.detach().sum())
    buffer[1:] *= 3
    buffer.t()[0].copy_(x.detach()[0])
    return (x * buffer).sin()


def with_gradient(x: Tensor, buffer: Tensor) -> Tensor:
    buffer[1:].copy_(x[1:] ** 2)
    return buffer.sin() * x


@pytest.mark.parametrize("fn", [overwritten, with_gradient])
def test_arguments_are_changed_as_in_eager(fn: Callable[..., Any]) -> None:
    x, start = leaf(4, 4), leaf(4, 4, seed=1).detach()
    compiled = differentiate(fn)
    for _ in range(2):
        mine, theirs = start.clone(), start.clone()
        version = mine._version
        got, want = compiled(x, mine), fn(x, theirs)
        close(got.detach(), want.detach())
        close(mine.detach(), theirs.detach())
        assert mine._version > version
        assert mine.requires_grad == theirs.requires_grad
        total, expected = got.sum(), want.sum()
        if mine.requires_grad:
            total, expected = total + mine.cos().sum(), expected + theirs.cos().sum()
        close(torch.autograd.grad(total, x)[0], torch.autograd.grad(expected, x)[0])


def test_an_argument_changed_and_returned_is_the_same_object() -> None:
    x = leaf(3).detach()
    want = x.clone().mul_(2)
    out = differentiate(lambda x: x.mul_(2))(x)
    assert out is x
    close(x, want)


def test_a_buffer_of_a_closure_is_changed() -> None:
    count = torch.zeros(3, dtype=torch.float64)

    def fn(x: Tensor) -> Tensor:
        count[1:].add_(1)
        return x * count

    compiled, x = differentiate(fn), leaf(3)
    for n in (1.0, 2.0, 3.0):
        (g,) = torch.autograd.grad(compiled(x).sum(), x)
        close(count, torch.tensor([0.0, n, n], dtype=torch.float64))
        close(g, count)


LEAF_MUTATIONS: dict[str, Callable[[Tensor], Any]] = {
    "op": lambda x: x.add_(1),
    "view": lambda x: x[0].add_(1),
    "view of view": lambda x: x[1:][:, 0].mul_(2),
    "assignment": lambda x: x.__setitem__(0, 1.0),
    "expanded": lambda x: x[0].expand(4, 4).add_(1),
    "out=": lambda x: torch.sin(x.detach(), out=x),
}


@pytest.mark.parametrize("name", LEAF_MUTATIONS)
def test_change_of_a_leaf_is_the_error_of_eager(name: str) -> None:
    fn, x = LEAF_MUTATIONS[name], leaf(4, 4)
    before = x.detach().clone()
    with pytest.raises(RuntimeError) as eager:
        fn(x)
    with pytest.raises(type(eager.value)) as caught:
        differentiate(fn)(x)
    assert isinstance(caught.value, (LeafMutationError, RuntimeError))
    assert torch.equal(x, before) and x.grad is None


def test_what_the_gradient_needs_and_was_changed_after_is_the_error_of_eager() -> None:
    x, w = leaf(3), leaf(3, seed=1).detach()
    for fn in (lambda x, w: (x * w).sum(), differentiate(lambda x, w: (x * w).sum())):
        out = fn(x, w)
        with torch.no_grad():
            w.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.backward()


def test_one_tensor_or_two_views_of_one_as_arguments() -> None:
    x = leaf(4, 4)
    check(lambda a, b: a * b.sin(), x, x, order=2)
    base = leaf(4, 4)
    fn = lambda a, b: (a * b.sin()).sum()  # noqa: E731
    y = base * 1
    (want,) = torch.autograd.grad(fn(y[:3], y[1:]), base)
    y = base * 1
    close(torch.autograd.grad(differentiate(fn)(y[:3], y[1:]), base)[0], want)


@pytest.mark.parametrize("library", ["torch", "numpy"])
@pytest.mark.parametrize("views", ["base and view", "twice", "two views"])
def test_change_of_memory_two_arguments_share_is_refused(library: str, views: str) -> None:
    base = leaf(4, 4).detach()
    x = base if library == "torch" else base.numpy()
    pair = {"base and view": (x, x[0]), "twice": (x, x), "two views": (x[:3], x[1:])}[views]

    def fn(a: Any, b: Any) -> Any:
        b *= 2
        return a + b

    before = base.clone()
    if (library, views) == ("torch", "twice"):  # is one object to the function
        assert torch.equal(differentiate(fn, strict=True)(*pair), before * 4)
        assert torch.equal(base, before * 2)
        return
    with pytest.raises(TraceError, match=r"shares? (its )?memory"):
        differentiate(fn, strict=True)(*pair)
    assert torch.equal(base, before)


# --- numpy -------------------------------------------------------------------------------------


def numpy_views(x: Any) -> Any:
    y = x * 1.0
    v = y[1:][:, ::2]
    v += x[1:, :2]
    v[0] *= x[0, :2]
    y.T[0] += x[1]
    y[:, 0] += y[:, 1] * 2
    return y


def numpy_out(x: Any) -> Any:
    y = np.zeros((4, 4))
    np.multiply(x, 2, out=y[:, :])
    np.sin(x[0], out=y[2])
    np.add(y[0], y[1], out=y[1])
    return y * x


def torch_views(x: Tensor) -> Tensor:
    y = x * 1.0
    v = y[1:][:, ::2]
    v += x[1:, :2]
    v[0] *= x[0, :2]
    y.t()[0] += x[1]
    y[:, 0] += y[:, 1] * 2
    return y


def torch_out(x: Tensor) -> Tensor:
    return torch.stack([x[0] * 2, x[0] * 2 + x[1] * 2, x[0].sin(), x[3] * 2]) * x


@pytest.mark.parametrize(("fn", "same"), [(numpy_views, torch_views), (numpy_out, torch_out)])
def test_numpy_is_torch(fn: Callable[..., Any], same: Callable[..., Any]) -> None:
    x = leaf(4, 4)
    weights = leaf(4, 4, seed=2).detach()
    array = x.detach().numpy()
    np.testing.assert_allclose(differentiate(fn)(array), fn(array.copy()))
    (want,) = torch.autograd.grad((same(x) * weights).sum(), x, create_graph=True)
    loss = lambda x: np.sum(fn(x) * weights.numpy())  # noqa: E731
    np.testing.assert_allclose(grad(loss)(array), want.detach().numpy(), rtol=1e-12)
    (second,) = torch.autograd.grad((want**2).sum(), x)
    got = grad(lambda x: np.sum(grad(loss)(x) ** 2))(array)
    np.testing.assert_allclose(got, second.numpy(), rtol=1e-11)


def test_numpy_arguments_are_changed_as_without_gradof() -> None:
    def fn(x: Any, b: Any) -> Any:
        b[1:] *= 3
        np.add(b, x, out=b)
        b.T[0] = 7.0
        return b[0] * 2, b

    x, mine = leaf(4, 4).detach().numpy(), leaf(4, 4, seed=1).detach().numpy()
    theirs = mine.copy()
    compiled = differentiate(fn)
    for _ in range(2):
        got, want = compiled(x, mine), fn(x, theirs)
        np.testing.assert_allclose(got[0], want[0])
        np.testing.assert_allclose(mine, theirs)
        assert got[1] is mine
