"""The loop nests and the Triton kernels of a graph as text, for `gradof show`; nothing is run.

    graph loss(...): ... FusionGroup(%x, %b) ...
    # kernel 0: 3 nodes, reads 33.6 MB, writes 16.8 MB
    nest kernel_0 over rows (4096,), columns (1024,) ...

Sizes do not matter here: every group that has more than one node is shown, also where its arrays
are too small for `compile_graph` to make a kernel of it.
"""

from __future__ import annotations

from gradof.codegen.fusion.groups import bytes_of
from gradof.codegen.loops.lower import schedule
from gradof.codegen.loops.text import print_nest
from gradof.codegen.targets.choose import ON_DEVICE, all_targets, in_native
from gradof.codegen.targets.nests import NEST_PASSES, after_each
from gradof.codegen.targets.passes import run_target
from gradof.codegen.targets.target import Target
from gradof.codegen.triton.attention.emit import emit_flash
from gradof.codegen.triton.attention.kernel import shape_of
from gradof.codegen.triton.attention.replace import is_attention
from gradof.codegen.triton.emit import HEADER, emit_triton, form_of
from gradof.codegen.triton.interpreted import in_triton
from gradof.ir.core import Graph
from gradof.ir.printer import print_graph


def show_fused(graph: Graph, *, locs: bool = True) -> str:
    """The graph with its fusion groups, and under it the loop nest of each, with its bytes."""
    target = Target("native", "numpy", ("fuse",), in_native, lambda group: len(group.nodes) > 1)
    fused = run_target(graph, target)
    lines = [print_graph(fused, locs=locs).rstrip()]
    groups = [node for node in fused.nodes() if node.kind == "FusionGroup"]
    for k, node in enumerate(groups):
        read, written = (sum(map(bytes_of, vs)) for vs in (node.inputs, node.outputs))
        count = sum(1 for n in node.blocks[0].nodes() if n.kind != "Constant")
        lines += ["", f"# kernel {k}: {count} nodes, reads {_size(read)}, writes {_size(written)}",
                  print_nest(schedule(node, f"kernel_{k}"), locs=locs).rstrip()]  # fmt: skip
    if not groups:
        lines += ["", "# nothing to fuse"]
    return "\n".join(lines) + "\n"


def show_nests(graph: Graph, *, locs: bool = True) -> str:
    """The loop nests of each target after each of its passes that changed them."""
    lines: list[str] = []
    for target in all_targets():
        if target.name not in NEST_PASSES:
            continue
        nodes = [n for n in run_target(graph, target).nodes() if n.kind == "FusionGroup"]
        for k, node in enumerate(nodes):
            nest = schedule(node, f"{graph.name}_kernel_{k}")
            for name, after in (("lowered", nest), *after_each(nest, target.name)):
                if name == "lowered" or after != nest:
                    lines += [f"# {target.name}, {nest.name}: {name}", print_nest(after, locs=locs)]
                else:
                    lines.append(f"# {target.name}, {nest.name}: {name}: nothing to do\n")
                nest = after
    return "\n".join(lines) if lines else f"# {graph.name} has no loop nests\n"


def show_triton(graph: Graph) -> str:
    """A kernel per fusion group, for rows that fit into a block; other ops by name, as comments.

    The graph has primitives only.
    """
    parts = [HEADER.rstrip()]
    grouped = run_target(graph, Target("triton", "torch", ON_DEVICE, in_triton, device=True))
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


def _size(n: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n >= size:
            return f"{n / size:.1f} {unit}"
    return f"{n} bytes"
