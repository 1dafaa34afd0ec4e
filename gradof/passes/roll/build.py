"""A match as a Loop, in place of its nodes.

What a step reads of the steps before is carried; what moves evenly along a dim of a value from
outside is a sequence, or a slice at a place that follows from the number of the step; what else
varies is stacked first. Results that are read outside are carried out, or stacked.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from gradof.ir.attrs import Dense
from gradof.ir.builder import Builder
from gradof.ir.clone import clone_node
from gradof.ir.core import Graph, Node, Value
from gradof.ir.loop import Loop, add_loop
from gradof.ir.opinfo import has_trait
from gradof.ir.types import BF16, F16, I64, ScalarType, TensorType
from gradof.ops.expr import Emitter, Expr, F
from gradof.passes.purity import is_pure
from gradof.passes.roll.match import Inner, Match, Same, Source, Varying
from gradof.passes.roll.results import replace_rows
from gradof.passes.roll.sequences import sequence_of, slices_as_sequence
from gradof.passes.unroll_loops import whole_number

Key = tuple[int, int, int, tuple[Value, ...]]  # place, output, lag, what comes first


class Unfit(Exception):  # a signal to `roll_loops`
    """The match cannot be a Loop as it is."""


def build(graph: Graph, nodes: Sequence[Node], match: Match) -> Loop:
    """Replace the nodes of a match; Unfit, before anything has changed, where they cannot be."""
    return Build(graph, nodes, match).run()


class Build:
    """A Loop on its way."""

    def __init__(self, graph: Graph, nodes: Sequence[Node], match: Match) -> None:
        self.nodes, self.match = nodes, match
        self.first = match.start
        self.last = match.start + match.steps * match.period
        self.outside = Emitter(Builder(graph.block, self.anchor(graph), nodes[self.first].loc))
        self.made: list[Node] = []
        self.body = Graph("body")
        self.index = self.body.block.add_param(TensorType(I64, ()), "t")
        self.inside = Emitter(Builder(self.body.block))
        self.values: dict[tuple[int, int], Value] = {}
        self.alike: dict[tuple[int, int], Value] = {}  # computed outside
        self.constants: dict[Value, Value] = {}  # outside → param
        self.scalars: dict[object, Value] = {}
        self.carried: dict[Key, Value] = {}  # → param
        self.initial: dict[Key, Value] = {}
        self.rows: dict[Value, Value] = {}  # sequence → param
        self.sequences: dict[tuple[Value, ...], Value] = {}
        self.sliced: dict[tuple[Value, int, tuple[int, ...]], Value] = {}
        self.tables: dict[tuple[int, ...], Value] = {}
        self.placed: list[Value] = []  # constants where slices begin
        self.writes = any(n.kind == "slice_scatter" for n in nodes[self.first : self.last])

    def anchor(self, graph: Graph) -> Node:
        """What the Loop stands before."""
        # not nodes[self.last], of which there is a loop by now where it was rolled before this
        found = self.nodes[self.last - 1]._next
        assert found is not None
        return found

    def run(self) -> Loop:
        """Replace the nodes by the Loop."""
        before = self.outside.body.anchor._prev
        try:
            for place in range(self.match.period):
                self.node(place)
            uses = self.read_outside()
            finals, stacks = self.results(uses)
        except Unfit:
            self.undo(before)
            raise
        loop = self.loop(list(finals.values()), list(stacks.values()))
        self.replace(loop, list(finals), list(stacks), uses)
        return loop

    def undo(self, before: Node | None) -> None:
        """Erase what was emitted outside."""
        while self.outside.body.anchor._prev is not before:
            node = self.outside.body.anchor._prev
            assert node is not None
            node.erase()

    # --- the body -------------------------------------------------------------------------------

    def node(self, place: int) -> None:
        """Put the node of a place into the body, or before the loop."""
        node, sources = self.nodes[self.first + place], self.match.sources[place]
        move = self.match.moves[place]
        if move != 0 and node.kind == "slice" and isinstance(sources[0], Same):
            found = self.moving_slice(place, sources[0].value)
            if found is not None:
                self.values[place, 0] = found
                return
        if move == 0 and self.is_same_at_every_step(node, sources):
            given = [self.from_outside(s) for s in sources]
            copy = clone_node(node, {})
            copy.set_inputs(given)
            self.outside.body.block.insert_before(self.outside.body.anchor, copy)
            self.alike.update(((place, k), out) for k, out in enumerate(copy.outputs))
            return
        operands = [self.operand(s, node, k) for k, s in enumerate(sources)]
        lifted = self.writes and node.kind in ("slice", "slice_scatter") and (
            isinstance(sources[0], Inner) and node.attrs["step"] == 1
        )
        if move != 0 or lifted:
            self.values[place, 0] = self.dynamic(place, operands)
            return
        mapping = dict(zip(node.inputs, operands, strict=True))
        copy = clone_node(node, mapping)
        copy.set_inputs(operands)
        self.body.block.append(copy)
        for k, out in enumerate(copy.outputs):
            self.values[place, k] = out

    def is_same_at_every_step(self, node: Node, sources: Sequence[Source]) -> bool:
        """Whether a node computes the same at every step, so that it can stand before the loop."""
        return bool(sources) and is_pure(node) and not node.blocks and all(
            isinstance(s, Same)
            or (isinstance(s, Inner) and s.lag == 0 and (s.place, s.output) in self.alike)
            for s in sources
        )

    def from_outside(self, source: Source) -> Value:
        """A value that is the same at every step, outside."""
        if isinstance(source, Same):
            return source.value
        assert isinstance(source, Inner)
        return self.alike[source.place, source.output]

    def value(self, place: int, output: int) -> Value:
        """What a node of a step computes, in the body."""
        if (place, output) in self.alike:
            return self.constant(self.alike[place, output])
        return self.values[place, output]

    def operand(self, source: Source, node: Node, k: int) -> Value:
        """What a node of the body reads as operand k."""
        if isinstance(source, Inner):
            if source.lag == 0:
                return self.value(source.place, source.output)
            return self.carry(source, node)
        if isinstance(source, Same):
            return self.constant(source.value)
        return self.row(source, node, k)

    def constant(self, value: Value) -> Value:
        """A value from outside, in the body."""
        if value.node is not None and value.node.kind == "Constant":
            if value not in self.scalars:
                copy = self.body.block.append(clone_node(value.node, {}))
                self.scalars[value] = copy.output
            return self.scalars[value]
        if value not in self.constants:
            self.constants[value] = Value(value.type, None, -1, value.hint, self.body.block)
        return self.constants[value]

    def carry(self, source: Inner, node: Node) -> Value:
        """What a step reads of one before; older values are carried from one to the next."""
        out = self.nodes[self.first + source.place].outputs[source.output]
        if not isinstance(out.type, TensorType) or out.type.shape is None:
            raise Unfit
        for lag in range(1, source.lag + 1):
            first = source.first[source.lag - lag :][:1]
            key = (source.place, source.output, lag, (*source.first[source.lag - lag :],))
            if key not in self.carried:
                self.carried[key] = Value(out.type, None, -1, out.hint, self.body.block)
                self.initial[key] = self.start(first[0], out.type, node)
        return self.carried[source.place, source.output, source.lag, source.first]

    def start(self, value: Value, type_: TensorType, node: Node) -> Value:
        """What is carried into the first step; a number of Python's has the type of the others."""
        if value.type == type_:
            return value
        number = None if value.node is None else value.node.attrs.get("value")
        if (
            isinstance(value.type, ScalarType) and isinstance(number, int | float)
            and has_trait(node.kind, "elementwise") and type_.dtype not in (F16, BF16)
            and all(out.type == type_ for out in node.outputs) and node.kind != "pow"
        ):
            return F.full.with_emitter(self.outside)(
                dtype=type_.dtype, shape=type_.shape, device=type_.device, value=number
            ).value
        raise Unfit

    def row(self, source: Varying, node: Node, k: int) -> Value:
        """A value that is another one at each step."""
        starts = list(map(whole_number, source.values))
        moves = {b - a for a, b in itertools.pairwise(starts) if a is not None and b is not None}
        if len(moves) == 1 and None not in starts and starts[0] is not None:
            if source.values[0].type == TensorType(I64, ()):
                return self.place((node, k), starts[0], moves.pop()).value
        if source.values not in self.sequences:
            found = sequence_of(source.values, node, k, self.outside)
            if found is None:
                raise Unfit
            self.sequences[source.values] = found
        return self.row_of(self.sequences[source.values])

    def row_of(self, sequence: Value) -> Value:
        """The row of a sequence, in the body."""
        if sequence not in self.rows:
            type_ = sequence.type
            assert isinstance(type_, TensorType) and type_.shape is not None
            param = Value(type_.with_shape(type_.shape[1:]), None, -1, None, self.body.block)
            self.rows[sequence] = param
        return self.rows[sequence]

    def starts(self, place: int) -> tuple[int, ...]:
        """Where a slice begins at each step."""
        nodes = self.nodes[self.first + place : self.last : self.match.period]
        return tuple(map(_start, nodes))

    def moving_slice(self, place: int, base: Value) -> Value | None:
        """A slice of one place of a value from outside, as a row."""
        node, starts = self.nodes[self.first + place], self.starts(place)
        dim = node.attrs["dim"]
        if _stop(node) - _start(node) != 1 or not isinstance(dim, int):
            return None
        key = (base, dim, starts)
        if key not in self.sliced:
            self.sliced[key] = slices_as_sequence(base, dim, starts, self.outside).value
        row = self.inside.wrap(self.row_of(self.sliced[key]))
        assert isinstance(node.output.type, TensorType) and node.output.type.shape is not None
        made = row.reshape(node.output.type.shape).value
        made.hint = node.output.hint
        return made

    def dynamic(self, place: int, operands: Sequence[Value]) -> Value:
        """A slice at a place that moves, or that may move with a loop around this one."""
        node, move = self.nodes[self.first + place], self.match.moves[place]
        if node.attrs["step"] != 1 and node.kind != "slice":
            raise Unfit
        if move is None:
            start = self.inside.wrap(self.row_of(self.numbers(self.starts(place))))
        else:
            start = self.place(node, _start(node), move)
        dim, size = node.attrs["dim"], _stop(node) - _start(node)
        assert isinstance(dim, int)
        x = self.inside.wrap(operands[0])
        if node.kind == "slice":
            part = F.dynamic_slice(x, start, dims=(dim,), sizes=(size,))
            if node.attrs["step"] != 1:
                step = node.attrs["step"]
                part = F.slice(part, dim=dim, start=0, stop=size, step=step)
        elif node.kind == "slice_scatter":
            part = F.dynamic_slice_scatter(x, self.inside.wrap(operands[1]), start, dims=(dim,))
        else:
            part = F.dynamic_unslice(x, start, dims=(dim,), shape=node.attrs["shape"])
        part.value.hint = node.output.hint
        assert part.value.node is not None
        part.value.node.loc = node.loc
        return part.value

    def numbers(self, starts: tuple[int, ...]) -> Value:
        """Places without a rule, as a sequence."""
        if starts not in self.tables:
            dense = Dense.of(np.array(starts, np.int64))
            self.tables[starts] = self.outside.body.constant(dense)
        return self.tables[starts]

    def place(self, key: object, start: int, move: int) -> Expr:
        """start + move * the number of the step.

        The start is a constant of the loop, one for each slice, so that loops whose starts are
        another ones are equal but for what they read.
        """
        if key not in self.scalars:
            number = self.outside.body.constant(Dense.of(np.array(start, np.int64)))
            param = Value(number.type, None, -1, None, self.body.block)
            self.constants[number] = self.scalars[key] = param
            self.placed.append(number)
        first = self.inside.wrap(self.scalars[key])
        if not move:
            return first
        index = self.inside.wrap(self.index)
        if move != 1:
            by = self.inside.body.constant(Dense.of(np.array(move, np.int64)))
            index = index * self.inside.wrap(by)
        return index + first

    # --- results --------------------------------------------------------------------------------

    def read_outside(self) -> dict[tuple[int, int], list[int]]:
        """For each place and output, the steps whose value something outside reads."""
        inside = self.uses_inside()
        found: dict[tuple[int, int], list[int]] = {}
        for place in range(self.match.period):
            nodes = self.nodes[self.first + place : self.last : self.match.period]
            for k in range(len(nodes[0].outputs)):
                uses = [len(node.outputs[k]._uses) for node in nodes]
                wanted = inside[place, k]
                steps = [j for j, count in enumerate(uses) if count > wanted[j]]
                if steps:
                    found[place, k] = steps
        return found

    def uses_inside(self) -> dict[tuple[int, int], list[int]]:
        """For each place and output, how often the value of each step is used by the stretch."""
        steps = self.match.steps
        count = {
            (place, k): [0] * steps
            for place in range(self.match.period)
            for k in range(len(self.nodes[self.first + place].outputs))
        }
        for sources in self.match.sources:
            for source in sources:
                if isinstance(source, Inner):
                    found = count[source.place, source.output]
                    for j in range(steps - source.lag):
                        found[j] += 1
        return count

    def results(
        self, uses: dict[tuple[int, int], list[int]]
    ) -> tuple[dict[tuple[int, int], Key], dict[tuple[int, int], Value]]:
        """Results that are carried out of the last step, and those that are stacked."""
        finals: dict[tuple[int, int], Key] = {}
        stacks: dict[tuple[int, int], Value] = {}
        for (place, output), steps in uses.items():
            value = self.value(place, output)
            if not isinstance(value.type, TensorType) or value.type.shape is None:
                raise Unfit
            if steps != [self.match.steps - 1]:
                stacks[place, output] = value
                continue
            keys = [key for key in self.carried if key[:3] == (place, output, 1)]
            if not keys:  # carried for its last value alone
                zero = F.full.with_emitter(self.outside)(
                    dtype=value.type.dtype, shape=value.type.shape, device=value.type.device,
                    value=0,
                ).value  # fmt: skip
                keys = [(place, output, 1, (zero,))]
                self.carried[keys[0]] = Value(value.type, None, -1, None, self.body.block)
                self.initial[keys[0]] = zero
            finals[place, output] = keys[0]
        return finals, stacks

    def loop(self, finals: list[Key], stacks: list[Value]) -> Loop:
        """The Loop itself."""
        block = self.body.block
        carried = [
            self.value(place, output) if lag == 1
            else self.carried[place, output, lag - 1, first[1:]]
            for place, output, lag, first in self.carried
        ]
        params = [*self.constants.values(), *self.carried.values(), *self.rows.values()]
        for param in params:
            param.index = len(block.params)
            block.params.append(param)
        self.body.set_outputs([*carried, *stacks])
        return add_loop(
            self.outside.body, self.body, self.match.steps, constants=list(self.constants),
            initial=list(self.initial.values()), sequences=list(self.rows),
        )  # fmt: skip

    def replace(
        self, loop: Loop, finals: list[tuple[int, int]], stacks: list[tuple[int, int]],
        uses: dict[tuple[int, int], list[int]],
    ) -> None:  # fmt: skip
        """Let what is outside read the Loop, and erase the nodes."""
        period, last = self.match.period, self.first + (self.match.steps - 1) * self.match.period
        order = [key[:3] for key in self.carried]
        inside = set(self.nodes[self.first : self.last]) if stacks else set()
        for place in finals:
            old = self.nodes[last + place[0]].outputs[place[1]]
            new = loop.finals[order.index((*place, 1))]
            new.hint = old.hint
            old.replace_all_uses_with(new)
        for stack, place in zip(loop.stacks, stacks, strict=True):
            rows = {
                step: self.nodes[self.first + step * period + place[0]].outputs[place[1]]
                for step in uses[place]
            }
            replace_rows(stack, rows, inside, self.outside)
        self.outside.body.block.erase_all(self.nodes[self.first : self.last])


def _start(node: Node) -> int:
    start = node.attrs["start"]
    assert isinstance(start, int)
    return start


def _stop(node: Node) -> int:
    stop = node.attrs["stop"]
    assert isinstance(stop, int)
    return stop
