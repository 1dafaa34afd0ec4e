"""Fusion groups: the nodes of one loop nest each.

    group.nodes             # in order
    cells(group)            # the size of its iteration space
    is_free(node)           # a number or a view, which any group may have inside
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gradof.codegen.fusion.access import renames_axes
from gradof.codegen.fusion.iteration_space import NUMBERS, Space
from gradof.ir.attrs import Dense
from gradof.ir.core import Node, Value
from gradof.ir.types import TensorType


@dataclass(eq=False)
class Group:
    """Nodes of one loop nest, in order."""

    number: int
    space: Space
    nodes: list[Node] = field(default_factory=list)
    largest: int = 0  # cells that one of the nodes has by itself
    merged: bool = False  # from groups whose nodes were placed apart, not in order

    def parts(self) -> list[Group]:
        """Itself, or groups of nodes that fit from the first to the last; see `in_order`."""
        spaces = [self.space]
        if self.merged:
            spaces = in_order(self.nodes, self.space.supports, self.space.device)
        if len(spaces) == 1:
            return [self]
        made = [Group(self.number, space, [f.node for f in space.fits]) for space in spaces]
        for group in made:
            group.largest = max(map(own_cells, group.nodes))
        return made


def is_free(node: Node) -> bool:
    """Whether a node is no work in a loop: a number, or a view that renames axes."""
    if node.kind == "Constant":
        return not isinstance(node.attrs["value"], Dense)
    return node.kind in NUMBERS or renames_axes(node)


def cells(group: Group) -> int:
    """The size of the group's iteration space."""
    return math.prod(group.space.sizes.values())


def bytes_of(value: Value) -> int:
    """Bytes of an array; 0 for weak scalars."""
    return value.type.nbytes if isinstance(value.type, TensorType) else 0


def in_order(
    nodes: Sequence[Node], supports: Callable[[Node], bool], device: bool = False
) -> list[Space]:
    """Spaces of nodes that fit one after the other, as `schedule` places them.

    Nodes of one size all around may fit as two groups are merged, and not from the first to the
    last. What comes after that is a space of its own, and nothing has to run in between.
    """
    spaces: list[Space] = []
    for node in nodes:
        fit = spaces[-1].fit(node) if spaces else None
        if fit is None:
            spaces.append(Space(supports, device))
            fit = spaces[-1].fit(node)
            assert fit is not None, f"{node.kind} was placed before"
        spaces[-1].add(fit)
    return spaces


def own_cells(node: Node) -> int:
    """The cells of a node by itself: those of its largest operand or result."""
    types = [v.type for v in (*node.inputs, *node.outputs)]
    return max((t.size for t in types if isinstance(t, TensorType)), default=1)
