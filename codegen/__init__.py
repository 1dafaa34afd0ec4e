r'''Graph to executable code.

>>> run = compile_graph(parse_graph("graph f(%x : f32[2]): %y : f32[2] = tanh(%x) return (%y)"))
>>> print(run.source)
def f(x):
    """f(x : f32[2]) -> (f32[2])"""
    y = np.tanh(x)
    return (np.asarray(y),)

`compile_graph` chooses the target (`targets`) and runs its passes. Large arrays are computed by
fusion groups (`fusion`), each a loop nest (`loops`) that an emitter prints (`tiles`, `llvm`,
`triton`); the rest is straight-line numpy, or torch for tensors on a CUDA device (`host`).
'''

import functools
from collections.abc import Collection, Sequence
from typing import Literal

# A second copy of these modules would have a second set of classes.
if __name__ != "gradof.codegen":
    raise ImportError(f"this package is gradof.codegen; it was imported as {__name__}")

from gradof.codegen.host.emit import emit
from gradof.codegen.host.torch_emit import emit_torch
from gradof.codegen.machine.executable import Executable
from gradof.codegen.targets.choose import (
    Backend,
    default_backend,
    devices_of,
    has_small_kernels,
    target_of,
)
from gradof.codegen.targets.passes import run_target
from gradof.codegen.targets.target import MakeKernel
from gradof.codegen.whole.function import WholeExecutable
from gradof.codegen.whole.lengths import AnyLength
from gradof.codegen.whole.support import is_worth_a_function
from gradof.errors import CodegenError, InferenceError
from gradof.ir.core import Graph
from gradof.ir.extent import Unsized
from gradof.ir.garbage import few_collections
from gradof.ir.opinfo import OPS
from gradof.ops.memory import limit
from gradof.ops.registry import Op, check_call

__all__ = [
    "AnyLength", "Executable", "compile_any_length", "compile_graph", "devices_of", "has_kernels",
    "has_small_kernels", "is_worth_a_function",
]  # fmt: skip


@few_collections()
def compile_graph(
    graph: Graph, *, library: Literal["numpy", "torch"] = "numpy", name: str | None = None,
    backend: Backend | None = None, shown: int | None = None, consumed: Collection[int] = (),
) -> Executable:  # fmt: skip
    """Code for a graph of primitives.

    `library` owns the arrays of the caller: with "torch", ops that are not worth our own code
    (matrix products, convolutions, random numbers) run in torch. `backend` overrides what the
    environment asks for (`gradof.codegen.targets`). Where tensors of torch are on a CUDA device,
    or the backend is "triton", the code takes tensors (`takes_tensors`), otherwise numpy arrays.
    Of tensors, only the first `shown` results need memory of their own each; all by default.
    Of the `consumed` inputs, by number, `Executable.consume` lets go as it runs.
    Raises CodegenError, before anything runs, for composites, GradOf blocks, symbolic zeros, and
    ops or devices that the emitter does not have.
    """
    backend = backend or default_backend()
    limit()  # a ConfigError now, and not once an array is large
    _check_calls(graph)
    if _takes_tensors(graph, library, backend):
        return emit_torch(graph, name, fused=backend != "numpy", shown=shown, consumed=consumed)
    target = target_of(graph, library, backend)
    if target.name == "whole":
        statements = functools.partial(
            compile_graph, graph, library=library, name=name, backend="numpy"
        )
        return WholeExecutable(run_target(graph, target), name or graph.name, statements)

    def prepare(given: Graph) -> tuple[Graph, MakeKernel | None]:
        target = target_of(given, library, backend)
        return run_target(given, target), target.make_kernel

    prepared, make_kernel = prepare(graph)
    return emit(
        prepared, library, name, make_kernel=make_kernel, native=backend in ("auto", "native"),
        prepare=prepare, consumed=consumed,
    )  # fmt: skip


@few_collections()
def compile_any_length(graphs: Sequence[Graph], name: str) -> AnyLength:
    """Native code of a numpy caller's graph for any length, given as two examples.

    Raises Unsized where its code is not the same for both, or not native.
    """
    backend = default_backend()
    targets = [target_of(graph, "numpy", backend) for graph in graphs]
    if any(target.name != "whole" for target in targets):
        raise Unsized("no native code of the whole graph")
    prepared = [run_target(graph, t) for graph, t in zip(graphs, targets, strict=True)]
    return AnyLength(
        prepared, name, lambda graph: compile_graph(graph, name=name, backend="numpy")
    )


def _check_calls(graph: Graph) -> None:
    """CodegenError for a node that has not as many operands, or other attributes, than its op."""
    for node in graph.walk():
        record = OPS.get(node.kind)
        if not isinstance(record, Op):
            continue  # `emit` has words for it
        try:
            check_call(record, [v.type for v in node.inputs], node.attrs)
        except InferenceError as error:
            raise CodegenError(
                error.message, loc=node.loc, hint="gradof.ir.verify.verify checks a graph"
            ) from None


def has_kernels(graph: Graph, library: Literal["numpy", "torch"]) -> bool:
    """Whether `compile_graph` gives code that takes tensors, with Triton kernels."""
    backend = default_backend()
    return backend != "numpy" and _takes_tensors(graph, library, backend)


def _takes_tensors(graph: Graph, library: str, backend: Backend) -> bool:
    return library == "torch" and (backend == "triton" or bool(devices_of(graph) - {"cpu"}))
