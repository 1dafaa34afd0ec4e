"""What of a stretch repeats exactly: where each operand comes from, and which attributes move.

Step j of a stretch has the nodes at start + j * period + place. An operand is one of

    Inner(place, output, lag)     made by the stretch, `lag` steps before
    Same(value)                   the same value at every step, from outside
    Varying(values)               another one at every step, from outside

A match covers the first steps for which that holds. The places of slices move by as much from each
step to the next, or, where that holds for too few steps, each step has a place of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from gradof.ir.attrs import Attr, attr_key
from gradof.ir.core import Block, Node, Value
from gradof.ir.types import Type
from gradof.passes.roll.find import Stretch

MOVING = frozenset({"slice", "slice_scatter", "unslice"})  # by `start` and `stop`
LAG = 3  # steps that a value may be older than what reads it


@dataclass(frozen=True)
class Inner:
    """Made by the node at `place`, `lag` steps before; `first` are the operands of these steps."""

    place: int
    output: int
    lag: int
    first: tuple[Value, ...] = ()


@dataclass(frozen=True)
class Same:
    """One value from outside."""

    value: Value


@dataclass(frozen=True)
class Varying:
    """A value from outside for each step."""

    values: tuple[Value, ...]


Source = Inner | Same | Varying


@dataclass
class Match:
    """Steps that are equal but for what moves.

    `moves[place]` is by how much a slice does, None where it has another place at each step.
    """

    start: int
    period: int
    steps: int
    sources: list[list[Source]]
    moves: list[int | None]


def colour(node: Node) -> object:
    """What is equal of nodes that may be one node of a loop: all but operands and moving places."""
    kind, attrs = node.kind, node.attrs
    if kind in MOVING:
        size: object = _whole(attrs["stop"]) - _whole(attrs["start"])
        told = tuple([(k, attr_key(v)) for k, v in attrs.items() if k not in ("start", "stop")])
    else:
        size, told = 0, tuple([(k, attr_key(v)) for k, v in attrs.items()]) if attrs else ()
    blocks = tuple([structure(block) for block in node.blocks]) if node.blocks else ()
    return kind, told, size, len(node.inputs), tuple([v.type for v in node.outputs]), blocks


class Colours:
    """Numbers for `colour`s; the same one for nodes that are equal up to what moves."""

    def __init__(self) -> None:
        self._numbers: dict[object, int] = {}
        self._types: dict[int, tuple[Type, int]] = {}  # by id: types are hashed slowly

    def of(self, node: Node) -> int:
        """The number of a node's colour."""
        if node.attrs or node.blocks or len(node.outputs) != 1:
            key = colour(node)
        else:
            type_ = node.outputs[0].type
            known = self._types.get(id(type_))
            if known is None:
                known = self._types[id(type_)] = type_, self._number(type_)
            key = node.kind, len(node.inputs), known[1]
        return self._number(key)

    def _number(self, key: object) -> int:
        return self._numbers.setdefault(key, len(self._numbers))


def structure(block: Block) -> object:
    """A key of an isolated block: equal for blocks that are equal but for names and lines."""
    number: dict[Value, object] = {p: k for k, p in enumerate(block.params)}
    nodes = []
    for node in block.nodes():
        attrs = tuple((k, attr_key(v)) for k, v in sorted(node.attrs.items()))
        inner = tuple(structure(b) for b in node.blocks)
        inputs = tuple(number.get(v, id(v)) for v in node.inputs)
        nodes.append((node.kind, attrs, inputs, tuple(v.type for v in node.outputs), inner))
        number.update((out, (len(nodes), k)) for k, out in enumerate(node.outputs))
    params = tuple(p.type for p in block.params)
    return params, tuple(nodes), tuple(number.get(v, id(v)) for v in block.results)


class Matcher:
    """Nodes in order, without constants, and their numbers."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self.at = {node: k for k, node in enumerate(nodes)}

    def match(self, stretch: Stretch, least: int) -> Match | None:
        """The match of a stretch, with as many steps as repeat exactly; None for fewer."""
        start, period, steps, _ = stretch
        for place in range(period):
            even = self._even(start + place, period, steps)
            steps = even if even >= least else steps
        sources: list[list[Source]] = []
        place = 0
        while place < period:
            found: list[Source] = []
            for k in range(len(self.nodes[start + place].inputs)):
                source, covered = self._source(stretch, place, k, steps)
                if covered < steps:
                    steps, sources, place = covered, [], -1  # and once more for what is left
                    if steps < least:
                        return None
                    break
                assert source is not None
                found.append(source)
            if place >= 0:
                sources.append(found)
            place += 1
        moves = [
            self._move(start + place, period)
            if self._even(start + place, period, steps) == steps else None
            for place in range(period)
        ]  # fmt: skip
        return Match(start, period, steps, sources, moves)

    def _even(self, first: int, period: int, steps: int) -> int:
        """For how many steps a slice moves evenly; colours say that all else is the same."""
        node = self.nodes[first]
        if node.kind not in MOVING:
            return steps
        start, step = _whole(node.attrs["start"]), self._move(first, period)
        last = first + (steps - 1) * period + 1
        starts = [node.attrs["start"] for node in self.nodes[first:last:period]]
        for j, (found, wanted) in enumerate(zip(starts, itertools.count(start, step))):
            if found != wanted:
                return j
        return steps

    def _move(self, first: int, period: int) -> int:
        node = self.nodes[first]
        if node.kind not in MOVING:
            return 0
        following = self.nodes[first + period]
        return _whole(following.attrs["start"]) - _whole(node.attrs["start"])

    def _source(
        self, stretch: Stretch, place: int, k: int, steps: int
    ) -> tuple[Source | None, int]:
        """Where an operand comes from, and for how many steps it does."""
        start, period = stretch[:2]
        shown = min(steps - 1, LAG)  # a step that is like those that follow
        value = self.nodes[start + shown * period + place].inputs[k]
        maker = self._maker(value, start)
        if maker is None:
            return self._outside(stretch, place, k, steps)
        where, output, lag = maker % period, value.index, shown - maker // period
        values = self._operands(stretch, place, k, steps)
        first = values[:lag]
        for j, value in enumerate(first):
            if self._maker(value, start) is not None:
                return None, j
        makers = self.nodes[start + where : start + (steps - lag) * period : period]
        wanted = [node.outputs[output] for node in makers]
        if values[lag:] != wanted:  # values are equal if they are one
            return None, next(j for j in range(lag, steps) if values[j] is not wanted[j - lag])
        return Inner(where, output, lag, tuple(first)), steps

    def _operands(self, stretch: Stretch, place: int, k: int, steps: int) -> list[Value]:
        """What the nodes at a place read as operand k, step by step."""
        start, period = stretch[:2]
        nodes = self.nodes[start + place : start + steps * period : period]
        return [node.inputs[k] for node in nodes]

    def _outside(
        self, stretch: Stretch, place: int, k: int, steps: int
    ) -> tuple[Source | None, int]:
        values = self._operands(stretch, place, k, steps)
        one = values[0]
        if any([v is not one for v in values]):
            for j, value in enumerate(values):
                if self._maker(value, stretch.start) is not None:
                    return None, j
        elif self._maker(one, stretch.start) is not None:
            return None, 0
        if all([v is one or same_value(v, one) for v in values]):
            return Same(one), steps
        if any([v.type != one.type for v in values]):
            return None, next(j for j, v in enumerate(values) if v.type != one.type)
        return Varying(tuple(values)), steps

    def _maker(self, value: Value, start: int) -> int | None:
        """How far behind the start of the stretch a value is made; None for one from before."""
        if value.node is None:
            return None
        at = self.at.get(value.node)
        return None if at is None or at < start else at - start


def same_value(a: Value, b: Value) -> bool:
    """Whether two values are one, or equal constants."""
    if a is b:
        return True
    return (
        a.node is not None and b.node is not None
        and a.node.kind == b.node.kind == "Constant" and a.type == b.type
        and attr_key(a.node.attrs["value"]) == attr_key(b.node.attrs["value"])
    )  # fmt: skip


def _whole(value: Attr) -> int:
    assert isinstance(value, int)
    return value
