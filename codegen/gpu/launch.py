"""One fusion group on one device: its kernel, and where it runs.

    launch = Launch(nest, "cuda:0")
    y, total = launch(x, w)             # fresh outputs, queued on the device's current stream
"""

from __future__ import annotations

from typing import Any

from gradof.codegen.gpu.interpreted import interpret, require_interpreter
from gradof.codegen.gpu.interpreter import is_interpreting
from gradof.codegen.gpu.kernel import TritonKernel
from gradof.codegen.loopnest import LoopNest


class Launch:
    """See the module docstring. Thread-safe."""

    emitter = "triton"

    def __init__(self, nest: LoopNest, device: str) -> None:
        if device == "cpu":
            require_interpreter()
        self.nest = nest
        self.device = device
        self.kernel = TritonKernel(nest)

    @property
    def source(self) -> str:
        """The Triton source."""
        return self.kernel.source

    def __call__(self, *tensors: Any) -> tuple[Any, ...]:
        """Fresh outputs, in the order of the nest."""
        if not is_interpreting():
            return self.kernel(*tensors)
        return interpret(self.kernel, tensors)
