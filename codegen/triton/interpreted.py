"""Triton kernels over numpy arrays, in triton's interpreter: how kernels are tested without a GPU.

`GRADOF_BACKEND=triton TRITON_INTERPRET=1` runs every fusion group that way, small ones too.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradof.codegen.fusion.access import pads_of
from gradof.codegen.fusion.iteration_space import REDUCTIONS
from gradof.codegen.loops.ir import LoopNest
from gradof.codegen.triton.kernel import TritonKernel
from gradof.codegen.triton.ops import NAMES, supports
from gradof.errors import CodegenError
from gradof.ir.core import Node
from gradof.ir.types import BF16, BOOL, I32, I64, ScalarType, TensorType


class InterpretedKernel:
    """A TritonKernel from numpy arrays to numpy arrays; CodegenError without the interpreter."""

    emitter = "triton, interpreted"

    def __init__(self, nest: LoopNest) -> None:
        require_interpreter()
        self.nest = nest
        self.kernel = TritonKernel(nest)

    @property
    def source(self) -> str:
        """The Triton source."""
        return self.kernel.source

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        """Fresh outputs, in the order of the nest; bfloat16 is raw on either side."""
        import torch

        from gradof.codegen.lowering.numpy import as_tensor

        tensors = [
            t.view(torch.bfloat16) if b.dtype == BF16 else t
            for b, t in zip(self.kernel.nest.inputs, map(as_tensor, arrays), strict=True)
        ]
        results = interpret(self.kernel, tensors)
        found = [t.view(torch.uint16) if t.dtype == torch.bfloat16 else t for t in results]
        return tuple(t.numpy() for t in found)


_ONE_AT_A_TIME = threading.Lock()  # the interpreter replaces triton.language while it runs


def interpret(kernel: Callable[..., tuple[Any, ...]], tensors: Sequence[Any]) -> tuple[Any, ...]:
    """Run a kernel in triton's interpreter; inf and nan are results, without a warning.

    Tensors are copied where two storages of unlike sizes begin at one place, which the interpreter
    takes for one; they come of numpy views of one array.
    """
    sizes: dict[int, int] = {}
    apart = []
    for tensor in tensors:
        storage = tensor.untyped_storage()
        first = sizes.setdefault(storage.data_ptr(), storage.nbytes())
        apart.append(tensor if first == storage.nbytes() else tensor.clone())
    with _ONE_AT_A_TIME, np.errstate(all="ignore"):
        return kernel(*apart)


def require_interpreter() -> None:
    """CodegenError where kernels are compiled, which CPU memory has no use for."""
    if os.environ.get("TRITON_INTERPRET") != "1":
        raise CodegenError(
            "Triton kernels of CPU arrays run in triton's interpreter only",
            hint="set TRITON_INTERPRET=1 before the process starts, or another GRADOF_BACKEND",
        )


def in_triton(node: Node) -> bool:
    """Whether the node can be part of a Triton kernel."""
    if len(node.outputs) != 1 or not isinstance(node.output.type, TensorType):
        return False
    result = node.output.type.dtype
    given = [v.type.dtype for v in node.inputs if isinstance(v.type, TensorType)]
    if any(d not in NAMES for d in (*given, result)):
        return False
    if node.kind in REDUCTIONS or node.kind in ("gather", "scatter_add"):
        return all(d.is_float for d in given if d != I64) and any(d.is_float for d in given)
    if node.kind == "cast" and isinstance(node.inputs[0].type, ScalarType):
        return False
    if node.kind == "in_range":
        return result in (I32, I64)
    if node.kind == "cat":
        return True
    if node.kind == "pad":
        return all(min(pair) >= 0 for pair in pads_of(node))
    if node.kind == "where" and given and given[0] == BOOL and len(given) > 1:
        given = given[1:]
    return supports(node.kind, given or [result], result, node.attrs)
