"""The Triton kernels of a graph as text, for `gradof show --stage triton`; nothing is run."""

from __future__ import annotations

from gradof.codegen.loops.lower import schedule
from gradof.codegen.triton.attention.emit import emit_flash
from gradof.codegen.triton.attention.kernel import shape_of
from gradof.codegen.triton.attention.replace import is_attention
from gradof.codegen.triton.emit import HEADER, emit_triton, form_of
from gradof.codegen.triton.graph.rewrite import in_kernels
from gradof.codegen.triton.interpreted import in_triton
from gradof.ir.core import Graph


def show_triton(graph: Graph) -> str:
    """A kernel per fusion group, for rows that fit into a block; other ops by name, as comments.

    The graph has primitives only.
    """
    parts = [HEADER.rstrip()]
    grouped = in_kernels(graph, in_triton, lambda group: True)
    counter = 0
    for node in grouped.nodes():
        if node.kind == "FusionGroup":
            nest = schedule(node, f"{graph.name}_kernel{counter}")
            counter += 1
            parts.append(emit_triton(nest, form_of(nest)).removeprefix(HEADER).strip())
        elif is_attention(node):
            shape = shape_of(node, f"{graph.name}_attention{counter}")
            counter += 1
            parts += [
                emit_flash(shape, part).removeprefix(HEADER).strip()
                for part in (("forward",) if node.kind == "attention" else ("queries", "keys"))
            ]
        elif node.kind != "Constant":
            parts.append(f"# {node.kind}: the library's own  # {node.loc}")
    return "\n\n\n".join(parts) + "\n"
