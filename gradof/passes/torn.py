"""Comparisons that would read one value from two computations.

Given   %e = log(%z);  %m = amax(%e)         %m is kept, %e is not
        %a = log(%z);  %hit = eq(%a, %m)     somewhere else
`torn([%hit], kept)` is {%m}.

Note [Torn comparisons]
A value that is computed again by other code may be off by a rounding: numpy's logarithm and a
kernel's, a vector's and a lone number's, a device's with and without a fused addition. That is no
mistake but where something jumps: an element is equal to the maximum of all, or is at least the
third largest, only as long as both sides come from one computation. A rule that divides by the
number of maxima divides by zero otherwise. So whoever computes again asks here, and then computes
what was selected again as well, or keeps what it was selected from. Of an operand and a number that
is not made from it either side of the jump is as good, a rounding away from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gradof.ir.core import Node, Value
from gradof.ir.opinfo import has_trait
from gradof.passes.purity import is_constant, is_view

_EXACT = frozenset({"neg", "abs", "cast", "copy", "detach"})  # the same bits whoever computes them
Kept = Callable[[Value], bool]


def jumps(node: Node) -> bool:
    """Whether a rounding of an operand may change a result as a whole."""
    return has_trait(node.kind, "jumps")


def is_exact(value: Value) -> bool:
    """Whether it has the same bits whoever computes it: moved ones of inputs, drawn numbers."""
    seen: set[Value] = set()
    todo = [value]
    while todo:
        at = todo.pop()
        if at in seen or at.node is None or is_constant(at.node):
            continue
        seen.add(at)
        if has_trait(at.node.kind, "random"):
            continue
        if at.is_inexact and not _moves_bits(at.node):
            return False
        todo += at.node.inputs
    return True


def torn(nodes: Iterable[Node], is_kept: Kept) -> list[Value]:
    """The kept values that a node reads beside what they were selected from, computed again."""
    found: dict[Value, None] = {}
    origins: dict[Value, set[Value]] = {}
    for node in nodes:
        again, kept = _reads(node, is_kept)
        if not again or not kept:
            continue
        moved = again - _exactly(again, is_kept)
        for value in kept if moved else ():
            if value not in origins:
                origins[value] = _selected_from(value)
            if not moved.isdisjoint(origins[value]):
                found[value] = None
    return list(found)


def _reads(node: Node, is_kept: Kept) -> tuple[set[Value], dict[Value, None]]:
    """What a node reads through ops that carry elements on: computed again, and kept."""
    again: set[Value] = set()
    kept: dict[Value, None] = {}
    todo = list(node.inputs)
    while todo:
        value = todo.pop()
        if value.node is None or value in again or not value.is_inexact:
            continue
        if is_kept(value):
            kept[value] = None
            continue
        again.add(value)
        if _carries(value.node):
            todo += value.node.inputs
    return again, kept


def _carries(node: Node) -> bool:
    """Whether elements of a result are made of one element each of the operands, or are those."""
    return any(has_trait(node.kind, t) for t in ("elementwise", "selects")) or is_view(node)


def _exactly(again: set[Value], is_kept: Kept) -> set[Value]:
    """Those that have the same bits however often they are computed."""
    exact: set[Value] = set()

    def is_same(value: Value) -> bool:
        node = value.node
        return node is None or value in exact or is_constant(node) or is_kept(value)

    more = True
    while more:
        new = {v for v in again - exact if v.node is not None and _moves_bits(v.node)
               and all(map(is_same, v.node.inputs))}  # fmt: skip
        exact |= new
        more = bool(new)
    return exact


def _moves_bits(node: Node) -> bool:
    return is_view(node) or node.kind in _EXACT or has_trait(node.kind, "selects")


def _selected_from(value: Value) -> set[Value]:
    """The values of which it has elements, by way of something that selects."""
    found: set[Value] = set()
    seen = {(value, False)}
    todo = [(value, False)]
    while todo:
        at, selected = todo.pop()
        if selected:
            found.add(at)
        if at.node is None or not _carries(at.node):
            continue
        selected = selected or has_trait(at.node.kind, "selects")
        for operand in at.node.inputs:
            if operand.is_inexact and (operand, selected) not in seen:
                seen.add((operand, selected))
                todo.append((operand, selected))
    return found
