"""Strides of the arguments: as in eager where the function asks, and no concern where not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from gradof import differentiate

Tensor = torch.Tensor


def rows() -> Tensor:
    return torch.arange(6.0).reshape(2, 3)


def columns() -> Tensor:
    return torch.arange(6.0).reshape(3, 2).T


def image() -> Tensor:
    return torch.arange(96.0).reshape(2, 3, 4, 4).sin()


def channels_last() -> Tensor:
    return image().to(memory_format=torch.channels_last)


def contiguous_changed(x: Tensor) -> Any:
    y = x.contiguous()
    y.add_(1)
    return y.sum()


def reshaped_changed(x: Tensor) -> Any:
    y = x.reshape(-1)
    y.add_(1)
    return y.sum()


def product_changed(x: Tensor) -> Any:
    z = x * 2
    z.flatten().mul_(3)
    return z.sum()


def as_asked(x: Tensor) -> Any:
    return x.sum() * 2 if x.is_contiguous() else x.sum()


def as_last(x: Tensor) -> Any:
    return x.sum() * 2 if x.is_contiguous(memory_format=torch.channels_last) else x.sum()


ASKING: dict[str, Callable[[Tensor], Any]] = {
    "contiguous": contiguous_changed, "reshape": reshaped_changed, "of a product": product_changed,
    "is_contiguous": as_asked, "is_contiguous(channels_last)": as_last,
    "stride": lambda x: x.sum() * x.stride()[0] + x.stride(-1),
    "ravel": lambda x: x.ravel(), "handed through": lambda x: x.contiguous(),
    "elementwise": lambda x: x * 2 + 1, "transposed": lambda x: (x * 2).transpose(0, 1),
    "several": lambda x: (x.exp(), x.clone(), x[:1] * x), "format": lambda x: x.contiguous(
        memory_format=torch.channels_last if x.dim() == 4 else torch.contiguous_format) * 1,
    "offset": lambda x: x.sum() * (x.storage_offset() + 1),
}  # fmt: skip


def outcome(fn: Callable[[Tensor], Any], x: Tensor) -> Any:
    found = fn(x)
    results = [found] if isinstance(found, Tensor) else list(found)
    shares = [r.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for r in results]
    steps = [[n for n, size in zip(r.stride(), r.shape, strict=True) if size > 1] for r in results]
    return results, steps, shares, x


@pytest.mark.parametrize("name", ASKING)
@pytest.mark.parametrize("kinds", [(rows, columns), (image, channels_last)])
def test_strides_are_as_in_eager(name: str, kinds: tuple[Callable[[], Tensor], ...]) -> None:
    compiled = differentiate(ASKING[name], strict=True)
    more: list[Callable[[], Tensor]] = [lambda: kinds[0]()[1:], lambda: kinds[1]()[1:]]
    for make in (*kinds, *kinds, *more):
        got, want = outcome(compiled, make()), outcome(ASKING[name], make())
        torch.testing.assert_close(got[0], want[0])
        assert got[1:3] == want[1:3]
        torch.testing.assert_close(got[3], want[3])


def test_view_is_eagers_error() -> None:
    compiled: Any = differentiate(lambda x: x.view(-1) * 1, strict=True)
    compiled(rows())
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        compiled(columns())


def test_gradients_of_results_that_are_not_rows() -> None:
    for make in (rows, columns, channels_last):
        x = make().double().requires_grad_()
        compiled = differentiate(lambda x: x.sin() * x, strict=True)
        y = compiled(x)
        assert y.stride() == (x.sin() * x).stride()
        (got,) = torch.autograd.grad(y, x, torch.ones_like(y) * 3)
        torch.testing.assert_close(got, 3 * (x.cos() * x + x.sin()).detach())
        assert compiled.cache_info().backward_runs > 0


def test_where_nothing_asks_one_trace_serves_all() -> None:
    weight = torch.ones(3, 2)
    compiled = differentiate(lambda x: torch.tanh(x @ weight).reshape(-1).sum())
    for make in (rows, columns, rows):
        compiled(make())
    assert compiled.cache_info().misses == 1


@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("fused", [True, False])
def test_attention_is_laid_out_as_eagers(heads: int, fused: bool) -> None:
    """What is drawn for it is drawn in that order, and `view` takes the heads together."""
    attend = torch.nn.functional.scaled_dot_product_attention

    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v = (x[i].view(2, 5, heads, -1).transpose(1, 2) for i in range(3))
        found = torch.nn.functional.dropout(attend(q, k, v), 0.3)
        if fused:
            return found, attend(q, k, v).transpose(1, 2).view(2, 5, 32)
        return found, attend(q, k, v)

    kernels = [SDPBackend.MATH, *[SDPBackend.FLASH_ATTENTION] * fused]
    with sdpa_kernel(kernels):
        compiled, x = differentiate(fn, strict=True), torch.randn(3, 2, 5, 32)
        for _ in range(2):
            torch.manual_seed(3)
            want = fn(x)
            torch.manual_seed(3)
            for mine, theirs in zip(compiled(x), want, strict=True):
                torch.testing.assert_close(mine, theirs)
                assert fused or mine.stride() == theirs.stride()


def test_a_result_that_is_expanded_beside_a_part_of_it() -> None:
    def grids(x: Tensor, y: Tensor, z: Tensor) -> Any:
        found = torch.meshgrid([x, y, z], indexing="xy")
        return (*found, found[2][:-1, ::2])

    x, y, z = torch.rand(3), torch.tensor(4.0, requires_grad=True), torch.rand(3)
    leaves = x, y, z.requires_grad_()
    compiled = differentiate(grids)
    ours, eager = compiled(*leaves), grids(*leaves)
    assert [t.stride() for t in ours[:3]] == [t.stride() for t in eager[:3]]
    torch.testing.assert_close(ours, eager)
    assert compiled.cache_info().forward_runs == 1
