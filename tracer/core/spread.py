"""The structure of a result without what is in it again: as a tree of cotangents has it.

>>> from gradof.tracer.core.pytree import flatten
>>> shared = [1]
>>> leaves, tree = flatten((shared, shared), members=lambda obj: None)
>>> leaves
[1]
>>> wide, order = spread(tree)
>>> wide == flatten(([1], [1]))[1], order
(True, (0, 0))
"""

from __future__ import annotations

from dataclasses import replace

from gradof.tracer.core.pytree import FIXED, TreeDef


def spread(tree: TreeDef) -> tuple[TreeDef, tuple[int, ...]]:
    """The structure in which each place has a container of its own, and whose leaves these are."""
    if not tree.has_again:
        return tree, tuple(range(tree.num_leaves))
    finished: list[tuple[TreeDef, list[int]]] = []
    order: list[int] = []
    seen = 0

    def walk(part: TreeDef) -> TreeDef:
        nonlocal seen
        if part.kind == "leaf":
            order.append(seen)
            seen += 1
            return part
        if part.kind == "again":
            which: int = part.keys[0]
            there, leaves = finished[which]
            order.extend(leaves)
            return there
        start = len(order)
        made: TreeDef = replace(part, children=tuple(map(walk, part.children)))
        if part.kind not in FIXED:
            finished.append((made, order[start:]))
        return made

    return walk(tree), tuple(order)
