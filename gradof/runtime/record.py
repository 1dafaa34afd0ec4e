"""Making the entries of a compiled function: trace, guard, plan.

    entry, call = Tracing(function, cache).trace(call)

The call comes back with its numbers as inputs where they vary. A trace is made again where numbers
turn out to vary (`gradof.runtime.numbers`), or to be needed themselves.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable, Mapping, Sequence
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any, NamedTuple

from gradof.codegen import devices_of, has_small_kernels, is_worth_a_function
from gradof.errors import OpaqueOpWarning, RetraceWarning, TraceError
from gradof.ir import forks
from gradof.ir.contents import checksum
from gradof.ir.garbage import let_full_collections_wait
from gradof.passes.roll_loops import roll_loops
from gradof.runtime import kin
from gradof.runtime.arrays import Call, is_data, torch_if_loaded
from gradof.runtime.cache import Cache, Entry, free_keys
from gradof.runtime.conditions import conditions
from gradof.runtime.eager_call import hasten_failure
from gradof.runtime.family import note_lengths
from gradof.runtime.fastcall import hasten
from gradof.runtime.given import containers_of_state
from gradof.runtime.given_up import let_go, warmed_first
from gradof.runtime.guards import Decisions, path_limit
from gradof.runtime.handed import (
    CountsItself,
    count_themselves,
    handed_of,
    other_tensors,
    without_handed,
)
from gradof.runtime.inner_results import inner_results
from gradof.runtime.late import late_reads, read_late
from gradof.runtime.limits import limits
from gradof.runtime.log import log, told
from gradof.runtime.plan import GraphPlan
from gradof.runtime.refuse import check_arguments, shape_errors
from gradof.runtime.retrace import why_traced
from gradof.runtime.shapes import NotYet
from gradof.runtime.state import StateGuard
from gradof.runtime.state_apart import state_apart
from gradof.runtime.state_renewed import (
    RenewedObjects,
    has_to_keep,
    note_renewed,
    with_renewed,
)
from gradof.runtime.thread import tracing
from gradof.runtime.trace_counts import count_changes, count_new_paths, forget_a_path
from gradof.runtime.tracers import tracer_of
from gradof.tracer.core.number import NUMBERS
from gradof.tracer.core.place_numbers import is_floating, is_numeric, there, varying_now
from gradof.tracer.core.pytree import thaw
from gradof.tracer.core.result import ConstantOut, Store, Traced
from gradof.tracer.state.cold import ColdCache
from gradof.tracer.state.places import place_key
from gradof.tracer.state.reads import Reads
from gradof.tracer.state.renewable import Renewed
from gradof.tracer.state.source import function_loc

if TYPE_CHECKING:
    from gradof.runtime.function import Differentiated

_TRACING = forks.finish_first(threading.RLock())  # tracers set process-wide flags of torch


class _Recording(NamedTuple):
    """A finished trace, what it read of Python's state, what it took, and what it wrote.

    The trace itself writes to the objects that are in renewed places (`with_renewed`).
    """

    traced: Traced
    reads: Reads
    seconds: float
    stores: tuple[Store, ...]
    renewed: RenewedObjects


class Tracing:
    """Traces calls of one function into its cache; see the module docstring."""

    def __init__(self, function: Differentiated, cache: Cache) -> None:
        self.function = function
        self.fn = function.fn
        self.cache = cache
        self.reads: Reads | None = None  # of the last run
        self.given: Mapping[str, Any] = {}  # the objects among the arguments

    def trace(self, call: Call, may_run_eagerly: bool) -> tuple[Entry, Call]:
        """The entry of a call that has none; Note [Tried again] in `gradof.runtime.eager`.

        Raises TraceError and the errors of the function itself.
        """
        self.given = call.objects
        eager = self.cache.eager
        known = eager.known(call.key, self.fn) if may_run_eagerly else None
        if known is not None:
            hasten_failure(self.cache, self.fn, call, known)
            raise known.error.with_traceback(None)
        if may_run_eagerly and call.library == "torch" and torch_if_loaded().is_anomaly_enabled():
            raise TraceError(
                "anomaly mode looks at each op of torch's by itself", loc=function_loc(self.fn),
                hint="find_nan names the op without it",
            )
        is_known = call.key in self.cache.entries  # another path, or Python state
        inside = other_tensors(self.fn, self.cache, call) if is_known else None
        waits = self._waits(call, is_known, inside) if may_run_eagerly else None
        if waits is not None:
            raise waits
        self.cache.misses += 1
        try:
            if may_run_eagerly:
                count_changes(self.cache, call, self.fn, self.name)
                count_new_paths(self.cache, call, self.name)
            start = thread_time()
            try:
                made = self._trace(call, may_run_eagerly)
                eager.traced()
                return made
            finally:  # one that fails costs as much
                self.cache.shapes.took(call, thread_time() - start, is_known)
        except ColdCache as error:
            self.cache.misses -= 1
            if may_run_eagerly and eager.may_warm(call.key):
                raise warmed_first(error, self.reads) from None
            self._note_failure(call, error)
            raise
        except (RetraceWarning, OpaqueOpWarning, CountsItself):
            raise  # the user has made errors of the first two
        except Exception as error:
            eager.undone = self.reads is not None and self.reads.failed.undone
            if may_run_eagerly and call.library == "torch":
                self._note_failure(call, error)
            raise

    def _waits(self, call: Call, is_known: bool, inside: Any) -> NotYet | None:
        if not is_known:
            return self.cache.shapes.waits(call, self.name, self.cache.eager.fail_alike(self.fn))
        paths = () if inside else self.function.paths(call)
        return self.cache.shapes.waits_again(call, inside, paths, self.name)

    @property
    def name(self) -> str:
        """The function's name, for messages."""
        return getattr(self.fn, "__qualname__", type(self.fn).__qualname__)

    def _note_failure(self, call: Call, error: Exception) -> None:
        reads = self.reads
        state = None if reads is None else self._state(reads, (), by_content=True)
        self.cache.eager.note(call.key, error, state, () if reads is None else reads.failed.decided)
        let_go(reads)

    def _trace(self, call: Call, may_run_eagerly: bool) -> tuple[Entry, Call]:
        """Trace a call; numbers that vary become inputs unless the function needs their value."""
        varying = self.cache.numbers
        self._note_places(call)
        lifted = varying.note(call, self.name)
        while lifted is not None:
            self._note_places(lifted)
            made = self._trace_lifted(lifted)
            if isinstance(made, tuple):
                return made
            lifted = varying.pin(lifted, made)
        paths = self.function.paths(call)
        if len(paths) >= limits.paths:
            error = path_limit(self.name, paths)
            if may_run_eagerly and call.library == "torch":
                raise error
            forget_a_path(self.cache, call, paths[limits.paths - 1 :], error)
        return self._trace_places(call)

    def _trace_places(self, call: Call) -> tuple[Entry, Call]:
        """A trace whose inputs include the numbers of Python's state that vary, where they can."""
        while True:
            try:
                recording = self._record(call)
            except Exception:  # it comes again, or is not the user's
                if not self._lift_written() and not self._needs_arrays():
                    raise
                continue
            if not self._needs_numbers(recording.traced) and not self._counts(recording):
                if not self._keeps(call, recording):
                    return self._enter(call, recording)

    def _note_places(self, call: Call) -> None:
        """Numbers of Python's state that are not what they were in the traces before: they vary.

        Raises CountsItself where an object among the arguments turns out to.
        """
        for entry in self.cache.entries.get(call.key, ()):
            for _, number in entry.state.changes():
                self.cache.add_place(number, entry.state.numbers)
            self._note_arrays(entry)
            note_renewed(self.cache, entry)
        if count_themselves(self.cache, call):
            raise CountsItself
        if call.objects or not self.cache.entries:
            others = kin.varied(self.function, call)
            for number in others:
                self.cache.add_place(number, others)

    def _note_arrays(self, entry: Entry) -> None:
        """Arrays whose elements plain numpy has read, and that are other ones now: they vary."""
        for origin, checksum_then in entry.traced.content:
            try:
                now = origin.read(self.fn)
            except (LookupError, AttributeError, ValueError):
                continue  # it is gone
            if is_floating(now) and checksum(now) != checksum_then:
                for place, _, _ in entry.state.arrays:
                    key = place_key(place)
                    if key not in self.cache.needed and there(place) is now:
                        self.cache.places.setdefault(key, place)

    def _counts(self, recording: _Recording) -> bool:
        """Whether the function changes numbers or arrays that it reads: they are inputs at once."""
        places, before = self.cache.places, len(self.cache.places)
        numpys = recording.traced.library == "numpy"
        for store in recording.traced.stores:
            value = store.outputs[0] if store.mode == "set" and len(store.outputs) == 1 else None
            if value is None or not (isinstance(value, ConstantOut) or numpys):
                continue
            key, held = place_key(store.place), there(store.place)
            if key in self.cache.needed or not recording.reads.reads_name(store.place.key):
                continue
            if isinstance(value, ConstantOut):
                varies = type(held) is type(value.value) and type(held) in NUMBERS
            else:
                varies = is_numeric(held) or type(held) is float
            if varies:
                places.setdefault(key, store.place)
        return len(places) > before

    def _keeps(self, call: Call, recording: _Recording) -> bool:
        late = read_late(recording.reads) if recording.renewed.first else ()
        keeps = has_to_keep(self.cache, recording.renewed, late)
        if keeps and count_themselves(self.cache, call):
            raise CountsItself
        return keeps

    def _lift_written(self) -> bool:
        """Whether there are arrays, which a failed run has written to, that can be inputs."""
        places, before = self.cache.places, len(self.cache.places)
        for place in () if self.reads is None else self.reads.failed.written:
            key = place_key(place)
            if key not in self.cache.needed and is_numeric(there(place)):
                places.setdefault(key, place)
        return len(places) > before

    def _needs_arrays(self) -> bool:
        """Whether arrays of Python's state were inputs; as such they cannot be traced."""
        found = [key for key, place in self.cache.places.items() if is_numeric(there(place))]
        self.cache.needed.update(found)
        for key in found:
            del self.cache.places[key]
        return bool(found)

    def _needs_numbers(self, traced: Traced) -> bool:
        """Whether the function needs numbers themselves that were inputs: constants from now on."""
        needed = {key for key, _ in traced.pinned if type(key) is not int}
        self.cache.needed |= needed
        for key in needed:
            del self.cache.places[key]
        return bool(needed)

    def _trace_lifted(self, call: Call) -> tuple[Entry, Call] | list[tuple[int, Any]]:
        """A trace with numbers as inputs, or the numbers whose values were needed."""
        if len(self.function.paths(call)) >= limits.paths:
            return [(leaf, None) for leaf in call.numbers]
        while True:
            try:
                recording = self._record(call)
            except ColdCache:
                raise
            except Exception:  # with the numbers as constants it comes again, or is not the user's
                return [(leaf, None) for leaf in call.numbers]
            needed = self._needs_numbers(recording.traced)
            leaves = [(key, loc) for key, loc in recording.traced.pinned if type(key) is int]
            if leaves:
                return leaves
            if not needed and not self._counts(recording) and not self._keeps(call, recording):
                return self._enter(call, recording)

    def _record(self, call: Call) -> _Recording:
        start = perf_counter()
        let_full_collections_wait()
        torchs = call.library == "torch"
        places = tuple(varying_now(self.cache.places, arrays=not torchs).values())
        handed = handed_of(call)
        keys = {*self.cache.renewed, *(place_key(place) for _, place in handed.values())}
        known = Renewed(frozenset(keys), frozenset(self.cache.kept))
        reads = Reads(refuse_effects=torchs, renewed=known, handed=handed)
        let_go(self.reads)  # of a run before this one
        self.reads = reads
        with _TRACING, told(f"tracing {self.name}, once for this signature"):
            args, kwargs = call.tree.unflatten([thaw(leaf) for leaf in call.leaves])
            check_arguments(self.fn, args, kwargs)
            function = self.function
            with tracing(function.nan_safe), shape_errors():
                traced = tracer_of(call, function.is_strict, places, self.cache.lengths)(
                    self.fn, args, kwargs, static_argnames=function.static_argnames,
                    numbers=call.numbers, reads=reads,
                )
        if devices_of(traced.graph) <= {"cpu"}:  # kernels of a device have no loops around them
            roll_loops(traced.graph, has_loops=any(traced.loops))
        traced.graph.nan_safe = function.nan_safe
        traced.graph.small_kernels = has_small_kernels(traced.graph)
        traced.graph.whole = is_worth_a_function(traced.graph)
        renewed = self._guard(traced, reads, traced.stores).renewed if reads.renewed else (
            RenewedObjects(reads)
        )  # fmt: skip
        anew = without_handed(with_renewed(traced, renewed), call)
        return _Recording(anew, reads, perf_counter() - start, traced.stores, renewed)

    def _enter(self, call: Call, recording: _Recording) -> tuple[Entry, Call]:
        traced, cache = recording.traced, self.cache
        reason = why_traced(cache, call)
        log(f"traced {self.name} in {1e3 * recording.seconds:.1f} ms: {reason}; "
            f"{len(traced.graph.block)} nodes, {len(traced.graph.inputs)} inputs")  # fmt: skip
        free = [origin.read(self.fn) for origin in traced.origins]
        state = self._guard(traced, recording.reads, recording.stores, free)
        leaves = [call.leaves[i] for i in traced.arg_leaves]
        entry = Entry(
            traced=traced,
            plan=GraphPlan(
                traced.graph, call.library, cache.counts, memory_budget=self.function.memory_budget,
                views=traced.views, cuda_graph=self.function.cuda_graph,
                overwritten=tuple(back.input for back in traced.writebacks),
            ),
            state=state,
            free_keys=free_keys(free),
            derived={},
            checked={},
            hits_before=cache.hits,
            decisions=(
                None if traced.deciding is None
                else Decisions(traced.deciding, call.library, traced.generators)
            ),
            lock=forks.rlock(),
            reason=reason,
            seconds=recording.seconds,
            performed=self.fn if traced.performs else None,
            conditions=() if call.library == "numpy" else tuple(
                conditions(self.fn, traced, recording.reads, [*leaves, *free])
            ),
        )  # fmt: skip
        tell = functools.partial(self._run_eagerly, call.key)
        entry.plan.late = late_reads(
            recording.reads, traced, [*leaves, *free],
            varying_now(cache.places, arrays=call.library == "numpy"), tell,
        )
        if call.library == "torch":
            entry.plan.inner = inner_results(entry.plan, traced)
            entry.plan.apart = state_apart(entry.plan, traced)
        entry.state_containers = containers_of_state(entry.state, traced)
        entries = cache.entries.setdefault(call.key, [])
        cache.entries[call.key] = [entry, *entries][: limits.entries]
        hasten(cache, self.fn, entry, call)
        cache.traces.append((entry.reason, entry.seconds))
        note_lengths(cache, self.fn, call, entry)
        kin.note(self.function, call, entry, recording.reads, self.cache.needed)
        let_go(recording.reads)
        return entry, call

    def _run_eagerly(self, key: Any, error: TraceError) -> None:
        """A backward was not as eager's would be: this signature runs eagerly from now on."""
        if not self.function.is_strict and key in self.cache.entries:
            self.cache.forget(key)
            self.cache.eager.note(key, error, None)

    def _guard(
        self, traced: Traced, reads: Reads, stores: Iterable[Store], free: Sequence[Any] = ()
    ) -> StateGuard:
        torchs = traced.library == "torch"
        guard = self._state(reads, free, torchs, stores if torchs else ())
        if torchs and guard.untraceable is not None:
            raise TraceError(
                f"{guard.untraceable} is an iterator: what it gives next is not known before",
                loc=function_loc(self.fn), hint="take from it outside and pass what it gives",
            )
        return guard

    def _state(
        self, reads: Reads, free: Sequence[Any], by_content: bool, stores: Iterable[Store] = ()
    ) -> StateGuard:
        return StateGuard(
            self.fn, reads, is_data, free,
            frozenset(varying_now(self.cache.places, arrays=not by_content)),
            by_content=by_content, given=self.given, stores=stores,
        )  # fmt: skip
