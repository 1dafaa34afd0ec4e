"""What a function has derived so far: its traces, by signature, and what came of each.

    cache.entries[call.key]     the entries of a signature, the path taken last first
    entry.derive(key, build)    a graph made from an entry's own, such as its gradient; made once
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from gradof.ir import forks
from gradof.ir.core import Graph
from gradof.runtime.arrays import Call, Library, is_array, is_tensor, leaf_key, torch_if_loaded
from gradof.runtime.eager import EagerRuns
from gradof.runtime.guards import Decisions
from gradof.runtime.lending import Lending
from gradof.runtime.lengths import ByLength
from gradof.runtime.limits import limits
from gradof.runtime.numbers import VaryingNumbers
from gradof.runtime.plan import GraphPlan, RunCounts
from gradof.runtime.shapes import Shapes
from gradof.runtime.state import StateGuard
from gradof.tracer.core.number import LARGEST, NUMBERS
from gradof.tracer.core.result import Traced
from gradof.tracer.state.handed import Handed
from gradof.tracer.state.places import Place


class CacheInfo(NamedTuple):
    """Counts over the life of a function: calls that found an entry, traces, compiled runs.

    `eager_runs` are calls that ran under torch's own autograd: they could not be traced, or that
    is faster, or was tried (gradof.runtime.trial).
    """

    hits: int
    misses: int
    entries: int
    forward_runs: int
    backward_runs: int
    eager_runs: int = 0


@dataclass(eq=False)
class Entry:
    """One traced signature and what was derived from it."""

    _gradof_opaque = True  # what it leads to is no state of the user's (tracer.state.origins)

    traced: Traced
    plan: GraphPlan
    state: StateGuard
    free_keys: tuple[Any, ...]
    derived: dict[Any, GraphPlan]
    checked: dict[Any, Any]  # what the functional API found out once, by its own keys
    decisions: Decisions | None  # the values the path depends on
    lock: threading.RLock
    reason: str  # why it was traced
    seconds: float  # what tracing took
    conditions: tuple[Callable[[Sequence[Any]], bool], ...] = ()  # of the inputs of a call
    quick_made: bool = False  # whether a generated call was tried (gradof.runtime.quickcall)
    quick_forms: set[Any] = field(default_factory=set)  # the same, of its gradients
    performed: Callable[..., Any] | None = None  # the function, if it runs beside its graph
    hits_before: int = 0  # of the function, when it was traced
    state_containers: frozenset[int] = frozenset()  # ids: what no argument may be (`given`)
    trial: Any = None  # whose code runs its calls (gradof.runtime.trial), where that is timed
    telling: int | None = None  # the free array that told it apart from a call last, by number

    def is_told_apart(self, fn: Any) -> bool:
        """Whether the array that told it apart from a call the last time does so again.

        One of many traces that differ in one array is ruled out by that, not by all it has read.
        """
        if self.telling is None:
            return False
        try:
            found = self.traced.origins[self.telling].read(fn)
        except (LookupError, AttributeError):
            return False
        key = self.free_keys[self.telling]
        is_of_array = type(key) is tuple and len(key) > 1
        if is_of_array and getattr(found, "shape", key[1]) != key[1]:
            return True  # by far the quickest
        return free_keys([found]) != (key,)

    def has_keys(self, keys: tuple[Any, ...]) -> bool:
        """Whether these are the keys of its free arrays; notes which one is another."""
        if keys == self.free_keys:
            return True
        pairs = enumerate(zip(keys, self.free_keys, strict=True))
        self.telling = next(i for i, (found, own) in pairs if found != own)
        return False

    def derive(
        self, key: Any, build: Callable[[Graph], Graph], role: str = "backward"
    ) -> GraphPlan:
        """A plan for a graph made from this one, such as its gradient; made once per key."""
        with self.lock:
            plan = self.derived.get(key)
            if plan is None:
                plan = self.plan.with_graph(build(self.traced.graph), role=role)
                self.derived[key] = plan
            return plan


class Bound(NamedTuple):
    """An entry together with the arrays of one call, in the order of the graph's inputs.

    `drawn` are the generators of an entry that is performed, with their states before the graph;
    `given` the arguments of the call and those by name, as the caller has them.
    """

    entry: Entry
    inputs: list[Any]
    call: Call
    drawn: Sequence[tuple[Any, Any]] = ()
    given: tuple[Any, ...] = ()


class Cache:
    """What a function has derived so far; for methods, one cache per instance."""

    def __init__(self) -> None:
        self.entries: OrderedDict[tuple[Any, ...], list[Entry]] = OrderedDict()
        self.changed: dict[str, int] = {}  # place of Python's state → traces it has cost
        self.warned = False  # of such places
        self.lock = forks.rlock()
        self.counts = RunCounts()
        self.shapes = Shapes(self.counts.compiling)
        self.hits = 0
        self.misses = 0
        self.numbers = VaryingNumbers()
        self.eager = EagerRuns()
        self.lending = Lending()
        self.places: dict[Any, Place] = {}  # of numbers that vary, by place_key
        self.renewed: dict[Any, Place] = {}  # places whose objects are other ones at each call
        self.handed = Handed()  # where objects among the arguments are found
        self.kept: set[Any] = set()  # places whose objects count as who they are after all
        self.needed: set[Any] = set()  # places whose number the function needs itself
        self.last: tuple[Call, Entry] | None = None  # the last trace
        self.traces: deque[tuple[str, float]] = deque(maxlen=1000)  # reason and seconds, in order
        self.lengths = ByLength()
        self.quick: tuple[Any, ...] = ()  # generated calls (gradof.runtime.quickcall)
        self.quick_gradients: dict[Any, tuple[Any, ...]] = {}  # of `grad`, by its options
        self.fast: tuple[Any, ...] = ()  # generated checks (gradof.runtime.fastcall), latest first
        # by id: instances may be equal, or not hashable; the reference tells ids used again
        self.methods: dict[int, tuple[Callable[[], Any], Cache]] = {}

    def add_place(self, number: Any, known: dict[Any, tuple[Place, str]]) -> None:
        """The number of this `place_key` varies, unless the function needs its value."""
        if number is not None and number not in self.needed and number in known:
            self.places[number] = known[number][0]

    def touch(self, key: Any) -> None:
        """This signature is the one that was used last."""
        with self.lock:
            if key in self.entries:
                self.entries.move_to_end(key)

    def evict(self) -> None:
        """Forget the signatures that were not used for the longest time, beyond the limit."""
        hot = {fast.entry for fast in self.fast}  # found without a look at the signatures
        old = [key for key, found in self.entries.items() if not any(e in hot for e in found)]
        for key in old[: max(0, len(self.entries) - limits.signatures)]:
            self._forget(key)

    def forget(self, key: Any) -> None:
        """Forget the entries of a signature, which is to run eagerly."""
        with self.lock:
            gone = self.entries.get(key, ())
            self.fast = tuple(f for f in self.fast if not any(f.entry is e for e in gone))
            self._forget(key)

    def _forget(self, key: Any) -> None:
        del self.entries[key]
        self.quick_gradients.clear()
        self.quick = ()  # some may be of these; the others are made again
        for entries in self.entries.values():
            for entry in entries:
                entry.quick_made = False
                entry.quick_forms.clear()

    def of_instance(self, instance: Any) -> Cache:
        """The cache of the method bound to `instance`; it goes when the instance goes."""
        key = id(instance)
        found = self.methods.get(key)
        if found is not None and found[0]() is instance:
            return found[1]
        alive: Callable[[], Any]
        try:
            alive = weakref.ref(instance, lambda _: self.methods.pop(key, None))
        except TypeError:  # a class with __slots__ and no __weakref__: kept with its cache

            def alive() -> Any:
                return instance

        with self.lock:
            return self.methods.setdefault(key, (alive, Cache()))[1]


def free_keys(values: Sequence[Any]) -> tuple[Any, ...]:
    """What of free arrays the trace depends on."""
    return tuple(
        leaf_key(v, "a free array") if is_tensor(v) or is_array(v) else _kind(v) for v in values
    )


def _kind(value: Any) -> Any:
    large = type(value) is int and not -LARGEST < value < LARGEST
    return "a large int" if large else type(value)


def graph_input(leaf: Any, library: Library) -> Any:
    """A leaf as the array or tensor the graph takes; numbers become scalars of 64 bits."""
    if type(leaf) in NUMBERS:
        if library == "numpy":
            return np.asarray(leaf)
        torch = torch_if_loaded()
        return torch.tensor(leaf, dtype=torch.int64 if type(leaf) is int else torch.float64)
    return np.asarray(leaf) if isinstance(leaf, np.generic) else leaf


def inputs_of(call: Call, traced: Traced, free: Sequence[Any]) -> list[Any]:
    """The inputs of the graph: leaves of the call, then free arrays."""
    leaves = [*(call.leaves[i] for i in traced.arg_leaves), *free]
    return [graph_input(leaf, call.library) for leaf in leaves]


def read_free(fn: Any, traced: Traced) -> list[Any] | None:
    """The free arrays of a trace as they are now; None where one is gone: a trace is due."""
    try:
        return [origin.read(fn) for origin in traced.origins]
    except (LookupError, AttributeError):
        return None
