"""vjp: the value of a function and its pullback, each one compiled graph.

>>> value, pullback = vjp(lambda x: x ** 2, np.array([1.0, 2.0]))
>>> pullback(np.ones(2))
(array([2., 4.]),)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradof.autodiff.compose import pullback_graph, with_inputs_returned
from gradof.ir.types import TensorType
from gradof.runtime.cache import Bound
from gradof.runtime.checks import cotangent_places, cotangents_for, lift_floats, plain
from gradof.runtime.function import Differentiated
from gradof.runtime.functional import bind_with_grad
from gradof.runtime.nested import session_for, vjp_inside
from gradof.runtime.once import compiled_once
from gradof.runtime.refuse import check_numerics_inside
from gradof.runtime.results import finish, inputs_at_entry, run_plan
from gradof.tracer.core.result import Traced
from gradof.tracer.state.generators import Rewound


def vjp(fn: Callable[..., Any], *args: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """`(fn(*args), pullback)`; `pullback(cotangents)` gives one gradient per argument.

    Cotangents have the structure, shapes and dtypes of the result, or CotangentError is raised. A
    leaf that is not floating point gets None.
    """
    return vjp_at(fn, tuple(range(len(args))), args)


def vjp_at(
    fn: Callable[..., Any], positions: tuple[int, ...], args: tuple[Any, ...]
) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """As `vjp`; the pullback gives gradients of the arguments at `positions`, None of others."""
    base = compiled_once(fn)
    session = session_for(args)
    if session is not None:
        check_numerics_inside(base.nan_safe)
        return vjp_inside(session, base.fn, args, positions)
    lifted = lift_floats(args, positions)
    try:
        bound = bind_with_grad(base, lifted, {}, eager=not base.is_strict)
        bound = bound._replace(given=(args, {}))
    except Exception as error:
        found: tuple[Any, Callable[[Any], tuple[Any, ...]]] = base.cache.eager.instead(
            base.fn, error, args, {}, base.is_strict, lambda: _vjp_eagerly(base, args)
        )
        return found
    return _vjp_of(bound, positions)


def _vjp_eagerly(base: Differentiated, args: tuple[Any, ...]) -> Any:
    from gradof.runtime.torch_eager import vjp_eagerly

    return vjp_eagerly(base.fn, args)


def _vjp_of(
    bound: Bound, positions: tuple[int, ...]
) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    traced = bound.entry.traced
    counts = [tree.num_leaves for tree in bound.call.tree.children[0].children]
    places = [n for n, count in enumerate(counts) for _ in range(count)]
    wrt = tuple(i for i in wrt_leaves(traced) if places[traced.arg_leaves[i]] in positions)
    outputs = cotangent_places(traced)
    unique = tuple(sorted({i for i in outputs if i is not None}))
    inputs = inputs_at_entry(bound)
    draws, late = Rewound(traced.generators), bound.entry.plan.late
    then = () if late is None else late.snapshot()
    value = finish(bound, run_plan(bound.entry.plan, bound.inputs))
    plan = bound.entry.derive(
        ("vjp", wrt, unique),
        lambda g: pullback_graph(
            with_inputs_returned(g), wrt, unique, bound.entry.plan.memory_budget
        ),
    )

    def pullback(cotangents: Any) -> tuple[Any, ...]:
        seeds = cotangents_for(bound, cotangents, outputs)
        if late is not None:
            late.check(then)
        with draws.again():
            grads = plain(run_plan(plan, [*inputs, *seeds]))
        leaves: list[Any] = [None] * len(bound.call.leaves)
        for i, grad_ in zip(wrt, grads, strict=True):
            leaves[traced.arg_leaves[i]] = grad_
        result: tuple[Any, ...] = bound.call.tree.children[0].unflatten(
            leaves[: bound.call.tree.children[0].num_leaves]
        )
        return result

    return value, pullback


def wrt_leaves(traced: Traced) -> tuple[int, ...]:
    """The graph inputs that are floating-point leaves of the arguments."""
    return tuple(
        i for i, v in enumerate(traced.graph.inputs[: len(traced.arg_leaves)])
        if i not in traced.numbers and isinstance(v.type, TensorType) and v.type.dtype.is_inexact
    )
