r'''Graph to executable code.

>>> run = compile_graph(parse_graph("graph f(%x : f32[2]): %y : f32[2] = tanh(%x) return (%y)"))
>>> print(run.source)
def f(x):
    """f(x : f32[2]) -> (f32[2])"""
    y = np.tanh(x)
    return (np.asarray(y),)

`compile_graph` chooses the backend. There is one so far, `cpu`: numpy source. Fusion and schedules
will stand between the graph and the backends' emitters.
'''

from typing import Literal

# A second copy of these modules would have a second set of classes.
if __name__ != "gradof.codegen":
    raise ImportError(f"this package is gradof.codegen; it was imported as {__name__}")

from gradof.codegen.cpu.emit import emit
from gradof.codegen.cpu.executable import Executable
from gradof.ir.core import Graph

__all__ = ["Executable", "compile_graph"]


def compile_graph(
    graph: Graph, *, library: Literal["numpy", "torch"] = "numpy", name: str | None = None
) -> Executable:
    """Code for a graph of primitives on the CPU.

    `library` owns the arrays of the caller: with "torch", ops that are not worth our own code
    (matrix products, convolutions, random numbers) run in torch. Raises CodegenError, before
    anything runs, for composites, GradOf blocks, symbolic zeros, bfloat16 and other devices.
    """
    return emit(graph, library, name)
