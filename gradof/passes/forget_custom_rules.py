"""Values with a custom rule are plain values where no gradient is taken any more.

    Given   %y = CustomRule[results=1, wrt=(1,)](%raw, %x, %saved) ...; %z = exp(%y)
    Result  %z = exp(%raw)

What only the rule would have read is dead afterwards. Run on graphs that are emitted, never on one
that is differentiated.
"""

from __future__ import annotations

from gradof.ir.core import Graph


def forget_custom_rules(graph: Graph) -> bool:
    """Replace the results of every CustomRule by what they hold; returns changed?"""
    changed = False
    for node in list(graph.walk()):
        if node.kind == "CustomRule" and node.block is not None:
            for out, raw in zip(node.outputs, node.inputs, strict=False):
                out.replace_all_uses_with(raw)
            node.erase()
            changed = True
    return changed
