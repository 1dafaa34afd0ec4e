"""Graph → one native function, as LLVM IR.

The function is `i32 whole(ptr* io, ptr arena, ptr constants)`. `io` has the address of every
argument and then of every result, which are contiguous; `arena` is scratch of `Whole.arena` bytes,
`constants` the bytes of `Whole.constants`, which begin with the lengths where the graph is one of
any length (`sizes`). It returns 0, or 1 where an index is out of range, a matrix has no inverse, or
a function of Python's `math` has no value: then the graph is to be computed op by op, which raises
the error there is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from gradof.codegen.llvm.kernel import NativeKernel
from gradof.codegen.machine.llvm_types import ELEMENT
from gradof.codegen.whole.elementwise import is_elementwise
from gradof.codegen.whole.indexing import MOVES
from gradof.codegen.whole.kernels import Kernels
from gradof.codegen.whole.loops import DYNAMIC
from gradof.codegen.whole.outline import outline
from gradof.codegen.whole.reductions import WORDS
from gradof.codegen.whole.schedule import Step, last_reads, steps_of
from gradof.codegen.whole.sizes import definitions, header, lengths_of
from gradof.codegen.whole.systems import SYSTEMS
from gradof.codegen.whole.text import constant
from gradof.codegen.whole.values import (
    LINE,
    Mem,
    in_registers,
    is_number,
    is_small,
    rows,
    shape_of,
    tensor,
)
from gradof.codegen.whole.views import CONSTANTS, VIEWS
from gradof.ir.core import Block, Graph, Node, Value
from gradof.ir.loop import Loop
from gradof.ir.types import F64


@dataclass(frozen=True)
class Whole:
    """LLVM IR of a graph, with the memory that it wants."""

    text: str
    arena: int  # bytes
    constants: bytes
    steps: int  # loops, and ops that are none
    kernels: Sequence[NativeKernel] = ()  # that it calls
    kept: Sequence[Any] = ()  # what the constants have the addresses of


def emit_whole(graph: Graph, vector_bits: int) -> Whole:
    """The function of a graph that `support` has nothing against."""
    return _Emitter(graph, vector_bits).run()


class _Emitter(Kernels):
    def __init__(self, graph: Graph, vector_bits: int) -> None:
        super().__init__(vector_bits)
        self.graph = graph
        self.lengths = lengths_of(graph)
        self.steps = 0
        self.places: list[tuple[int, int]] = []  # of the lines of steps that are in no loop

    def run(self) -> Whole:
        if self.lengths is not None:
            self.constant_at(header([0] * len(self.lengths.values), LINE))
        places = [*self.graph.inputs, *self.graph.outputs]
        pointers = []
        for k in range(len(places)):
            at = self.text.emit(f"getelementptr ptr, ptr %io, i64 {k}")
            pointers.append(self.text.emit(f"load ptr, ptr {at}"))
        homes = [
            Mem(p, shape_of(v), rows(shape_of(v)), tensor(v).dtype)
            for p, v in zip(pointers, places, strict=True)
        ]
        n = len(self.graph.inputs)
        for value, mem in zip(self.graph.outputs, homes[n:], strict=True):
            if value.node is not None:
                self.homes.setdefault(value, mem)
        steps = self.prepare(self.graph.block)
        for value, mem in zip(self.graph.inputs, homes, strict=False):
            self.define_mem(value, mem)
        self.write_steps(self.graph.block, steps)
        for value, mem in zip(self.graph.outputs, homes[n:], strict=True):
            if self.held[value].mem != mem:
                first = len(self.text.lines)
                self.write(value, mem)
                self.places.append((first, len(self.text.lines)))
        self.text.line("ret i32 0")
        return Whole(
            self.whole_text(), self.arena.top, b"".join(self.constants), self.steps,
            [k for k in self.kept if isinstance(k, NativeKernel)], self.kept,
        )  # fmt: skip

    def whole_text(self) -> str:
        lines, alike = outline(self.text.lines, self.places)
        body = "\n".join(lines)
        fail = "fail:\n  ret i32 1\n" if "label %fail" in body else ""
        declared = dict.fromkeys(self.text.declared.values())
        functions: list[str] = []
        for text in self.functions.values():
            lines = text.split("\n")
            declared.update((line, None) for line in lines if line.startswith("declare"))
            functions += [line for line in lines if not line.startswith("declare")]
        if self.lengths is not None:
            body = f"{definitions(self.lengths, body, functions)}\n{body}"
        parts = [
            *declared, *functions, *alike,
            "define i32 @whole(ptr noalias %io, ptr noalias %arena, ptr noalias %constants) {\n"
            f"entry:\n{body}\n{fail}}}",
            '!0 = !{!"branch_weights", i32 1, i32 1000}',
        ]  # fmt: skip
        return "\n".join(parts) + "\n"

    def prepare(self, block: Block) -> list[Step]:
        """The steps of a block."""
        steps = steps_of(block)
        for step in steps:
            self.wants_memory.update(_wanting(step))
        return steps

    def write_steps(
        self, block: Block, steps: Sequence[Step], stay: Collection[Value] = ()
    ) -> None:
        """Write the steps of a block, whose params are defined.

        Params that `stay` are read by the next step of a loop, too.
        """
        mine = {v for step in steps for node in step.nodes for v in node.outputs}
        mine.update(v for v in block.params if v not in stay)
        ends: dict[int, list[Value]] = {}
        for value, k in last_reads(block, steps).items():
            if value in mine:
                ends.setdefault(k, []).append(value)
        around, self.temporaries = self.temporaries, []
        for k, step in enumerate(steps):
            self.dying = frozenset(ends.get(k, ()))
            first = len(self.text.lines)
            self.step(step)
            self.end_step()
            if block is self.graph.block:
                self.places.append((first, len(self.text.lines)))
            for value in ends.get(k, ()):
                self.forget(value)
        self.temporaries = around

    def step(self, step: Step) -> None:
        """One group, or one node."""
        self.steps += 1
        if step.is_group:
            self.group(step.nodes, step.kept)
            return
        (node,) = step.nodes
        if is_elementwise(node):
            self.small(node)
        else:
            write = WRITERS[node.kind]
            write(self, node)

    def guard(self, node: Node) -> None:
        """What a decision was; another one is for the graph op by op to report."""
        (value,) = node.inputs
        dtype = tensor(value).dtype
        (one,) = self.numbers(value, dtype)
        then = node.attrs["value"]
        assert isinstance(then, int)  # support lets no others through
        seen = constant(then, dtype)
        self.text.unless(self.text.emit(f"icmp ne {ELEMENT[dtype]} {one}, {seen}"))

    def math_result(self, node: Node) -> None:
        """A number, or an error, which is for the graph op by op to raise."""
        result, *operands = (self.numbers(v, F64)[0] for v in node.inputs)

        def each(ask: str, of: Sequence[str]) -> str:
            """Whether all of these numbers compare with 0 in this way."""
            asked = [self.text.emit(f"fcmp {ask} double {x}, 0.0") for x in of]
            return functools.reduce(lambda a, b: self.text.emit(f"and i1 {a}, {b}"), asked)

        def differences(of: Sequence[str]) -> list[str]:
            """Numbers that are nan where one is not finite."""
            return [self.text.emit(f"fsub double {x}, {x}") for x in of]

        kinds = (  # no finite number of finite ones, or a nan of numbers that are none
            (differences([result]), differences(operands)), ([result], operands)
        )
        wrong = [self.text.emit(f"and i1 {each('uno', y)}, {each('ord', xs)}") for y, xs in kinds]
        self.text.unless(self.text.emit(f"or i1 {wrong[0]}, {wrong[1]}"))
        self.define_regs(node.output, [result])


def _wanting(step: Step) -> list[Value]:
    """Values that a step reads in memory, though they may be in registers."""
    node = step.nodes[0]
    if step.is_group:
        return [
            v for n in step.nodes for v in n.inputs if not is_number(v) and tensor(v).size > 1
        ]
    if node.kind in ("dynamic_slice", "dynamic_slice_scatter"):
        return [node.inputs[0]]
    if node.kind == "Loop":
        loop = Loop(node)
        large = [v for v in loop.initial if not is_small(shape_of(v))]
        return [*loop.sequences, *large]
    if node.kind in SYSTEMS:
        return []  # copied
    if in_registers(node) or node.kind in VIEWS or node.kind == "dynamic_unslice":
        return []
    if node.kind in MOVES and node.kind != "slice_scatter":
        return []  # written where they go
    return list(node.inputs)


Writer = Callable[[_Emitter, Node], None]
WRITERS: dict[str, Writer] = {
    **dict.fromkeys(VIEWS, _Emitter.view),
    **dict.fromkeys(CONSTANTS, _Emitter.constant_value),
    **dict.fromkeys(WORDS, _Emitter.reduce),
    **dict.fromkeys(MOVES, _Emitter.move),
    **dict.fromkeys(("index_select", "index_add"), _Emitter.select_rows),
    **dict.fromkeys(("gather", "scatter", "scatter_add"), _Emitter.pick),
    **dict.fromkeys(("argmax", "argmin"), _Emitter.argextreme),
    **dict.fromkeys(("mm", "bmm"), _Emitter.product),
    "cumsum": _Emitter.running, "cumprod": _Emitter.running, "sort": _Emitter.partition,
    **dict.fromkeys(DYNAMIC, _Emitter.dynamic),
    **dict.fromkeys(SYSTEMS, _Emitter.system),
    "in_range": _Emitter.in_range, "Loop": _Emitter.loop, "Guard": _Emitter.guard,
    "math_result": _Emitter.math_result, "FusionGroup": _Emitter.kernel,
}  # fmt: skip
