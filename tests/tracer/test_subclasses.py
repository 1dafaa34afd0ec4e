"""`as_subclass` within traced functions."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import gradof
from gradof.errors import UnsupportedOpError

W = torch.ones(3, requires_grad=True)


class Named(torch.Tensor):
    pass


def test_a_plain_tensor_of_a_tensor_is_a_view_of_it() -> None:
    def fn(x: Any) -> Any:
        plain, weight = x.as_subclass(torch.Tensor), W.as_subclass(torch.Tensor)
        copy = plain.clone()
        copy.as_subclass(torch.Tensor).add_(1)
        return (plain * weight * copy).sum(), copy

    fast = gradof.differentiate(fn, strict=True)
    x = torch.randn(3, requires_grad=True)
    have, want = fast(x), fn(x)
    for mine, eagers in zip(have, want, strict=True):
        assert torch.equal(mine, eagers)
    grads = [torch.autograd.grad(loss, [x, W], create_graph=True) for loss, _ in (have, want)]
    second = [torch.autograd.grad(g[0].square().sum(), [x, W]) for g in grads]
    for mine, eagers in zip((*grads[0], *second[0]), (*grads[1], *second[1]), strict=True):
        assert torch.allclose(mine, eagers)
    assert fast.cache_info().backward_runs


def test_another_class_is_refused_and_torchs_method_is_back() -> None:
    with pytest.raises(UnsupportedOpError, match="a Named, a subclass of Tensor"):
        gradof.differentiate(lambda x: x.as_subclass(Named) * 2, strict=True)(torch.ones(2))
    assert type(torch.ones(2).as_subclass(Named)) is Named
