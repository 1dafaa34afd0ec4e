"""One fusion group on one device: its kernel, and where it runs.

    launch = Launch(nest, "cuda:0")
    y, total = launch(x, w)             # fresh outputs, queued on the device's current stream
"""

from __future__ import annotations

from typing import Any

from gradof.codegen.loops.ir import LoopNest
from gradof.codegen.triton.interpreted import interpret, require_interpreter
from gradof.codegen.triton.interpreter import is_interpreting
from gradof.codegen.triton.kernel import TritonKernel
from gradof.errors import CodegenError


class Launch:
    """See the module docstring. Thread-safe."""

    emitter = "triton"

    def __init__(self, nest: LoopNest, device: str) -> None:
        if device == "cpu":
            require_interpreter()
        self.nest = nest
        self.device = device
        self.kernel = TritonKernel(nest)
        self._interprets: bool | None = None

    @property
    def source(self) -> str:
        """The Triton source."""
        return self.kernel.source

    def __call__(self, *tensors: Any) -> tuple[Any, ...]:
        """Fresh outputs, in the order of the nest; CodegenError where triton is not installed."""
        planned = self.kernel.planned.get(self.kernel.key(tensors))
        if planned is not None and planned.direct is not None:
            found: tuple[Any, ...] | None = planned.direct(*tensors)
            if found is not None:
                return found
        if self._interprets is None:
            self._interprets = interprets()
        return interpret(self.kernel, tensors) if self._interprets else self.kernel(*tensors)


def interprets() -> bool:
    """Whether triton interprets; CodegenError where it is not installed."""
    try:
        return is_interpreting()
    except ImportError as error:
        raise CodegenError(
            "triton is not installed, and CUDA tensors are computed by its kernels",
            hint="pip install 'gradof[triton]', or GRADOF_BACKEND=numpy: every op is torch's then",
        ) from error
