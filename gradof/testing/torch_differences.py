"""Finite differences of a torch function, beside its gradient along one direction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gradof.runtime.thread import calling_plain
from gradof.testing.closeness import FACTOR, directional
from gradof.testing.report import Report
from gradof.testing.torch_runs import Inputs, Run, in_parts, is_inexact, random_like
from gradof.tracer.core.pytree import flatten

Tensor = torch.Tensor


def finite_differences(
    report: Report, eager: Callable[..., Any], inputs: Inputs, runs: tuple[Run, Run, Run], seed: int
) -> None:
    """Our gradient along a random direction against differences of float64 eager."""
    ours, theirs, exact = runs
    generator = torch.Generator().manual_seed(seed + 2)
    originals = [t.data for t in inputs.wanted]
    directions = [random_like(t, generator) for t in originals]
    step = 1e-6

    def value(sign: float) -> float:
        for tensor, original, direction in zip(inputs.wanted, originals, directions, strict=True):
            tensor.data = original + sign * step * direction
        with calling_plain():  # with history: the function may take gradients itself
            leaves = flatten(eager(*inputs.args, **inputs.kwargs))[0]
        outputs = [in_parts(t) for t in leaves if isinstance(t, Tensor) and is_inexact(t)]
        weights = torch.Generator().manual_seed(seed + 1)
        total = 0.0
        for output, mine in zip(outputs, exact.floats, strict=True):
            weight = random_like(output, weights)
            if mine.requires_grad:
                total += float((weight * output.detach()).sum())  # it may be an argument
        for tensor, original in zip(inputs.wanted, originals, strict=True):
            tensor.data = original
        inputs.restore()
        return total

    def products(run: Run) -> list[float]:
        return [
            0.0 if g is None else float((g.detach().double() * in_parts(d)).sum())
            for g, d in zip(run.gradients[0], directions, strict=True)
        ]

    mine, eagers, right = products(ours), products(theirs), products(exact)
    sizes = [
        float((g.detach().double() * in_parts(d)).abs().sum())
        for g, d in zip(exact.gradients[0], directions, strict=True) if g is not None
    ]  # fmt: skip
    ulp = max(torch.finfo(g.dtype).eps for g in theirs.gradients[0] if g is not None)
    slack = FACTOR * sum(abs(a - b) for a, b in zip(eagers, right, strict=True))
    values = (value(-1.0), value(0.0), value(1.0))
    name = "gradient along a line"
    judge = directional(name, sum(right), values, step, sum(sizes))
    if judge is None:
        report.notes.append("the function is not finite around the inputs: no finite differences")
    elif not judge.ok:
        report.notes.append(
            "finite differences contradict torch's own gradient: it is cut on purpose (detach) or "
            "has a jump; they are no judge here"
        )
    else:
        row = directional(name, sum(mine), values, step, sum(sizes), ulp, slack)
        assert row is not None
        report.rows.append(row)
