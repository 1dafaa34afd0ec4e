"""Python numbers beside half precision, rounded as their library rounds them, in every emitter.

    Given   %0 : float = Constant[value=0.1]();  %m : bool[n] = gt(%x, %0)        # %x : bf16[n]
    Result  %0 : float = Constant[value=0.10009765625]();  %m : bool[n] = gt(%x, %0)

A number takes on the dtype of the tensors beside it. torch computes its products and quotients
with the number as it is (`half.WEAK`), everything else, comparisons above all, with the rounded
one. Emitters compute half precision in float32, where 0.1 is another number: a mask would tell of
other values than those it selects from. Numbers that are known at run time only are rounded by the
emitters (`half.rounds_number`).
"""

from __future__ import annotations

from gradof.codegen.lowering.half import round_number, rounds_number
from gradof.codegen.lowering.numpy import Library
from gradof.ir.builder import Builder
from gradof.ir.core import Graph, Node


def may_round(graph: Graph, library: Library) -> bool:
    """Whether the graph has constants that `round_weak_numbers` changes."""
    return any(_found(node, library) for node in graph.walk())


def round_weak_numbers(graph: Graph, library: Library) -> bool:
    """Round the constants beside half precision, as `library` does."""
    changed = False
    for node in list(graph.walk()):
        for index, value in _found(node, library):
            assert node.block is not None
            builder = Builder(node.block, node, node.loc)
            node.replace_input(index, builder.constant(value))
            changed = True
    return changed


def _found(node: Node, library: Library) -> list[tuple[int, float]]:
    """Places of constants that are other numbers once rounded, and those."""
    found = []
    for index, value in enumerate(node.inputs):
        dtype = rounds_number(node, index, library)
        if dtype is None or value.node is None or value.node.kind != "Constant":
            continue
        number = value.node.attrs["value"]
        if isinstance(number, bool) or not isinstance(number, int | float):
            continue
        rounded = round_number(float(number), dtype)
        if rounded != number and number == number:
            found.append((index, rounded))
    return found
