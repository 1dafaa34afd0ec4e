"""vjp: the value of a function and its pullback, each one compiled graph.

In numpy the first saves what the second reads; in torch, which may record the second, that computes
the function again.

>>> value, pullback = vjp(lambda x: x ** 2, np.array([1.0, 2.0]))
>>> pullback(np.ones(2))
(array([2., 4.]),)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradof.autodiff.compose import pullback_graph, with_inputs_returned
from gradof.runtime.cache import Bound
from gradof.runtime.checks import cotangent_places, cotangents_for, lift_floats, plain, wrt_leaves
from gradof.runtime.function import Differentiated
from gradof.runtime.functional import bind_with_grad
from gradof.runtime.nested import session_for, vjp_inside
from gradof.runtime.once import compiled_once
from gradof.runtime.plan import GradientPlan
from gradof.runtime.refuse import check_numerics_inside
from gradof.runtime.results import finish, inputs_at_entry, run_plan
from gradof.tracer.state.generators import Rewound

Places = tuple[int, ...]
Pull = Callable[[Sequence[Any]], Sequence[Any]]  # from cotangents, in order, to gradients


def vjp(fn: Callable[..., Any], *args: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """`(fn(*args), pullback)`; `pullback(cotangents)` gives one gradient per argument.

    Cotangents have the structure, shapes and dtypes of the result, or CotangentError is raised. A
    leaf that is not floating point gets None. A pullback may be called often; it reads the arrays
    of the arguments, so that one that is to be changed is changed after the last call.
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
    if traced.library == "numpy":
        value, pull = _from_saved(bound, wrt, unique)
    else:
        value, pull = _from_inputs(bound, wrt, unique)

    def pullback(cotangents: Any) -> tuple[Any, ...]:
        grads = plain(pull(cotangents_for(bound, cotangents, outputs)))
        leaves: list[Any] = [None] * len(bound.call.leaves)
        for i, grad_ in zip(wrt, grads, strict=True):
            leaves[traced.arg_leaves[i]] = grad_
        result: tuple[Any, ...] = bound.call.tree.children[0].unflatten(
            leaves[: bound.call.tree.children[0].num_leaves]
        )
        return result

    return value, pullback


def _from_saved(bound: Bound, wrt: Places, unique: Places) -> tuple[Any, Pull]:
    """f with what its df reads, and df of that: nothing is computed twice, however often.

    A result that df reads is copied: the caller may change the one that it gets.
    """
    late, inputs = bound.entry.plan.late, inputs_at_entry(bound)
    split = _split(bound, wrt, unique)
    then = () if late is None else late.snapshot()
    results = split.f(*inputs)
    saved = [np.array(results[i]) if i < split.real_outputs else results[i]
             for i in split.captured_outputs]  # fmt: skip
    value = finish(bound, results[: len(bound.entry.traced.graph.outputs)])
    defined = tuple(i in unique for i in split.output_vjps)
    special = split.df(defined, (True,) * len(split.input_vjps))

    def pull(seeds: Sequence[Any]) -> list[Any]:
        if late is not None:
            late.check(then)
        by_output = dict(zip(unique, seeds, strict=True))
        given = [*map(by_output.get, split.output_vjps),
                 *(inputs[i] for i in split.captured_inputs), *saved]  # fmt: skip
        found = special.plan(*(given[i] for i in special.inputs))
        by_input = dict(zip((split.input_vjps[i] for i in special.outputs), found, strict=True))
        return [by_input[i] if i in by_input else np.zeros_like(inputs[i]) for i in wrt]

    return value, pull


def _split(bound: Bound, wrt: Places, unique: Places) -> GradientPlan:
    """f and df of an entry, or of one that returns its inputs, too, where a cotangent is theirs."""
    plan, count = bound.entry.plan, len(bound.entry.traced.graph.outputs)
    if max(unique, default=0) >= count:
        plan = bound.entry.derive("with its inputs", with_inputs_returned, role="forward")
    return plan.gradient([i in wrt for i in range(len(plan.graph.inputs))])


def _from_inputs(bound: Bound, wrt: Places, unique: Places) -> tuple[Any, Pull]:
    """The value, and one graph of the inputs and the cotangents, which torch may record."""
    traced = bound.entry.traced
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

    def pull(seeds: Sequence[Any]) -> Sequence[Any]:
        if late is not None:
            late.check(then)
        with draws.again():
            return run_plan(plan, [*inputs, *seeds])

    return value, pull
