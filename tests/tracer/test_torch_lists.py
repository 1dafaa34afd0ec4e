"""Tensors made from lists of traced ones, and tensors that no argument decides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import gradof

Tensor = torch.Tensor
OF_LISTS: dict[str, Callable[[Tensor], Tensor]] = {
    "tensor": lambda x: torch.tensor([x[0].detach(), x[1].detach()]) + x[:2],
    "a pass over it": lambda x: torch.tensor([i for i in x.detach()]) * x,
    "beside numbers": lambda x: torch.as_tensor([x[0].detach(), 2.0]) * x[:2],
    "two deep": lambda x: torch.tensor([[x[0].detach(), 2], (3, 4.0)], dtype=torch.float64) * x[1],
    "asarray": lambda x: torch.asarray([x.detach()[0], x.detach()[2]]) * x[0],
    "new_tensor": lambda x: x.new_tensor([x[0].detach(), 1]) * x[:2],
    "of integers": lambda x: torch.tensor([(x > 0).sum(), 2]) * x[:2],
    "of booleans": lambda x: torch.where(torch.tensor([x[0] > 0, True]), x[:2], 2 * x[:2]),
    "sizes": lambda x: torch.tensor([x.shape[0], x.dim()]) * x[:2],
}


@pytest.mark.parametrize("name", OF_LISTS)
def test_tensors_of_lists_are_read_at_every_call(name: str) -> None:
    fn = OF_LISTS[name]
    fast = gradof.differentiate(fn, strict=True)
    for k in range(3):
        x = torch.randn(3, generator=torch.Generator().manual_seed(k), requires_grad=True)
        have, want = fast(x), fn(x)
        torch.testing.assert_close(have, want)
        slopes = [torch.autograd.grad(y.sum(), x)[0] for y in (have, want)]
        torch.testing.assert_close(*slopes)
    assert fast.cache_info().misses == 1 and fast.cache_info().backward_runs == 3


READ: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda x: x.sum() * sum(x.tolist()),
    "greatest": lambda x: x.sum() * max((x * 0 + torch.arange(3)).tolist()),
    "one by one": lambda x: sum(v * t for v, t in zip(x, x.tolist(), strict=True)),
    "a dict": lambda x: x.sum() * dict(enumerate(x.tolist()))[1],
    "rows": lambda x: (torch.tensor(x.outer(x).tolist()) @ x).sum(),
    "new_tensor": lambda x: (x.new_tensor(x.tolist()) * x).sum(),
    "of a device": lambda x: (torch.tensor((*x.tolist(), 1.0), device=x.device)[1:] * x).sum(),
    "of a dtype": lambda x: (torch.tensor([[x.tolist()]], dtype=torch.float64) * x).sum(),
    "sizes": lambda x: torch.cat(torch.split(x, (x.abs() * 0 + 1).long().tolist())).prod(),
}


@pytest.mark.parametrize("name", READ)
def test_lists_of_numbers_are_one_trace(name: str) -> None:
    fn = READ[name]
    fast = gradof.differentiate(fn, strict=True)
    for k in range(4):
        x = torch.randn(3, generator=torch.Generator().manual_seed(k), requires_grad=True)
        have, want = fast(x), fn(x)
        torch.testing.assert_close(have, want)
        slopes = [torch.autograd.grad(y, x)[0] for y in (have, want)]
        torch.testing.assert_close(*slopes)
    assert fast.cache_info().misses == 1 and fast.cache_info().backward_runs == 4


def test_lists_of_several_lengths_are_eagers_error() -> None:
    def fn(x: Tensor) -> Tensor:
        return torch.tensor([[x.item()], [2.0, 3.0]]).sum() * x

    for run in (fn, gradof.differentiate(fn)):
        with pytest.raises(ValueError, match=r"expected sequence|same length"):
            run(torch.tensor(2.0, requires_grad=True))


def test_history_ends_where_a_list_is_made_a_tensor() -> None:
    fast = gradof.differentiate(lambda x: torch.tensor([x[0], x[1]]) * x[:2], strict=True)
    x = torch.tensor([2.0, 3.0], requires_grad=True)
    fast(x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.0, 3.0]


@pytest.mark.parametrize("make", [
    lambda: torch.fft.rfftfreq(8), lambda: torch.fft.fftfreq(5, d=0.5),
    lambda: torch.kaiser_window(5), lambda: torch.kaiser_window(5, periodic=False, beta=3.0),
    lambda: torch.blackman_window(5, periodic=False), lambda: torch.bartlett_window(5, False),
])  # fmt: skip
def test_tables(make: Callable[[], Any]) -> None:
    fast = gradof.differentiate(lambda x: make() * x, strict=True)
    x = torch.tensor(2.0, requires_grad=True)
    torch.testing.assert_close(fast(x), make() * 2.0)
    fast(x).sum().backward()
    torch.testing.assert_close(x.grad, make().sum())


def test_a_number_that_is_a_tensor_already_keeps_its_gradient() -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    fn = gradof.differentiate(lambda x: torch.stack([torch.as_tensor(p) ** 2 for p in x]).sum())
    fn(x).backward()
    assert x.grad is not None and x.grad.tolist() == [2.0, 4.0]
