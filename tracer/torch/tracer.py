"""Tracing a call of a torch function.

>>> def f(x, w):
...     h = torch.tanh(x @ w)
...     return h.sum()
>>> print(trace_torch(f, (torch.ones(4, 3), torch.ones(3, 2)), {}).graph)
graph f(%x : f32[4,3], %w : f32[3,2]):
  %0 : f32[4,2] = mm(%x, %w)  # example.py:2
  %h : f32[4,2] = tanh(%0)  # example.py:2
  %1 : f32[] = sum[dims=(0, 1), keepdims=False](%h)  # example.py:3
  return (%1)

The function runs once, for real, on wrappers of its arguments (see `torch_modes`). Tracing leaves
no trace: no real tensor is changed, and the random number generator is put back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import torch

from gradof.errors import FreeTensorError, GradofError
from gradof.ir import forks
from gradof.ir.core import Value
from gradof.ir.garbage import few_collections
from gradof.tracer.aten import adaptors  # noqa: F401  # they register themselves
from gradof.tracer.aten.types import type_of
from gradof.tracer.core.given import GivenContainers
from gradof.tracer.core.lent_arrays import lent_leaves
from gradof.tracer.core.lent_type import Type
from gradof.tracer.core.loop_notes import LoopNotes, Varying
from gradof.tracer.core.number import TracedNumber
from gradof.tracer.core.place_numbers import NumbersInPlaces
from gradof.tracer.core.pytree import flatten_call, thaw
from gradof.tracer.core.regions import recording_into
from gradof.tracer.core.result import (
    Readable,
    Traced,
    split_guards,
)
from gradof.tracer.numpy.adopt import Adoptions
from gradof.tracer.state.cold import ColdCache
from gradof.tracer.state.generators import Generators
from gradof.tracer.state.origins import Origins
from gradof.tracer.state.places import Place
from gradof.tracer.state.reads import Reads
from gradof.tracer.state.source import user_loc
from gradof.tracer.torch import cells, ctc, library  # noqa: F401  # they register themselves
from gradof.tracer.torch.array_sources import ArraySources
from gradof.tracer.torch.array_tensors import arrays_taken
from gradof.tracer.torch.attributes import ReadAttributes
from gradof.tracer.torch.backwards import backwards_inside
from gradof.tracer.torch.checkpoint import torch_checkpoints, without_saved_tensors_hooks
from gradof.tracer.torch.control_flow import control_flow
from gradof.tracer.torch.conversions import CALLS, conversions_of
from gradof.tracer.torch.custom import custom_functions
from gradof.tracer.torch.decided import decided_by
from gradof.tracer.torch.device import OneDevice, recorded_generators
from gradof.tracer.torch.draws import Drawing, drawn_numbers
from gradof.tracer.torch.effects import refuse_effects
from gradof.tracer.torch.functional import (
    become_like,
    functionalization,
    inner,
    scalar,
    unfused,
    wrap,
)
from gradof.tracer.torch.hooks import TensorHooks, module_hooks
from gradof.tracer.torch.inference import of_same_memory, without_inference_mode
from gradof.tracer.torch.leaves import (
    check_leaves,
    check_tensor,
    identifier,
    name_of,
    names_of,
    objects_of,
)
from gradof.tracer.torch.loops import EvaluateGraph, TensorLoops
from gradof.tracer.torch.meta_kernels import meta_kernels_alone
from gradof.tracer.torch.modes import ApiMode, AtenMode
from gradof.tracer.torch.numpy_arrays import TracedNumpy
from gradof.tracer.torch.outcome import Outcome, is_traced, order_of
from gradof.tracer.torch.parameters import parameters_made
from gradof.tracer.torch.picks import places_of_views
from gradof.tracer.torch.random import GeneratorState, OwnGenerators, drawn_from, id_of
from gradof.tracer.torch.recorder import Recorder
from gradof.tracer.torch.refusals import noting_refusals
from gradof.tracer.torch.sizes_apart import sizes_and_math
from gradof.tracer.torch.state import OuterState
from gradof.tracer.torch.transforms import func_transforms, outside_transforms

# Fused kernels are switched off for the whole process while a trace runs.
_ONE_AT_A_TIME = forks.finish_first(threading.RLock())


def trace_torch(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    static_argnames: Sequence[str] = (),
    strict: bool = False,
    numbers: Collection[int] = (),
    varying: Sequence[Place] = (),
    reads: Reads | None = None,
    same: Mapping[int, int] | None = None,
    evaluate: EvaluateGraph | None = None,
) -> Traced:
    """Run `fn(*args, **kwargs)` once and record it.

    The leaves `numbers` are Python numbers that become inputs of the graph (`tracer.number`), and
    so do the numbers in the places `varying`. Leaves in `same` are the tensors of earlier ones.
    `reads` notes what the run read, also if it fails. An op without a rule becomes an `Opaque`
    node, with an OpaqueOpWarning; `strict` makes it an UnsupportedOpError. `evaluate` computes a
    graph on arrays; without it each number of steps of a loop that a value ends is its own trace.

    Raises a TraceError where the function cannot be followed, a LeafTypeError for an argument leaf
    that is neither a tensor nor a plain Python value; errors of the function itself pass through.
    """
    leaves, tree, paths = flatten_call(fn, args, kwargs, static_argnames)
    check_leaves(leaves, paths, fn)
    with _ONE_AT_A_TIME, few_collections():
        reads = Reads() if reads is None else reads
        loops_vary, conversions = Varying(), conversions_of(fn)
        while True:
            loops_vary.begin()
            trace = Trace(fn, strict, numbers, varying, reads, same or {})
            trace.follow_conversions(conversions)
            trace.api.picks.views = places_of_views(fn)
            loops = trace.loops
            if evaluate is not None:
                loops = trace.loops = LoopNotes(reads, None, loops_vary)
                trace.follow_loops(evaluate)
            try:
                traced = trace.run(leaves, tree, paths)
            except ColdCache:
                raise
            except Exception:  # without loops it comes again, or was not the user's
                if loops.looked_at or loops.unrolled:
                    evaluate = None
                elif not trace.sources.missed and not loops_vary.give_up():
                    raise
            else:
                again = conversions.fresh or trace.api.picks.missing or trace.sources.missed
                if not again and not loops_vary.another():
                    return traced


class Trace:
    """One tracing run."""

    def __init__(
        self, fn: Callable[..., Any], strict: bool, numbers: Collection[int],
        varying: Sequence[Place], reads: Reads, same: Mapping[int, int],
    ) -> None:  # fmt: skip
        self.fn = fn
        self.reads = reads
        reads.misses.is_traced = _is_of_trace
        reads.lends["type"] = Type
        self.same = same
        self.places = NumbersInPlaces(varying)
        self.numbers = frozenset(numbers)
        self.recorder = Recorder(name_of(fn), strict)
        self.generators = OwnGenerators(self.recorder, self.add_state, self._leads_to)
        reads.before_c = self.generators.hear
        self.aten = AtenMode(self.recorder, self.generators)
        self.api = ApiMode(self.recorder, self.lift)
        self.aten.layouts, self.aten.of_numpy = self.api.layouts, self.api.of_numpy
        self.draws = Drawing(self.recorder, self.api.numbers)
        self.api.register_hook = TensorHooks(self.recorder, self.api).register
        self.outer = OuterState(fn, reads)
        self.sources = ArraySources(reads, self.outer)
        self.api.of_numpy.follow(self.outer.arrays, self.sources.unknown)
        self.attributes = self.api.attributes = ReadAttributes(reads)
        self.devices = OneDevice(fn)
        self.found: list[Readable] = []
        self.params: list[Value] = []
        self.real: list[torch.Tensor] = []
        self.wrappers: list[torch.Tensor] = []
        self.orders: list[list[int]] = []  # of the dims of the wrappers, in memory, at entry
        self.required: list[bool] = []
        self.given: Sequence[Any] = ()  # the leaves of the arguments
        self._lifted: dict[int, torch.Tensor] = {}
        self.loops = LoopNotes(reads)
        self.ends: AbstractContextManager[Any] = nullcontext()  # of loops that a value ends
        self.converting: AbstractContextManager[Any] = nullcontext()

    def follow_loops(self, evaluate: EvaluateGraph) -> None:
        """Let loops that a value ends be recorded as such."""
        self.ends = loops = TensorLoops(self, self.loops, evaluate)
        self.api.tested = loops.tested

    def follow_conversions(self, conversions: Adoptions) -> None:
        """Let `float` and `int` of tensors be numbers of the graph."""
        self.converting = conversions.at_work(self.recorder, CALLS)
        self.api.numbers.numbers.converted = conversions.note_conversion

    def run(self, leaves: list[Any], tree: Any, paths: tuple[str, ...]) -> Traced:
        """Trace one call, and leave what is outside it as it was."""
        self.outer.given = objects_of(leaves)
        generators = Generators(self.fn, leaves, self.reads)
        try:
            with without_saved_tensors_hooks(), without_inference_mode():
                traced = self.trace(leaves, tree, paths)
            generators.check(lambda: None)
        except Exception as error:
            free = len(self.params) - len(self.found)
            self.reads.failed.decided = decided_by(
                self.recorder.graph, self.params[free:], self.real[free:], self.found
            )
            if isinstance(error, GradofError):
                self.reads.misses.refuse_within(error)
            raise
        finally:
            generators.put_back()
            for generator, state in self.recorder.seeded_elsewhere.items():
                generator.set_state(state)
            self.generators.restore()
            self.reads.held.buffers.changed()
            self.reads.held.frames.changed()
            self.outer.restore()
            self.places.restore()
        return traced

    def trace(self, leaves: list[Any], tree: Any, paths: tuple[str, ...]) -> Traced:
        """Run the function on wrappers and describe what was recorded."""
        arg_leaves = tuple(
            i for i, leaf in enumerate(leaves)
            if (isinstance(leaf, torch.Tensor) and i not in self.same) or i in self.numbers
        )  # fmt: skip
        names, lent = names_of(self.fn, paths), lent_leaves(tree)
        self.given = leaves
        regions = recording_into(self.recorder.builder)
        self.devices.admit_all(leaves, paths)
        with unfused(), functionalization(), recorded_generators(self.recorder), regions:
            wrapped = self.arguments(names, lent)
            args, kwargs = self.built(tree, wrapped)
            self.places.fill(self.number, self.reads.held)
            with ExitStack() as stack:
                for each in [*self.listening(bool(lent))]:
                    stack.enter_context(each)
                with noting_refusals():
                    result = self.fn(*args, **kwargs)
            refuse_effects(self.fn, self.reads, self.sources)
            self.outer.index()
            outcome = Outcome(self)
            with self.aten:  # pending changes of views are applied when results are read
                self.api.checking = torch.is_grad_enabled()
                outputs, out_tree = outcome.results(result)
                stores = outcome.stores()
                outputs, stores = outcome.share(outputs, stores)
                self.api.layouts.asks = self.reads.asks = self.reads.asks or self.api.layouts.asks
                handed = (*outputs, *(out for store in stores for out in store.outputs))
                layouts = self.api.layouts.of_inputs(
                    self.params, self.real, self.wrappers, handed, outcome.values
                )
                writebacks, new_leaves = outcome.writebacks(), outcome.new_leaves()
                attributes = outcome.read_attributes(len(arg_leaves))
        self.recorder.finish(outcome.values)
        graph, recorded, deciding = split_guards(self.recorder.graph)
        return Traced(
            graph=graph,
            library="torch", in_tree=tree, arg_leaves=arg_leaves,
            static_leaves=tuple(
                (i, leaf) for i, leaf in enumerate(leaves) if i not in {*arg_leaves, *self.same}
            ),
            origins=tuple(self.found),
            stores=stores, out_tree=out_tree, outputs=outputs,
            writebacks=writebacks,
            requires_grad=(*self.required, *[False] * (len(graph.inputs) - len(self.required))),
            arg_paths=paths,
            recorded=recorded,
            deciding=deciding,
            numbers=frozenset(arg_leaves.index(i) for i in self.numbers),
            pinned=tuple(self.api.numbers.numbers.pinned.items()),
            by_history=self.api.histories.decided,
            layouts=layouts, attributes=attributes, loops=tuple(self.loops.looked_at),
            generators=(*drawn_from(graph), *self.draws.generators), new_leaves=new_leaves,
        )

    def listening(self, takes_arrays: bool) -> Iterator[AbstractContextManager[Any]]:
        """What sees the function's calls while it runs, the innermost last."""
        yield from (self.aten, self.api, custom_functions(self.recorder, self.api, self.reads))
        yield from (module_hooks(self.api), torch_checkpoints(self.outer))
        yield control_flow(self.recorder, self.api.traced, self.outer)
        yield from (meta_kernels_alone(), func_transforms(self.api.traced), sizes_and_math())
        yield from (parameters_made(self.api), self.attributes.watching())
        yield from (arrays_taken(takes_arrays), backwards_inside(self.recorder, self.api.histories))
        yield from (self.ends, self.reads, self.converting, drawn_numbers(self.draws))

    def arguments(self, names: Sequence[str | None], lent: Mapping[int, bool]) -> list[Any]:
        """What the function is given for the leaves, the same object for the same tensor.

        Of those that are `lent`, numpy's arrays are given, which may be fixed.
        """
        found: list[Any] = []
        for i, leaf in enumerate(self.given):
            first = self.same.get(i)
            found.append(self.argument(i, leaf, names[i]) if first is None else found[first])
            if first is None and i in lent:
                found[i] = TracedNumpy(found[i], lent[i])
        return found

    def built(self, tree: Any, leaves: Sequence[Any]) -> Any:
        """The arguments, in containers of their own, which are watched."""
        arguments = tree.unflatten(leaves)
        self.containers = GivenContainers(arguments)
        return arguments

    def argument(self, i: int, leaf: Any, name: str | None) -> Any:
        """What the function is given for a leaf of the arguments."""
        if isinstance(leaf, torch.Tensor):
            return self.wrap(leaf, name)
        if i not in self.numbers:
            return thaw(leaf)
        return self.number(i, leaf, name)

    def number(self, key: Any, value: float, name: str | None) -> TracedNumber:
        """The number that stands for a graph input: that of an argument's leaf, or of a place."""
        dtype = torch.float64 if isinstance(value, float) else torch.int64
        self.wrap(scalar(value, dtype), name)
        if type(key) is not int:
            self.found.append(self.places.origin(key))
        return self.api.numbers.numbers.argument(key, value, self.params[-1])

    def wrap(self, tensor: torch.Tensor, hint: str | None) -> torch.Tensor:
        """A functional wrapper that stands for a graph input; the real tensor is only read."""
        with self.recorder.pause(), outside_transforms():
            with torch.inference_mode(False):
                wrapper = wrap(of_same_memory(tensor))
            if tensor.requires_grad:
                wrapper.requires_grad_()
                if not tensor.is_leaf:  # as in eager, it may then be changed in place
                    with torch.enable_grad():
                        wrapper = wrapper.clone()
        become_like(wrapper, tensor)
        self.attributes.give(wrapper, tensor)
        self.params.append(self.recorder.add_input(inner(wrapper), hint))
        self.real.append(tensor)
        self.wrappers.append(wrapper)
        self.orders.append(order_of(wrapper))
        self.required.append(tensor.requires_grad)
        return wrapper

    def lift(self, tensor: torch.Tensor) -> torch.Tensor:
        """The wrapper of a free tensor, which becomes a graph input at first sight."""
        found = self._lifted.get(id(tensor))
        if found is not None:
            return found
        if (origin := self.outer.origin(tensor)) is None:
            raise FreeTensorError(
                f"a tensor of type {type_of(tensor)} is used that is no argument, and it was not "
                f"found in the closure, globals, defaults or attributes of {name_of(self.fn)}",
                loc=user_loc(),
                hint="pass it as an argument, or keep it where it can be read again at every call",
            )
        check_tensor(tensor, str(origin), self.fn)
        self.devices.admit(tensor, str(origin))
        wrapper = self._lifted[id(tensor)] = self.wrap(tensor, identifier(origin.name))
        self.found.append(origin)
        return wrapper

    def add_state(self, state: torch.Tensor, origin: GeneratorState) -> Value:
        """A graph input for the state of a generator."""
        self.wrap(state, origin.name)
        self.found.append(origin)
        return self.params[-1]

    def _leads_to(self, generator: torch.Generator) -> bool:
        def is_it(obj: Any) -> bool:
            return isinstance(obj, torch.Generator) and id_of(obj) == id_of(generator)

        return any(map(is_it, self.given)) or bool(Origins(self.fn, is_it).tensors())


def _is_of_trace(obj: Any) -> bool:
    return type(obj) in (TracedNumber, TracedNumpy) or is_traced(obj)
