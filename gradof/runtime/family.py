"""One trace, and one native function, for calls that differ in the lengths of arrays alone.

    loss(p, obs[:20])       traced; obs has 20 numbers
    loss(p, obs[:33])       traced once more, now as the length is known to vary: it is `n`
    loss(p, obs[:500])      what is there runs, with n = 500

The graphs of the two traces are one graph of n (`gradof.passes.generalize`), if the function has
seen nothing of a length that could lead elsewhere (`gradof.tracer.numpy.lengths`), and its code is
the same for both (`gradof.codegen.whole.lengths`). A length for which something was decided
otherwise has a trace of its own, and so has every length of a function where this is not so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradof.codegen import AnyLength, compile_any_length
from gradof.ir.clone import clone_graph
from gradof.ir.core import Graph
from gradof.ir.extent import Unsized
from gradof.passes.generalize import generalized
from gradof.passes.pipeline import PREPARE, run_passes
from gradof.runtime.arrays import Call, without_arrays
from gradof.runtime.cache import Bound, Cache, Entry
from gradof.runtime.fastcall import Fast, fast_check
from gradof.runtime.lengths import ITSELF, Places, values_of
from gradof.runtime.log import log, told
from gradof.runtime.plan import GraphPlan
from gradof.runtime.quickcall import Quick, quick_call
from gradof.tracer.core.pytree import TreeDef

Build = Callable[[Graph], Graph]


def note_lengths(cache: Cache, fn: Any, call: Call, entry: Entry) -> None:
    """A call was traced; where the trace before was of another length, look for one of any."""
    if entry.traced.library != "numpy" or not _is_plain(entry):
        return
    last, places = cache.lengths.last(call), cache.lengths.places(call)
    if last is not None and places:
        try:
            cache.lengths.add(Family(cache, fn, last, (call, entry), places))
        except Unsized as reason:
            cache.lengths.note(call, made=False)
            log(f"another length of {entry.traced.graph.name} is another trace: {reason}")
    cache.lengths.keep(without_arrays(call), entry)


class Family:
    """A function's calls of one kind; `bound` has the second of its two traces."""

    def __init__(
        self, cache: Cache, fn: Any, first: tuple[Call, Entry], second: tuple[Call, Entry],
        places: Places,
    ) -> None:  # fmt: skip
        (call_a, a), (call_b, b) = first, second
        _check_alike(a, b)
        names = dict.fromkeys(places.values())
        values = [values_of(call, places) for call in (call_a, call_b)]
        if not a.state.check():
            raise Unsized("Python state has changed, too")
        if not b.traced.sizes.agree(a.traced.sizes):
            raise Unsized("what the function saw of a length may lead elsewhere")
        self._sizes = b.traced.sizes.lengths
        self._graphs = generalized(
            a.traced.graph, b.traced.graph, {name: (values[0][name], values[1][name])
                                             for name in names},
        )  # fmt: skip
        fast = fast_check(b, call_b, fn, lengths=places)
        if fast is None:
            raise Unsized("a call that is not checked by generated code")
        self._fast: Fast = fast
        inputs = {leaf: k for k, leaf in enumerate(b.traced.arg_leaves)}
        self._arity = len(b.traced.graph.inputs)  # after which come whole numbers
        numbers = dict.fromkeys(leaf for leaf, dim in places if dim == ITSELF)
        inputs.update((leaf, self._arity + k) for k, leaf in enumerate(numbers))
        found = {name: (inputs[leaf], dim) for (leaf, dim), name in [*places.items()][::-1]}
        self._names, self._places = tuple(found), tuple(found.values())
        self._cache = cache
        self.bound: Bound = Bound(b, [], without_arrays(call_b))
        self._quick: dict[Any, Quick | None] = {}
        self._runners: dict[Any, Callable[..., Any] | None] = {}

    def quick(self, form: Any, make: Callable[[Family], Quick | None]) -> Quick | None:
        """The generated call of a form, made once; None where there is none for any length."""
        if form not in self._quick:
            with self._cache.lock:
                if form not in self._quick:
                    self._quick[form] = make(self)
        return self._quick[form]

    def values(self) -> Quick | None:
        """The generated call of the function itself."""
        return self.call(lambda graph: graph, lambda value: value, role="forward")

    def call(
        self, build: Build, make: Callable[..., str], gradients: Sequence[TreeDef] = (),
        role: str = "backward",
    ) -> Quick | None:  # fmt: skip
        """The generated call of a graph made from the function's, as `quick_call`."""
        found = self._compiled(build)
        if found is None:
            return None
        graph, code = found
        plan = GraphPlan(graph, "numpy", self._cache.counts, role=role)
        lengths = [
            f"inputs[{k}]" + (f".shape[{dim}]" if dim != ITSELF else "") for k, dim in self._places
        ]
        return quick_call(
            self._cache, self.bound, plan, make, gradients, self._fast,
            (self._chosen(code), lengths, self._arity),
        )

    def runner(
        self, form: Any, build: Build, args: tuple[Any, ...]
    ) -> tuple[list[Any], Callable[..., Any]] | None:
        """The inputs of a call, and what runs a graph made from the function's; None as above."""
        if form not in self._runners:
            with self._cache.lock:
                found = self._compiled(build)
                self._runners[form] = None if found is None else self._chosen(found[1])
        chosen = self._runners[form]
        inputs = None if chosen is None else self._fast.check(args, {})
        if chosen is None or inputs is None:
            return None
        run = chosen(*(
            inputs[k] if dim == ITSELF else inputs[k].shape[dim] for k, dim in self._places
        ))  # fmt: skip
        return None if run is None else (inputs[: self._arity], run)

    def _compiled(self, build: Build) -> tuple[Graph, AnyLength] | None:
        name = self._graphs[1].name
        try:
            with told(f"compiling {name} for any length"):
                graphs = [build(graph) for graph in self._graphs]
                code = compile_any_length([_prepared(graph) for graph in graphs], name)
        except Unsized as reason:
            self._cache.lengths.note(self.bound.call, made=False)
            log(f"another length of {name} is compiled anew: {reason}")
            return None
        self._cache.lengths.note(self.bound.call, made=True)
        return graphs[1], code

    def _chosen(self, code: AnyLength) -> Callable[..., Any]:
        """What gives the function of lengths in order; None where it is not for them."""
        names, sizes = self._names, self._sizes

        def chosen(*lengths: int) -> Any:
            run = code.known(lengths)
            if run is not None:
                return run
            values = dict(zip(names, lengths, strict=True))
            return code.function(values) if sizes.hold(values) else None

        return chosen


def _prepared(graph: Graph) -> Graph:
    made = clone_graph(graph)
    run_passes(made, PREPARE)
    return made


def _is_plain(entry: Entry) -> bool:
    """Whether a call of the entry runs a graph, and does nothing else."""
    traced = entry.traced
    return not (
        traced.writebacks or traced.writes or traced.generators or traced.content
        or entry.decisions is not None or traced.sizes is None
    )


def _check_alike(a: Entry, b: Entry) -> None:
    """Two traces are of one structure, but for their graphs; Unsized where not."""
    for x, y in (
        (a.traced.arg_leaves, b.traced.arg_leaves), (a.traced.out_tree, b.traced.out_tree),
        (list(map(repr, a.traced.outputs)), list(map(repr, b.traced.outputs))),
        (a.free_keys, b.free_keys), (a.traced.numbers, b.traced.numbers),
        ([each.name for each in a.traced.origins], [each.name for each in b.traced.origins]),
        (a.traced.layouts, b.traced.layouts),
    ):  # fmt: skip
        if x != y:
            raise Unsized("results or inputs of another kind")


