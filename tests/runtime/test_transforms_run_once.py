"""vjp, jvp, hvp, jacobian and hessian do what one call of the function does: draws, stores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import gradof
from gradof import differentiate

eager: Any = torch.autograd.functional
Tensor = torch.Tensor
F64 = torch.float64
X = torch.rand(4, generator=torch.Generator().manual_seed(1), dtype=F64)
T = torch.ones(4, dtype=F64)

CASES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "vjp": (lambda f: gradof.vjp(f, X)[1](T)[0], lambda f: eager.vjp(f, X, T)[1]),
    "jvp": (lambda f: gradof.jvp(f, (X,), (T,))[1], lambda f: eager.jvp(f, X, T)[1]),
    "jacobian": (lambda f: gradof.jacobian(f)(X), lambda f: eager.jacobian(f, X)),
    "hvp": (lambda f: gradof.hvp(lambda x: (f(x) ** 3).sum(), (X,), (T,))[0],
            lambda f: eager.hvp(lambda x: (f(x) ** 3).sum(), X, T)[1]),
    "hessian": (lambda f: gradof.hessian(lambda x: (f(x) ** 3).sum())(X),
                lambda f: eager.hessian(lambda x: (f(x) ** 3).sum(), X)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_random_numbers_are_drawn_once(name: str) -> None:
    """Every row, and the pullback, has the mask of the value; the next draw is eager's."""
    own = torch.Generator()

    def fn(x: Tensor) -> Tensor:
        return F.dropout(torch.tanh(x), 0.5) * torch.rand(4, generator=own)

    compiled = differentiate(fn)
    found = []
    for transform, of in zip(CASES[name], (compiled, fn), strict=True):
        for _ in range(2):
            torch.manual_seed(5)
            own.manual_seed(6)
            result = transform(of)
            found.append((result, torch.rand(1), torch.rand(1, generator=own)))
    for have in found[:3]:
        torch.testing.assert_close(have, found[3])
    assert found[0][0].count_nonzero() > 0, "the mask leaves something"


@pytest.mark.parametrize("name", CASES)
def test_state_is_written_once(name: str) -> None:
    def parts() -> tuple[Any, list[int], nn.BatchNorm1d]:
        calls, norm = [0], nn.BatchNorm1d(2).double()

        def fn(x: Tensor) -> Tensor:
            calls[0] += 1
            out: Tensor = norm(x.reshape(2, 2)).reshape(4) * calls[0]
            return out

        return fn, calls, norm

    ours, theirs = CASES[name]
    (fn, calls, norm), (plain, wanted_calls, wanted_norm) = parts(), parts()
    for _ in range(3):
        torch.testing.assert_close(ours(fn), theirs(plain))
        assert calls == wanted_calls
        for name_, buffer in norm.named_buffers():
            torch.testing.assert_close(buffer, wanted_norm.get_buffer(name_))
