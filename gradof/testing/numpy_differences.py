"""Gradients of numpy functions against differences, whoever has computed them.

    in_float64(report, args, grads, gradients_of)       # of lower precision, against float64
    along_lines(report, plain, args, weights, grads, rng)
    second_order(report, args, rng, gradients_of, products_of)

`args` are the function's, `grads` one for each of their leaves (None for what is no float) of the
sum of its results, each times its weight. `gradients_of(*args)` gives them anew, `products_of(args,
directions)` those of the Hessian with directions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.runtime.thread import calling_plain
from gradof.testing.closeness import (
    FACTOR,
    RANDOM_ULPS,
    directional,
    distance,
    largest,
    unsteady,
)
from gradof.testing.report import Report, Row
from gradof.tracer.core.pytree import flatten

GradientsOf = Callable[..., list[Any]]
ProductsOf = Callable[[tuple[Any, ...], tuple[Any, ...]], list[Any]]


def in_float64(
    report: Report, args: tuple[Any, ...], grads: list[Any], gradients_of: GradientsOf
) -> None:
    """Gradients of lower precision, whole, against those in float64, which differences judge.

    numpy has no gradient of its own whose error could set the bound; that of its values does.
    """
    if all(g is None or np.asarray(g).dtype == np.float64 for g in grads):
        return
    exact = gradients_of(*wide(args))
    ulp, tiny = _narrowest(args, grads)
    scale = max(largest(g) for g in exact if g is not None)
    outputs = [row for row in report.rows if row.eager is not None]
    loss = max((row.eager / row.scale for row in outputs if row.eager and row.scale), default=0.0)
    for name, mine, right in zip(_names(args), grads, exact, strict=True):
        if mine is not None:
            allowed = (RANDOM_ULPS * ulp + FACTOR * loss) * scale + FACTOR * tiny
            error = distance(mine, right)
            report.rows.append(Row(f"gradient of {name}", "float64", error, None, allowed, scale))


def along_lines(
    report: Report, plain: Any, args: tuple[Any, ...], weights: list[Any], grads: list[Any],
    rng: np.random.Generator,
) -> None:  # fmt: skip
    """One directional derivative per argument leaf."""
    names = _names(args)
    with calling_plain():
        outputs = float_results(plain(*wide(args)))
    if any(np.asarray(o).dtype != np.float64 for o in outputs):
        report.notes.append("results of lower precision than the arguments: no finite differences")
        return
    ulp, tiny = _narrowest(args, grads)
    terms = sum(float(np.nansum(np.abs(w * o))) for w, o in zip(weights, outputs, strict=True))
    for i, grad in enumerate(grads):
        if grad is None or not np.size(grad):
            continue
        x = flatten(args)[0][i]
        direction = rng.standard_normal(np.shape(grad)) * _sizes(x)
        ours = float(np.sum(grad * direction))
        size = float(np.sum(np.abs(grad * direction)))
        step = _step(ours, terms)
        with calling_plain():
            back, near, here, far, on = (
                _weighted(plain(*wide(args, {i: sign * step * direction})), weights)
                for sign in (-1.0, -0.25, 0.0, 0.25, 1.0)
            )
        # numpy has no gradient of its own that could say how well conditioned this one is
        slack = 1e-4 * size if ulp > np.finfo(np.float64).eps else 0.0
        slack += 8 * tiny * float(np.sum(np.abs(direction)))
        slack += size * float(np.finfo(np.float64).eps) / step  # the step itself is cut
        slack += 8 * terms * float(np.finfo(np.float64).eps) / step  # terms of a sum may cancel
        slack += unsteady((back, near, far, on), step)
        row = directional(f"gradient of {names[i]}", ours, (back, here, on), step, size, ulp, slack)
        if row is None:
            report.notes.append(f"not finite around {names[i]}: no finite differences")
        else:
            report.rows.append(row)


def second_order(
    report: Report, args: tuple[Any, ...], rng: np.random.Generator, gradients_of: GradientsOf,
    products_of: ProductsOf,
) -> None:  # fmt: skip
    """The Hessian of the weighted sum along random lines, against differences of the gradient."""
    here = wide(args)
    if not all(flatten(a)[0] and all(map(float_results, flatten(a)[0])) for a in here):
        report.notes.append("second order is checked where every argument is floating point")
        return
    directions = tuple(
        flatten(a)[1].unflatten(
            [rng.standard_normal(np.shape(x)) * _sizes(x) for x in flatten(a)[0]]
        )
        for a in here
    )
    ours = products_of(here, directions)
    moved = flatten(directions)[0]
    step = 1e-5
    at = {s: gradients_of(*wide(args, {i: s * step * d for i, d in enumerate(moved)}))
          for s in (-1.0, -0.25, 0.0, 0.25, 1.0)}  # fmt: skip
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


def _weighted(value: Any, weights: list[Any]) -> float:
    outputs = float_results(value)
    if any(np.shape(w) != np.shape(o) for w, o in zip(weights, outputs, strict=True)):
        return float("nan")  # a step has changed how many elements a mask has
    return float(sum(np.sum(w * o) for w, o in zip(weights, outputs, strict=True)))


def wide(args: tuple[Any, ...], moves: dict[int, Any] | None = None) -> tuple[Any, ...]:
    """The arguments in float64, floating leaf i moved by moves[i]."""
    leaves, tree = flatten(args)
    made = []
    for i, leaf in enumerate(leaves):
        is_float = isinstance(leaf, (np.ndarray, np.generic)) and leaf.dtype.kind == "f"
        array = np.asarray(leaf, dtype=np.float64) if is_float else leaf
        moved = array + moves[i] if moves and i in moves else array
        made.append(np.copy(moved) if is_float else leaf)
    result: tuple[Any, ...] = tree.unflatten(made)
    return result


def float_results(value: Any) -> list[Any]:
    """The floating-point numbers and arrays among results."""
    return [
        x for x in flatten(value)[0]
        if isinstance(x, (float, np.ndarray, np.generic)) and np.asarray(x).dtype.kind == "f"
    ]  # fmt: skip


def _narrowest(args: tuple[Any, ...], grads: list[Any]) -> tuple[float, float]:
    """The ulp of 1 and the least normal number of the narrowest dtype that a gradient may pass."""
    there = [*flatten(args)[0], *(g for g in grads if g is not None)]
    infos = [np.finfo(np.asarray(x).dtype) for x in there if np.asarray(x).dtype.kind == "f"]
    return float(max(i.eps for i in infos)), float(max(i.tiny for i in infos))


def _names(args: tuple[Any, ...]) -> list[str]:
    return [f"args{p}" for p in flatten(args)[1].paths()]


def _step(slope: float, size: float) -> float:
    """How far to go for a difference: less where the function would have moved by its own size."""
    if not np.isfinite(slope) or not size or abs(slope) * 1e-6 < 0.05 * size:
        return 1e-6
    return max(0.05 * size / abs(slope), 1e-13)


def _sizes(x: Any) -> Any:
    """What elements are moved by, in steps: each by its own size, that of others is far for it."""
    size = np.abs(np.asarray(x, np.float64))
    return np.where(np.isfinite(size), np.maximum(size, 1.0), 1.0)
