"""grad, value_and_grad, hvp, for numpy and torch alike; JAX's conventions.

>>> value_and_grad(lambda p: np.sum(p ** 2))(np.array([1.0, 2.0]))
(np.float64(5.0), array([2., 4.]))

Gradients come back in the structure of the argument, as a tuple exactly if `argnums` is one. Each
is one compiled graph, f and df together, cached per signature.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any, cast

from gradof.autodiff.compose import (
    pullback_graph,
    value_and_gradient_graph,
)
from gradof.errors import OutputError, TraceError
from gradof.ir.core import Graph
from gradof.ir.garbage import few_collections
from gradof.runtime.arrays import torch_if_loaded
from gradof.runtime.cache import Bound, CacheInfo
from gradof.runtime.checks import (
    Argnums,
    check_argnums,
    lift_floats,
    match_seeds,
    plain,
    scalar_output,
    wrt_inputs,
)
from gradof.runtime.dynamo import left_alone
from gradof.runtime.family import Family
from gradof.runtime.function import Differentiated
from gradof.runtime.histories import as_differentiated_at
from gradof.runtime.lengths import MISS
from gradof.runtime.naming import name_of
from gradof.runtime.nested import (
    Session,
    hvp_inside,
    inner_call,
    session_for,
)
from gradof.runtime.once import compiled_once
from gradof.runtime.plan import GraphPlan
from gradof.runtime.quickcall import MAX_QUICK, Prepared, Quick, prepared, quick_call
from gradof.runtime.refuse import Numerics, check_numerics_inside
from gradof.runtime.results import finish, run_plan
from gradof.runtime.thread import calling_compiled, is_plain_run, is_tracing
from gradof.tracer.core.pytree import flatten
from gradof.tracer.state.generators import Rewound
from gradof.tracer.state.source import user_loc


def bind_with_grad(
    base: Differentiated, args: tuple[Any, ...], kwargs: dict[str, Any],
    positions: Sequence[int] | None = None, eager: bool = False,
) -> Bound:  # fmt: skip
    """Bind with torch's grad mode on: asking for a gradient under `no_grad` still means it.

    That is of the arguments at `positions`, by default of all. `eager` is that of `base.bind`.
    """
    if is_plain_run():
        with calling_compiled():
            return bind_with_grad(base, args, kwargs, positions, eager)
    if is_tracing():
        name = getattr(base.fn, "__qualname__", base.fn)
        raise TraceError(
            f"the gradient of {name} is taken inside a traced function, of no traced argument",
            loc=user_loc(), hint="pass it tensors, or take the gradient outside",
        )  # fmt: skip
    torch = torch_if_loaded()
    if torch is None:
        return base.bind(args, kwargs, default="numpy", apart=True)
    with torch.enable_grad():
        bound = base.bind(args, kwargs, "numpy", eager, apart=True)
        return as_differentiated_at(
            bound, args, positions,
            lambda marked: base.bind(marked, kwargs, "numpy", eager, apart=True),
        )


class Transformed:
    """A callable derived from a compiled function, which it keeps as `.base`."""

    # Generated calls: what their code refers to is no state of the user's.
    _gradof_private = frozenset({"_kept", "_quick"})

    def __init__(
        self, fn: Callable[..., Any], argnums: Argnums, numerics: Numerics | None = None
    ) -> None:
        self.base = compiled_once(fn)
        if numerics is not None:
            self.base = self.base.with_numerics(numerics)
        self.argnums = argnums
        self.positions = check_argnums(argnums)
        functools.update_wrapper(cast(Any, self), self.base.fn, updated=())  # not its attributes

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any], eager: bool = False) -> Bound:
        """Find or trace the call, Python floats among the differentiated arguments lifted.

        `eager` is that of `Differentiated.bind`.
        """
        return self._bind(lift_floats(args, self.positions), args, kwargs, eager)

    def _bind(self, lifted: Any, args: Any, kwargs: dict[str, Any], eager: bool) -> Bound:
        bound = bind_with_grad(self.base, lifted, kwargs, self.positions, eager)
        return bound._replace(given=(args, kwargs))

    def cache_info(self) -> CacheInfo:
        """Hits, misses, entries and runs so far of the function that is compiled."""
        return self.base.cache_info()

    @property
    def fn(self) -> Callable[..., Any]:
        """The function that it is of."""
        return self.base.fn

    def of_function(self, fn: Callable[..., Any]) -> Any:
        """The same of another function."""
        made = copy.copy(self)
        made.base = self.base.of_function(fn)
        return made

    def __reduce__(self) -> Any:
        return name_of(self, self.base.fn) or super().__reduce__()

    def structured(self, bound: Bound, leaves: Sequence[Any]) -> Any:
        """Per-leaf results in the structure of the arguments named by argnums."""
        trees = [bound.call.tree.children[0].children[n] for n in self.positions]
        results, at = [], 0
        for tree in trees:
            results.append(tree.unflatten(leaves[at : at + tree.num_leaves]))
            at += tree.num_leaves
        return results[0] if isinstance(self.argnums, int) else tuple(results)


@left_alone
class ValueAndGrad(Transformed):
    """See `value_and_grad`."""

    def __init__(
        self, fn: Callable[..., Any], argnums: Argnums, has_aux: bool, with_value: bool,
        numerics: Numerics | None = None,
    ) -> None:  # fmt: skip
        super().__init__(fn, argnums, numerics)
        self.has_aux = has_aux
        self.with_value = with_value
        # those of an earlier `grad(fn)`: they are of the function, and not of this object
        self._kept = self.base.cache.quick_gradients
        self._form = (self.argnums, has_aux, with_value)
        self._quick = self._kept.get(self._form, ())

    def of_function(self, fn: Callable[..., Any]) -> Any:
        """The same of another function."""
        base = self.base.of_function(fn)
        return ValueAndGrad(base, self.argnums, self.has_aux, self.with_value)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """(value, gradient), or the gradient alone for `grad`."""
        if self.base.audit is not None and not is_tracing():
            self.base.audit.call(self.base, args, kwargs)
        result = self.at_once(args, kwargs)
        if result is not MISS:
            return result
        session = session_for((args, kwargs))
        if session is not None:
            check_numerics_inside(self.base.nan_safe)
            return self.inside(session, args, kwargs)
        with few_collections():  # one for all that may have to be made
            return self._run(args, kwargs)

    def at_once(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result by a generated call; MISS where none is for arguments like these."""
        if self._quick and not is_tracing():
            for quick in self._quick:
                result = quick(args, kwargs)
                if result is not MISS:
                    return result
        return MISS

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        lengths = self.base.cache.lengths
        result = lengths.run(self._form, args, kwargs, self._of_lengths)
        if result is not MISS:
            return result
        families = lengths.families
        try:
            given = lift_floats(args, self.positions)
            bound = self._bind(given, args, kwargs, not self.base.is_strict)
        except Exception as error:
            return self._eagerly(args, kwargs, error)
        if lengths.families is not families:  # this call has shown that its length varies
            result = lengths.run(self._form, args, kwargs, self._of_lengths)
            if result is not MISS:
                self.base.cache.hits -= 1  # it is the miss
                return result
        plan = bound.entry.checked.get((self.positions, self.has_aux))
        if plan is None:
            plan = self.plan_of(bound)
            bound.entry.checked[self.positions, self.has_aux] = plan
        self._take_quick(bound, plan, given is args)
        results = run_plan(plan, bound.inputs)
        n = len(bound.entry.traced.graph.outputs)
        value = finish(bound, results[:n])
        grads = self.structured(bound, plain(results[n:]))
        if self.with_value:
            return value, grads
        return (grads, value[1]) if self.has_aux else grads

    def _eagerly(self, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception) -> Any:
        """The same by torch's own autograd; see `gradof.runtime.eager`."""

        def run() -> Any:
            from gradof.runtime.torch_eager import gradient_eagerly

            given = lift_floats(args, self.positions)
            return gradient_eagerly(self.base.fn, self.positions, given, kwargs, self.has_aux)

        value, grads = self.base.cache.eager.instead(
            self.base.fn, error, args, kwargs, self.base.is_strict, run
        )
        shaped = grads[0] if isinstance(self.argnums, int) else tuple(grads)
        if self.with_value:
            return value, shaped
        return (shaped, value[1]) if self.has_aux else shaped

    def plan_of(self, bound: Bound) -> GraphPlan:
        """Value and gradient as one graph; OutputError, LeafTypeError or DtypeError."""
        wrt = wrt_inputs(bound, self.positions)
        output = scalar_output(bound, self.has_aux)
        return bound.entry.derive(
            ("value_and_grad", output, wrt),
            lambda g: value_and_gradient_graph(
                g, wrt, output=output, memory_budget=bound.entry.plan.memory_budget
            ),
        )

    def _of_lengths(self, family: Family) -> Quick | None:
        """The generated call for any length."""
        output = scalar_output(family.bound, self.has_aux)
        wrt = wrt_inputs(family.bound, self.positions)
        trees = [family.bound.call.tree.children[0].children[n] for n in self.positions]
        budget = self.base.memory_budget
        return family.call(
            lambda g: value_and_gradient_graph(g, wrt, output=output, memory_budget=budget),
            self._shaped, trees,
        )

    def prepare(self, *args: Any, **kwargs: Any) -> Prepared:
        """This for arguments like these, without the check of each call.

        Raises InputError where the check is needed, as where a value decides what runs.
        """
        bound = self.bind(args, kwargs)
        trees = [bound.call.tree.children[0].children[n] for n in self.positions]
        return prepared(
            self.base.cache, bound, self.plan_of(bound), self.base.fn, self._shaped, trees
        )

    def _take_quick(self, bound: Bound, plan: GraphPlan, as_they_are: bool) -> None:
        """The generated calls of this form, with one for this entry: made once, by whoever asks,
        where the arguments are taken as they are.
        """
        if as_they_are and self._form not in bound.entry.quick_forms:
            bound.entry.quick_forms.add(self._form)
            trees = [bound.call.tree.children[0].children[n] for n in self.positions]
            quick = quick_call(self.base.cache, bound, plan, self._shaped, trees)
            if quick is not None:
                self._kept[self._form] = (quick, *self._kept.get(self._form, ()))[:MAX_QUICK]
        self._quick = self._kept.get(self._form, ())

    def _shaped(self, value: str, *grads: str) -> str:
        """The code of the result from the codes of value and gradients."""
        shaped = grads[0] if isinstance(self.argnums, int) else f"({', '.join(grads)},)"
        if self.with_value:
            return f"({value}, {shaped})"
        return f"({shaped}, {value}[1])" if self.has_aux else shaped

    def inside(self, session: Session, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The same within a trace."""
        inner = inner_call(session, self.base.fn, args, kwargs, self.positions)
        value = inner.result
        if self.has_aux:
            if not isinstance(value, tuple) or len(value) != 2:
                raise OutputError(
                    "with has_aux the function must return a pair (scalar, aux)", loc=user_loc(),
                    hint="return (loss, aux), or leave has_aux out",
                )  # fmt: skip
            value = value[0]
        grads = inner.structured(inner.gradient(inner.scalar(value)))
        shaped = grads[0] if isinstance(self.argnums, int) else tuple(grads)
        if self.with_value:
            return inner.result, shaped
        return (shaped, inner.result[1]) if self.has_aux else shaped


def value_and_grad(
    fn: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, *,
    numerics: Numerics | None = None,
) -> ValueAndGrad:  # fmt: skip
    """A function that returns `(fn(...), gradient)`.

    fn returns a scalar, or with `has_aux` a pair of a scalar and anything else. Raises
    ArgnumsError, OutputError (no scalar), LeafTypeError or DtypeError (an argument that is not
    floating point). `numerics` is that of `differentiate`; by default the function's own.
    """
    return ValueAndGrad(fn, argnums, has_aux, with_value=True, numerics=numerics)


def grad(
    fn: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False, *,
    numerics: Numerics | None = None,
) -> ValueAndGrad:  # fmt: skip
    """A function that returns the gradient of the scalar function `fn`.

    With `has_aux`, (gradient, aux).
    """
    return ValueAndGrad(fn, argnums, has_aux, with_value=False, numerics=numerics)


def hvp(fn: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, ...]:
    """The Hessian of the scalar function `fn` at `primals` times `tangents`; one result per primal.

    By symmetry of the Hessian this is the vjp of the gradient.
    """
    args = tuple(primals)
    base, argnums = compiled_once(fn), tuple(range(len(args)))
    session = session_for((args, tuple(tangents)))
    if session is not None:
        check_numerics_inside(base.nan_safe)
        return hvp_inside(session, base.fn, args, tangents)
    transformed = ValueAndGrad(base, argnums, has_aux=False, with_value=False)

    ready = _hvp_of_any_length(transformed, args, tangents)
    if ready is not None:
        return ready

    def eagerly() -> Any:
        from gradof.runtime.torch_eager import hvp_eagerly

        return hvp_eagerly(base.fn, args, tangents)

    try:
        bound = transformed.bind(args, {}, eager=not base.is_strict)
    except Exception as error:
        given: tuple[Any, ...] = base.cache.eager.instead(
            base.fn, error, args, {}, base.is_strict, eagerly
        )
        return given
    output = scalar_output(bound, has_aux=False)
    wrt = wrt_inputs(bound, transformed.positions)
    plan = bound.entry.derive(("hvp", output, wrt), lambda g: _second(g, wrt, output))
    leaves, _ = flatten(tuple(tangents))
    seeds = match_seeds(leaves, [bound.inputs[i] for i in wrt], "tangents")
    traced = bound.entry.traced
    if not traced.writebacks and not traced.writes:
        return tuple(
            transformed.structured(bound, plain(run_plan(plan, [*bound.inputs, *seeds])))
        )
    with Rewound(traced.generators).again():
        found = plain(run_plan(plan, [*bound.inputs, *seeds]))
    finish(bound, run_plan(bound.entry.plan, bound.inputs))
    return tuple(transformed.structured(bound, found))


def _hvp_of_any_length(
    transformed: ValueAndGrad, args: tuple[Any, ...], tangents: Sequence[Any]
) -> tuple[Any, ...] | None:
    """The same by what is there for any length; None where nothing is."""
    cache = transformed.base.cache
    for family in cache.lengths.families:
        wrt = wrt_inputs(family.bound, transformed.positions)
        output = scalar_output(family.bound, has_aux=False)
        ready = family.runner(
            ("hvp", output, wrt), functools.partial(_second, wrt=wrt, output=output), args
        )
        if ready is not None:
            inputs, run = ready
            leaves, _ = flatten(tuple(tangents))
            seeds = match_seeds(leaves, [inputs[i] for i in wrt], "tangents")
            cache.hits += 1
            cache.counts.backward += 1
            return tuple(transformed.structured(family.bound, plain(run(*inputs, *seeds))))
    return None


def _second(graph: Graph, wrt: tuple[int, ...], output: int) -> Graph:
    first = gradient_only(graph, wrt, output)
    return pullback_graph(first, wrt, range(len(wrt)))


def gradient_only(graph: Graph, wrt: Sequence[int], output: int) -> Graph:
    """The graph of the gradients alone."""
    first = value_and_gradient_graph(graph, wrt, output=output)
    first.set_outputs(first.outputs[len(graph.outputs) :])
    return first
