"""A trace that is refused leaves tensors, gradients, modules and the generator as they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from gradof import differentiate
from gradof.errors import GradofError

P = torch.nn.Parameter(torch.ones(3))


def assigns_data(x: Any) -> Any:
    P.data = x.detach()
    return x.sum()


def assigns_grad(x: Any) -> Any:
    P.grad = None
    return x.sum()


def deletes_grad(x: Any) -> Any:
    del P.grad
    return x.sum()


def writes_first(x: Any) -> Any:
    P.data.mul_(3)
    with torch.no_grad():
        x.add_(1)
    return x.sum() * x.data_ptr()


def steps(x: Any) -> Any:
    torch.optim.SGD([P], 0.1).zero_grad()
    return x.sum()


REFUSED: dict[str, Callable[[Any], Any]] = {
    "numpy": lambda x: x.sum() * float(x.detach().numpy()[0]),
    "data_ptr": lambda x: x.sum() * x.data_ptr(),
    "grad": lambda x: x.sum() * P.grad,
    "backward": lambda x: (x * P).sum().backward(),
    "draws first": lambda x: (torch.randn(3) * x).sum() * x.data_ptr(),
    "assigns data": assigns_data, "assigns grad": assigns_grad, "deletes grad": deletes_grad,
    "writes first": writes_first, "an optimizer": steps,
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_nothing_has_happened(name: str) -> None:
    with torch.no_grad():
        P.copy_(torch.ones(3))
    P.grad = grad = torch.ones(3)
    x = torch.ones(3, requires_grad=True)
    state, versions = torch.get_rng_state(), (x._version, P._version)
    address = P.data_ptr()
    with pytest.raises(GradofError) as caught:
        differentiate(REFUSED[name], strict=True)(x)
    assert "test_failed_traces.py" in str(caught.value.loc) or name == "an optimizer"
    assert torch.equal(torch.get_rng_state(), state) and versions == (x._version, P._version)
    assert P.grad is grad and torch.equal(grad, torch.ones(3)) and x.grad is None
    assert P.data_ptr() == address and torch.equal(P.detach(), torch.ones(3))
    assert torch.equal(x.detach(), torch.ones(3)) and torch.is_grad_enabled()


def test_what_a_cached_helper_returns_may_be_the_class_of_functions() -> None:
    """Its closure is a descriptor; scipy keeps such classes in caches of its own."""
    import functools
    import types

    @functools.lru_cache
    def kinds(n: int) -> tuple[type, ...]:
        return (types.FunctionType,) * n

    def fn(x: torch.Tensor) -> torch.Tensor:
        return x * len(kinds(2))

    x = torch.ones(2, requires_grad=True)
    torch.testing.assert_close(differentiate(fn, strict=True)(x), 2 * x)
