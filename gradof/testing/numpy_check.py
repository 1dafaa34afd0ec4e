"""The harness for numpy functions: against plain numpy, float64 and finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.errors import GradientMismatchError, OutputError
from gradof.passes.unroll_loops import unrolled
from gradof.runtime.checks import lift_floats
from gradof.runtime.function import Differentiated
from gradof.runtime.functional import bind_with_grad
from gradof.runtime.pullback import vjp
from gradof.runtime.thread import calling_plain
from gradof.testing.closeness import (
    FACTOR,
    RANDOM_ULPS,
    directional,
    distance,
    floats_of,
    largest,
    rows,
    unsteady,
)
from gradof.testing.literals import numpy_twins
from gradof.testing.localize import examine_ops, values_of
from gradof.testing.report import Report, Row
from gradof.tracer.core.pytree import flatten
from gradof.tracer.state.source import function_name


def check_numpy(
    fn: Callable[..., Any], args: tuple[Any, ...], order: int, seed: int, per_op: bool = False
) -> Report:
    """See `gradof.testing.check`."""
    compiled = fn if isinstance(fn, Differentiated) else Differentiated(fn)
    plain = compiled.fn
    args = lift_floats(_copied(args), range(len(args)))
    bound = bind_with_grad(compiled, args, {})
    graph = bound.entry.traced.graph
    report = Report(function_name(plain), nodes=len(graph.block))
    before = compiled.cache_info()
    value, pullback = vjp(compiled, *_copied(args))
    outputs = _floats(value)
    if not outputs:
        raise OutputError("the function returns no floating-point array", hint="check needs one")
    rng = np.random.default_rng(seed)
    weights = [rng.standard_normal(np.shape(o)) for o in outputs]
    grads = _gradients(pullback, value, weights)
    info = compiled.cache_info()
    if info.forward_runs <= before.forward_runs or info.backward_runs <= before.backward_runs:
        raise GradientMismatchError("our own f and df did not run")
    with calling_plain():
        eager = _floats(plain(*_copied(args)))
        exact = _floats(plain(*_wide(args)))
    dtypes = [np.asarray(o).dtype for o in eager]
    names = [f"output {i}" for i in range(len(outputs))]
    report.rows += rows(names, outputs, eager, exact, dtypes)
    _in_float64(report, compiled, args, weights, grads)
    _along_lines(report, plain, args, weights, grads, rng)
    if order > 1:
        _second_order(report, compiled, args, weights, rng)
    if per_op or not report.ok:
        flags = [True] * len(bound.entry.traced.arg_leaves)
        flags += [False] * (len(graph.inputs) - len(flags))
        f = unrolled(bound.entry.plan.gradient(flags).gradient.f)
        values = values_of(f, [np.asarray(x) for x in bound.inputs], "numpy")
        report.ops = examine_ops(f, values, seed)
        report.culprits = [culprit for row in report.ops for culprit in row.culprits]
    return report


def _copied(args: tuple[Any, ...]) -> tuple[Any, ...]:
    leaves, tree = flatten(args)
    arrays = [x for x in leaves if isinstance(x, np.ndarray)]
    laid_out = iter(numpy_twins(arrays))
    copies = [next(laid_out) if isinstance(x, np.ndarray) else x for x in leaves]
    result: tuple[Any, ...] = tree.unflatten(copies)
    return result


def _wide(args: tuple[Any, ...], moves: dict[int, Any] | None = None) -> tuple[Any, ...]:
    """The arguments in float64, floating leaf i moved by moves[i]."""
    leaves, tree = flatten(args)
    wide = []
    for i, leaf in enumerate(leaves):
        is_float = isinstance(leaf, (np.ndarray, np.generic)) and leaf.dtype.kind == "f"
        array = np.asarray(leaf, dtype=np.float64) if is_float else leaf
        moved = array + moves[i] if moves and i in moves else array
        wide.append(np.copy(moved) if is_float else leaf)
    result: tuple[Any, ...] = tree.unflatten(wide)
    return result


def _floats(value: Any) -> list[Any]:
    return [
        x for x in flatten(value)[0]
        if isinstance(x, (float, np.ndarray, np.generic)) and np.asarray(x).dtype.kind == "f"
    ]  # fmt: skip


def _gradients(pullback: Any, value: Any, weights: list[Any]) -> list[Any]:
    """Per leaf of the arguments; None for a leaf that is not floating point."""
    leaves, tree = flatten(value)
    supply = iter(weights)
    seeds = [
        np.asarray(next(supply), dtype=np.asarray(x).dtype) if _floats(x) else x for x in leaves
    ]
    return flatten(pullback(tree.unflatten(seeds)))[0]


def _in_float64(
    report: Report, compiled: Differentiated, args: tuple[Any, ...], weights: list[Any],
    grads: list[Any],
) -> None:  # fmt: skip
    """Gradients of lower precision, whole, against our own in float64, which differences judge.

    numpy has no gradient of its own whose error could set the bound; that of its values does.
    """
    if all(g is None or np.asarray(g).dtype == np.float64 for g in grads):
        return
    value, pullback = vjp(compiled, *_wide(args))
    exact = _gradients(pullback, value, weights)
    ulp, tiny = _narrowest(args, grads)
    scale = max(largest(g) for g in exact if g is not None)
    outputs = [row for row in report.rows if row.eager is not None]
    loss = max((row.eager / row.scale for row in outputs if row.eager and row.scale), default=0.0)
    for name, mine, right in zip(_names(args), grads, exact, strict=True):
        if mine is not None:
            allowed = (RANDOM_ULPS * ulp + FACTOR * loss) * scale + FACTOR * tiny
            error = distance(mine, right)
            report.rows.append(Row(f"gradient of {name}", "float64", error, None, allowed, scale))


def _narrowest(args: tuple[Any, ...], grads: list[Any]) -> tuple[float, float]:
    """The ulp of 1 and the least normal number of the narrowest dtype that a gradient may pass."""
    there = [*flatten(args)[0], *(g for g in grads if g is not None)]
    infos = [np.finfo(np.asarray(x).dtype) for x in there if np.asarray(x).dtype.kind == "f"]
    return float(max(i.eps for i in infos)), float(max(i.tiny for i in infos))


def _names(args: tuple[Any, ...]) -> list[str]:
    return [f"args{p}" for p in flatten(args)[1].paths()]


def _along_lines(
    report: Report, plain: Any, args: tuple[Any, ...], weights: list[Any], grads: list[Any],
    rng: np.random.Generator,
) -> None:  # fmt: skip
    """One directional derivative per argument leaf."""
    names = _names(args)
    with calling_plain():
        outputs = _floats(plain(*_wide(args)))
    if any(np.asarray(o).dtype != np.float64 for o in outputs):
        report.notes.append("results of lower precision than the arguments: no finite differences")
        return
    ulp, tiny = _narrowest(args, grads)
    terms = sum(float(np.nansum(np.abs(w * o))) for w, o in zip(weights, outputs, strict=True))
    for i, grad in enumerate(grads):
        if grad is None or not np.size(grad):
            continue
        direction = rng.standard_normal(np.shape(grad))
        ours = float(np.sum(grad * direction))
        size = float(np.sum(np.abs(grad * direction)))
        here_at = max(1.0, largest(flatten(args)[0][i]))
        step = _step(ours, terms, here_at)
        with calling_plain():
            back, near, here, far, on = (
                _weighted(plain(*_wide(args, {i: sign * step * direction})), weights)
                for sign in (-1.0, -0.25, 0.0, 0.25, 1.0)
            )
        # numpy has no gradient of its own that could say how well conditioned this one is
        slack = 1e-4 * size if ulp > np.finfo(np.float64).eps else 0.0
        slack += 8 * tiny * float(np.sum(np.abs(direction)))
        slack += size * here_at * float(np.finfo(np.float64).eps) / step  # the step itself is cut
        slack += 8 * terms * float(np.finfo(np.float64).eps) / step  # terms of a sum may cancel
        slack += unsteady((back, near, far, on), step)
        row = directional(f"gradient of {names[i]}", ours, (back, here, on), step, size, ulp, slack)
        if row is None:
            report.notes.append(f"not finite around {names[i]}: no finite differences")
        else:
            report.rows.append(row)


def _step(slope: float, size: float, here: float) -> float:
    """How far to go for a difference: less where the function would have moved by its own size."""
    usual = 1e-6 * here
    if not np.isfinite(slope) or not size or abs(slope) * usual < 0.05 * size:
        return usual
    return max(0.05 * size / abs(slope), 1e-13 * here)


def _weighted(value: Any, weights: list[Any]) -> float:
    outputs = _floats(value)
    if any(np.shape(w) != np.shape(o) for w, o in zip(weights, outputs, strict=True)):
        return float("nan")  # a step has changed how many elements a mask has
    return float(sum(np.sum(w * o) for w, o in zip(weights, outputs, strict=True)))


def _second_order(
    report: Report, compiled: Differentiated, args: tuple[Any, ...], weights: list[Any],
    rng: np.random.Generator,
) -> None:  # fmt: skip
    """The Hessian of the weighted sum along random lines, against differences of our gradient."""
    from gradof.runtime.functional import grad, hvp

    def weighted(*inputs: Any) -> Any:
        outputs = floats_of(compiled.fn(*inputs))
        return sum(np.sum(w * o) for w, o in zip(weights, outputs, strict=True))

    wide = _wide(args)
    positions = tuple(
        i for i, a in enumerate(wide) if all(_floats(x) for x in flatten(a)[0]) and flatten(a)[0]
    )
    if positions != tuple(range(len(wide))):
        report.notes.append("second order is checked where every argument is floating point")
        return
    gradient = grad(weighted, argnums=positions)
    directions = tuple(
        flatten(a)[1].unflatten([rng.standard_normal(np.shape(x)) for x in flatten(a)[0]])
        for a in wide
    )
    ours = flatten(hvp(weighted, wide, directions))[0]
    moved = flatten(directions)[0]

    def gradients(step: float) -> list[Any]:
        return flatten(gradient(*_wide(args, {i: step * d for i, d in enumerate(moved)})))[0]

    step = 1e-5
    at = {s: gradients(s * step) for s in (-1.0, -0.25, 0.0, 0.25, 1.0)}
    for i, mine in enumerate(ours):
        probe = rng.standard_normal(np.shape(mine))
        values = {s: float(np.sum(probe * grads[i])) for s, grads in at.items()}
        name = f"second gradient of leaf {i}"
        size = float(np.sum(np.abs(probe * mine)))
        far, near = values[1.0] - values[-1.0], values[0.25] - values[-0.25]
        if abs(far) > 1e-3 * max(map(abs, values.values())) and abs(near) > abs(far) / 2:
            report.notes.append(f"the gradient jumps at leaf {i}: no second differences")
            continue
        triple = (values[-1.0], values[0.0], values[1.0])
        slack = unsteady((values[-1.0], values[-0.25], values[0.25], values[1.0]), step)
        row = directional(name, float(np.sum(probe * mine)), triple, step, size, slack=slack)
        if row is None:
            report.notes.append(f"the gradient is not finite around leaf {i}")
        else:
            report.rows.append(row)
