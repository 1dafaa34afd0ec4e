"""Are the gradients right, and did gradof make them? Asked before anything is timed.

Note [Judged by float64]
The reference runs the same function on the same numbers in float64, on the device. Each tensor is
judged twice: its largest error by the bound of `gradof.testing.closeness`, 8 times eager's own plus
64 ulps of its largest number (4 in half precision); and the norm of its error, by twice the norm of
eager's plus 64 ulps (1 in half precision) of the norm of the tensor. The scale is the tensor's own:
beside the sum over 16k rows that is the gradient of a bias, a wrong gradient of x would look small.
A function that draws is judged by the reference that has the draws of the results themselves.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from gpu_workloads import GpuWorkload, as_tuple

from gradof.testing.closeness import FACTOR, HALF_ULPS, ULPS

NORM_FACTOR, NORM_HALF_ULPS = 2.0, 1.0
Results = tuple[list[torch.Tensor], list[torch.Tensor]]  # outputs, gradients


@dataclass(frozen=True)
class Case:
    """A workload of one size and dtype: its arguments, and one cotangent for each output."""

    workload: GpuWorkload
    args: list[torch.Tensor]
    cotangents: list[torch.Tensor]

    @property
    def wanted(self) -> list[torch.Tensor]:
        """What is differentiated for."""
        return [a for a in self.args if a.requires_grad]

    def forward(self, fn: Callable[..., Any]) -> tuple[Any, ...]:
        """The outputs, recorded for a backward."""
        return as_tuple(fn(*self.args))

    def backward(self, outputs: Sequence[Any]) -> list[torch.Tensor]:
        """The gradients of these outputs."""
        return list(torch.autograd.grad(outputs, self.wanted, self.cotangents))


def make_case(w: GpuWorkload, size: tuple[int, ...], dtype: torch.dtype, device: str) -> Case:
    """Arguments as the workload makes them, normal cotangents."""
    args = w.arguments(size, dtype, device)
    generator = torch.Generator(device).manual_seed(1)
    with torch.no_grad():
        outputs = as_tuple(w.fn(*args))
    cotangents = [
        torch.randn(o.shape, generator=generator, device=device, dtype=torch.float32).to(o.dtype)
        for o in outputs
    ]
    return Case(w, args, cotangents)


def results(case: Case, fn: Callable[..., Any]) -> Results:
    """Outputs and gradients by one side."""
    torch.manual_seed(2)
    outputs = case.forward(fn)
    grads = case.backward(outputs)
    return [o.detach() for o in outputs], grads


def exact(case: Case, found: Results) -> Results:
    """The same in float64, with the draws that these results show."""
    w = case.workload
    wide = [
        a.detach().double().requires_grad_(a.requires_grad) if a.is_floating_point() else a
        for a in case.args
    ]
    outputs = as_tuple(w.fn(*wide) if w.exact is None else w.exact(found[0], *wide))
    grads = torch.autograd.grad(
        outputs, [a for a in wide if a.requires_grad], [c.double() for c in case.cotangents]
    )
    return [o.detach() for o in outputs], list(grads)


def judge(case: Case, mine: Results, eager: Results) -> dict[str, tuple[float, float]]:
    """(error, what is allowed) of each output and gradient; see Note [Judged by float64]."""
    names = case.workload.argument_names
    wanted = [f"d{n}" for n, a in zip(names, case.args, strict=True) if a.requires_grad]
    reference = exact(case, mine)
    eagers = reference if case.workload.exact is None else exact(case, eager)
    judged = {}
    groups = zip((case.workload.outputs, wanted), mine, eager, reference, eagers, strict=True)
    for labels, ours, theirs, right, their_right in groups:
        for name, a, b, c, d in zip(labels, ours, theirs, right, their_right, strict=True):
            if a.dtype != b.dtype or a.shape != b.shape:
                judged[name] = (math.inf, 0.0)
                continue
            ulp = torch.finfo(a.dtype).eps
            most, mean = (HALF_ULPS, NORM_HALF_ULPS) if ulp > 1e-4 else (ULPS, ULPS)
            rounding = most * ulp * largest(c)
            judged[name] = (distance(a, c), FACTOR * distance(b, d) + rounding)
            rounding = mean * ulp * norm(c)
            judged[f"norm of {name}"] = (gap(a, c), NORM_FACTOR * gap(b, d) + rounding)
    return judged


def wrong(judged: dict[str, tuple[float, float]]) -> list[str]:
    """What is off by more than is allowed, NaN included, as text."""
    return [
        f"{name} is off by {error:.3g} where {allowed:.3g} is allowed"
        for name, (error, allowed) in judged.items()
        if not error <= allowed
    ]


def largest(a: torch.Tensor) -> float:
    """max |a|; 0 for an empty tensor."""
    return float(a.detach().abs().max()) if a.numel() else 0.0


def norm(a: torch.Tensor) -> float:
    """The root of the sum of squares."""
    return float(torch.linalg.vector_norm(a.detach()))


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """max |a - b| in float64; infinite where one is not finite."""
    found = largest(a.double() - b.double())
    return found if math.isfinite(found) else math.inf


def gap(a: torch.Tensor, b: torch.Tensor) -> float:
    """The norm of a - b in float64; infinite where one is not finite."""
    found = norm(a.double() - b.double())
    return found if math.isfinite(found) else math.inf


def not_ours(fn: Any, case: Case) -> str | None:
    """Why a result was not made by gradof's own f, df and Triton kernels; None if it was."""
    info = fn.cache_info()
    if not info.forward_runs or not info.backward_runs:
        return f"gradof ran {info.forward_runs} forwards and {info.backward_runs} backwards"
    explanation = fn.explain(*case.args)
    if explanation.opaque:
        return f"torch's own autograd ran {', '.join(explanation.opaque)}"
    foreign = [k for k in explanation.kernels if "triton" not in k]
    if foreign:
        return f"kernels that are not Triton's: {', '.join(foreign)}"
    missing = [which for which, count in kernels(fn).items() if not count]
    return f"no fused kernel in the {' and the '.join(missing)}" if missing else None


def kernels(fn: Any) -> dict[str, int]:
    """How many fused kernels forward and backward have."""
    forward = backward = 0
    for plan in fn.plans():
        for gradient in plan.gradients.values():
            forward += len(gradient.f.executable.kernels)
            for special in gradient.dfs.values():
                backward += len(special.plan.executable.kernels)
    return {"forward": forward, "backward": backward}
