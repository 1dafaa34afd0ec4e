"""The harness for numpy functions: against plain numpy, float64 and finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.errors import GradientMismatchError, OutputError
from gradof.passes.unroll_loops import unrolled
from gradof.runtime.checks import lift_floats
from gradof.runtime.function import Differentiated
from gradof.runtime.functional import bind_with_grad, grad, hvp
from gradof.runtime.pullback import vjp
from gradof.runtime.thread import calling_plain
from gradof.testing.closeness import floats_of, rows
from gradof.testing.literals import numpy_twins
from gradof.testing.localize import examine_ops, values_of
from gradof.testing.numpy_differences import (
    GradientsOf,
    ProductsOf,
    along_lines,
    float_results,
    in_float64,
    second_order,
    wide,
)
from gradof.testing.report import Report
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
    outputs = float_results(value)
    if not outputs:
        raise OutputError("the function returns no floating-point array", hint="check needs one")
    rng = np.random.default_rng(seed)
    weights = [rng.standard_normal(np.shape(o)) for o in outputs]
    grads = _gradients(pullback, value, weights)
    info = compiled.cache_info()
    if info.forward_runs <= before.forward_runs or info.backward_runs <= before.backward_runs:
        raise GradientMismatchError("our own f and df did not run")
    with calling_plain():
        eager = float_results(plain(*_copied(args)))
        exact = float_results(plain(*wide(args)))
    dtypes = [np.asarray(o).dtype for o in eager]
    names = [f"output {i}" for i in range(len(outputs))]
    report.rows += rows(names, outputs, eager, exact, dtypes)
    in_float64(report, args, grads, lambda *xs: _pulled(compiled, xs, weights))
    along_lines(report, plain, args, weights, grads, rng)
    if order > 1:
        second_order(report, args, rng, *_twice(compiled, weights, len(args)))
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


def _gradients(pullback: Any, value: Any, weights: list[Any]) -> list[Any]:
    """Per leaf of the arguments; None for a leaf that is not floating point."""
    leaves, tree = flatten(value)
    supply = iter(weights)
    seeds = [
        np.asarray(next(supply), dtype=np.asarray(x).dtype) if float_results(x) else x
        for x in leaves
    ]
    return flatten(pullback(tree.unflatten(seeds)))[0]


def _pulled(compiled: Differentiated, args: tuple[Any, ...], weights: list[Any]) -> list[Any]:
    value, pullback = vjp(compiled, *args)
    return _gradients(pullback, value, weights)


def _twice(
    compiled: Differentiated, weights: list[Any], count: int
) -> tuple[GradientsOf, ProductsOf]:
    """Gradients of the weighted sum, and products with its Hessian."""

    def weighted(*inputs: Any) -> Any:
        outputs = floats_of(compiled.fn(*inputs))
        return sum(np.sum(w * o) for w, o in zip(weights, outputs, strict=True))

    gradient = grad(weighted, argnums=tuple(range(count)))
    return (lambda *args: flatten(gradient(*args))[0],
            lambda args, lines: flatten(hvp(weighted, args, lines))[0])  # fmt: skip


