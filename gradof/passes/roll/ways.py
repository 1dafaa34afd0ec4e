"""What a run does from one head of a loop to the next, as something that can be done anywhere.

    while abs(x * x - a) > tol:       the way of a step: Guard(%c), then the ops that lead from
        x = 0.5 * (x + a / x)         the state [%c, %x, %a] to the next one

Operands of a way are numbers: of the state, then of what it computes; below zero, of inputs of the
graph. So it can be copied to wherever the run stands alike again (`roll.whiles`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gradof.ir.attrs import Dense, attr_key
from gradof.ir.clone import clone_node
from gradof.ir.core import Node, Value
from gradof.passes.purity import is_pure
from gradof.passes.roll.build import Unfit
from gradof.passes.roll.match import structure

LARGEST_COUNT = 1 << 20  # of a whole number of Python's that a loop changes, as it begins
_MOVES = 1 << 10  # by how much a step may change it


class Item(NamedTuple):
    """A node of a way: its operands by number, and the number of its first output."""

    node: Node
    inputs: tuple[int, ...]
    first: int
    key: object


@dataclass(frozen=True)
class Way:
    """See the module docstring. `ends` is the state at the next head, by number."""

    items: tuple[Item, ...]
    ends: tuple[int, ...]

    @property
    def key(self) -> object:
        """Equal for ways that do the same."""
        return tuple([(item.key, item.inputs) for item in self.items]), self.ends


def way_of(nodes: Sequence[Node], begin: Sequence[Value], end: Sequence[Value]) -> Way:
    """The way between two states, by the nodes recorded between; Unfit where it is none."""
    numbers: dict[Value, int] = {}
    for i, value in enumerate(begin):
        numbers.setdefault(value, i)
    items: list[Item] = []
    count = len(begin)

    def number(value: Value) -> int:
        nonlocal count
        if value in numbers:
            return numbers[value]
        if value.node is None:
            return -1 - value.index
        if value.node.kind != "Constant":
            raise Unfit  # from before, and out of reach
        add(value.node)
        return numbers[value]

    def add(node: Node) -> None:
        nonlocal count
        inputs = tuple(map(number, node.inputs))
        copy = clone_node(node, {})
        copy.set_inputs(())  # what it reads is told by number
        items.append(Item(copy, inputs, count, _key(node)))
        for out in node.outputs:
            numbers[out] = count
            count += 1

    for node in _needed(nodes, end):
        add(node)
    ends = tuple(map(number, end))  # constants among them are items
    return Way(tuple(items), ends)


def _needed(nodes: Sequence[Node], end: Sequence[Value]) -> list[Node]:
    """The Guards, and what they and the end read; Unfit where there is more to do than that."""
    needed, found = set(end), list[Node]()
    for node in reversed(nodes):
        guards = node.kind == "Guard"
        if (guards and not isinstance(node.attrs["value"], bool | int)) or (
            not guards and not is_pure(node)
        ):
            raise Unfit
        if guards or any(out in needed for out in node.outputs):
            needed.update(node.inputs)
            found.append(node)
    return found[::-1]


def _key(node: Node) -> object:
    attrs = tuple([
        (k, attr_key(v)) for k, v in sorted(node.attrs.items())
        if not (node.kind == "Guard" and k == "number")
    ])  # fmt: skip
    types = tuple([out.type for out in node.outputs])
    return node.kind, attrs, types, tuple(map(structure, node.blocks))


def moves_little(way: Way, i: int, counters: Sequence[int], places: Sequence[int]) -> bool:
    """Whether a whole number of the state moves by a small constant, or becomes one.

    `counters` are all such numbers of the state, `places` those that count the items of a `for`,
    of which a multiple may be taken. Python's numbers have no bound, those of the graph have.
    """
    made = {item.first: item for item in way.items if len(item.node.outputs) == 1}

    def constant(n: int) -> int | None:
        item = made.get(n)
        if item is None or item.node.kind not in ("Constant", "cast", "copy"):
            return None
        if item.node.kind != "Constant":
            return constant(item.inputs[0])
        value = item.node.attrs["value"]
        value = value.numpy().item() if isinstance(value, Dense) and not value.shape else value
        return value if type(value) is int else None

    def far(n: int) -> int | None:
        if n in counters or n in places:
            return 0
        number, item = constant(n), made.get(n)
        if number is not None:
            return 0 if abs(number) <= LARGEST_COUNT else None
        if item is None or item.node.kind not in ("add", "sub", "mul"):
            return None
        a, b = item.inputs
        if item.node.kind != "sub" and constant(b) is None:
            a, b = b, a
        by, before = constant(b), far(a)
        if by is None or before is None:
            return None
        if item.node.kind == "mul":
            return 0 if a in places and abs(by) <= _MOVES else None
        return before + abs(by)

    total = far(way.ends[i])
    return total is not None and total <= _MOVES


def fork_of(ways: Sequence[Way], way: Way) -> bool:
    """Whether a way parts from each of the others at a Guard, by its outcome."""
    return all(_parts(way, other) for other in ways)


def _parts(a: Way, b: Way) -> bool:
    for x, y in zip(a.items, b.items, strict=False):
        if x.inputs != y.inputs or x.node.kind != y.node.kind:
            return False
        if x.key != y.key:
            return x.node.kind == "Guard" and all(
                type(each.node.attrs["value"]) is bool for each in (x, y)
            )
    return False
