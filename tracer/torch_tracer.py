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
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from gradof.errors import FreeTensorError, TraceError
from gradof.ir import forks
from gradof.ir.core import Value
from gradof.ir.garbage import few_collections
from gradof.tracer import (  # noqa: F401  # adaptors register themselves
    aten_activation,
    aten_complex,
    aten_decomposition,
    aten_elementwise,
    aten_factory,
    aten_index,
    aten_linalg,
    aten_loss,
    aten_matrix,
    aten_norm,
    aten_random,
    aten_reduction,
    aten_resample,
    aten_shape,
    aten_special,
    torch_ctc,
)
from gradof.tracer.generators import Generators
from gradof.tracer.math_numbers import traced_math
from gradof.tracer.number import TracedNumber
from gradof.tracer.objects import flatten_result, refuse_changed_containers
from gradof.tracer.place_numbers import NumbersInPlaces
from gradof.tracer.places import Place
from gradof.tracer.pytree import flatten_call, thaw
from gradof.tracer.reads import Reads, effect_error
from gradof.tracer.regions import recording_into
from gradof.tracer.result import (
    ConstantOut,
    InputOut,
    NumberOut,
    OutputLeaf,
    Readable,
    TensorOut,
    Traced,
    WriteBack,
    split_guards,
)
from gradof.tracer.source import function_loc, user_loc
from gradof.tracer.torch_checkpoint import torch_checkpoints, without_saved_tensors_hooks
from gradof.tracer.torch_control_flow import control_flow
from gradof.tracer.torch_custom import custom_functions
from gradof.tracer.torch_device import OneDevice, cuda_state
from gradof.tracer.torch_functional import (
    become_like,
    functionalization,
    inner,
    is_wrapper,
    scalar,
    unfused,
    wrap,
)
from gradof.tracer.torch_hooks import TensorHooks, module_hooks
from gradof.tracer.torch_leaves import (
    STATIC_TYPES,
    check_leaves,
    check_tensor,
    identifier,
    name_of,
    names_of,
)
from gradof.tracer.torch_meta_kernels import meta_kernels_alone
from gradof.tracer.torch_modes import ApiMode, AtenMode
from gradof.tracer.torch_random import GeneratorState, OwnGenerators, recorded_seeds
from gradof.tracer.torch_recorder import Recorder
from gradof.tracer.torch_state import OuterState
from gradof.tracer.torch_stores import stores_of
from gradof.tracer.torch_transforms import func_transforms, outside_transforms
from gradof.tracer.torch_types import type_of
from gradof.tracer.views import ViewOf, view_of

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
) -> Traced:
    """Run `fn(*args, **kwargs)` once and record it.

    The leaves `numbers` are Python numbers that become inputs of the graph (`tracer.number`), and
    so do the numbers in the places `varying`. `reads` notes what the run read, also if it fails. An
    op without a rule becomes an `Opaque` node, with an OpaqueOpWarning; `strict` makes it an
    UnsupportedOpError.

    Raises a TraceError where the function cannot be followed, a LeafTypeError for an argument leaf
    that is neither a tensor nor a plain Python value; errors of the function itself pass through.
    """
    leaves, tree, paths = flatten_call(fn, args, kwargs, static_argnames)
    check_leaves(leaves, paths, fn)
    with _ONE_AT_A_TIME, few_collections():
        trace = _Trace(fn, strict, numbers, varying, Reads() if reads is None else reads)
        return trace.run(leaves, tree, paths)


class _Trace:
    """One tracing run."""

    def __init__(
        self, fn: Callable[..., Any], strict: bool, numbers: Collection[int],
        varying: Sequence[Place], reads: Reads,
    ) -> None:  # fmt: skip
        self.fn = fn
        self.reads = reads
        reads.is_traced = _is_of_trace
        self.places = NumbersInPlaces(varying)
        self.numbers = frozenset(numbers)
        self.recorder = Recorder(name_of(fn), strict)
        self.generators = OwnGenerators(self.recorder, self.add_state)
        self.aten = AtenMode(self.recorder, self.generators)
        self.api = ApiMode(self.recorder, self.lift)
        self.api.register_hook = TensorHooks(self.recorder, self.api).register
        self.outer = OuterState(fn, reads)
        self.devices = OneDevice(fn)
        self.found: list[Readable] = []
        self.params: list[Value] = []
        self.real: list[torch.Tensor] = []
        self.wrappers: list[torch.Tensor] = []
        self.required: list[bool] = []
        self.given: Sequence[Any] = ()  # the leaves of the arguments
        self._lifted: dict[int, torch.Tensor] = {}
        self._outputs: dict[int, OutputLeaf] = {}

    def run(self, leaves: list[Any], tree: Any, paths: tuple[str, ...]) -> Traced:
        """Trace one call, and leave what is outside it as it was."""
        generators = Generators(self.fn, leaves, self.reads)
        try:
            with without_saved_tensors_hooks():
                traced = self.trace(leaves, tree, paths)
            generators.check()
        finally:
            generators.put_back()
            self.generators.restore()
            self.reads.held.changed_arrays()
            self.outer.restore()
            self.places.restore()
        return traced

    def trace(self, leaves: list[Any], tree: Any, paths: tuple[str, ...]) -> Traced:
        """Run the function on wrappers and describe what was recorded."""
        arg_leaves = tuple(
            i for i, leaf in enumerate(leaves)
            if isinstance(leaf, torch.Tensor) or i in self.numbers
        )  # fmt: skip
        names = names_of(self.fn, paths)
        self.given = leaves
        regions = recording_into(self.recorder.builder)
        for leaf, path in zip(leaves, paths, strict=True):
            if isinstance(leaf, torch.Tensor):
                self.devices.admit(leaf, path)
        with unfused(), cuda_state(), functionalization(), recorded_seeds(self.recorder), regions:
            wrapped = [self.argument(i, leaf, names[i]) for i, leaf in enumerate(leaves)]
            args, kwargs = tree.unflatten(wrapped)
            self.places.fill(self.number)
            followed = custom_functions(self.recorder, self.api)
            hooks, transforms = module_hooks(self.api), func_transforms(self.api.traced)
            with self.aten, self.api, followed, hooks, torch_checkpoints(), control_flow():
                with meta_kernels_alone(), transforms, traced_math(), self.reads:
                    result = self.fn(*args, **kwargs)
            self.refuse_effects()
            self.outer.index()
            refuse_changed_containers((args, kwargs), tree, wrapped, function_loc(self.fn))
            with self.aten:  # pending changes of views are applied when results are read
                self.api.checking = torch.is_grad_enabled()
                outputs, out_tree, values = self.results(result)
                loc = function_loc(self.fn)
                stores = stores_of(
                    self.outer, self.flatten, lambda leaf: self.output(leaf, values), loc
                )
                layouts = self.api.layouts.of_inputs(
                    self.params, self.real, self.wrappers, outputs, values
                )
                writebacks = self.writebacks(values)
        self.recorder.finish(values)
        graph, recorded, deciding = split_guards(self.recorder.graph)
        return Traced(
            graph=graph,
            library="torch",
            in_tree=tree,
            arg_leaves=arg_leaves,
            static_leaves=tuple((i, leaf) for i, leaf in enumerate(leaves) if i not in arg_leaves),
            origins=tuple(self.found),
            stores=stores,
            out_tree=out_tree,
            outputs=outputs,
            writebacks=writebacks,
            requires_grad=tuple(self.required),
            arg_paths=paths,
            recorded=recorded,
            deciding=deciding,
            numbers=frozenset(arg_leaves.index(i) for i in self.numbers),
            pinned=tuple(self.api.numbers.numbers.pinned.items()),
            by_history=self.api.histories.decided,
            layouts=layouts,
        )

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
                wrapper = wrap(tensor.data)  # detach() would count our writes as theirs
            if tensor.requires_grad:
                wrapper.requires_grad_()
                if not tensor.is_leaf:  # as in eager, it may then be changed in place
                    with torch.enable_grad():
                        wrapper = wrapper.clone()
        become_like(wrapper, tensor)
        self.params.append(self.recorder.add_input(inner(wrapper), hint))
        self.real.append(tensor)
        self.wrappers.append(wrapper)
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

    def results(self, result: Any) -> tuple[tuple[OutputLeaf, ...], Any, list[Value]]:
        """What each leaf of the result is, the result's structure, and the graph's outputs."""
        leaves, out_tree = self.flatten(result)
        values: list[Value] = []
        outputs = tuple(self.output(leaf, values) for leaf in leaves)
        return outputs, out_tree, values

    def refuse_effects(self) -> None:
        """What Python does at each call beside computing, and a compiled call would not."""
        self.outer.refuse_cold()
        for what, loc in self.reads.effects[:1]:
            raise effect_error(what, loc)
        if self.reads.held.changed_arrays():
            raise TraceError(
                "a numpy array is changed in place", loc=function_loc(self.fn),
                hint="change it outside, or make it a tensor",
            )

    def flatten(self, value: Any) -> tuple[list[Any], Any]:
        """The leaves and structure of a result or of a value that is stored."""
        return flatten_result(
            value, self.outer.was_there, self.given, is_traced, _is_value, function_loc(self.fn)
        )

    def output(self, leaf: Any, values: list[Value]) -> OutputLeaf:
        """How a call gets a leaf of the result or of a value that is stored."""
        if type(leaf) is TracedNumber:
            values.append(leaf.outcome())
            return NumberOut(len(values) - 1)
        if not isinstance(leaf, torch.Tensor):
            return ConstantOut(leaf)
        wrapper = self.api.traced(leaf)
        if id(wrapper) not in self._outputs:
            self._outputs[id(wrapper)] = self._output(wrapper, values)
        return self._outputs[id(wrapper)]

    def _output(self, wrapper: torch.Tensor, values: list[Value]) -> OutputLeaf:
        for i, known in enumerate(self.wrappers):
            if wrapper is known:
                return InputOut(i)
        value = self.recorder.value(inner(wrapper), None)
        values.append(value)
        strides = self.api.layouts.of_result(wrapper, value, self.params, self.real)
        view = self._view(wrapper, value)
        return TensorOut(len(values) - 1, wrapper.requires_grad, view, strides)

    def _view(self, wrapper: torch.Tensor, value: Value) -> ViewOf | None:
        # wrappers share their storage where the tensors of eager do
        memory = wrapper.untyped_storage()._cdata
        for i, known in enumerate(self.wrappers):
            if known.untyped_storage()._cdata == memory:
                return view_of(value, self.recorder.value(inner(known), None), i)
        return None

    def writebacks(self, values: list[Value]) -> tuple[WriteBack, ...]:
        """Inputs that the function changed in place; their new values become outputs."""
        changed: list[WriteBack] = []
        for i, wrapper in enumerate(self.wrappers):
            value = self.recorder.value(inner(wrapper), None)
            if value is self.params[i]:
                continue
            self._refuse_overlap(i)
            values.append(value)
            rebased = wrapper.requires_grad and self.api.histories.rebased(wrapper)
            changed.append(WriteBack(len(values) - 1, i, rebased))
            self.outer.refuse_array_of(self.real[i])
        for generator, state in self.generators.states.items():
            values.append(state)
            origin = GeneratorState(generator)
            i = len(self.wrappers) - len(self.found) + self.found.index(origin)
            changed.append(WriteBack(len(values) - 1, i, generator=generator))
        return tuple(changed)

    def add_state(self, state: torch.Tensor, origin: GeneratorState) -> Value:
        """A graph input for the state of a generator."""
        self.wrap(state, origin.name)
        self.found.append(origin)
        return self.params[-1]

    def _refuse_overlap(self, index: int) -> None:
        mine = self.real[index].untyped_storage().data_ptr()
        for i, other in enumerate(self.real):
            if i != index and mine and other.untyped_storage().data_ptr() == mine:
                raise TraceError(
                    f"input {index} is changed in place and shares its memory with input {i}",
                    loc=function_loc(self.fn),
                    hint="pass a copy (x.clone()) as one of them",
                )


def is_traced(obj: Any) -> bool:
    """Whether an object is a tensor of the trace."""
    return isinstance(obj, torch.Tensor) and is_wrapper(obj)


def _is_of_trace(obj: Any) -> bool:
    return type(obj) is TracedNumber or is_traced(obj)


def _is_value(obj: Any) -> bool:
    return isinstance(obj, (torch.Tensor, TracedNumber, *STATIC_TYPES))
