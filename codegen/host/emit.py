"""Graph → straight-line numpy source, one statement per node.

    def loss(x, w):
        \"\"\"loss(x : f32[4,3], w : f32[3,2]) -> (f32[])\"\"\"
        h = np.matmul(x, w)  # mlp.py:7
        y = np.tanh(h, out=h)  # mlp.py:8
        l = np.sum(y, axis=(0, 1), dtype=y.dtype, keepdims=False)  # mlp.py:9
        return (np.asarray(l),)

A ufunc writes into an array that is dead and fits; large arrays that nothing can reuse are deleted
(see `plan`). What is returned is the caller's own: never an input, a constant, a read-only view, or
the same array twice.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from gradof.codegen.fusion.concat_in_place import find_joins, making, places, room
from gradof.codegen.host.buffers import BufferPlan
from gradof.codegen.host.emitter import HostEmitter
from gradof.codegen.host.loops import loop_lines, owned_params, steps
from gradof.codegen.host.raw import CONVERSIONS, with_raw
from gradof.codegen.lowering.half import (
    CONVERT,
    CONVERT_BY_TORCH,
    WEAK,
    roundings,
    rounds_number,
)
from gradof.codegen.lowering.library import told
from gradof.codegen.lowering.numpy import (
    Library,
    Lowering,
    call,
    is_f16,
    is_number,
    literal,
    lowering_of,
    supported,
)
from gradof.codegen.machine.executable import Executable
from gradof.codegen.machine.source import as_tuple, identifier
from gradof.codegen.targets.target import MakeKernel
from gradof.codegen.whole.function import StretchKernel
from gradof.errors import CodegenError
from gradof.ir.attrs import Dense
from gradof.ir.core import Graph, Node, Value
from gradof.ir.loop import Loop, body_graph, copied_reads, is_loop, written_in_place
from gradof.ir.types import BF16, SizeType, TensorType
from gradof.ops.dynamic import write_slice
from gradof.ops.registry import Op

# The graph of a loop's body as it is to be emitted, and what makes its kernels.
Prepare = Callable[[Graph], "tuple[Graph, MakeKernel | None]"]


def emit(
    graph: Graph, library: Library, name: str | None = None,
    make_kernel: MakeKernel | None = None, native: bool = False, prepare: Prepare | None = None,
    consumed: Collection[int] = (),
) -> Executable:  # fmt: skip
    """Emit and compile a graph of primitives and fusion groups; CodegenError for anything else.

    `make_kernel` turns the loop nest of a FusionGroup into a function from arrays to arrays, raw
    ones where they are bfloat16, as the arrays of a torch caller are (Note [Half precision]).
    `native`: products may be native code, too. `prepare` does to the body of a loop what was done
    to the graph, and says what makes its kernels. Of the `consumed` inputs, by number, the code
    lets go as it runs: Note [Consumed inputs].
    """
    given = _Emitter(graph, library, identifier(name or graph.name), make_kernel, native)
    given.prepare = prepare
    return given.emit(consumed)


_ONCE = frozenset({"flip", "permute", "reshape", "slice"})  # views of writable arrays, and such


class _Emitter(HostEmitter):
    def __init__(
        self, graph: Graph, library: Library, name: str, make_kernel: MakeKernel | None,
        native: bool, border: bool = True,
    ) -> None:  # fmt: skip
        made, self.unrounded, self.products = with_raw(
            graph, border and library == "torch", raw_products(library)
        )
        space = {"np": np, "room": room}
        super().__init__(graph, made, space, {"complex", *CONVERT, "__debug__"})
        self.library = library
        self.name = name
        self.prepare: Prepare | None = None
        self.bodies: dict[Node, _Emitter] = {}  # of loops
        self.owned: frozenset[int] = frozenset()  # inputs that may be written into
        self.updated: frozenset[Node] = frozenset()  # by these
        self.copied: frozenset[Node] = frozenset()  # slices of them
        self.make_kernel = make_kernel
        self.native = native
        self.scalars: dict[Value, str] = {}  # inputs without dimensions, as scalars
        self.lowerings: dict[Node, tuple[Op, Lowering]] = {}
        self.callees: dict[Callable[..., Any], str] = {}
        self.beside: list[str] = []  # the bodies of loops

    def emit(self, consumed: Collection[int]) -> Executable:
        taken = self.take_from_list(consumed)
        lines = self.lines()
        kernels = [self.namespace[name] for name in self.kernel_names()]
        return Executable(self.name, "\n".join(lines) + "\n", self.namespace, kernels, taken)

    def kernel_names(self) -> list[str]:
        """Names of the kernels that are called, in the bodies of loops, too."""
        inner = [name for body in self.bodies.values() for name in body.kernel_names()]
        return [*inner, *self.kernels.values()]

    def begin(self, nodes: Sequence[Node]) -> None:
        """Choose a lowering for every node, emit the bodies of loops, plan the buffers."""
        # a traced function may be named like an op it calls
        self.name = self.given.unique(self.name)
        for node in nodes:
            self.check(node)
        self.beside = [line for body in self.bodies.values() for line in (*body.lines(), "", "")]
        writes = {
            node: low.writes for node, (_, low) in self.lowerings.items()
            if not self.has_wide_number(node)
        }  # fmt: skip
        made = {node: self.namespace[name] for node, name in self.kernels.items()}
        self.joins = find_joins(
            self.graph, {node: k.takes for node, k in made.items() if hasattr(k, "takes")}
        )
        writes = {node: how for node, how in writes.items() if node not in self.joins.nodes}
        inputs = self.graph.inputs
        self.updated = written_in_place(self.graph.block, [inputs[k] for k in self.owned])
        self.copied = copied_reads(self.graph.block, self.updated)
        how = self.updated, self.copied, self.consumed
        self.plan = BufferPlan(self.graph, writes, self.joins.whole(), *how)
        for node in self.updated:
            record, low = self.lowerings[node]
            low = dataclasses.replace(low, text=self.callee("write_slice", write_slice))
            self.lowerings[node] = record, low

    def before(self) -> list[str]:
        """The bodies of loops."""
        return self.beside

    def dead(self, node: Node) -> Sequence[Value]:
        """The arrays that the plan lets go."""
        return self.plan.frees.get(node, ())

    def body(self, loop: Loop) -> _Emitter:
        """The emitter of a loop's body, a function beside this one."""
        graph = body_graph(loop.body, f"{self.name}_body")
        graph.small_kernels = self.source.small_kernels
        make = None
        if self.prepare is not None:
            graph, make = self.prepare(graph)
        inner = _Emitter(graph, self.library, graph.name, make, self.native, border=False)
        inner.prepare, inner.owned = self.prepare, owned_params(loop)
        inner.namespace, inner.given = self.namespace, self.given
        inner.callees, inner.counter = self.callees, self.counter
        return inner

    def check(self, node: Node) -> None:
        if node.kind == "FusionGroup" and self.make_kernel is not None:
            self.add_kernel(node, self.make_kernel)
            return
        if node.kind == "Stretch":
            self.add_stretch(node)
            return
        if is_loop(node):
            self.bodies[node] = self.body(Loop(node))
        if node in self.bodies or node.kind in CONVERSIONS:
            return
        record = supported(node)
        if node.kind == "Constant":
            return
        try:
            low = (
                product() if node in self.products
                else lowering_of(node, record, self.library, self.native)
            )  # fmt: skip
        except CodegenError as error:
            raise CodegenError(error.message, loc=node.loc, hint=error.hint) from None
        if low.function is not None:
            low = dataclasses.replace(low, text=self.callee(low.text, low.function))
        self.lowerings[node] = (record, low)

    def add_stretch(self, node: Node) -> None:
        """Make the native function of a stretch, under a name of its own."""
        name = self.kernels[node] = self.given.unique(f"{self.name}_stretch")
        graph = body_graph(node.blocks[0], name)
        self.namespace[name] = StretchKernel(
            graph, name, lambda: emit(graph, self.library, name, self.make_kernel, self.native)
        )
        self.reads[node] = tuple(range(len(node.inputs)))

    def callee(self, name: str, function: Callable[..., Any]) -> str:
        """The name under which a function is called: two of one op have two."""
        found = self.callees.get(function)
        if found is None:
            clashes = name == self.name or self.namespace.get(name, function) is not function
            found = self.callees[function] = self.given.unique(name) if clashes else name
        self.namespace[found] = function
        self.given.taken.add(found)
        return found

    def statement(self, node: Node) -> list[str]:
        """A call of an op or a kernel, or the loop over a body."""
        if node.kind == "Constant":
            self.constant(node)
            return []
        if node in self.kernels:
            return self.kernel_call(node)
        if node in self.joins.nodes:
            return self.join(node)
        if node in self.bodies:
            inner = self.bodies[node]
            called = self.callee("steps", steps), inner.name
            lines = loop_lines(Loop(node), called, self.names, self.given.unique, inner.owned)
            return [*lines[:-1], *self.placed(node, lines[-1])]
        if node.kind in CONVERSIONS:
            function = self.conversion(CONVERSIONS[node.kind])
            operand = self.names[node.inputs[0]]
            return self.placed(node, f"{self.named(node)[0]} = {function}({operand})")
        record, low = self.lowerings[node]
        operands = [self.names[v] for v in node.inputs]
        taken: list[str] = []
        if low.scalars:
            operands = [self.scalar(v, taken) for v in node.inputs]
        if self.has_wide_number(node):
            pairs = zip(operands, node.inputs, strict=True)
            operands = [f"np.float32({o})" if is_number(v) else o for o, v in pairs]
        operands = [self.rounded(o, node, k) for k, o in enumerate(operands)]
        text = call(record, low, operands, node.attrs) + ".copy()" * (node in self.copied)
        if self.has_wide_number(node):
            text = f"{text}.astype(np.float16)"
        more = told(node)
        text = f"{text[:-1]}, {more})" if more else text
        made = self.named(node)
        if len(node.outputs) == 1 and node.output in self.plan.out:
            text = f"{text[:-1]}, out={self.names[self.plan.out[node.output]]})"
        results = zip(roundings(node), node.outputs, strict=True)
        rounds = [None if out in self.unrounded else r for r, out in results]
        if len(rounds) == 1 and rounds[0] is not None:
            text, rounds = f"{self.conversion(rounds[0])}({text})", []
        lines = self.placed(node, f"{', '.join(made)} = {text}" if made else text)
        lines[1:1] = [
            f"{self.names[v]} = {self.conversion(r)}({self.names[v]})"
            for v, r in zip(node.outputs, rounds, strict=False) if r is not None
        ]  # fmt: skip
        return [*taken, *lines]

    def rounded(self, operand: str, node: Node, index: int) -> str:
        """An operand; a number has the dtype beside it (`targets/weak_numbers`)."""
        maker = node.inputs[index].node
        if maker is not None and maker.kind == "Constant":
            return operand
        if rounds_number(node, index, self.library) != BF16:  # float16 is numpy's own
            return operand
        return f"{self.conversion('round_bf16')}({operand})"

    def scalar(self, value: Value, lines: list[str]) -> str:
        """The name of a value as a scalar: one is taken from an input where that is first read."""
        if value.node is not None:
            return self.names[value]
        if value not in self.scalars:
            name = self.scalars[value] = self.given.unique(f"{self.names[value]}_0")
            lines.append(f"{name} = {self.names[value]}[()]")
        return self.scalars[value]

    def has_wide_number(self, node: Node) -> bool:
        """Whether a number beside float16 is torch's, who does not round it."""
        return self.library == "torch" and node.kind in WEAK and is_f16(node.output) and any(
            map(is_number, node.inputs)
        )  # fmt: skip

    def conversion(self, name: str) -> str:
        """The name of a function that rounds to, or converts, a dtype numpy does not have."""
        self.namespace[name] = (CONVERT_BY_TORCH if self.library == "torch" else CONVERT)[name]
        return name

    def kernel_call(self, node: Node) -> list[str]:
        lines = []
        for whole in self.joins.first.get(node, ()):
            name = self.names[whole.output] = self.fresh(whole.output)
            lines.append(f"{name} = {making(whole)}")
        into, made = [], self.named(node)
        for k, out in enumerate(node.outputs):
            found = self.joins.parts.get(out)
            if found is not None:
                place = places(found)[found.inputs.index(out)]
                into.append(f"({k}, {self.names[found.output]}{place})")
        arguments = [self.names[node.inputs[k]] for k in self.reads[node]]
        arguments += [f"into={as_tuple(into)}"] if into else []
        text = f"{as_tuple(made)} = {self.kernels[node]}({', '.join(arguments)})"
        return [*lines, *self.placed(node, text)]

    def join(self, node: Node) -> list[str]:
        """A concatenation whose parts are in their places, but for some."""
        whole, done = self.names[node.output], []
        lines = []
        for value, place in zip(node.inputs, places(node), strict=True):
            if value in self.joins.parts:
                done.append(self.names[value])
            else:
                lines.append(f"{whole}{place} = {self.names[value]}")
        return [*lines, *self.placed(node, f"del {', '.join(done)}")]

    def constant(self, node: Node) -> None:
        value = node.attrs["value"]
        if isinstance(value, Dense):
            name = (
                self.fresh(node.output) if node.output.hint
                else self.given.unique(f"c{next(self.counter)}")
            )  # fmt: skip
            self.namespace[name] = value.numpy()
            self.names[node.output] = name
        else:
            self.names[node.output] = literal(value)

    def results(self) -> list[str]:
        """What is returned: arrays of their own, never views of inputs or of one another."""
        returned: set[Value] = set()
        texts = []
        for value in self.graph.outputs:
            root, name = self.plan.root[value], self.names[value]
            borrowed = root.node is None or root.node.kind == "Constant" or root in returned
            given_on = value.node in self.updated and root not in returned
            returned.add(root)
            if isinstance(value.type, SizeType) or given_on:
                texts.append(name)
            elif borrowed:
                texts.append(f"np.array({name})")
            elif value.node in self.kernels:
                texts.append(name)
            elif root is value:
                texts.append(f"np.asarray({name})")
            elif self.is_renamed(value) or self.may_be_written(value):
                texts.append(name)
            else:  # a view; those of one element for many are read-only, and copied
                texts.append(f"np.require({name}, requirements='W')")
        return texts

    def may_be_written(self, value: Value) -> bool:
        """Whether a view is an array that has each element of its root at most once."""
        if not isinstance(value.type, TensorType) or value.type.shape == ():
            return False  # numpy's views of scalars are scalars
        while value is not self.plan.root[value]:
            if value.node is None or value.node.kind not in _ONCE:
                return False
            value = value.node.inputs[0]
        return True

    def is_renamed(self, value: Value) -> bool:
        """Whether it is a kernel's result in another shape."""
        node = value.node
        while node is not None and node.kind in ("reshape", "permute"):
            node = node.inputs[0].node
        return node in self.kernels


def raw_products(library: Library) -> frozenset[str]:
    """The kinds of nodes whose bfloat16 operands torch multiplies as they are."""
    if library != "torch":
        return frozenset()
    from gradof.codegen.lowering.half_products import KINDS, multiplies

    return KINDS if multiplies("bf16") else frozenset()


def product() -> Lowering:
    """The lowering of a product of raw bfloat16."""
    from gradof.codegen.lowering.half_products import mm_bf16

    return Lowering("function", "mm_bf16", mm_bf16)
