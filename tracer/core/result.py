"""What a tracer hands on: the graph, and how a call maps to its inputs and outputs.

    def f(p, scale):                   # p = {"w": tensor}, scale = 2.0, and a closure tensor `c`
        return {"y": p["w"] * scale + c, "n": 3}

    traced.graph.inputs     %w, %c         # arguments first, free tensors after them
    traced.arg_leaves       (0,)           # %w is leaf 0 of flatten((args, kwargs))
    traced.static_leaves    ((1, 2.0),)    # leaf 1 is baked into the graph
    traced.origins          (closure 'c',) # %c is read again at every call
    traced.outputs          (TensorOut(0, True), ConstantOut(3))
    traced.writebacks       ()             # outputs to be copied into inputs after the call

One call, then: flatten the arguments; inputs = the leaves named by `arg_leaves` followed by
`origin.read(fn)` of each origin; run the graph; copy every write-back into its input;
`traced.leaves(...)` are those of the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np

from gradof.ir.contents import checksum
from gradof.ir.core import Graph, Loc
from gradof.passes.guards import guards_of, split
from gradof.tracer.core.asked import Told
from gradof.tracer.core.pytree import TreeDef
from gradof.tracer.core.refill import reach, refill
from gradof.tracer.core.views import LaidOut, SharedView, ViewOf
from gradof.tracer.state.places import Place, fill, read_place, remove_place, write_place


class Readable(Protocol):
    """Something that is read anew at every call, such as an Origin."""

    @property
    def name(self) -> str:
        """A name for the graph's input."""
        ...

    def read(self, fn: Any, /) -> Any:
        """What is there now."""
        ...


@dataclass(frozen=True, slots=True)
class TensorOut:
    """A leaf of the result: graph output `index`; whether the library lets it require grad.

    `view`: it shares the memory of a graph input. `strides`: those of its memory, or none, which
    is rows. `shared`: it shares the memory of another output. `counted`: its version counter is
    read, and to be that of a new tensor. `of_leaf`: it requires grad by a leaf that the function
    has made, not by an argument. `is_array`: without dims, and still an array of numpy's.
    """

    index: int
    requires_grad: bool = True
    view: ViewOf | None = None
    strides: tuple[int, ...] | None = None
    shared: SharedView | None = None
    counted: bool = False
    of_leaf: bool = False
    is_array: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """Graph input `input` is contiguous, or has these strides; and begins at `offset`, if given.

    With `rows` there may be gaps between its rows.
    """

    input: int
    strides: tuple[int, ...] | None
    offset: int | None = None
    rows: bool = False

    def holds(self, tensor: Any) -> bool:
        """Whether a tensor, or an array of numpy's, is laid out so."""
        if isinstance(tensor, np.ndarray):
            flat: bool = tensor.flags.c_contiguous
            return flat if self.strides is None else tensor.strides == self.strides
        if self.rows:
            steps = [step for step, n in zip(tensor.stride(), tensor.shape, strict=True) if n != 1]
            return 0 not in steps and steps == sorted(steps, reverse=True)
        if self.offset is not None and tensor.storage_offset() != self.offset:
            return False
        if self.strides is None:
            return bool(tensor.is_contiguous())
        return bool(tensor.stride() == self.strides)


@dataclass(frozen=True, slots=True)
class InputOut:
    """A leaf of the result that *is* graph input `index`, the same object, written back or not.

    A number of numpy's, which the graph takes as an array without dims, is a number again.
    """

    index: int
    is_number: bool = False


@dataclass(frozen=True, slots=True)
class GivenOut:
    """A leaf of the result that is a container of the caller's, or in one (`tracer.core.given`)."""

    path: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ConstantOut:
    """A leaf of the result that is no tensor: the value itself."""

    value: Any

    def make(self) -> Any:
        """What a call gives."""
        return self.value


@dataclass(frozen=True, slots=True)
class PlaceOut(ConstantOut):
    """A leaf of the result that is an object which was there: another one at every call."""

    place: Place

    def make(self) -> Any:
        """The one that is there now."""
        return read_place(self.place)


@dataclass(frozen=True, slots=True)
class NumberOut:
    """A leaf of the result that is a Python number: graph output `index`, read off.

    One that a function of numpy's has made of numbers is a `np.float64`.
    """

    index: int
    is_numpys: bool = False


OutputLeaf = TensorOut | InputOut | GivenOut | ConstantOut | NumberOut
Containers = Mapping[tuple[int, ...], Any]  # the caller's, by their paths


@dataclass(frozen=True, slots=True)
class Store:
    """What the function writes to Python's state, written again after each call.

    `mode` is "set" (the place holds the value), "remove", "fill" (a container has the values and
    nothing else) or "grow" (they are added at its end, or to the set).
    """

    mode: Literal["set", "remove", "fill", "grow"]
    place: Place
    tree: TreeDef | None = None
    outputs: tuple[OutputLeaf, ...] = ()

    def found(self) -> Store:
        """The same, to the object that is there now: another store may put a new one there."""
        kind, container, key = self.place
        if kind == "attr":
            return replace(self, place=Place("item", vars(read_place(container)), key))
        if kind == "entry":
            return replace(self, place=Place("item", read_place(container), key))
        if kind == "content":
            return replace(self, place=Place("fill", read_place(container), key))
        return self

    def write(self, leaves: Sequence[Any], containers: Containers) -> None:
        """Write it, given the leaves of the value, and the caller's containers."""
        if self.mode == "remove":
            remove_place(self.place)
            return
        assert self.tree is not None
        value = self.tree.unflatten(leaves)
        if self.mode == "set":
            write_place(self.place, value)
        elif self.place.kind == "given":
            refill(containers[self.place.container], value)
        else:
            fill(self.place.container, value, keep=self.mode == "grow")


@dataclass(frozen=True, slots=True)
class WriteBack:
    """After the call, graph output `output` is copied into graph input `input` in place.

    `requires_grad`: in eager the input's history now includes the change (False for plain data, and
    for what was changed under no_grad).
    With a `generator`, the output is its state after the call.
    """

    output: int
    input: int
    requires_grad: bool = False
    generator: Any = None


@dataclass(frozen=True)
class Traced:
    """A recorded call; see the module docstring.

    Graph outputs are first those of the result, then those that exist only to be written back.
    `requires_grad` has one entry per graph input. `content` names free arrays whose elements were
    baked in, with their checksums: the trace holds while they are as they were. `recorded` is the
    graph with its Guards where Python read values, and `deciding` the part of it that tells
    whether the trace holds; None where there are no Guards. `graph` has none, and after its other
    inputs those that `deciding` computes (Note [One mask for both] in `passes.guards`). `numbers`
    are the graph inputs that are Python numbers; `pinned` the leaves that should not have been,
    each with the line that needed its value: the trace is then good for these values alone.
    `by_history`: tensors that require no grad have the gradient of such, which another call may not
    mean (Note [Values and histories] in `torch.histories`). `stores` are written after each call.
    `performs` says what no graph does, with its line: the function itself runs, too, at each call.
    `layouts`: how inputs are laid out, where that matters; the trace then serves no others, nor
    those with other `attributes`. `generators` are what the graph draws from: numpy's own,
    Python's, torch's. `loops`: of each loop of Python's that was looked at, whether a few steps
    have stood for all (`numpy.steps`). `sizes`: what the code was told of them (`numpy.lengths`).
    `new_leaves`: inputs of which the function itself asks for a gradient (`x.requires_grad_()`).
    """

    _gradof_opaque = True  # what it leads to is no state of the user's (tracer.state.origins)

    graph: Graph
    library: Literal["torch", "numpy"]
    in_tree: TreeDef
    arg_leaves: tuple[int, ...]
    static_leaves: tuple[tuple[int, Any], ...]
    origins: tuple[Readable, ...]
    out_tree: TreeDef
    outputs: tuple[OutputLeaf, ...]
    writebacks: tuple[WriteBack, ...]
    requires_grad: tuple[bool, ...]
    arg_paths: tuple[str, ...]
    content: tuple[tuple[Readable, int], ...] = ()
    recorded: Graph | None = None
    deciding: Graph | None = None
    numbers: frozenset[int] = frozenset()
    pinned: tuple[tuple[Any, Loc | None], ...] = ()
    by_history: bool = False
    stores: tuple[Store, ...] = ()
    performs: str = ""
    layouts: tuple[Layout, ...] = ()
    attributes: tuple[Told, ...] = ()
    generators: tuple[Any, ...] = ()
    loops: tuple[bool, ...] = ()
    sizes: Any = None
    new_leaves: tuple[int, ...] = ()

    def containers(self, given: Sequence[Any]) -> Containers:
        """The caller's containers that are changed or handed on, found in `(args, kwargs)`."""
        changed = (s.place.container for s in self.stores if s.place.kind == "given")
        handed = (out.path for out in self.all_outputs if isinstance(out, GivenOut))
        return {path: reach(given, path) for path in (*changed, *handed)}

    def leaves(
        self, outputs: Sequence[OutputLeaf], inputs: Sequence[Any], results: Sequence[Any],
        containers: Containers,
    ) -> list[Any]:  # fmt: skip
        """The leaves of the result, or of a value that is stored."""
        leaves: list[Any] = []
        for out in outputs:
            if isinstance(out, TensorOut):
                leaf = results[out.index]
                leaves.append(np.asarray(leaf) if out.is_array else leaf)
            elif isinstance(out, InputOut):
                leaves.append(inputs[out.index][()] if out.is_number else inputs[out.index])
            elif isinstance(out, GivenOut):
                leaves.append(containers[out.path])
            elif isinstance(out, NumberOut):
                number = results[out.index].item()
                leaves.append(np.float64(number) if out.is_numpys else number)
            else:
                leaves.append(out.make())
        return leaves

    def holds_content(self, fn: Any) -> bool:
        """Whether the arrays of `content`, that `fn` leads to, are as they were."""
        if not self.content:
            return True
        try:
            return all(checksum(origin.read(fn)) == n for origin, n in self.content)
        except (LookupError, AttributeError):
            return False  # the array is gone: another trace is due

    @property
    def writes(self) -> bool:
        """Whether the function writes to Python's state, or does what is seen outside of it."""
        counted = any(isinstance(out, TensorOut) and out.counted for out in self.outputs)
        return bool(self.stores or self.performs or self.new_leaves or counted)

    @property
    def all_outputs(self) -> tuple[OutputLeaf, ...]:
        """The leaves of the result and of all that is stored."""
        return (*self.outputs, *(out for store in self.stores for out in store.outputs))

    @property
    def views(self) -> tuple[tuple[int, ViewOf | LaidOut], ...]:
        """The graph outputs that are views of inputs which are not written back, or not of rows."""
        changed = {back.input for back in self.writebacks}
        found: dict[int, ViewOf | LaidOut] = {}
        for out in self.all_outputs:
            if not isinstance(out, TensorOut):
                continue
            if out.view and out.view.input not in changed:
                found[out.index] = out.view
            elif out.shared is not None:
                if out.shared.dense:
                    found.setdefault(out.shared.output, LaidOut((), rows=True))
            elif out.strides is not None:
                found[out.index] = LaidOut(out.strides, rows=not out.strides)
        return tuple(found.items())

    @property
    def input_names(self) -> tuple[str, ...]:
        """For messages: `args[0]['w']` for arguments, `closure 'c'` for free tensors."""
        decided = [] if self.deciding is None else self.deciding.outputs
        return (*(self.arg_paths[i] for i in self.arg_leaves), *map(str, self.origins),
                *(f"what decides the path ({value.type})" for value in decided))  # fmt: skip


def split_guards(graph: Graph) -> tuple[Graph, Graph | None, Graph | None]:
    """`Traced.graph`, `.recorded` and `.deciding` of a recorded graph."""
    if not guards_of(graph):
        return graph, None, None
    path, deciding = split(graph)
    return path, graph, deciding
