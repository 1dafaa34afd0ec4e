"""What a traced numpy function hands back: results, what it wrote to state, changed inputs.

    outcome = Outcome(fn, recorder, sight, arguments, thawed)
    outcome.take(result)                 # and the stores: then Python's state is as it was
    origins, content = origins_of(...)   # free arrays are inputs, or constants
    outcome.number()                     # .outputs, .stores, .values: the outputs of the graph
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gradof.errors import TraceError
from gradof.ir.core import Loc, Value
from gradof.tracer.core.anew import constant
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
from gradof.tracer.core.size_numbers import are_of_sizes
from gradof.tracer.core.stores import Writer
from gradof.tracer.core.views import view_of
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.places import check_apart
from gradof.tracer.numpy.random_states import Kept
from gradof.tracer.numpy.recorder import Recorder, is_plain
from gradof.tracer.numpy.sight import Sight
from gradof.tracer.numpy.whole import number
from gradof.tracer.state.changes import Change
from gradof.tracer.state.source import function_loc

_TRACED = (TracedArray, TracedNumber)


class Outcome:
    """See the module docstring. `values` are the outputs of the graph, once they are numbered."""

    def __init__(
        self, fn: Callable[..., Any], recorder: Recorder, sight: Sight,
        arguments: Sequence[TracedArray], given: Sequence[Any],
    ) -> None:  # fmt: skip
        self.loc = function_loc(fn)
        self.recorder, self.sight = recorder, sight
        self.arguments = arguments  # the traced arrays behind the inputs that are no free arrays
        self.given = given  # the leaves of the arguments
        self.containers = sight.containers
        self.containers.look(self.loc)
        self.outputs: tuple[OutputLeaf, ...] = ()
        self.stores: tuple[Store, ...] = ()
        self._again: tuple[str, Loc | None] | None = None  # what the function has to do itself
        self.values: list[Value] = []
        self._noted: dict[int, tuple[int, Any, Any]] = {}  # by id: place, the leaf, what is traced

    def take(self, result: Any, changes: Sequence[Change]) -> TreeDef:
        """Note the leaves of the result, whose structure is returned, and of what was written.

        Raises TraceError for what no call could make again.
        """
        leaves, tree = self._flatten(result)
        self.outputs = tuple(map(self._note, leaves))
        left: list[Change] = []
        writer = Writer(
            self.sight.reads, self.sight.was_there, self._is_stored, self._flatten, self._stored,
            self.loc, left,
        )  # fmt: skip
        stores = writer.stores(changes)
        self.stores = (*stores, *self.containers.stores(self._flatten, self._stored))
        for change in left:
            self._perform(f"a {type(change.after).__qualname__} is stored", self.loc)
        return tree

    def _perform(self, what: str, loc: Loc | None) -> None:
        if self._again is None:
            self._again = what, loc

    @property
    def performs(self) -> str:
        """What each call has to do by itself, with its line: Note [Performed calls]; "" if none."""
        found = self.recorder.told.performs or self.sight.reads.performs or self._again
        return "" if found is None else f"{found[0]} at {found[1]}"

    def _flatten(self, value: Any) -> tuple[list[Any], TreeDef]:
        there = self.sight.was_there
        return flatten_result(
            value, there, self.given, _is_traced, _is_value, self.loc, self.containers.holds
        )

    def _is_stored(self, leaf: Any) -> bool:
        return _is_value(leaf) or self.containers.holds(leaf)

    def _stored(self, leaf: Any) -> OutputLeaf:
        """A leaf of what is stored: what was taken out of the trace would be stored as it was."""
        detached = self.recorder.told.values.get(id(leaf))
        if detached is not None:
            return self._note(detached[1])
        known = (
            type(leaf) in _TRACED or self.containers.holds(leaf) or self.sight.was_there(leaf)
        )
        if self.recorder.told.values and not known and isinstance(leaf, _MAY_BE_MADE_OF_VALUES):
            self._perform("what may be made of gradof.value_of(...) is stored", self.loc)
        return self._note(leaf)

    def _note(self, leaf: Any) -> OutputLeaf:
        """The leaf's place among those that are traced, for an index, until they are numbered."""
        leaf = number(leaf)  # of a step
        container = self.containers.output(leaf)
        if container is not None:
            return container
        found = self._noted.get(id(leaf))
        if found is None:
            if is_plain(leaf) and leaf.dtype.kind in "biufc":  # an old one is an input
                traced = self.recorder.traced(leaf)
            elif type(leaf) in _TRACED:
                traced = leaf
            else:
                self._refuse_tensor(leaf)
                if type(leaf) is Kept:
                    leaf.refuse()
                baked = isinstance(leaf, (np.ndarray, np.generic))
                self.recorder.baked = self.recorder.baked or baked
                return constant(leaf, self._was_before)
            found = self._noted[id(leaf)] = len(self._noted), leaf, traced
        return TensorOut(found[0])

    def _refuse_tensor(self, leaf: Any) -> None:
        """Raise for one of torch's, which would be a constant."""
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(leaf, torch.Tensor):
            raise TraceError(
                "a torch tensor is a result, or is stored, in a function of numpy's", loc=self.loc,
                hint="give an array (x.numpy()), or pass tensors",
            )  # fmt: skip

    def _was_before(self, leaf: Any) -> bool:
        return any(leaf is each for each in self.given) or self.sight.was_there(leaf)

    # --- once the inputs are known --------------------------------------------------------------

    def number(self) -> None:
        """Make outputs of the graph of what was noted."""
        made = [self._output(traced) for _, _, traced in self._noted.values()]

        def numbered(outputs: tuple[OutputLeaf, ...]) -> tuple[OutputLeaf, ...]:
            return tuple(made[o.index] if isinstance(o, TensorOut) else o for o in outputs)

        self.outputs = numbered(self.outputs)
        self.stores = tuple(replace(s, outputs=numbered(s.outputs)) for s in self.stores)

    def _output(self, leaf: Any) -> OutputLeaf:
        if type(leaf) is TracedNumber and are_of_sizes(leaf):
            leaf = leaf.pin()
        if type(leaf) is TracedNumber:
            return NumberOut(self._add(leaf.outcome()))
        for i, known in enumerate(self.inputs):
            if known is leaf:
                return InputOut(i, is_number=known.is_scalar)
        if leaf.is_python:
            return NumberOut(self._add(leaf.expr.value))
        value, root = leaf.expr.value, leaf.root
        is_array = not leaf.ndim and not leaf.is_scalar
        for i, known in enumerate(self.inputs):
            shares = known is root and np.may_share_memory(leaf.memory, root.memory)
            if shares and not leaf.is_scalar:
                view = view_of(value, root.expr.value, i)
                return TensorOut(self._add(value), view=view, is_array=is_array)
        return TensorOut(self._add(value), is_array=is_array)

    def _add(self, value: Value) -> int:
        self.values.append(value)
        return len(self.values) - 1

    @property
    def inputs(self) -> list[TracedArray]:
        """The traced arrays behind the graph's inputs, in order."""
        return [*self.arguments, *(lifted for _, lifted in self.recorder.free.values())]

    def writebacks(self, leaves: Sequence[Any]) -> tuple[WriteBack, ...]:
        """The inputs that were changed in place: their new values become outputs.

        `leaves` are what the inputs that are no free arrays were given.
        """
        recorder, changed = self.recorder, list[WriteBack]()
        real = [*leaves, *(array for array, _ in recorder.free.values())]
        for i, (array, param) in enumerate(
            zip(self.inputs, recorder.graph.inputs, strict=True)
        ):
            if array.expr.value is param:
                continue
            first_free = len(real) - len(recorder.free)
            known = len(self.arguments) > i and not any(real[i] is g for g in self.given)
            if known and i < first_free and id(real[i]) in self.sight.arrays:
                raise TraceError(
                    f"%{param.hint or i} is changed in place, and is known under another name",
                    loc=recorder.loc, hint="pass it as an argument",
                )
            check_apart(real, i, param.hint or str(i), recorder.loc)
            changed.append(WriteBack(self._add(array.expr.value), i))
        return tuple(changed)


_MAY_BE_MADE_OF_VALUES = (float, complex, str, np.ndarray, np.generic)


def _is_traced(obj: Any) -> bool:
    return type(obj) in _TRACED


def _is_value(obj: Any) -> bool:
    return type(obj) in _TRACED or isinstance(obj, (np.ndarray, np.generic, np.dtype, np.ufunc))
