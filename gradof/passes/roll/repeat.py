"""Two steps in a row as the first ones of a Loop of many, which need not be there.

    states      what is carried into the first step, into the second, and out of it
    repeated(graph, first, second, states, 1000, by={1}, wanted=[0])
    Loop[steps=1000, ...], of the first step on; the values that replace `states[2][0]`

That further steps are like these is for the caller to know. Here the two are compared node by node:
an operand is what the step has made itself, what is carried (`states`, position by position), or
one value at both. Slices may move by an amount in `by`, as far as their operand goes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from gradof.ir.core import Graph, Node, Use, Value
from gradof.ir.loop import Loop, is_loop
from gradof.ir.types import TensorType
from gradof.passes.purity import is_pure
from gradof.passes.roll.build import Build, Unfit
from gradof.passes.roll.match import (
    LAG,
    MOVING,
    Inner,
    Match,
    Same,
    Source,
    Varying,
    colour,
    same_value,
)
from gradof.passes.unroll_loops import whole_number

DYNAMIC = frozenset({"dynamic_slice", "dynamic_slice_scatter", "dynamic_unslice"})
States = tuple[Sequence[Value], Sequence[Value], Sequence[Value]]


def repeated(
    graph: Graph, first: Sequence[Node], second: Sequence[Node], states: States, steps: int,
    by: Collection[int], wanted: Sequence[int], places: set[Value],
) -> list[Value]:  # fmt: skip
    """Add a Loop of `steps` steps, the two among them, at the end of the graph.

    Gives what it carries out at the `wanted` positions of the states. Raises Unfit, with nothing
    changed, where the steps are not alike. `places` are constants where slices of Loops begin;
    those of this one are added.
    """
    pair = _Pair(first, second, states, places)
    match = pair.match(steps, by)
    made = _Repeat(graph, first, match)
    finals = made.add([pair.carried(k) for k in wanted])
    places.update(made.placed)
    return finals


class _Pair:
    def __init__(
        self, first: Sequence[Node], second: Sequence[Node], states: States, places: set[Value]
    ) -> None:
        if len(first) != len(second):
            raise Unfit
        self.steps = first, second
        self.states, self.places = states, places
        self._places = [{node: k for k, node in enumerate(nodes)} for nodes in self.steps]
        self._positions = [_positions(state) for state in states[:2]]

    def match(self, steps: int, by: Collection[int]) -> Match:
        """Where the operands of each node come from, and by how much its place moves."""
        sources: list[list[Source]] = []
        moves: list[int | None] = []
        for a, b in zip(*self.steps, strict=True):
            if not is_pure(a) or a.kind == "Guard" or colour(a) != colour(b):
                raise Unfit
            found: list[Source] = []
            for k, (x, y) in enumerate(zip(a.inputs, b.inputs, strict=True)):
                if x in self.places and y in self.places and is_loop(a):
                    found.append(_moving_place(a, k, x, y, steps, by))
                else:
                    found.append(self._source(x, y))
            sources.append(found)
            moves.append(_move(a, b, steps, by))
        return Match(0, len(sources), steps, sources, moves)

    def _source(self, a: Value, b: Value) -> Source:
        made = self._made(a, 0)
        if made != self._made(b, 1):
            raise Unfit
        if made is not None:
            return Inner(*made, lag=0)
        at_first, at_second = self._carrying(a, b)
        if at_first or at_second:
            both = [k for k in at_first if k in at_second]
            if not both:
                raise Unfit
            return self.carried(both[0])
        if not same_value(a, b):
            raise Unfit
        return Same(a)

    def carried(self, k: int) -> Source:
        """What a position of the states is, step by step."""
        a, b, c = (state[k] for state in self.states)
        if a is b is c:
            return Same(a)
        first = [a]
        while True:
            made = self._made(b, 0)
            if made is not None and made == self._made(c, 1):
                return Inner(*made, lag=len(first), first=tuple(first))
            at_first, at_second = self._carrying(b, c)
            before = [j for j in at_first if j in at_second]
            if made is not None or not before or len(first) == LAG:
                raise Unfit
            a, b, c = (state[before[0]] for state in self.states)
            first.append(a)

    def _carrying(self, a: Value, b: Value) -> tuple[Sequence[int], Sequence[int]]:
        """The positions that are `a` before the first step, and `b` before the second."""
        return self._positions[0].get(a, ()), self._positions[1].get(b, ())

    def _made(self, value: Value, step: int) -> tuple[int, int] | None:
        place = None if value.node is None else self._places[step].get(value.node)
        return None if place is None else (place, value.index)


def _positions(state: Sequence[Value]) -> Mapping[Value, list[int]]:
    found: dict[Value, list[int]] = {}
    for k, value in enumerate(state):
        found.setdefault(value, []).append(k)
    return found


def _move(a: Node, b: Node, steps: int, by: Collection[int]) -> int:
    """By how much a slice moves from step to step; Unfit where it would leave its operand."""
    if a.kind not in MOVING:
        return 0
    start, stop, then, dim = (
        x for x in (a.attrs["start"], a.attrs["stop"], b.attrs["start"], a.attrs["dim"])
        if isinstance(x, int)
    )  # fmt: skip
    move = then - start
    if not move:
        return 0
    whole = a.output.type if a.kind == "unslice" else a.inputs[0].type
    assert isinstance(whole, TensorType) and whole.shape is not None
    last = start + move * (steps - 1)
    if move not in by or not 0 <= last <= whole.shape[dim] - (stop - start):
        raise Unfit
    return move


def _moving_place(
    node: Node, k: int, a: Value, b: Value, steps: int, by: Collection[int]
) -> Source:
    """Where a slice of an inner Loop begins; Unfit where it would leave its operand."""
    start, then = whole_number(a), whole_number(b)
    assert start is not None and then is not None
    move = then - start
    if not move:
        return Same(a)
    loop = Loop(node)
    if move not in by or loop.count is not None or k >= len(loop.constants):
        raise Unfit
    ends = start, start + move * (steps - 1)
    for use in loop.constant_params[k].uses:
        at, reach = use, (0, 0)
        if use.node.kind == "add":  # the number of the inner step, and this
            reach = _reach(use.node.inputs[1 - use.index], loop)
            at, *others = use.node.output.uses
            if others:
                raise Unfit
        _check_reach(at, min(ends) + reach[0], max(ends) + reach[1])
    return Varying((a, b))


def _reach(value: Value, loop: Loop) -> tuple[int, int]:
    """The least and the largest of a multiple of the number of the step."""
    times = 1
    if value.node is not None and value.node.kind == "mul":
        value, factor = value.node.inputs
        number = whole_number(factor)
        if number is None:
            raise Unfit
        times = number
    if value is not loop.index:
        raise Unfit
    last = times * (loop.steps - 1)
    return min(0, last), max(0, last)


def _check_reach(use: Use, least: int, largest: int) -> None:
    node = use.node
    if node.kind not in DYNAMIC:
        raise Unfit
    before = 2 if node.kind == "dynamic_slice_scatter" else 1  # operands before the starts
    dims = node.attrs["dims"]
    assert isinstance(dims, tuple) and use.index >= before
    dim = dims[use.index - before]
    whole, part = node.inputs[0].type, node.output.type
    if node.kind == "dynamic_slice_scatter":
        part = node.inputs[1].type
    elif node.kind == "dynamic_unslice":
        whole, part = part, whole
    assert isinstance(whole, TensorType) and isinstance(part, TensorType)
    assert whole.shape is not None and part.shape is not None and isinstance(dim, int)
    if least < 0 or largest > whole.shape[dim] - part.shape[dim]:
        raise Unfit


class _Repeat(Build):
    """A Loop of which the first step is there."""

    def anchor(self, graph: Graph) -> Node:
        """The Loop is the last of the graph so far."""
        return graph.block.returns

    def starts(self, place: int) -> tuple[int, ...]:
        """Where a slice begins at each step."""
        start, move = self.nodes[place].attrs["start"], self.match.moves[place]
        assert isinstance(start, int) and move is not None
        return tuple(start + move * step for step in range(self.match.steps))

    def add(self, wanted: Sequence[Source]) -> list[Value]:
        """Add the Loop; what it carries out for these sources."""
        before = self.outside.body.anchor._prev
        try:
            for place in range(self.match.period):
                self.node(place)
            last = self.match.steps - 1
            for source in wanted:
                if isinstance(source, Inner):
                    if source.lag > 1:
                        self.carry(source, self.nodes[source.place])
                    else:
                        self.results({(source.place, source.output): [last]})
        except Unfit:
            self.undo(before)
            raise
        loop = self.loop([], [])
        order = list(self.carried)
        return [self._final(source, loop.finals, order) for source in wanted]

    def _final(self, source: Source, finals: Sequence[Value], order: Sequence[object]) -> Value:
        if isinstance(source, Same):
            return source.value
        assert isinstance(source, Inner)
        told = source.place, source.output, source.lag
        keys = [key for key in self.carried if key[:3] == told]
        exact = [key for key in keys if key[3] == source.first]
        return finals[order.index((exact or keys)[0])]
