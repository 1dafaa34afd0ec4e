"""Indices that vary: one trace serves all of them, and what is picked is a view where it shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

import gradof

T = torch.Tensor
X = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
Y = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(1))


def check(fn: Callable[..., T], calls: Sequence[tuple[Any, ...]], traces: int) -> None:
    """The same values, gradients and arguments afterwards as eager, in so many traces."""
    compiled = gradof.differentiate(fn)
    for args in calls:
        both = [[a.clone().requires_grad_() if _is_real(a) else a for a in args] for _ in range(2)]
        want, got = fn(*both[0]), compiled(*both[1])
        torch.testing.assert_close(got, want)
        cotangent = torch.randn(want.shape)
        torch.autograd.backward([want], [cotangent])
        torch.autograd.backward([got], [cotangent])
        for a, b in zip(*both, strict=True):
            if _is_real(a):
                torch.testing.assert_close(b, a)
                torch.testing.assert_close(b.grad, a.grad)
    info = compiled.cache_info()
    assert (info.misses, info.eager_runs) == (traces, 0)


def _is_real(a: Any) -> bool:
    return isinstance(a, torch.Tensor) and a.is_floating_point()


def row(x: T, i: Any) -> T:
    """One row twice, and a column."""
    return (x[i] * 2).sin() * x[:, i].sum()


def element(x: T, i: Any) -> T:
    """One element, and rows by it and by a constant."""
    return x[i, i].exp() * x[i] + x[1, i]


def between(x: T, i: Any) -> T:
    """Dims between, new ones and an ellipsis."""
    return x[i, :, i] * x[i, None, ..., i].sum() + x[..., i].sum(0)


def listed(x: T, i: Any) -> T:
    """A list with a number that varies."""
    return x[[0, i, -1]] * 2


def chunk(x: T, i: Any) -> T:
    """Slices whose length is the same for all numbers."""
    return x[i : i + 2] * x[:, 2 * i : 2 * (i + 1)].sum()


def narrowed(x: T, i: Any) -> T:
    """The function for slices of one length."""
    return x.narrow(1, i, 2) * torch.narrow(x, 0, i, 1).sum()


def put(x: T, i: Any) -> T:
    """Assigned to, by a number, a tensor, and in place."""
    x = x * 1
    x[i] = 3.0
    x[:, i] = x[i, 0] * torch.arange(6.0)
    x[i, 1:3] += 1
    x[i] *= 2
    return x * 2


def put_chunk(x: T, i: Any) -> T:
    """A slice is assigned to."""
    x = x * 1
    x[:, i : i + 2] = x[0, 3:] * 2
    x[i : i + 2] += 1
    return x * 2


NUMBERS = [0, 1, 2, 3]
TENSORS = [torch.tensor(i) for i in (0, 1, 2, -1)]


@pytest.mark.parametrize("fn", [row, element, listed, put, narrowed])
def test_a_number_among_the_arguments(fn: Callable[..., T]) -> None:
    """It is a constant at first, and an input after its second value."""
    check(fn, [(X, i) for i in NUMBERS], traces=2)


@pytest.mark.parametrize("fn", [row, element, put])
def test_a_tensor_of_one_integer(fn: Callable[..., T]) -> None:
    """Its value is not read, also where it counts from the end."""
    check(fn, [(X, i) for i in TENSORS], traces=1)


def test_numbers_read_of_tensors() -> None:
    """`int(i)` and `i.item()` are numbers of the graph."""
    check(lambda x, i: x[int(i)] * x[i.item()], [(X, i) for i in TENSORS], traces=1)


def test_more_dims() -> None:
    """As one index for all numbers, wherever torch puts its dim."""
    check(between, [(Y, i) for i in range(3)], traces=2)


def test_slices_of_one_length() -> None:
    """Where no bound is cut off."""
    check(chunk, [(X, i) for i in (0, 1)], traces=2)
    check(put_chunk, [(X, i) for i in NUMBERS], traces=2)


def test_a_slice_that_is_cut_off_is_another_path() -> None:
    """The length of its result differs."""
    compiled = gradof.differentiate(lambda x, i: x[i : i + 3] * 2)
    for i in (0, 1, 2, 4, 5, 6):
        torch.testing.assert_close(compiled(X, i), X[i : i + 3] * 2)


def test_a_filled_tensor() -> None:
    """`torch.full` of a step, and a table by it, as samplers have them."""
    betas = torch.rand(4)

    def sample(x: T, t: int) -> T:
        steps = torch.full((6,), t, dtype=torch.long)
        return x * betas[steps][:, None] + betas[t] + x.new_full((5,), t)

    check(sample, [(X, i) for i in NUMBERS], traces=2)


def row_changes(x: T, i: Any) -> T:
    """The row is a view: the tensor changes with it."""
    x = x * 1
    picked = x[i]
    picked.add_(1)
    return x * 2


def tensor_changes(x: T, i: Any) -> T:
    """The row changes with the tensor."""
    x = x * 1
    picked = x[i]
    x[0] = 5.0
    return x * 2 + picked


def row_lives_on(x: T, i: Any) -> T:
    """It is put back and changed again."""
    x = x * 1
    picked = x[i]
    picked += 1
    x[i] = picked
    picked *= 2
    return x * 1


def view_lives_on(x: T, i: Any) -> T:
    """A view of the row outlives it."""
    x = x * 1
    picked = x[i]
    part = picked[1:]
    picked += 1
    x[i] = picked
    del picked
    part *= 3
    return x * 1


@pytest.mark.parametrize("fn", [row_changes, tensor_changes, row_lives_on, view_lives_on])
def test_rows_that_have_to_be_views(fn: Callable[..., T]) -> None:
    """Their index is read: a trace for each."""
    check(fn, [(X, i) for i in (1, 2, 3)], traces=3)


def test_a_row_that_is_handed_out_is_a_view() -> None:
    """What the caller writes to it is written to the argument."""
    compiled = gradof.differentiate(lambda x, i: x[i])
    for i in NUMBERS:
        x = X.clone()
        compiled(x, i).fill_(7.0)
        assert (x[i] == 7).all()


def test_an_index_out_of_range_is_an_error_as_in_eager() -> None:
    """At the first call and later."""
    for values in (NUMBERS, TENSORS[:3]):
        compiled = gradof.differentiate(row)
        for i in values[:2]:
            compiled(X, i)
        with pytest.raises(IndexError, match="out of bounds"):
            compiled(X, values[2] + 9)


def test_the_index_changes_before_the_row_is_put_back() -> None:
    """Then the row had to be a view."""

    def moved(x: T, i: T) -> T:
        x, i = x * 1, i.clone()
        x[i] += i.add_(1).sum()
        return x * 1

    compiled = gradof.differentiate(moved)
    for i in (0, 1, 2):
        torch.testing.assert_close(
            compiled(X, torch.tensor(i)), moved(X.clone(), torch.tensor(i))
        )


def test_the_second_derivative() -> None:
    """Of rows by a number that varies."""

    def energy(x: T, i: int) -> T:
        return (x[i] ** 3).sum() * x[0, i]

    compiled = gradof.differentiate(energy)
    for i in NUMBERS:
        found = []
        for fn in (energy, compiled):
            x = X.clone().requires_grad_()
            (gx,) = torch.autograd.grad(fn(x, i), x, create_graph=True)
            found.append(torch.autograd.grad(gx.square().sum(), x)[0])
        torch.testing.assert_close(found[1], found[0])
    assert compiled.cache_info().misses == 2


def put_selected(x: T) -> T:
    mask, out = x < 0.5, torch.zeros_like(x)
    out[mask] = x[mask]
    out[~mask] = 2 * x[~mask].sqrt() - 1
    return out


def put_rows(x: T) -> T:
    mask, out = x[:, 0] < 0.5, x * 1
    out[mask] = x[mask] * 2
    out[mask, 1:] += x[mask, 1:]
    return out


def put_cells(x: T) -> T:
    mask, out = x[:, 0] < 0.5, x * 1
    out[mask, 1] = x[mask, 0]
    return out


def put_columns(x: T) -> T:
    mask, out = x[0] < 0.5, x * 1
    out[:, mask] = x[:, mask] * 3
    return out


@pytest.mark.parametrize("fn", [put_selected, put_rows, put_cells, put_columns])
def test_masks_that_select_none_one_or_all_are_compiled(fn: Callable[[T], T]) -> None:
    few = torch.rand(4, 3, generator=torch.Generator().manual_seed(0))
    calls = [(few * 0.4,), (few * 0.4 + 0.6,), (few,)]  # all, none, some
    check(fn, calls, traces=3)


@pytest.mark.parametrize("value", [0.0, 7.0])
def test_one_value_for_masked_columns_is_one_trace(value: float) -> None:
    def fn(x: T) -> T:
        mask, out = x[0] < 0.5, x * 1
        out[:, mask] = value
        return out

    draw = torch.Generator().manual_seed(0)
    check(fn, [(torch.rand(4, 9, generator=draw),) for _ in range(10)], traces=1)
