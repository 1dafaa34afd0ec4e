"""One op of torch's table through gradof: value, first and second gradient, on every sample.

    result = cover(entry, "f32")
    result.status(1)    "native", "opaque", "wrong", "error", or "none" (torch refuses it, too)

The judge is eager. A difference of more than 64 ulps of the largest number of the group (4 ulps of
bfloat16 and float16, whose second derivatives are left out) is looked at again: it may be 8 times
as far from float64 as eager is (in float64, 8 times as many ulps as either side loses in float32),
or 8 times as far as eager moves when its inputs and cotangents are moved by an ulp, which is what
an ill-conditioned function does. What is above that is wrong. Note [Closeness] has the same rule.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from gradof.errors import EagerWarning, GradofError
from gradof.runtime.function import Differentiated
from gradof.runtime.plan import GraphPlan
from gradof.runtime.thread import calling_plain
from gradof.testing.closeness import FACTOR, ULPS, distance, largest
from gradof.testing.torch_samples import Sample, samples, seed

Tensor = torch.Tensor
Runs = list[list[Tensor | None]]  # results, gradients, second gradients
Mover = Callable[[Tensor], Tensor]
ORDERS = ("value", "first", "second")
# Where eager itself is no better in float64: (op, order) -> relative error of eager's, and why.
_BCE = "eager adds 1e-12 to denominators of the second derivative"
ROUGH_IN_EAGER = {
    ("nn_functional_hardsigmoid", 1): (6e-8, "eager's 1/6 is a float32"),
    ("nn_functional_binary_cross_entropy", 2): (1e-9, _BCE),
}
# Where eager gives nan and we do not: (op, order) -> why.
NAN_IN_EAGER = {
    ("linalg_norm_subgradients_at_zero", 2): "eager's second derivative of a norm at zero is nan; "
    "ours is 0, as its first is",
    ("masked_logaddexp", 2): "what both masks leave out is -inf to eager, whose second derivative "
    "is nan there; ours is 0, as its first is",
}
# Where eager's gradient contradicts finite differences, and ours does not.
WRONG_IN_EAGER = {
    "as_strided_scatter": "eager gives gradients to elements that were replaced, and none to some "
    "that were not",
}
OPAQUE = frozenset({"Opaque"})
HALF = 1e-4  # a dtype whose eps is larger is bfloat16 or float16, of which 64 ulps say nothing
HALF_ULPS = 4


@dataclass
class OpCoverage:
    """What all samples of one op in one dtype gave."""

    name: str
    dtype: str
    samples: int = 0
    compared: list[int] = field(default_factory=lambda: [0, 0, 0])  # by order
    native: list[bool] = field(default_factory=lambda: [True, True, True])
    worst: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])  # relative, against eager
    opaque: set[str] = field(default_factory=set)
    wrong: list[tuple[int, str]] = field(default_factory=list)  # (order, sample and error)
    errors: list[tuple[int, str]] = field(default_factory=list)

    refused: list[int] = field(default_factory=lambda: [0, 0, 0])  # samples torch itself refuses

    def status(self, order: int) -> str:
        """native, opaque, wrong, error; none where torch refuses every sample.

        Where nothing is left to differentiate, as the second time in a sum, native is meant.
        """
        if any(o <= order for o, _ in self.errors):
            return "error"
        if any(o <= order for o, _ in self.wrong):
            return "wrong"
        if not self.compared[0]:
            return "none"
        if not self.compared[order] and self.refused[order]:
            return "none"
        return "native" if all(self.native[: order + 1]) else "opaque"


def cover(
    entry: Any, dtype: str, limit: int | None = None, device: str = "cpu"
) -> OpCoverage:
    """Run every sample of one op on a device, or `limit` spread over them.

    Nothing is raised, what went wrong stands in the result.
    """
    result = OpCoverage(entry.formatted_name, dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", EagerWarning)  # then it was not ours that ran
        chosen = list(samples(entry, dtype, device))
        if limit is not None and len(chosen) > limit:
            chosen = [chosen[i * len(chosen) // limit] for i in range(limit)]
        for sample in chosen:
            result.samples += 1
            _cover_sample(sample, result)
    return result


def _cover_sample(sample: Sample, result: OpCoverage) -> None:
    try:
        with calling_plain():
            eager, refusal = _derivatives(sample.run, sample.fresh())
    except (RuntimeError, NotImplementedError):
        result.refused = [n + 1 for n in result.refused]
        return
    if sample.half:
        eager, refusal = eager[:2], None  # to first order: torch's second derivatives are noise
    if refusal is not None:
        result.refused = [n + (order >= len(eager)) for order, n in enumerate(result.refused)]
    compiled = Differentiated(lambda tensors: sample.run(tensors))
    ours, error = _derivatives(compiled, sample.fresh(), upto=len(eager))
    for order, theirs in enumerate(eager):
        if order >= len(ours):
            result.errors.append((order, f"{sample.label}: {describe(error)}"))
            return
        result.compared[order] += 1
        if order and result.name in WRONG_IN_EAGER:
            if order == 1 and not _fits_differences(sample, ours[1]):
                result.wrong.append((1, f"{sample.label}: off finite differences"))
            continue
        if (result.name, order) in NAN_IN_EAGER:
            theirs = [_without_nan(t, mine) for t, mine in zip(theirs, ours[order], strict=True)]
        apart = _compare(ours[order], theirs)
        result.worst[order] = max(result.worst[order], apart)
        allowed = _allowed(sample, result.name, order, eager)
        if apart > allowed and not _excused(sample, order, ours[order], theirs):
            result.wrong.append((order, f"{sample.label}: {apart:.1e} off eager (relative)"))
    for order, kinds in enumerate(_opaque_by_order(compiled)):
        if kinds:
            result.native[order] = False
            result.opaque |= kinds


def _allowed(sample: Sample, name: str, order: int, eager: Runs) -> float:
    """The relative difference that needs no explanation.

    Where everything cancels, as in the gradient of a peaked softmax, what is left is rounding of
    larger numbers; in float64, without a better reference, they are of the size of the orders
    below, times the inputs for each derivative.
    """
    allowed = _ulps(_eps(eager[order])) * _eps(eager[order])
    if _eps(eager[order]) == torch.finfo(torch.float64).eps:
        if order:
            inputs = max(1.0, _scale([t for t in sample.tensors if t.is_floating_point()]))
            below = min(1e4, max(map(_scale, eager[:order])) * inputs**order)
            allowed *= max(1.0, below / (_scale(eager[order]) or 1.0))
        allowed = max(allowed, ROUGH_IN_EAGER.get((name, order), (0.0, ""))[0])
    return allowed


def _without_nan(theirs: Tensor | None, ours: Tensor | None) -> Tensor | None:
    if theirs is None or ours is None:
        return theirs
    return torch.where(torch.isnan(theirs), ours, theirs)


def _fits_differences(sample: Sample, gradients: Sequence[Tensor | None]) -> bool:
    """Our gradient along a random direction against central differences in float64."""
    generator = torch.Generator().manual_seed(3)
    tensors = sample.fresh(torch.float64)
    ways = [_random_like(t, generator) if t.requires_grad else None for t in tensors]

    def value(step: float) -> float:
        moved = [
            t.detach() if way is None else t.detach() + step * way
            for t, way in zip(tensors, ways, strict=True)
        ]
        weights = torch.Generator().manual_seed(1)
        with calling_plain():
            results = sample.run(moved)
        return sum(float((r * _random_like(r, weights)).sum()) for r in results)

    slope = (value(1e-5) - value(-1e-5)) / 2e-5
    wanted = [way for way in ways if way is not None]
    ours = sum(
        float((g.double() * way).sum())
        for g, way in zip(gradients, wanted, strict=True) if g is not None
    )  # fmt: skip
    tolerance = 2e-2 if sample.half else 1e-5
    return math.isclose(ours, slope, rel_tol=tolerance, abs_tol=tolerance)


def describe(error: Exception | None) -> str:
    """The class and first line of an error."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def _derivatives(
    run: Any, tensors: list[Tensor], upto: int | None = None, moved: Mover | None = None
) -> tuple[Runs, Exception | None]:
    """Results, gradients and second gradients, as far as they go, and what stopped them.

    For the reference (`upto` None) an error in the results is raised, and one in a gradient ends
    the list: torch has no such gradient. `moved` changes the cotangents a little.
    """
    generator = torch.Generator().manual_seed(1)
    runs: Runs = []
    try:
        seed(0)
        results = list(run(tensors))
        runs.append([t.detach().clone() for t in results])
        wanted = [t for t in tensors if t.requires_grad]
        # a seed for every tensor, live or not, so that both sides draw the same numbers
        pairs = [(t, _random_like(t, generator)) for t in results]
        for order in (1, 2):
            live = [(t, way) for t, way in pairs if t is not None and t.requires_grad]
            if not live or not wanted or (upto is not None and upto <= order):
                break
            outputs, seeds = zip(*live, strict=True)
            seeds = seeds if moved is None else tuple(map(moved, seeds))
            grads = torch.autograd.grad(
                outputs, wanted, seeds, create_graph=order == 1, allow_unused=True
            )
            runs.append([None if g is None else g.detach().clone() for g in grads])
            pairs = [(g, _random_like(t, generator)) for g, t in zip(grads, wanted, strict=True)]
        return _padded(runs, upto, wanted), None
    except Exception as error:
        if upto is None and not runs:
            raise
        return runs, error


def _padded(runs: Runs, upto: int | None, wanted: Sequence[Tensor]) -> Runs:
    # Where nothing was left to differentiate, the further gradients are zero, written None.
    while upto is not None and len(runs) < upto:
        runs.append([None] * len(wanted))
    return runs


def _random_like(tensor: Tensor, generator: torch.Generator) -> Tensor:
    double = torch.complex128 if tensor.is_complex() else torch.float64
    return torch.randn(tensor.shape, generator=generator, dtype=double).to(tensor)


def _compare(ours: Sequence[Tensor | None], theirs: Sequence[Tensor | None]) -> float:
    """max |ours - theirs| over the group, by its largest number; None is zero."""
    if len(ours) != len(theirs):
        return math.inf
    return max(map(_distance, ours, theirs), default=0.0) / (_scale(theirs) or 1.0)


def _scale(group: Sequence[Tensor | None]) -> float:
    return max([largest(_array(t)) for t in group if t is not None], default=0.0)


def _distance(mine: Tensor | None, other: Tensor | None) -> float:
    if mine is None and other is None:
        return 0.0
    if mine is None or other is None:
        return largest(_array(other if mine is None else mine))
    if mine.dtype != other.dtype or mine.shape != other.shape:
        return math.inf
    return distance(_array(mine), _array(other))


def _array(tensor: Tensor | None) -> Any:
    assert tensor is not None
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.double().numpy(force=True)


def _eps(group: Sequence[Tensor | None]) -> float:
    floats = [t.dtype for t in group if t is not None and (t.is_floating_point() or t.is_complex())]
    return max((torch.finfo(d).eps for d in floats), default=0.0)


def _excused(
    sample: Sample, order: int, ours: Sequence[Tensor | None], theirs: Sequence[Tensor | None]
) -> bool:
    """Whether another precision, or inputs moved by an ulp, explain the difference."""
    eps, double = _eps(theirs), torch.finfo(torch.float64).eps
    precision = torch.float64 if eps > double else torch.float32
    other = _reference(sample, order, sample.fresh(precision))
    if other is not None and eps > double:
        exact = [
            None if e is None or t is None else e.to(t.dtype)
            for e, t in zip(other, theirs, strict=True)
        ]
        own = _compare(theirs, exact)
        if _compare(ours, exact) <= _ulps(eps) * eps:
            return True  # eager overflows where float64, and ours, does not
        if math.isfinite(own) and _compare(ours, exact) <= FACTOR * own + _ulps(eps) * eps:
            return True
    elif other is not None:
        single = torch.finfo(torch.float32).eps
        mine = _reference(sample, order, sample.fresh(precision), ours=True)
        lost = max(
            _compare([None if t is None else t.to(_double(t)) for t in run], theirs) / single
            for run in (other, mine or other)
        )
        if math.isfinite(lost) and _compare(ours, theirs) <= (FACTOR * lost + _ulps(eps)) * eps:
            return True
    generator = torch.Generator().manual_seed(2)
    moved = 0.0

    def mover(tensor: Tensor) -> Tensor:
        if not tensor.is_floating_point() and not tensor.is_complex():
            return tensor
        step = torch.empty(tensor.shape, dtype=torch.float64)
        ways = step.uniform_(-1, 1, generator=generator).to(tensor.device)
        return (tensor * (1 + eps * ways)).to(tensor.dtype)

    for _ in range(8):
        tensors = sample.fresh()
        for tensor in tensors:
            tensor.data = mover(tensor.data)
        shaken = _reference(sample, order, tensors, mover)
        if shaken is not None:
            moved = max(moved, _compare(shaken, theirs))
    return math.isfinite(moved) and _compare(ours, theirs) <= FACTOR * moved + _ulps(eps) * eps


def _ulps(eps: float) -> float:
    return ULPS if eps < HALF else HALF_ULPS


def _double(tensor: Tensor) -> torch.dtype:
    if tensor.is_complex():
        return torch.complex128
    return torch.float64 if tensor.is_floating_point() else tensor.dtype


def _reference(
    sample: Sample, order: int, tensors: list[Tensor], moved: Mover | None = None,
    ours: bool = False,
) -> list[Tensor | None] | None:  # fmt: skip
    try:
        if ours:
            runs, _ = _derivatives(Differentiated(lambda ts: sample.run(ts)), tensors)
        else:
            with calling_plain():
                runs, _ = _derivatives(sample.run, tensors, moved=moved)
    except (RuntimeError, NotImplementedError):
        return None  # the op does not take float64
    return runs[order] if order < len(runs) else None


def _opaque_by_order(compiled: Differentiated) -> Iterator[set[str]]:
    """The opaque ops in f, in the dfs, and in their dfs."""
    level = compiled.plans()
    for _ in ORDERS:
        yield {name for plan in level for name in _opaque(plan)}
        level = [
            special.plan for plan in level for gradient in plan.gradients.values()
            for special in gradient.dfs.values()
        ]  # fmt: skip


def _opaque(plan: GraphPlan) -> set[str]:
    return {str(n.attrs["name"]) for n in plan.graph.walk() if n.kind in OPAQUE}


__all__ = ["ORDERS", "GradofError", "OpCoverage", "cover", "describe"]
