"""The order in which nodes are written: groups of elementwise ones, and others one by one.

A node joins the group of its shape unless something it reads has to be in memory first: a view, a
reduction, or a node of another group. Groups are written when somebody wants a result of theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gradof import tuning
from gradof.codegen.whole.elementwise import is_elementwise
from gradof.codegen.whole.values import in_registers, is_number, shape_of, tensor
from gradof.ir.core import Block, Node, Value
from gradof.ir.types import F64

Key = tuple[tuple[int, ...], bool]


@dataclass(eq=False)
class Step:
    """Nodes that are written together, and those of their results that others read."""

    nodes: list[Node]
    kept: list[Value] = field(default_factory=list)

    @property
    def is_group(self) -> bool:
        """Whether it is elementwise, in memory."""
        node = self.nodes[0]
        return is_elementwise(node) and not in_registers(node)


def steps_of(block: Block) -> list[Step]:
    """The nodes of a block in an order in which they can be written."""
    done: list[Step] = []
    open_groups: dict[Key, Step] = {}
    within: dict[Value, Key] = {}

    def flush(key: Key) -> None:
        step = open_groups.pop(key)
        done.append(step)
        for node in step.nodes:
            del within[node.output]

    for node in block.nodes():
        if node.kind == "Constant" and is_number(node.output):
            continue
        key = _key(node)
        for value in _read(node):
            where = within.get(value)
            if where is not None and where != key:
                flush(where)
        if key is None:
            done.append(Step([node]))
            continue
        group = open_groups.setdefault(key, Step([]))
        group.nodes.append(node)
        within[node.output] = key
        if len(group.nodes) == tuning.WHOLE_GROUP:
            flush(key)
    for key in list(open_groups):
        flush(key)
    for step in done:
        mine = set(step.nodes)
        step.kept = [
            v for node in step.nodes for v in node.outputs
            if any(use.node not in mine for use in v.uses) or v in block.results
        ]  # fmt: skip
    return done


def last_reads(block: Block, steps: Sequence[Step]) -> dict[Value, int]:
    """The step after which nothing reads a value; that of the end for results of the block."""
    last: dict[Value, int] = {}
    for k, step in enumerate(steps):
        for node in step.nodes:
            last.update((v, k) for v in node.outputs)
            last.update((v, k) for v in _read(node))
    last.update((v, len(steps)) for v in block.results)
    return last


def _key(node: Node) -> Key | None:
    if not is_elementwise(node) or in_registers(node):
        return None
    wide = any(not is_number(v) and tensor(v).dtype is F64 for v in (*node.inputs, node.output))
    return shape_of(node.output), wide


def _read(node: Node) -> Iterator[Value]:
    """What a node reads, also within its blocks."""
    yield from node.inputs
    for block in node.blocks:
        yield from block.results
        for inner in block.walk():
            yield from inner.inputs
