"""What a layer norm costs the host on a GPU, measured without one: nothing is computed.

    python benchmarks/launch.py

Kernels are compiled for sm_90 and go through triton's JIT to a driver that does nothing with them.
A launch of CUDA's own costs about two microseconds more, memory of CUDA's about as much as here.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ |= {"GRADOF_BACKEND": "triton", "OMP_NUM_THREADS": "1"}
os.environ.pop("TRITON_INTERPRET", None)
sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from torch.nn import functional as F

from gradof import differentiate
from gradof.codegen.host import torch_emit as execute
from gradof.codegen.triton import launch
from tests.codegen import triton_stub

ROUNDS, CALLS = 15, 400
_spent: dict[str, list[float]] = {}


def timed(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """The function, with its times noted."""
    def run(*args: Any) -> Any:
        start = time.perf_counter()
        found = call(*args)
        _spent.setdefault(name, []).append(time.perf_counter() - start)
        return found

    return run


def main() -> None:
    """Print medians, in microseconds."""
    stub = triton_stub.install()
    vars(launch).update(require_interpreter=lambda: None, interprets=lambda: False)
    plain = execute.TorchExecutable.__call__

    def noted(self: Any, *tensors: Any) -> Any:
        return timed(self.name, plain)(self, *tensors)

    execute.TorchExecutable.__call__ = noted  # type: ignore[method-assign]
    for dtype in (torch.float32, torch.bfloat16):
        shape = (256, 1024)
        x, w, b = (torch.randn(s, dtype=dtype, requires_grad=True) for s in (shape, 1024, 1024))
        grad = torch.randn(shape, dtype=dtype)
        compiled = differentiate(lambda x, w, b: F.layer_norm(x, (x.shape[-1],), w, b), strict=True)
        call = timed("a call", compiled)
        for _ in range(ROUNDS * CALLS):
            y = call(x, w, b)
            timed("a backward", torch.autograd.grad)(y, (x, w, b), grad)
            stub.launches.clear()
        for name, seconds in sorted(_spent.items()):
            kept = seconds[len(seconds) // 10 :]
            print(f"{dtype!s:16} {name:28} {statistics.median(kept) * 1e6:7.1f} us, "
                  f"least {min(kept) * 1e6:5.1f}")  # fmt: skip
        _spent.clear()


if __name__ == "__main__":
    main()
