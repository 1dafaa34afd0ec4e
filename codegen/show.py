"""The fusion plan of a graph as text, as `gradof show --stage fused` prints it.

    graph loss(...): ... FusionGroup(%x, %b) ...
    # kernel 0: 3 nodes, reads 33.6 MB, writes 16.8 MB
    nest kernel_0 over rows (4096,), columns (1024,) ...

Sizes do not matter here: every group that has more than one node is shown, also where its arrays
are too small for `compile_graph` to make a kernel of it.
"""

from __future__ import annotations

from gradof.codegen.backend import in_native
from gradof.codegen.fusion.fuse import fuse
from gradof.codegen.fusion.groups import bytes_of
from gradof.codegen.loops.lower import schedule
from gradof.ir.core import Graph
from gradof.ir.printer import print_graph


def show_fused(graph: Graph, *, locs: bool = True) -> str:
    """The graph with its fusion groups, and under it the loop nest of each, with its bytes."""
    fused = fuse(graph, in_native, lambda group: len(group.nodes) > 1)
    lines = [print_graph(fused, locs=locs).rstrip()]
    groups = [node for node in fused.nodes() if node.kind == "FusionGroup"]
    for k, node in enumerate(groups):
        read, written = (sum(map(bytes_of, vs)) for vs in (node.inputs, node.outputs))
        count = sum(1 for n in node.blocks[0].nodes() if n.kind != "Constant")
        lines += ["", f"# kernel {k}: {count} nodes, reads {_size(read)}, writes {_size(written)}",
                  str(schedule(node, f"kernel_{k}"))]  # fmt: skip
    if not groups:
        lines += ["", "# nothing to fuse"]
    return "\n".join(lines) + "\n"


def _size(n: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n >= size:
            return f"{n / size:.1f} {unit}"
    return f"{n} bytes"
