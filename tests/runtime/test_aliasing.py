"""Results that share memory with arguments do so as without gradof."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gradof import differentiate
from tests.runtime.compare import assert_compiled

Tensor = torch.Tensor

TORCH: dict[str, Callable[[Tensor], Tensor]] = {
    "view": lambda x: x.view(-1),
    "transpose": lambda x: x.t(),
    "row": lambda x: x[1],
    "element": lambda x: x[1, 2],
    "slice": lambda x: x[:, ::2],
    "expand": lambda x: x[:, None, :1].expand(4, 5, 3),
    "chain": lambda x: x.t()[1:].unsqueeze(0).squeeze(0).t(),
    "reshape": lambda x: x.reshape(2, 6),
    "chunk": lambda x: x.chunk(2)[1],
    "detached": lambda x: x[1].detach(),
    "all of it": lambda x: x[...],
    "a slice of all": lambda x: x[:][1:],
    "nothing to squeeze": lambda x: x.squeeze(),
    "as it is": lambda x: x.expand_as(x).view_as(x),
    "windows": lambda x: x.unfold(0, 2, 1),
}


@pytest.mark.parametrize("name", TORCH)
def test_a_view_of_an_argument_shares_its_memory(name: str) -> None:
    fn = TORCH[name]
    compiled = differentiate(fn)
    for n in range(3):
        x = torch.arange(12.0).reshape(4, 3) + n
        got, want = compiled(x), fn(x)
        assert got.data_ptr() == want.data_ptr() and got.stride() == want.stride()
        x += 100
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("name", TORCH)
def test_gradients_through_views_are_our_own(name: str) -> None:
    fn = TORCH[name]
    x = torch.rand(4, 3, dtype=torch.float64).requires_grad_()
    got = differentiate(fn)(x)
    want = fn(x)
    assert got.requires_grad == want.requires_grad
    torch.testing.assert_close(got, want)
    if want.requires_grad:
        assert_compiled([got])
        seed = torch.rand_like(want)
        (mine,) = torch.autograd.grad((got * got * seed).sum(), x, create_graph=True)
        (theirs,) = torch.autograd.grad((want * want * seed).sum(), x, create_graph=True)
        torch.testing.assert_close(mine, theirs)
        (mine,) = torch.autograd.grad(mine.sin().sum(), x)
        (theirs,) = torch.autograd.grad(theirs.sin().sum(), x)
        torch.testing.assert_close(mine, theirs)


def test_a_view_beside_other_results_and_of_a_closure() -> None:
    weight = torch.rand(3)

    def fn(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x[0], (x * weight).sum(), weight[1:]

    x = torch.rand(2, 3).requires_grad_()
    row, total, rest = differentiate(fn)(x)
    assert row.data_ptr() == x.data_ptr() and rest.data_ptr() == weight[1:].data_ptr()
    (row.sum() + total).backward()
    torch.testing.assert_close(x.grad, weight.expand(2, 3) + torch.tensor([[1.0], [0.0]]))


def test_a_view_of_a_changed_argument_shows_the_change() -> None:
    def fn(x: Tensor) -> Tensor:
        x.mul_(2)
        return x[1:]

    x, y = torch.rand(3), torch.rand(3)
    y.copy_(x)
    got, want = differentiate(fn)(x), fn(y)
    torch.testing.assert_close(got, want)
    assert got.data_ptr() == x[1:].data_ptr()
    got.zero_()
    assert x[1] == 0


def test_a_copy_is_a_copy() -> None:
    for fn in (lambda x: x[0].clone(), lambda x: x.t().contiguous(), lambda x: x.t().reshape(-1)):
        x = torch.rand(2, 3)
        got = differentiate(fn)(x)
        got.zero_()
        assert x.abs().min() > 0


NUMPY: dict[str, Callable[[Any], Any]] = {
    "T": lambda x: x.T,
    "slice": lambda x: x[1:, ::2],
    "reversed": lambda x: x[::-1],
    "ravel": lambda x: x.ravel(),
    "newaxis": lambda x: x[:, None],
    "chain": lambda x: x.T[1:].reshape(2, 2, 2)[:, 0],
    "copy": lambda x: x[1:].copy(),
    "list index": lambda x: x[[0, 1]],
    "product": lambda x: x[1:] * 1.0,
}


@pytest.mark.parametrize("name", NUMPY)
def test_numpy_views(name: str) -> None:
    fn = NUMPY[name]
    compiled = differentiate(fn)
    for _ in range(2):
        x = np.arange(12.0).reshape(4, 3)
        got, want = compiled(x), fn(x)
        np.testing.assert_array_equal(got, want)
        assert np.shares_memory(got, x) == np.shares_memory(want, x)
        assert got.flags.writeable == want.flags.writeable
        if np.shares_memory(want, x):
            got += 100.0
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("grad", [True, False])
def test_a_view_that_is_returned_twice_is_one_object(grad: bool) -> None:
    def f(x: Any) -> Any:
        a, b = (x * 2).split(2)
        return {"phi": (a, b), "of": a}

    compiled = differentiate(f)
    x = torch.randn(4, requires_grad=grad)
    for _ in range(3):
        found = compiled(x)
        assert found["of"] is found["phi"][0]
    if grad:  # as a solver asks for it
        (g,) = torch.autograd.grad(found["of"].sin().sum(), found["phi"][0])
        torch.testing.assert_close(g, found["of"].cos())
    assert compiled.cache_info().forward_runs == 3
