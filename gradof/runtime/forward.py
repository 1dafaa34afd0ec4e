"""`jvp`: derivatives along a direction, as a pullback of the pullback.

    out, tangent = jvp(fn, (x,), (t,))          # tangent = J(x) t

The pullback u -> J^T u is linear in u, so its own pullback takes t to J t, whatever u is
(J. Townsend, "A new trick for calculating Jacobian vector products", 2017).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradof.autodiff.compose import jvp_graph, with_inputs_returned
from gradof.errors import CotangentError
from gradof.runtime.arrays import is_tensor
from gradof.runtime.checks import cotangent_places, lift_floats, match_seeds, plain, wrt_leaves
from gradof.runtime.functional import bind_with_grad
from gradof.runtime.nested import session_for
from gradof.runtime.once import compiled_once
from gradof.runtime.pullback import vjp
from gradof.runtime.refuse import check_numerics_inside
from gradof.runtime.results import finish, run_plan
from gradof.tracer.core.pytree import flatten
from gradof.tracer.state.generators import Rewound


def jvp(fn: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """`(fn(*primals), tangent)`: the value, and its derivative along `tangents`.

    Tangents have the structure and shapes of the primals that are floating point, or
    CotangentError is raised; others take None. The second result has the structure of the first,
    with None for what is not floating point.
    """
    args = tuple(primals)
    if len(args) != len(tuple(tangents)):
        raise CotangentError(
            f"{len(tuple(tangents))} tangents for {len(args)} primals", hint="pass one for each"
        )
    base = compiled_once(fn)
    if session_for((args, tuple(tangents))) is not None:
        check_numerics_inside(base.nan_safe)
        return _inside(fn, args, tuple(tangents))
    lifted = lift_floats(args, tuple(range(len(args))))

    def eagerly() -> Any:
        from gradof.runtime.torch_eager import jvp_eagerly

        return jvp_eagerly(base.fn, args, tuple(tangents))

    try:
        bound = bind_with_grad(base, lifted, {}, eager=not base.is_strict)
        bound = bound._replace(given=(args, {}))
    except Exception as error:
        found: tuple[Any, Any] = base.cache.eager.instead(
            base.fn, error, args, {}, base.is_strict, eagerly
        )
        return found
    traced = bound.entry.traced
    wrt = wrt_leaves(traced)
    places = cotangent_places(traced)
    outputs = tuple(sorted({p for p in places if p is not None}))
    given = [leaf for leaf in flatten(tuple(tangents))[0] if leaf is not None]
    seeds = match_seeds(given, [bound.inputs[i] for i in wrt], "tangents")
    plan = bound.entry.derive(
        ("jvp", wrt, outputs), lambda g: jvp_graph(with_inputs_returned(g), wrt, outputs)
    )
    with Rewound(traced.generators).again():
        tangent = plain(run_plan(plan, [*bound.inputs, *seeds]))
    moved = dict(zip(outputs, tangent, strict=True))
    value = finish(bound, run_plan(bound.entry.plan, bound.inputs))
    return value, traced.out_tree.unflatten([None if p is None else moved[p] for p in places])


def _inside(
    fn: Callable[..., Any], args: tuple[Any, ...], tangents: tuple[Any, ...]
) -> tuple[Any, Any]:
    """`jvp` within a trace, where `vjp` records what it does."""
    value, pullback = vjp(fn, *args)
    leaves, tree = flatten(value)
    zeros = tree.unflatten([_zeros(leaf) for leaf in leaves])
    _, forward = vjp(pullback, zeros)
    (moved,) = forward(tangents)
    return value, moved


def _zeros(leaf: Any) -> Any:
    if is_tensor(leaf):
        return leaf.detach() * 0.0
    return leaf * 0.0
