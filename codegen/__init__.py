"""Graph to executable code.

`compile_graph(graph, library=...)` chooses the backend. There is one so far, `cpu`: numpy source. Fusion and
schedules will stand between the graph and the backends' emitters.
"""

from typing import Literal

# A second copy of these modules would have a second set of classes.
if __name__ != "gradof.codegen":
    raise ImportError(f"this package is gradof.codegen; it was imported as {__name__}")

from gradof.codegen.cpu.emit import Executable, emit
from gradof.ir.core import Graph

__all__ = ["Executable", "compile_graph"]


def compile_graph(
    graph: Graph, *, library: Literal["numpy", "torch"] = "numpy", name: str | None = None
) -> Executable:
    """Code for a graph of primitives on the CPU.

    `library` owns the arrays of the caller: with "torch", ops that are not worth our own code (matrix products,
    convolutions, random numbers) run in torch. Raises CodegenError for nodes that cannot be emitted.
    """
    return emit(graph, library, name)
