"""A target: what it can compute, what is worth a kernel, and what is done to a graph for it.

>>> native = target_of(graph, "numpy", "native")
>>> native.passes
('round-weak-numbers', 'hoist-slices', 'fuse')
>>> fused = run_target(graph, native)          # FusionGroup nodes, one loop nest each

A new target is one more of these, and an emitter for its loop nests (`make_kernel`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gradof.codegen.fusion.fuse import Worth
from gradof.codegen.fusion.groups import Group
from gradof.codegen.loops.ir import LoopNest
from gradof.codegen.lowering.numpy import Library
from gradof.ir.core import Node

MakeKernel = Callable[[LoopNest], Callable[..., Sequence[Any]]]


def _never(node: Node) -> bool:
    return False


def _always(group: Group) -> bool:
    return True


@dataclass(frozen=True)
class Target:
    """One way to compute graphs.

    `supports` says of a node whether a kernel can compute it, `worth` of a group whether it shall
    be a kernel. `rematerialize`: kernels compute again what they would read of others. `device`:
    each pass over memory and each launch counts, arithmetic does not. `make_kernel` turns a loop
    nest into a function of arrays; None where the emitter of the graph makes its own.
    """

    name: str
    library: Library
    passes: tuple[str, ...]
    supports: Callable[[Node], bool] = _never
    worth: Worth = _always
    rematerialize: bool = True
    device: bool = False
    make_kernel: MakeKernel | None = None
