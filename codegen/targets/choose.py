"""Which target computes a graph, and which of its groups are worth a kernel.

`GRADOF_BACKEND` in the environment says `numpy` (whole arrays, no fusion), `tiles` (numpy in
cache-sized tiles, on threads), `native` (LLVM) or `auto`, the default: native code where llvmlite
and libmvec are there (`gradof doctor` tells), else tiles. Small arrays are whole in every case, but
for `triton`, which runs all groups in triton's interpreter, to test them. Tensors on a CUDA device
have Triton kernels unless it says `numpy`.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any, Literal, cast, get_args

from gradof import tuning
from gradof.codegen.fusion.groups import Group, cells, is_free
from gradof.codegen.fusion.iteration_space import REDUCTIONS
from gradof.codegen.loops.ir import LoopNest
from gradof.codegen.loops.lower import IDENTITY
from gradof.codegen.lowering.half import HELD
from gradof.codegen.lowering.numpy import Library, lowering
from gradof.codegen.targets.target import MakeKernel, Target
from gradof.codegen.tiles.calls import STEPS
from gradof.codegen.tiles.half import tiles_of
from gradof.codegen.tiles.kernel import TileKernel
from gradof.codegen.tiles.torch_calls import has_one_thread
from gradof.codegen.triton.interpreted import InterpretedKernel, in_triton
from gradof.codegen.whole.stretches import may_stretch
from gradof.codegen.whole.support import reason_against
from gradof.errors import CodegenError, ConfigError
from gradof.ir.clone import clone_graph
from gradof.ir.core import Graph, Node, Value
from gradof.ir.opinfo import OPS
from gradof.ir.types import I64, ScalarType, TensorType
from gradof.ops.cost import is_expensive
from gradof.ops.registry import get_op
from gradof.passes.expand_composites import expand_composites
from gradof.passes.pipeline import CLEAN_UP

_TILES: dict[Library, MakeKernel] = {
    "numpy": TileKernel, "torch": functools.partial(TileKernel, torch=True)
}  # fmt: skip
Backend = Literal["auto", "numpy", "tiles", "native", "triton"]


def default_backend() -> Backend:
    """GRADOF_BACKEND, or auto; ConfigError where it names none."""
    name = os.environ.get("GRADOF_BACKEND", "auto")
    if name not in get_args(Backend):
        raise ConfigError(
            f"GRADOF_BACKEND is {name!r}", hint=f"one of {', '.join(get_args(Backend))}"
        )
    return cast(Backend, name)


def kernel_maker(backend: Backend, library: Library = "numpy") -> MakeKernel:
    """What makes the kernel of a nest; CodegenError for native code that cannot be made here."""
    if backend == "tiles":
        return _TILES[library]
    if backend == "triton":
        return InterpretedKernel
    from gradof.codegen.machine.engine import status

    bits, found = status()
    if backend == "native" and not bits:
        raise CodegenError(f"no native code: {found}", hint="GRADOF_BACKEND=tiles needs nothing")
    return functools.partial(native_or_tiles, library=library) if bits else _TILES[library]


def native_or_tiles(
    nest: LoopNest, library: Library = "numpy"
) -> Callable[..., Sequence[Any]]:
    """Native code where every op of the nest has it, else numpy tiles."""
    from gradof.codegen.llvm.kernel import NativeKernel, is_native

    torch = library == "torch"
    return NativeKernel(nest, torch) if is_native(nest) else tiles_of(nest, torch)


def may_fuse(graph: Graph) -> bool:
    """Whether anything in the graph is large enough for a fusion group."""
    least = tuning.SMALL_KERNEL_CELLS if graph.small_kernels else tuning.KERNEL_CELLS
    return any(_largest(node) >= least for node in graph.nodes())


def has_small_kernels(graph: Graph) -> bool:
    """Whether a function has so many ops that native kernels pay for small arrays, too.

    It is asked of a function once, as it is traced, so that its value alone and with its gradients
    are computed alike, bit for bit. For very long ones compiling would take too long.
    """
    from gradof.codegen.machine.engine import status

    least, most = tuning.SMALL_KERNEL_LEAST, tuning.SMALL_KERNEL_MOST
    if len(graph.block) > 4 * most or default_backend() not in ("auto", "native"):
        return False
    if not any(_largest(node) >= tuning.SMALL_KERNEL_CELLS for node in graph.nodes()):
        return False
    if any(n.kind in OPS and get_op(n.kind).is_composite for n in graph.nodes()):
        graph = clone_graph(graph)
        expand_composites(graph)
    ops = sum(
        _largest(n) >= tuning.SMALL_KERNEL_CELLS and len(n.outputs) == 1 and in_native(n)
        for n in graph.nodes()
    )
    return least <= ops <= most and bool(status()[0])  # which loads LLVM


def why_not_whole(graph: Graph, library: Library) -> str | None:
    """Why a graph is not computed as one native function; None if it is."""
    return reason_against(graph, library) or _why_no_function()


def _why_no_function() -> str | None:
    from gradof.codegen.machine.engine import status
    from gradof.codegen.machine.python_entry import is_known

    bits, found = status()  # which loads LLVM
    if not bits:
        return f"no native code: {found}"
    return None if is_known() else "this Python has other objects than CPython with its lock"


def target_of(graph: Graph, library: Library, backend: Backend | None = None) -> Target:
    """The target of a graph that is computed from arrays on the CPU, or None of it by kernels.

    CodegenError for native code that cannot be made here.
    """
    backend = backend or default_backend()
    rounded: tuple[str, ...] = ("round-weak-numbers",)
    if backend == "numpy":
        return Target("numpy", library, rounded)
    if backend == "triton":
        return triton_target(graph, library, interpreted=True)
    if backend in ("auto", "native") and why_not_whole(graph, library) is None:
        return Target("whole", library, rounded)
    passes = (*rounded, "hoist-slices")
    stretches: tuple[str, ...] = ()
    if backend in ("auto", "native") and may_stretch(graph, library):
        stretches = () if _why_no_function() else ("gather-stretches",)
    if not may_fuse(graph):
        return Target(backend, library, (*passes, *stretches))
    make = kernel_maker(backend, library)
    if make is _TILES[library]:
        # A pass over a tile costs as much as the array that it would spare.
        return Target(
            "tiles", library, (*passes, "fuse"), lambda node: in_tiles(node, library), _worth,
            rematerialize=False, make_kernel=make,
        )  # fmt: skip
    # small arrays are in stretches, where each kernel would be a call
    worth = _worth_small if graph.small_kernels and not stretches else _worth
    if stretches and library == "torch":
        worth = _worth_within
    passes = (*passes, "drop-detaches", "move-views-up", "fuse", *stretches)
    return Target("native", library, passes, in_native, worth, make_kernel=make)


# What fewer passes over memory compute: one more launch or pass costs more than arithmetic.
ON_DEVICE = (
    "drop-copies", "hoist-slices", "refine-reshapes", "move-views-up", *CLEAN_UP,
    "split-linear-sums", "split-sums", "pick-from-memory", "put-into-loops", *CLEAN_UP,
    "copy-what-is-returned", "fuse",
)  # fmt: skip


def triton_target(graph: Graph, library: Library, *, interpreted: bool = False) -> Target:
    """The target of a graph of tensors that Triton's kernels compute.

    `interpreted`: of arrays, by kernels that run in triton's interpreter, group by group.
    """
    if interpreted:
        # numpy's `in_range` is an error of Python's
        return Target(
            "triton", library, ("round-weak-numbers", "fuse"),
            lambda node: node.kind != "in_range" and in_triton(node), device=True,
            make_kernel=InterpretedKernel,
        )  # fmt: skip
    home = home_of(graph)
    return Target(
        "triton", library, ("round-weak-numbers", *ON_DEVICE),
        lambda node: _in_kernel(node, home), _worth_a_launch, device=True,
    )  # fmt: skip


def all_targets() -> tuple[Target, ...]:
    """One target of each kind, for torch callers, with groups of any size that are not one copy.

    For printing and trying passes; nothing is compiled.
    """
    passes = ("round-weak-numbers", "hoist-slices", "fuse")
    tiles = functools.partial(in_tiles, library="torch")
    return (
        Target("numpy", "torch", passes[:1]),
        Target("tiles", "torch", passes, tiles, _is_work, rematerialize=False),
        Target("native", "torch", passes, in_native, _is_work),
        Target("triton", "torch", (*passes[:1], *ON_DEVICE), in_triton, device=True),
    )


def devices_of(graph: Graph) -> frozenset[str]:
    """The devices of all tensors of a graph."""
    values = [*graph.inputs, *(v for node in graph.nodes() for v in node.outputs)]
    return frozenset(v.type.device for v in values if isinstance(v.type, TensorType))


def home_of(graph: Graph) -> str:
    """The device on which the work is; beside its tensors those of the CPU are few and small."""
    return min(devices_of(graph) - {"cpu"}, default="cpu")


def _in_kernel(node: Node, device: str) -> bool:
    types = [v.type for v in (*node.inputs, *node.outputs) if isinstance(v.type, TensorType)]
    if any(isinstance(v.type, ScalarType) and v.node is None for v in node.inputs):
        return False  # a number of the caller's is no memory of the device
    if node.kind == "in_range" and device == "cpu":
        return False  # where it is an error of Python's
    return {t.device for t in types} == {device} and in_triton(node)


def _worth_a_launch(group: Group) -> bool:
    """What torch has no single call for; a kernel finds its device by the tensors it reads."""
    made = {v for node in group.nodes for v in node.outputs}
    reads = any(
        isinstance(v.type, TensorType) and v not in made and not _from_nothing(v)
        for node in group.nodes for v in node.inputs
    )  # fmt: skip
    return reads and sum(not is_free(node) for node in group.nodes) > 1


def _from_nothing(value: Value) -> bool:
    return value.node is not None and is_free(value.node) and not any(
        isinstance(v.type, TensorType) for v in value.node.inputs
    )  # fmt: skip


def in_native(node: Node) -> bool:
    """Whether the node can be part of a native kernel."""
    from gradof.codegen.llvm.vectors import supports

    if node.blocks or any(
        isinstance(v.type, TensorType) and v.type.device != "cpu" for v in node.inputs
    ):
        return False
    tensors = [v.type.dtype for v in node.inputs if isinstance(v.type, TensorType)]
    if len(node.outputs) != 1 or not isinstance(node.output.type, TensorType):
        return False
    result = node.output.type.dtype
    if node.kind in REDUCTIONS or node.kind in ("gather", "scatter_add"):
        kinds = [d for d in tensors if d != I64]
        return bool(kinds) and all(d.is_float and supports("copy", [d], d) for d in kinds)
    if node.kind == "where":
        tensors = tensors[1:] if isinstance(node.inputs[0].type, TensorType) else tensors
    return supports(node.kind, tensors or [result], result, node.attrs)


def in_tiles(node: Node, library: Library) -> bool:
    """Whether numpy computes a tile of the node from tiles of its operands."""
    types = [v.type for v in (*node.inputs, *node.outputs)]
    if any(
        isinstance(t, TensorType) and (t.device != "cpu" or t.dtype.is_complex or t.dtype in HELD)
        for t in types
    ):
        return False
    if node.kind in REDUCTIONS or node.kind in ("gather", "scatter_add"):
        return node.inputs[0].type.dtype.kind != "bool"  # type: ignore[union-attr]  # a tensor
    record = get_op(node.kind)
    if "elementwise" not in record.traits or record.is_composite:
        return False
    try:
        lowering(record, library)
    except CodegenError:
        return False
    by_torch = library == "torch" and record.torch is not None and node.kind not in STEPS
    return not by_torch or has_one_thread()


def _largest(node: Node) -> int:
    """Cells of the largest array it reads or makes."""
    types = [v.type for v in (*node.inputs, *node.outputs)]
    return max((t.size for t in types if isinstance(t, TensorType) and t.shape is not None),
               default=0)


def _worth(group: Group) -> bool:
    """Large enough for threads, and either several statements, or one that is no mere copy.

    numpy's `where` waits for each element of a random mask.
    """
    return cells(group) >= tuning.KERNEL_CELLS and _is_work(group)


def _worth_within(group: Group) -> bool:
    """As `_worth`, where a kernel is called from within a function: one op of it is worth threads,
    too, if it is no copy, and numpy would compute it alone."""
    alone = cells(group) > tuning.STRETCH_CELLS and group.nodes[0].kind not in IDENTITY
    return cells(group) >= tuning.KERNEL_CELLS and (alone or _is_work(group))


def _worth_small(group: Group) -> bool:
    """As `_worth`, of a function whose small arrays are kernels' too."""
    return cells(group) >= tuning.SMALL_KERNEL_CELLS and _is_work(group)


def _is_work(group: Group) -> bool:
    kinds = [node.kind for node in group.nodes]
    return len(kinds) > 1 or is_expensive(kinds[0]) or kinds[0] in REDUCTIONS or "where" in kinds
