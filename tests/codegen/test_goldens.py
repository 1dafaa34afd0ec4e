"""What every workload is compiled to, as text: graphs, loop nests and the sources of all targets.

A change of what is emitted shows here as a difference to read: `pytest --update-golden` accepts
it. Lines of the user's are left out, so that the benchmark may be edited. LLVM IR is that of 512
bits, on any processor.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from gradof.codegen import compile_graph
from gradof.codegen.llvm.emit import emit_ir, lanes_for
from gradof.codegen.llvm.kernel import is_native, layout_passes, native_passes
from gradof.codegen.loops.ir import LoopNest
from gradof.codegen.loops.passes.run import run_nest_passes
from gradof.codegen.loops.text import print_nest
from gradof.codegen.show import show_triton
from gradof.codegen.tiles.emit import emit_tiles
from gradof.codegen.tiles.kernel import can_cut_columns
from gradof.codegen.tiles.rewrite import for_tiles
from gradof.ir.printer import print_graph
from tests.workload_graphs import NAMES, graphs_of, library_of, nests_of

_LINE = re.compile(r"  # [^\n]*\.py:\d+$", re.MULTILINE)
# Whose LLVM IR is kept: it is long, and that of others is of the same kinds.
LLVM = frozenset({"gelu-bias-mse", "rmsnorm", "cross-entropy", "swiglu", "Adam", "heat", "mixture",
                  "Black-Scholes"})  # fmt: skip
FEW = 4  # kernels of a workload that are printed: those of heat are alike


def graphs(name: str) -> str:
    """f and df, as they are compiled."""
    return "\n".join(print_graph(g, locs=False) for g in graphs_of(name))


def numpy(name: str) -> str:
    """Straight-line numpy."""
    library = library_of(name)
    return "\n".join(
        compile_graph(g, library=library, backend="numpy").source  # type: ignore[arg-type]
        for g in graphs_of(name)
    )


def nests(name: str) -> str:
    """The loop nests for native code, as they are lowered."""
    return "\n".join(print_nest(n, locs=False) for n in nests_of(name, "native")[:FEW])


def tiles(name: str) -> str:
    """numpy over tiles of rows."""
    return "\n".join(_tile(n, library_of(name) == "torch") for n in nests_of(name, "tiles")[:FEW])


def _tile(nest: LoopNest, torch: bool) -> str:
    short = for_tiles(nest, torch)
    cut = can_cut_columns(short)
    code = emit_tiles(short, nest.rows > 0 or cut, cut, torch)
    return f"{print_nest(short, locs=False)}\n{code.once}\n{code.tile}\n{code.last}".rstrip() + "\n"


def llvm(name: str) -> str:
    """LLVM IR of one kernel of the gradient, for contiguous arrays of which columns are one."""
    nest = [n for n in nests_of(name, "native") if is_native(n)][-1]
    torch = library_of(name) == "torch"
    nest = run_nest_passes(nest, native_passes(torch), "llvm")
    columns = tuple(range(nest.rows, len(nest.sizes)))
    groups = (*((k,) for k in range(nest.rows)), *([columns] if columns else []))
    nest = run_nest_passes(nest, layout_passes(groups, nest.sizes), "llvm")
    classes = tuple("one" if b.dims and b.dims[-1] is not None else "zero"
                    for b in (*nest.inputs, *nest.outputs))  # fmt: skip
    code = emit_ir(nest, classes, lanes_for(nest, 512))  # type: ignore[arg-type]  # two literals
    return f"{print_nest(nest, locs=False)}\n{code.text}"


def triton(name: str) -> str:
    """Triton kernels."""
    return "\n".join(show_triton(g) for g in graphs_of(name))


KINDS: dict[str, Callable[[str], str]] = {
    "graphs": graphs, "numpy": numpy, "nests": nests, "tiles": tiles, "llvm": llvm,
    "triton": triton,
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_workloads(name: str, golden: Callable[..., None]) -> None:
    for kind, print_ in KINDS.items():
        if kind == "llvm" and name not in LLVM:
            continue
        if kind in ("graphs", "numpy", "triton") or nests_of(name, "native"):
            golden(_LINE.sub("", print_(name)), f"{name}_{kind}")
