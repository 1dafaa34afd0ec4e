"""A compiled function against torch eager: values, first and second derivatives.

>>> check(lambda x: (x * x).sum(), torch.randn(3, requires_grad=True))

Every check asserts that our own f and df ran, and that none of eager's backward nodes did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from gradof import differentiate
from gradof.tracer.core.pytree import flatten

TOLERANCES = {
    torch.float64: (1e-10, 1e-12),
    torch.float32: (2e-5, 2e-6),
    torch.complex128: (1e-10, 1e-12),
    torch.complex64: (2e-5, 2e-6),
    torch.float16: (4e-3, 4e-3),  # torch rounds after each op, as numpy does, not always alike
}
Tensors = list[torch.Tensor]


def tensors(tree: Any) -> Tensors:
    """The tensors among the leaves of a tree."""
    return [leaf for leaf in flatten(tree)[0] if isinstance(leaf, torch.Tensor)]


def close(got: Any, want: Any, what: str = "") -> None:
    """Equal None-ness, dtype, shape, and values to the tolerance of the dtype."""
    assert (got is None) == (want is None), f"{what}: got {got}, eager has {want}"
    if want is None:
        return
    rtol, atol = TOLERANCES.get(want.dtype, (0.0, 0.0))
    torch.testing.assert_close(
        got, want, rtol=rtol, atol=atol, equal_nan=True, msg=lambda m: f"{what}: {m}"
    )


def all_close(got: list[Any], want: list[Any]) -> None:
    """The same of each of several, in order."""
    for i, (ours, theirs) in enumerate(zip(got, want, strict=True)):
        close(ours, theirs, f"result {i}")


def held_to_eager(fn: Callable[[torch.Tensor], Any]) -> tuple[Any, Callable[[], float]]:
    """The compiled `fn` of a vector, and a function that calls both, for ones; gives the value."""
    compiled = differentiate(fn)

    def call() -> float:
        value = compiled(torch.ones(3, requires_grad=True))
        close(value, fn(torch.ones(3, requires_grad=True)))
        return float(value.item())

    return compiled, call


def grad_nodes(tensor: torch.Tensor) -> Iterator[str]:
    """The names of all backward nodes behind a tensor."""
    seen, queue = set(), [tensor.grad_fn]
    while queue:
        node = queue.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node.name()
        queue += [child for child, _ in node.next_functions]


def assert_compiled(results: Tensors) -> None:
    """Behind the results stands one compiled node and no backward node of the user's ops."""
    for result in results:
        if result.grad_fn is not None:
            names = set(grad_nodes(result))
            assert any("_Compiled" in name for name in names), names
            # leaves come as aliases once autograd.grad has asked for several of a plan's, and
            # results that others are computed from by a node of their own (runtime/torch_inner), as
            # do what the first f left for its df (runtime/torch_backward)
            own = ("_Compiled", "AccumulateGrad", "AliasBackward0", "ResultBackward",
                   "TemporariesBackward")  # fmt: skip
            foreign = {n for n in names if not any(kind in n for kind in own)}
            assert not foreign, foreign


def cotangents(results: Tensors, skip: tuple[int, ...] = ()) -> dict[int, torch.Tensor]:
    """Random cotangents of the results that require grad, except the skipped."""
    generator = torch.Generator().manual_seed(7)
    return {
        i: torch.randn(r.shape, generator=generator, dtype=_double(r)).to(r.dtype)
        for i, r in enumerate(results)
        if r.requires_grad and i not in skip
    }


def _double(tensor: torch.Tensor) -> torch.dtype:
    return torch.complex128 if tensor.is_complex() else torch.float64


def gradients(
    fn: Callable[..., Any], args: Any, wrt: Tensors, order: int, skip: tuple[int, ...]
) -> tuple[Tensors, list[list[torch.Tensor | None]]]:
    """Results, and the gradients of orders 1..order, each of a random projection of the last."""
    results = tensors(fn(*args))
    seeds = cotangents(results, skip)
    current = [results[i] for i in seeds]
    weights = list(seeds.values())
    orders: list[list[torch.Tensor | None]] = []
    for n in range(order):
        grads = torch.autograd.grad(
            current, wrt, weights, create_graph=n + 1 < order, allow_unused=True
        )
        orders.append(list(grads))
        current = [g for g in grads if g is not None and g.requires_grad]
        weights = [_waves(g) for g in current]
        if not current:
            break
    return results, orders


def _waves(grad: torch.Tensor) -> torch.Tensor:
    steps = torch.arange(grad.numel(), dtype=torch.float64)
    waves = torch.complex(steps.cos(), steps.sin()) if grad.is_complex() else steps.cos()
    return waves.to(grad).view(grad.shape)


def check(
    fn: Callable[..., Any], *args: Any, order: int = 1, skip: tuple[int, ...] = (), own: bool = True
) -> Any:
    """Compare `differentiate(fn)` with `fn`; returns the compiled function.

    `own=False` for results that rightly carry eager's own history (an input handed through).
    """
    compiled = differentiate(fn)
    wrt = [t for t in tensors(args) if t.requires_grad]
    want, want_grads = gradients(fn, args, wrt, order, skip)
    got, got_grads = gradients(compiled, args, wrt, order, skip)
    assert len(got) == len(want)
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        close(g, w, f"result {i}")
        assert g.requires_grad == w.requires_grad, f"result {i}"
    assert len(got_grads) == len(want_grads)
    for n, (gs, ws) in enumerate(zip(got_grads, want_grads, strict=True), 1):
        for i, (grad, expected) in enumerate(zip(gs, ws, strict=True)):
            close(grad, expected, f"order {n}, input {i}")
    info = compiled.cache_info()
    assert info.forward_runs > 0
    assert info.backward_runs > 0
    if own:
        assert_compiled(got)
    return compiled
