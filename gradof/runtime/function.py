"""Differentiated: a traced, cached, compiled function.

    @differentiate
    def loss(x, w): ...

    loss(x, w)              first call: trace, derive, emit, run; then: find the entry, run
    loss.cache_info()       CacheInfo(hits=1, misses=1, entries=1, forward_runs=2, backward_runs=0)

An entry is found by the types of the arguments, their static values and torch's modes
(`inspect_call`), then by the Python state the trace read (`StateGuard`) and the types of the free
tensors, which are read anew each time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any

from gradof.autodiff.gradient import Gradient
from gradof.ir.clone import clone_graph
from gradof.ir.core import Graph
from gradof.ir.garbage import few_collections
from gradof.ops.guard import Number
from gradof.runtime import kin
from gradof.runtime.arrays import Call, Library
from gradof.runtime.audit import Audit, AuditInfo, checked_audit
from gradof.runtime.cache import Bound, Cache, CacheInfo, Entry, free_keys, inputs_of, read_free
from gradof.runtime.dynamo import leave_alone, left_alone
from gradof.runtime.eager import Failed, may_run_eagerly
from gradof.runtime.family import Family
from gradof.runtime.fastcall import hasten
from gradof.runtime.given import with_given
from gradof.runtime.guards import Decisions
from gradof.runtime.handed import CountsItself, with_handed
from gradof.runtime.lengths import MISS
from gradof.runtime.naming import name_of
from gradof.runtime.performed import drawn
from gradof.runtime.plan import GraphPlan
from gradof.runtime.quickcall import MAX_QUICK, Prepared, prepared, quick_call
from gradof.runtime.record import Tracing
from gradof.runtime.refuse import (
    Numerics,
    check_numerics_inside,
    checked_budget,
    checked_numerics,
    not_scripted,
)
from gradof.runtime.results import gradient_flags, run_call
from gradof.runtime.thread import is_tracing
from gradof.runtime.trial import tried


@left_alone
class Differentiated:
    """See `gradof.differentiate`, which makes these."""

    # A function that uses this one is traced through it; our bookkeeping is no state of theirs.
    _gradof_private = frozenset({"_cache", "_audit"})

    def __init__(
        self, fn: Callable[..., Any], static_argnames: tuple[str, ...] = (), strict: bool = False,
        memory_budget: float | None = None, numerics: Numerics = "eager",
        cuda_graph: bool = False, audit: float = 0.0,
    ) -> None:  # fmt: skip
        leave_alone()
        shown = (*functools.WRAPPER_ASSIGNMENTS, "__code__")  # which torch.export asks for
        functools.update_wrapper(self, fn, shown)  # first: its attributes do not replace ours
        self._numerics = checked_numerics(numerics)
        self._memory_budget = checked_budget(memory_budget)
        self._cuda_graph = cuda_graph
        self._audit = checked_audit(audit)
        self._fn = fn
        self._strict = strict
        self._static = static_argnames
        self._cache = Cache()

    # --- calls ------------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the compiled function. torch tensors are recorded by autograd.

        Called by a function that is being traced, it is traced through.
        """
        if is_tracing():
            check_numerics_inside(self.nan_safe)
            return self._fn(*args, **kwargs)
        if self._audit is not None:
            self._audit.call(self, args, kwargs)
        cache = self._cache
        for quick in cache.quick:
            result = quick(args, kwargs)
            if result is not MISS:
                return result
        result = cache.lengths.run(None, args, kwargs, Family.values)
        if result is not MISS:
            return result
        failure: Failed | None = None
        with few_collections():  # one for all that may have to be made
            try:
                bound = self.bind(args, kwargs, eager=not self._strict)
            except Exception as error:
                if not may_run_eagerly(self._fn, error, args, kwargs, self._strict):
                    cache.eager.refuse(self._fn, error, args, kwargs)
                failure = cache.eager.failed(self._fn, error)
            else:
                trial, result = bound.entry.trial, MISS
                if trial is None:
                    result = run_call(bound)
        if failure is not None:
            return cache.eager.run(self._fn, args, kwargs, failure)
        if trial is not None:  # one of more than MAX_QUICK
            result = trial(args, kwargs)
            if result is MISS:
                result = run_call(bound)
        if not bound.entry.quick_made:
            bound.entry.quick_made = True
            made = quick_call(cache, bound, bound.entry.plan, lambda value: value)
            made = tried(self, bound, made)
            if made is not None:
                cache.quick = (made, *cache.quick)[:MAX_QUICK]
        return result

    def bind(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], default: Library | None = None,
        eager: bool = False, apart: bool = False,
    ) -> Bound:  # fmt: skip
        """Find the entry of a call, or trace it; raises InputError, TraceError.

        With `eager` a call that is better run eagerly is one, too; `apart` as in `inspect_call`.
        """
        bind = functools.partial(self._bind, args, kwargs, default, eager, apart)
        found = self._cache.lending.bound(self, args, kwargs, default, bind)
        return with_given(found, args, kwargs)

    def _bind(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], default: Any, eager: bool, apart: bool
    ) -> Bound:
        cache = self._cache
        for fast in cache.fast:
            if fast.apart not in (None, apart):
                continue
            inputs = fast.check(args, kwargs)
            if inputs is not None:
                cache.hits += 1
                if fast is not cache.fast[0]:  # the latest is tried first
                    cache.fast = (fast, *(f for f in cache.fast if f is not fast))
                return Bound(fast.entry, inputs, fast.call)
        plain = cache.lending.inspect(self, args, kwargs, default, apart)
        call = with_handed(cache, plain)
        found = self._find_any(call)
        if found is None:
            with self._cache.lock:
                found = self._find_any(call) or self._of_kin(call)
                while found is None:
                    try:
                        return self._bound(*Tracing(self, self._cache).trace(call, eager))
                    except CountsItself:
                        call = with_handed(cache, plain)
                        found = self._find_any(call)
        self._cache.hits += 1
        return found

    def _find_any(self, call: Call) -> Bound | None:
        found = self._find(call)
        if found is not None:
            self._cache.touch(call.key)
        else:
            lifted = self._cache.numbers.lifted(call)
            if lifted is not None:
                found = self._find(lifted)
        return found

    def _of_kin(self, given: Call) -> Bound | None:
        """An entry of another function of the same code, if one serves this call."""
        entries = self._cache.entries
        for entry, call in kin.find(self, given):
            if not entries:
                self._cache.counts = entry.plan.counts
            entries[call.key] = [entry, *entries.get(call.key, ())]
            found = self._find(call)
            if found is not None:
                if call.numbers:
                    self._cache.numbers.learn(call)
                hasten(self._cache, self._fn, entry, call)
                return found
            entries[call.key].pop(0)
            if not entries[call.key]:
                del entries[call.key]
        return None

    def _find(self, call: Call) -> Bound | None:
        learnt: list[Number] = []
        for bound in self._candidates(call):
            decisions = bound.entry.decisions
            if decisions is None:
                return bound
            if decisions.may_follow(learnt):
                failed = decisions.failure(bound.inputs)
                if failed is None:
                    self._to_front(call.key, bound.entry)
                    return bound
                learnt = [*decisions.values[: failed.number], failed.value]
        return None

    def _candidates(self, call: Call) -> Iterator[Bound]:
        """The entries of this signature whose Python state holds, with the inputs of the call."""
        for entry in self._cache.entries.get(call.key, ()):
            if entry.is_told_apart(self._fn):
                continue
            if entry.state.check() and entry.traced.holds_content(self._fn):
                free = read_free(self._fn, entry.traced)
                if free is not None and entry.has_keys(free_keys(free)):
                    inputs = inputs_of(call, entry.traced, free)
                    laid_out = all(x.holds(inputs[x.input]) for x in entry.traced.layouts)
                    if laid_out and all(holds(inputs) for holds in entry.conditions):
                        yield Bound(entry, inputs, call, drawn(entry.traced))

    def _bound(self, entry: Entry, call: Call) -> Bound:
        free = read_free(self._fn, entry.traced)
        assert free is not None
        inputs = inputs_of(call, entry.traced, free)
        if entry.decisions is not None:
            entry.decisions.supply(inputs)
        return Bound(entry, inputs, call, drawn(entry.traced))

    def _to_front(self, key: tuple[Any, ...], entry: Entry) -> None:
        """The path that was taken last is tried first."""
        entries = self._cache.entries[key]
        if entries[0] is not entry:
            with self._cache.lock:
                rest = [e for e in self._cache.entries[key] if e is not entry]
                self._cache.entries[key] = [entry, *rest]

    def prepare(self, *args: Any, **kwargs: Any) -> Prepared:
        """The function for arguments like these, without the check of each call.

        Raises InputError where the check is needed, as where a value decides what runs.
        """
        bound = self.bind(args, kwargs)
        return prepared(self._cache, bound, bound.entry.plan, self._fn, lambda value: value)

    # --- inspection -------------------------------------------------------------------------

    def trace(self, *args: Any, **kwargs: Any) -> Graph:
        """The SSA graph of a call with these arguments (a copy), Guards included."""
        traced = self.bind(args, kwargs).entry.traced
        return clone_graph(traced.recorded or traced.graph)

    def gradient(self, *args: Any, **kwargs: Any) -> Gradient:
        """f, df and their captures, for the inputs that require grad.

        numpy arrays do not say; there, and where no tensor does, every float argument is meant.
        """
        bound = self.bind(args, kwargs)
        return bound.entry.plan.gradient(gradient_flags(bound)).gradient

    def explain(self, *args: Any, **kwargs: Any) -> Any:
        """What a call with these arguments does: an `Explanation`; print it."""
        from gradof.runtime.explain import explain

        return explain(self, self.bind(args, kwargs))

    def explore(self, *args: Any, **kwargs: Any) -> Any:
        """The whole compilation of a call as one page: an `Exploration`, with `write(path)`.

        It runs f and df of these arguments, to time them, and leaves the arguments as they are.
        """
        from gradof.runtime.explore.model import model_of
        from gradof.runtime.explore.page import Exploration

        return Exploration(model_of(self, self.bind(args, kwargs)))

    def cache_info(self) -> CacheInfo:
        """Hits, misses, entries and compiled runs so far."""
        cache = self._cache
        entries = sum(map(len, cache.entries.values()))
        runs = cache.counts
        return CacheInfo(
            cache.hits, cache.misses, entries, runs.forward, runs.backward, cache.eager.runs
        )

    def paths(self, call: Call) -> list[Decisions]:
        """The paths of a call's signature so far, by the values the function read."""
        return [
            entry.decisions for entry in self._cache.entries.get(call.key, ())
            if entry.decisions is not None and entry.state.check()
            and entry.traced.holds_content(self._fn)
        ]  # fmt: skip

    def plans(self) -> list[GraphPlan]:
        """The plans of all signatures so far, with everything derived from them."""
        with self._cache.lock:
            return [entry.plan for found in self._cache.entries.values() for entry in found]

    def lint(self, *args: Any, **kwargs: Any) -> Any:
        """Where a call with these arguments has a gradient of 0 * inf: a list of `Finding`s.

        Each is an op of infinite or missing slope whose result a `where` does not take.
        """
        from gradof.runtime.lint import lint

        return lint(self.bind(args, kwargs))

    def find_nan(self, *args: Any, **kwargs: Any) -> Any:
        """The op that makes the first NaN or infinity for these arguments: a `NotFinite`, or None.

        It looks at results, then at gradients, then at second gradients, with ones as cotangents.
        """
        from gradof.runtime.find_nan import find_nan

        return find_nan(self.bind(args, kwargs))

    def audit_info(self) -> AuditInfo | None:
        """What `audit=` has checked so far; None where it is 0."""
        return None if self._audit is None else self._audit.info()

    def with_numerics(self, numerics: Numerics) -> Differentiated:
        """The same function compiled anew with other numerics; itself if they are its own."""
        same = checked_numerics(numerics) == self._numerics
        return self if same else self.of_function(self._fn, numerics)

    def of_function(self, fn: Callable[..., Any], numerics: Numerics | None = None) -> Any:
        """Another function compiled as this one, or with other numerics."""
        return Differentiated(fn, *self._settings(numerics))

    def _settings(self, numerics: Numerics | None = None) -> tuple[Any, ...]:
        return (self._static, self._strict, self._memory_budget, numerics or self._numerics,
                self._cuda_graph, self.audited_share)  # fmt: skip

    @property
    def nan_safe(self) -> bool:
        """Whether a branch that is not taken contributes zero."""
        return self._numerics == "nan_safe"

    @property
    def is_strict(self) -> bool:
        """Whether what cannot be traced is an error."""
        return self._strict

    @property
    def static_argnames(self) -> tuple[str, ...]:
        """The arguments that are never traced."""
        return self._static

    @property
    def memory_budget(self) -> float | None:
        """The share of the values saved for the backward that may be saved."""
        return self._memory_budget

    @property
    def cuda_graph(self) -> bool:
        """Whether f and df are replayed as CUDA graphs."""
        return self._cuda_graph

    @property
    def audit(self) -> Audit | None:
        """What checks some of the calls, if anything does."""
        return self._audit

    @property
    def audited_share(self) -> float:
        """The share of calls that is checked against eager."""
        return 0.0 if self._audit is None else self._audit.share

    @property
    def cache(self) -> Cache:
        """What has been derived so far."""
        return self._cache

    @property
    def fn(self) -> Callable[..., Any]:
        """The function as it was given."""
        return self._fn

    # --- being a function -------------------------------------------------------------------

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        return self if instance is None else self.of_instance(instance)

    def of_instance(self, instance: Any) -> Differentiated:
        """This function as a method of `instance`, with a cache that goes when that goes."""
        bound = Differentiated(
            MethodType(self._fn, instance), self._static, self._strict, self._memory_budget,
            self._numerics, self._cuda_graph,
        )  # fmt: skip
        bound._cache = self._cache.of_instance(instance)
        bound._audit = self._audit
        return bound

    __prepare_scriptable__ = not_scripted

    def __reduce__(self) -> Any:
        return name_of(self, self._fn) or (Differentiated, (self._fn, *self._settings()))

    def __repr__(self) -> str:
        return f"<gradof.differentiate of {getattr(self._fn, '__qualname__', self._fn)}>"
