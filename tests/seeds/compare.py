"""Programs against torch eager to second order, in float32 and float64, with no node of torch's.

>>> same(lambda x, w: torch.tanh(x @ w), normal(4, 3), normal(3, 2))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

import gradof
from tests.runtime.compare import Tensors, assert_compiled, gradients, tensors

TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-11}
F64 = torch.float64
FLOATS = (torch.float32, torch.float64)


def normal(*shape: int) -> Tensor:
    """A normal float64 tensor; every shape has numbers of its own."""
    generator = torch.Generator().manual_seed(11 + 7 * len(shape) + sum(shape))
    return torch.randn(shape, dtype=F64, generator=generator)


def positive(*shape: int) -> Tensor:
    """Numbers between 0.5 and 2."""
    return 0.5 + 1.5 * torch.sigmoid(normal(*shape))


def whole(high: int, *shape: int) -> Tensor:
    """Whole numbers in [0, high)."""
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(5))


def near(ours: Tensors, eager: Tensors, dtype: torch.dtype, what: str) -> None:
    """Equal up to rounding of the largest number among them; None exactly where None."""
    assert [t is None for t in ours] == [t is None for t in eager], what
    finite = [t[t.isfinite()] for t in eager if t is not None]
    scale = max([1.0, *(t.abs().max().item() for t in finite if t.numel())])
    for a, b in zip(ours, eager, strict=True):
        if b is not None:
            assert a.dtype == b.dtype and a.shape == b.shape, what
            torch.testing.assert_close(
                a, b, rtol=0, atol=TOLERANCE[dtype] * scale, equal_nan=True,
                msg=lambda m: f"{what}: {m}",
            )  # fmt: skip


def compare(fn: Callable[..., Any], args: list[Any], order: int, dtype: torch.dtype) -> Any:
    """One dtype; every floating-point argument is differentiated."""
    compiled = gradof.differentiate(fn)
    wrt = [t for t in tensors(args) if t.requires_grad]
    torch.manual_seed(3)
    want, want_grads = gradients(fn, args, wrt, order, ())
    torch.manual_seed(3)
    got, got_grads = gradients(compiled, args, wrt, order, ())
    near(got, want, dtype, "value")
    assert len(got_grads) == len(want_grads)
    for n, (ours, eager) in enumerate(zip(got_grads, want_grads, strict=True), 1):
        near(ours, eager, dtype, f"order {n}")  # type: ignore[arg-type]  # None among them
    info = compiled.cache_info()
    assert info.forward_runs > 0 and info.backward_runs > 0
    assert_compiled(got)
    kinds = {node.kind for node in compiled.trace(*args).walk()}
    assert "Opaque" not in kinds
    return compiled


def same(
    fn: Callable[..., Any], *args: Any, order: int = 2, dtypes: Sequence[torch.dtype] = FLOATS
) -> None:
    """Both dtypes, values and gradients up to `order`, random cotangents."""
    for dtype in dtypes:
        compare(fn, [_leaf(a, dtype) for a in args], order, dtype)


def _leaf(x: Any, dtype: torch.dtype) -> Any:
    if isinstance(x, Tensor) and x.is_floating_point():
        return x.detach().to(dtype, copy=True).requires_grad_()
    return x
