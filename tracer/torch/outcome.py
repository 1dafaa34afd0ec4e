"""What a traced torch function hands back: results, changed inputs, what it read of attributes.

    outcome = Outcome(trace)
    outputs, out_tree = outcome.results(result)      # TensorOut(0), InputOut(1), ...
    outcome.writebacks()                             # inputs that were changed in place
    outcome.values                                   # the outputs of the graph
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from gradof.errors import TraceError
from gradof.ir.core import Loc, Value
from gradof.ir.types import TensorType
from gradof.tracer.core.anew import FreshOut, constant
from gradof.tracer.core.asked import Told
from gradof.tracer.core.number import TracedNumber
from gradof.tracer.core.objects import flatten_result
from gradof.tracer.core.pytree import TreeDef
from gradof.tracer.core.result import (
    InputOut,
    NumberOut,
    OutputLeaf,
    Store,
    TensorOut,
    WriteBack,
)
from gradof.tracer.core.views import SharedView, ViewOf, root_of, view_of
from gradof.tracer.state.source import function_loc
from gradof.tracer.torch.attributes import is_hint, set_error
from gradof.tracer.torch.functional import inner, is_wrapper
from gradof.tracer.torch.leaves import STATIC_TYPES
from gradof.tracer.torch.memory import meet, memory_of
from gradof.tracer.torch.random import GeneratorState
from gradof.tracer.torch.stores import stores_of
from gradof.tracer.torch.versions import shared_version_error

if TYPE_CHECKING:
    from gradof.tracer.torch.tracer import Trace


class Outcome:
    """See the module docstring."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.loc = function_loc(trace.fn)
        self.containers = trace.containers
        self.containers.look(self.loc)
        self.values: list[Value] = []
        self._arrays: list[Any] = []  # of numpy's, among the results and what is stored
        inputs = zip(trace.params, trace.wrappers, trace.required, strict=True)
        self._given = {value for value, wrapper, required in inputs
                       if required or (wrapper.requires_grad and wrapper.is_leaf)}  # fmt: skip
        self._of_leaves: dict[Value, set[Value]] = {}  # what each is computed from
        self._outputs: dict[int, OutputLeaf] = {}
        self.memories: dict[int, int] = {}  # of new tensors, by output
        self._steps: dict[int, tuple[int, ...]] = {}  # their strides in eager
        self._repeats: set[int] = set()  # outputs whose elements share memory, as expanded ones do

    def results(self, result: Any) -> tuple[tuple[OutputLeaf, ...], Any]:
        """What each leaf of the result is, and the result's structure."""
        leaves, out_tree = self.flatten(result)
        return tuple(map(self.output, leaves)), out_tree

    def flatten(self, value: Any) -> tuple[list[Any], TreeDef]:
        """The leaves and structure of a result or of a value that is stored."""
        trace = self.trace
        leaves, tree = flatten_result(
            value, trace.outer.was_there, trace.given, is_traced, _is_value, self.loc,
            self.containers.holds,
        )
        if trace.reads.hashed and _has_tensor_keys(tree):
            raise keys_error(self.loc)
        return leaves, tree

    def stores(self) -> tuple[Store, ...]:
        """What each call writes to Python's state, and to containers among its arguments."""
        stores = stores_of(
            self.trace.outer, self.flatten, self.output, self.containers.holds, self.loc
        )
        return (*stores, *self.containers.stores(self.flatten, self.output))

    def output(self, leaf: Any) -> OutputLeaf:
        """How a call gets a leaf of the result or of a value that is stored."""
        if type(leaf) is TracedNumber:
            return NumberOut(self._add(leaf.outcome()), type(leaf.value) is np.float64)
        if not isinstance(leaf, torch.Tensor):
            given = self.containers.output(leaf)
            if given is not None:
                return given
            if type(leaf) is torch.Size:
                return FreshOut(leaf)
            if isinstance(leaf, np.ndarray):
                self._arrays.append(leaf)
            return constant(leaf, self._was_before)
        wrapper = self.trace.api.traced(leaf)
        if id(wrapper) not in self._outputs:
            self._outputs[id(wrapper)] = self._tensor(wrapper)
        return self._outputs[id(wrapper)]

    def _was_before(self, leaf: Any) -> bool:
        return any(leaf is each for each in self.trace.given) or self.trace.outer.was_there(leaf)

    def _add(self, value: Value) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def _tensor(self, wrapper: torch.Tensor) -> OutputLeaf:
        trace = self.trace
        for i, known in enumerate(trace.wrappers):
            if wrapper is known:
                return InputOut(i)
        if any(not is_hint(name) for name in vars(wrapper)):
            raise set_error(self.loc)
        value = trace.recorder.value(inner(wrapper), None)
        of_leaf = wrapper.requires_grad and self._is_of_leaf(value)
        strides = trace.api.layouts.of_result(wrapper, value, trace.params, trace.real)
        # wrappers share their storage where the tensors of eager do
        memory = wrapper.untyped_storage()._cdata
        view, index = self._view(memory, value), self._add(value)
        if view is None:
            self.memories[index] = memory
            self._steps[index] = tuple(wrapper.stride())
            if any(s == 0 for s, n in zip(wrapper.stride(), wrapper.shape, strict=True) if n > 1):
                self._repeats.add(index)
        counted = trace.attributes.versions.is_read(wrapper)
        return TensorOut(
            index, wrapper.requires_grad, view, strides, counted=counted, of_leaf=of_leaf
        )

    def _is_of_leaf(self, value: Value) -> bool:
        """Whether it requires grad by a leaf that was made alone; TraceError if by such a result.

        No gradient flows between those, as each has a history of its own.
        """
        through = self.trace.api.histories.leaves.leads_to(value, self._given)
        if not through:
            return False
        if any(other in through or value in found for other, found in self._of_leaves.items()):
            raise TraceError(
                "results that require grad by a leaf that the function has made are computed from"
                " each other", loc=self.loc, hint="detach one of them",
            )  # fmt: skip
        self._of_leaves[value] = through
        return True

    def _view(self, memory: int, value: Value) -> ViewOf | None:
        for i, known in enumerate(self.trace.wrappers):
            if known.untyped_storage()._cdata == memory:
                return view_of(value, self.trace.recorder.value(inner(known), None), i)
        return None

    def share(
        self, outputs: tuple[OutputLeaf, ...], stores: tuple[Store, ...]
    ) -> tuple[tuple[OutputLeaf, ...], tuple[Store, ...]]:
        """The same, where new tensors that share memory in eager are views of one output."""
        self.trace.api.picks.check(self.memories.values())
        self.trace.api.histories.parted.check_results(self.memories.values())
        groups: dict[int, list[tuple[TensorOut, Value]]] = {}
        every = (*outputs, *(out for store in stores for out in store.outputs))
        for out in dict.fromkeys(out for out in every if isinstance(out, TensorOut)):
            if out.index in self.memories:
                found = groups.setdefault(self.memories[out.index], [])
                found.append((out, self.values[out.index]))
        views: dict[OutputLeaf, TensorOut] = {}
        for group in groups.values():
            if len(group) > 1 and any(out.counted for out, _ in group):
                raise shared_version_error(self.loc)
            dense = not any(out.index in self._repeats for out, _ in group)
            # what is overwritten by an expanded value has memory of its own
            copies = ("flip", "expand") if dense else ("flip",)
            roots = {root_of(value, copies) for _, value in group}
            if len(group) > 1 and len(roots) == 1:
                views.update(self._views(group, roots.pop()))
        if not views:
            return outputs, stores

        def seen(found: tuple[OutputLeaf, ...]) -> tuple[OutputLeaf, ...]:
            return tuple(views.get(x, x) if isinstance(x, TensorOut) else x for x in found)

        return seen(outputs), tuple(replace(s, outputs=seen(s.outputs)) for s in stores)

    def _views(
        self, group: list[tuple[TensorOut, Value]], root: Value
    ) -> Iterator[tuple[OutputLeaf, TensorOut]]:
        for out, value in group:  # one of the results, if all others are views of it
            if all(view_of(other, value, out.index) for _, other in group):
                base, root = out.index, value
                break
        else:
            base = self._add(root)
        found = [(out, view_of(value, root, base)) for out, value in group if out.index != base]
        views = [(out, view) for out, view in found if view is not None]
        known = next((out for out, _ in group if out.index == base), None)
        dense = root.node is not None and root.node.kind == "expand"
        if any(out.strides == () for out, _ in group):  # what is in rows may be a view of columns
            if known is None:
                dense |= all(self._is_of_rows(out, view, root) for out, view in views)
            elif known.strides is None:
                yield known, replace(known, strides=self._steps[base])
        for out, view in views:
            shared = SharedView(base, view.steps, out.requires_grad, dense)
            yield out, replace(out, shared=shared)

    def _is_of_rows(self, out: TensorOut, view: ViewOf, root: Value) -> bool:
        """Whether a view has its strides in eager where what it is a view of is in rows."""
        assert isinstance(root.type, TensorType) and root.type.shape is not None
        like = view.of(np.empty(root.type.shape, np.int8))
        steps = zip(like.strides, self._steps[out.index], like.shape, strict=True)
        return all(mine == eagers for mine, eagers, n in steps if n > 1)

    def read_attributes(self, n: int) -> tuple[Told, ...]:
        """What was read of the attributes of arguments, which are the first `n` inputs.

        And which inputs had no gradient or hooks, are of no other's history, or were never changed,
        where that was asked.
        """
        trace = self.trace
        found = [trace.attributes.of(i, x, self.loc) for i, x in enumerate(trace.wrappers)]
        without = trace.attributes.without_gradients(trace.wrappers)
        asked = trace.attributes.asked(trace.wrappers)
        versions = trace.attributes.versions.of_inputs()
        read = (each for each in found[:n] if each is not None)
        return (*read, *without, *asked, *versions)

    def new_leaves(self) -> tuple[int, ...]:
        """Inputs of which the function asks for a gradient: `x.requires_grad_()`."""
        pairs = zip(self.trace.wrappers, self.trace.required, strict=True)
        return tuple(
            i for i, (wrapper, required) in enumerate(pairs)
            if wrapper.requires_grad and wrapper.is_leaf and not required
        )  # fmt: skip

    def writebacks(self) -> tuple[WriteBack, ...]:
        """Inputs that the function changed in place; their new values become outputs."""
        self.trace.api.of_numpy.check(self.memories.values(), self.values, self._arrays)
        trace, changed = self.trace, list[WriteBack]()
        for i, wrapper in enumerate(trace.wrappers):
            value = trace.recorder.value(inner(wrapper), None)
            if wrapper.shape != trace.real[i].shape or order_of(wrapper) != trace.orders[i]:
                raise TraceError(
                    f"the shape or the strides of input {i} are changed in place", loc=self.loc,
                    hint="use the function that gives a view: x.transpose(0, 1), x.unsqueeze(0)",
                )
            if value is trace.params[i]:
                continue
            self._refuse_overlap(i)
            rebased = wrapper.requires_grad and trace.api.histories.rebased(wrapper)
            changed.append(WriteBack(self._add(value), i, rebased))
            trace.outer.refuse_array_of(trace.real[i])
        trace.generators.settle()
        for generator, state in trace.generators.states.items():
            origin = GeneratorState(generator)
            i = len(trace.wrappers) - len(trace.found) + trace.found.index(origin)
            changed.append(WriteBack(self._add(state), i, generator=generator))
        trace.api.histories.saved.check(self.values)
        return tuple(changed)

    def _refuse_overlap(self, index: int) -> None:
        """Of memory that is written, a graph would have two values."""
        real = self.trace.real
        mine = memory_of(real[index])
        for i, other in enumerate(real):
            if i != index and meet(mine, memory_of(other)):
                raise TraceError(
                    f"input {index} is changed in place and shares its memory with input {i}",
                    loc=self.loc, hint="pass a copy (x.clone()) as one of them",
                )
        if overlaps_itself(real[index]):
            raise TraceError(
                f"input {index} is changed in place, and its elements share their memory",
                loc=self.loc, hint="pass a copy (x.clone())",
            )


def order_of(tensor: torch.Tensor) -> list[int]:
    """The dims in the order of their steps through memory; those of one element have none."""
    steps = tensor.stride()
    return sorted((d for d, n in enumerate(tensor.shape) if n != 1), key=lambda d: -steps[d])


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether elements share their memory, as where a tensor was expanded."""
    if tensor.is_contiguous():
        return False
    reach, apart = 0, True
    for step, n in sorted((s, n) for s, n in zip(tensor.stride(), tensor.shape, strict=True)):
        apart &= n < 2 or step > reach
        reach += step * (n - 1)
    if apart or not tensor.numel():
        return False
    if tensor.numel() > reach + 1:
        return True
    places = np.zeros((), np.int64)  # windows may lie in each other's gaps
    for step, n in zip(tensor.stride(), tensor.shape, strict=True):
        places = np.unique(np.add.outer(places, step * np.arange(n)))
    return places.size < tensor.numel()


def keys_error(loc: Loc | None) -> TraceError:
    """The error for tensors that containers are asked for by who they are."""
    return TraceError(
        "tensors are looked up in a dict or set that outlives the call", loc=loc,
        hint="use other keys, such as names",
    )


def _has_tensor_keys(tree: TreeDef) -> bool:
    return any(isinstance(key, torch.Tensor) for key in tree.keys) or any(
        map(_has_tensor_keys, tree.children)
    )


def is_traced(obj: Any) -> bool:
    """Whether an object is a tensor of the trace."""
    return isinstance(obj, torch.Tensor) and is_wrapper(obj)


def _is_value(obj: Any) -> bool:
    return isinstance(obj, (torch.Tensor, TracedNumber, *STATIC_TYPES))
