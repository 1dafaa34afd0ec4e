"""The harness for torch functions: against eager, eager in float64, finite differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from gradof.errors import GradientMismatchError
from gradof.runtime.function import Bound, Differentiated, gradient_flags
from gradof.testing.closeness import directional, rows
from gradof.testing.localize import find_culprits
from gradof.testing.report import Report
from gradof.tracer.pytree import flatten, flatten_call

Tensor = torch.Tensor


@dataclass
class Inputs:
    """Everything a call reads: argument leaves and free tensors, with what to wish back later."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    leaves: list[Tensor]
    free: list[Tensor]
    names: list[str]
    saved: list[Tensor]

    @property
    def wanted(self) -> list[Tensor]:
        """The inputs that require grad."""
        return [t for t in (*self.leaves, *self.free) if t.requires_grad]

    @property
    def wanted_names(self) -> list[str]:
        """Names of `wanted`."""
        pairs = zip((*self.leaves, *self.free), self.names, strict=True)
        return [name for t, name in pairs if t.requires_grad]

    def restore(self) -> None:
        """Undo what the function wrote into its inputs."""
        with torch.no_grad():
            for tensor, saved in zip((*self.leaves, *self.free), self.saved, strict=True):
                if not torch.equal(tensor, saved):
                    tensor.data.copy_(saved)


def check_torch(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], order: int, seed: int
) -> Report:
    """See `gradof.testing.check`."""
    compiled = fn if isinstance(fn, Differentiated) else Differentiated(fn)
    eager = compiled.fn
    args, kwargs = _own_leaves(eager, args, kwargs)
    bound = compiled.bind(args, kwargs)
    inputs = _inputs(bound, args, kwargs)
    graph = bound.entry.traced.graph
    random = any(n.kind not in ("Constant",) and _is_random(n.kind) for n in graph.walk())
    report = Report(getattr(eager, "__qualname__", str(eager)), nodes=len(graph.block))
    before = compiled.cache_info()
    ours = _derivatives(compiled, inputs, order, seed)
    info = compiled.cache_info()
    if info.forward_runs <= before.forward_runs or info.backward_runs <= before.backward_runs:
        raise GradientMismatchError("our own f and df did not run: torch was compared with itself")
    theirs = _derivatives(eager, inputs, order, seed)
    exact = None
    if random:
        report.notes.append("random numbers: compared with eager under one seed, not with float64")
    else:
        with in_float64(inputs):
            exact = _derivatives(eager, inputs, order, seed)
            _finite_differences(report, eager, inputs, ours, seed)
    for k, title in enumerate(("output", "gradient of", "second gradient of")[: order + 1]):
        names = inputs.wanted_names if k else [str(i) for i in range(len(ours[0]))]
        report.rows += rows(
            [f"{title} {n}" for n in names], _arrays(ours[k]), _arrays(theirs[k]),
            None if exact is None else _arrays(exact[k]),
            [_numpy_dtype(t) for t in theirs[k]],
        )  # fmt: skip
    if not report.ok:
        flags = gradient_flags(bound)
        f = bound.entry.plan.gradient(flags).gradient.f
        report.culprits = find_culprits(f, [t.detach().numpy() for t in bound.inputs], seed)
    return report


def _is_random(kind: str) -> bool:
    from gradof.ir.opinfo import has_trait

    return has_trait(kind, "random")


def _own_leaves(
    fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The caller's arguments copied, so that theirs stay as they are."""
    leaves, tree, _ = flatten_call(fn, args, kwargs)
    copies = [
        x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x
        for x in leaves
    ]
    result: tuple[tuple[Any, ...], dict[str, Any]] = tree.unflatten(copies)
    return result


def _inputs(bound: Bound, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Inputs:
    traced = bound.entry.traced
    n = len(traced.arg_leaves)
    leaves, free = list(bound.inputs[:n]), list(bound.inputs[n:])
    if not any(t.requires_grad for t in (*leaves, *free)):
        for leaf in leaves:
            leaf.requires_grad_(leaf.is_floating_point())
    saved = [t.detach().clone() for t in (*leaves, *free)]
    return Inputs(args, kwargs, leaves, free, list(traced.input_names), saved)


def _derivatives(
    fn: Callable[..., Any], inputs: Inputs, order: int, seed: int
) -> list[list[Tensor | None]]:
    """Outputs, gradients for random cotangents, and second gradients; inputs are put back."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        outputs = _float_outputs(fn(*inputs.args, **inputs.kwargs))
    differentiable = [t for t in outputs if t.requires_grad]
    generator = torch.Generator().manual_seed(seed + 1)
    wanted = inputs.wanted
    result: list[list[Tensor | None]] = [list(outputs)]
    grads = torch.autograd.grad(
        differentiable, wanted, [_random_like(t, generator) for t in differentiable],
        create_graph=order > 1, allow_unused=True,
    )  # fmt: skip
    result.append(list(grads))
    if order > 1:
        again = [g for g in grads if g is not None and g.requires_grad]
        second: Sequence[Tensor | None] = [None] * len(wanted)
        if again:
            weights = [_random_like(g, generator) for g in again]
            second = torch.autograd.grad(again, wanted, weights, allow_unused=True)
        result.append(list(second))
    inputs.restore()
    return result


def _float_outputs(result: Any) -> list[Tensor]:
    return [t for t in flatten(result)[0] if isinstance(t, Tensor) and t.is_floating_point()]


def _random_like(tensor: Tensor, generator: torch.Generator) -> Tensor:
    # drawn in float64, so that runs in both precisions get the same numbers
    return torch.randn(tensor.shape, generator=generator, dtype=torch.float64).to(tensor.dtype)


@contextmanager
def in_float64(inputs: Inputs) -> Iterator[None]:
    """All floating-point inputs, free tensors included, in float64 for a while."""
    everything = [*inputs.leaves, *inputs.free]
    originals = [t.data for t in everything]
    saved = inputs.saved
    inputs.saved = [s.double() if s.is_floating_point() else s for s in saved]
    default = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        for tensor in everything:
            if tensor.is_floating_point():
                tensor.data = tensor.data.double()
        yield
    finally:
        torch.set_default_dtype(default)
        inputs.saved = saved
        for tensor, original in zip(everything, originals, strict=True):
            tensor.data = original


def _finite_differences(
    report: Report, eager: Callable[..., Any], inputs: Inputs, ours: Any, seed: int
) -> None:
    """Our gradient along a random direction against a central difference of float64 eager."""
    generator = torch.Generator().manual_seed(seed + 2)
    originals = [t.data for t in inputs.wanted]
    directions = [_random_like(t, generator) for t in originals]
    step = 1e-6

    def value(sign: float) -> float:
        for tensor, original, direction in zip(inputs.wanted, originals, directions, strict=True):
            tensor.data = original + sign * step * direction
        with torch.no_grad():
            outputs = _float_outputs(eager(*inputs.args, **inputs.kwargs))
        weights = torch.Generator().manual_seed(seed + 1)
        total = 0.0
        for output, mine in zip(outputs, ours[0], strict=True):
            if mine.requires_grad:
                total += float((_random_like(output, weights) * output).sum())
        for tensor, original in zip(inputs.wanted, originals, strict=True):
            tensor.data = original
        inputs.restore()
        return total

    difference = (value(1.0) - value(-1.0)) / (2 * step)
    products = [
        float((g.detach().double() * d).sum())
        for g, d in zip(ours[1], directions, strict=True) if g is not None
    ]  # fmt: skip
    single = any(g is not None and g.dtype != torch.float64 for g in ours[1])
    magnitude = sum(abs(p) for p in products) * (10.0 if single else 1.0)
    report.rows.append(directional("gradient along a line", sum(products), difference, magnitude))


def _arrays(tensors: Sequence[Tensor | None]) -> list[Any]:
    return [None if t is None else t.detach().double().numpy() for t in tensors]


def _numpy_dtype(tensor: Tensor | None) -> Any:
    return "float32" if tensor is None else str(tensor.dtype).removeprefix("torch.")
