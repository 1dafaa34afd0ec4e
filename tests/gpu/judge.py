"""A compiled function on a device against eager there, judged by eager in float64.

>>> judge(lambda x: (x * x).sum(), torch.randn(3, device="cuda", requires_grad=True))

Values, gradients and second gradients may be 8 times as far from float64 as eager's, with 64 ulps
of the largest number to spare, 4 in half precision (gradof.testing.closeness, Note [Closeness]).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gradof import differentiate
from gradof.runtime.function import Differentiated
from gradof.tracer.core.pytree import flatten

Tensor = torch.Tensor
HALF = (torch.bfloat16, torch.float16)


def tensors(tree: Any) -> list[Tensor]:
    """The tensors among the leaves of a tree."""
    return [leaf for leaf in flatten(tree)[0] if isinstance(leaf, Tensor)]


def fresh(args: Any, dtype: torch.dtype | None = None) -> list[Tensor]:
    """Leaves of their own, with the strides of these; floating-point ones in `dtype` if given."""
    return [
        (a.detach().to(dtype) if dtype and a.is_floating_point() else a.detach().clone())
        .requires_grad_(a.requires_grad)
        for a in args
    ]  # fmt: skip


def seeds(results: list[Tensor]) -> list[Tensor]:
    """A cotangent for each result, the same in every precision."""
    return [
        torch.linspace(-1, 2, t.numel(), dtype=torch.float64, device=t.device)
        .reshape(t.shape).to(t.dtype)
        for t in results
    ]  # fmt: skip


def derivatives(fn: Callable[..., Any], args: list[Tensor], order: int) -> list[list[Tensor]]:
    """Results, then the gradients of each order, zeros where there is none."""
    results = tensors(fn(*args))
    wanted = [a for a in args if a.requires_grad]
    runs, current = [[t.detach().clone() for t in results]], results
    for n in range(order):
        live = [t for t in current if t.requires_grad]
        if not live:
            break
        grads = torch.autograd.grad(
            live, wanted, seeds(live), create_graph=n + 1 < order, allow_unused=True
        )
        pairs = zip(grads, wanted, strict=True)
        current = [torch.zeros_like(w) if g is None else g for g, w in pairs]
        runs.append([g.detach().clone() for g in current])
    return runs


def judge(fn: Callable[..., Any], *args: Tensor, order: int = 2) -> Differentiated:
    """Raise where a result or gradient is off; returns the compiled function."""
    compiled: Differentiated = differentiate(fn)
    mine = derivatives(compiled, fresh(args), order)
    theirs = derivatives(fn, fresh(args), order)
    exact = derivatives(fn, fresh(args, torch.float64), order)
    assert len(mine) == len(theirs)
    for n, groups in enumerate(zip(mine, theirs, exact, strict=True)):
        assert len(groups[0]) == len(groups[1])
        for i, (own, eager, wide) in enumerate(zip(*groups, strict=True)):
            close(own, eager, wide, f"order {n}, tensor {i}")
    return compiled


def close(mine: Tensor, theirs: Tensor, exact: Tensor, what: str = "") -> None:
    """One tensor by the rule above; integers are equal."""
    assert (mine.dtype, mine.shape, mine.device) == (theirs.dtype, theirs.shape, theirs.device)
    if not theirs.is_floating_point():
        assert torch.equal(mine, theirs), what
        return
    if not mine.numel():
        return
    ulps = 4 if mine.dtype in HALF else 64
    spare = ulps * torch.finfo(theirs.dtype).eps * exact.abs().max()
    allowed = 8 * (theirs.double() - exact).abs().max() + spare
    off = (mine.double() - exact).abs().max()
    assert off <= allowed, f"{what}: {off} off float64, {allowed} allowed"


def kernels(compiled: Differentiated) -> int:
    """How many kernels the plans of a function have, f and df together."""
    return sum(len(run.kernels) for run in executables(compiled))


def executables(compiled: Differentiated) -> list[Any]:
    """The emitted code of every plan that has run."""
    found, todo = [], list(compiled.plans())
    while todo:
        plan = todo.pop()
        if "executable" in vars(plan):
            found.append(plan.executable)
        for gradient in plan.gradients.values():
            todo += [gradient.f, *(special.plan for special in gradient.dfs.values())]
    return found
