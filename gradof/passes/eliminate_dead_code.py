"""Dead-code elimination.

    Given   %y = tanh(%x); %z = exp(%x); return (%y)
    Result  %y = tanh(%x); return (%y)

Random nodes stay even when unused: the caller's generator must advance as in eager. Unused
outputs of a GradOf or a Loop go, and with them the part of its body that computed them.
"""

from __future__ import annotations

from collections.abc import Callable

from gradof.ir.core import Block, Graph, Node, Value
from gradof.ir.loop import is_loop
from gradof.ir.opinfo import STRUCTURAL
from gradof.passes.purity import is_pure
from gradof.passes.trim_loops import drop_dead_operands, drop_dead_outputs

OnErase = Callable[[Value], None]


def eliminate_dead_code(graph: Graph) -> bool:
    """Drop every pure node whose outputs are unused; returns whether anything went."""
    return eliminate_dead_code_in(graph.block)


def eliminate_dead_code_in(block: Block, on_erase: OnErase | None = None) -> bool:
    """The same for one block; `on_erase` is called with each value that goes."""
    changed = False
    for node in block.reversed_nodes():
        if node.kind in STRUCTURAL:
            changed |= _drop_dead_outputs(node, on_erase)
        elif is_loop(node) and any(out.has_uses for out in node.outputs):
            changed |= drop_dead_outputs(node, eliminate_dead_code_in, on_erase)
        if not any([out.has_uses for out in node.outputs]) and is_pure(node):
            if on_erase is not None:
                for out in node.outputs:
                    on_erase(out)
            node.erase()
            changed = True
            continue
        for inner in node.blocks:
            changed |= eliminate_dead_code_in(inner, on_erase)
        if is_loop(node):
            changed |= drop_dead_operands(node)
    return changed


def _drop_dead_outputs(node: Node, on_erase: OnErase | None) -> bool:
    """Given `%a, %b = GradOf(...)` with %b unused: `%a = GradOf(...)`, returning one value."""
    changed = False
    for i in range(len(node.outputs) - 1, -1, -1):
        if not node.outputs[i].has_uses:
            if on_erase is not None:
                on_erase(node.outputs[i])
            node.remove_output(i)
            node.blocks[0].returns.remove_input(i)
            changed = True
    return changed
