"""The same work again and again as a CUDA graph: what it costs to launch is paid once.

    run = CapturedExecutable(emit_torch(graph), graph)
    run(x, w)        # the first call runs as it is: kernels are compiled, constants made
    run(x, w)        # the second is recorded into a graph over memory of its own, and replayed
    run(x2, w2)      # from then on operands are copied in, it is replayed, results are copied out

Note [Captured memory]
A graph reads and writes the same addresses each time. They belong to the graph alone: operands are
copied in and results out, so that a result, a value saved for the backward or a gradient that is
added to stays what it was when f or df runs again. A replay waits for the one before, on whichever
stream that was.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from gradof.codegen.lowering.torch_ops import RANDOM_STATE
from gradof.codegen.machine.executable import Executable
from gradof.codegen.targets.choose import devices_of, home_of
from gradof.errors import CodegenError, DeviceError, GradofError
from gradof.ir.core import Graph
from gradof.ir.types import ScalarType, TensorType

_WHY = {
    "Guard": "its value is read by Python at every call",
    **dict.fromkeys(("Opaque", "library_call", "library_gradient"),
                    "torch's autograd runs it, and may wait for the device"),
    **dict.fromkeys(("python_call", "python_draw"), "it is called by Python at every call"),
    **dict.fromkeys((*RANDOM_STATE, "philox_state"),
                    "it reads or sets the state of a random generator"),
}


class Recorded(Protocol):
    """Work that was recorded, over `outputs` and the inputs it was recorded with."""

    @property
    def outputs(self) -> Sequence[Any]:
        """The results, always the same tensors."""
        ...

    def before(self) -> None:
        """Let the current stream wait for the replay before."""
        ...

    def replay(self) -> None:
        """Do the work again; results are in `outputs`."""
        ...

    def after(self) -> None:
        """Note that inputs and outputs have been read."""
        ...


Record = Callable[[Callable[..., tuple[Any, ...]], Sequence[Any]], Recorded]


class CudaRecorded:
    """See Recorded: one CUDA graph with a memory pool of its own."""

    def __init__(self, run: Callable[..., tuple[Any, ...]], inputs: Sequence[Any]) -> None:
        import torch

        private: Any = torch.cuda
        self.graph = private.CUDAGraph()
        self.done = private.Event()
        # other threads, such as those that pin a loader's memory, go on as they please
        with private.graph(self.graph, capture_error_mode="thread_local"):
            self.outputs = run(*inputs)

    def before(self) -> None:
        """Let the current stream wait for the replay before."""
        self.done.wait()

    def replay(self) -> None:
        """Queue the graph on the current stream."""
        self.graph.replay()

    def after(self) -> None:
        """Note that inputs and outputs have been read."""
        self.done.record()


class CapturedExecutable:
    """See the module docstring. Thread-safe.

    Raises DeviceError for a graph of the CPU's tensors, CodegenError where an op cannot be part of
    a CUDA graph, or what it reads is not on the device; both name it, before anything runs.
    """

    def __init__(self, run: Executable, graph: Graph, record: Record = CudaRecorded) -> None:
        self.device = checked_device(graph)
        assert run.takes_tensors
        self.run, self.name = run, run.name
        self._record = record
        self._calls = 0
        self._recorded: Recorded | None = None
        self._inputs: list[Any] = []
        self._lock = threading.Lock()

    def __call__(self, *tensors: Any) -> tuple[Any, ...]:
        """Run on tensors, one per graph input; fresh tensors come back."""
        import torch

        if not torch.cuda.is_available():  # then it is not CUDA that records
            return self._call(tensors)
        if torch.cuda.is_current_stream_capturing():
            return self.run(*tensors)  # part of a graph of the caller's
        with torch.cuda.device(self.device):
            return self._call(tensors)

    def _call(self, tensors: Sequence[Any]) -> tuple[Any, ...]:
        import torch

        with self._lock, torch.no_grad():
            self._calls += 1
            if self._calls == 1:
                self._inputs = [torch.empty_like(t, requires_grad=False) for t in tensors]
            if self._recorded is not None:
                self._recorded.before()
            for mine, given in zip(self._inputs, tensors, strict=True):
                mine.copy_(given)
            if self._calls == 1:  # with these strides and addresses, for which kernels are compiled
                return self.run(*self._inputs)
            if self._recorded is None:
                self._recorded = self._capture()
            self._recorded.replay()
            results = tuple(t.clone() for t in self._recorded.outputs)
            self._recorded.after()
            return results

    def _capture(self) -> Recorded:
        try:
            return self._record(self.run, self._inputs)
        except GradofError:
            raise
        except RuntimeError as error:
            raise CodegenError(
                f"{self.name} cannot be captured in a CUDA graph: {str(error).splitlines()[0]}",
                hint="an op waits for the device; leave cuda_graph out",
            ) from error


def checked_device(graph: Graph) -> str:
    """The device of a graph that can be captured; see CapturedExecutable for what it raises."""
    if home_of(graph) == "cpu":
        raise DeviceError(
            f"cuda_graph=True, but the tensors of {graph.name} are on the CPU",
            hint="pass CUDA tensors, or leave cuda_graph out",
        )
    for value in graph.inputs:
        if isinstance(value.type, ScalarType) or _on_cpu(value.type):
            raise CodegenError(
                f"cuda_graph=True, but %{value.hint or 'an input'} of {graph.name} is on the CPU: "
                "a CUDA graph would keep the value it has now",
                hint="pass numbers that vary as CUDA tensors: torch.tensor(x, device='cuda')",
            )
    for node in graph.nodes():
        if node.kind in _WHY:
            name = node.attrs["name"] if node.kind == "Opaque" else node.kind
            raise CodegenError(
                f"{name} cannot be part of a CUDA graph: {_WHY[node.kind]}", loc=node.loc,
                hint="leave cuda_graph out",
            )  # fmt: skip
        if node.kind == "to_device" and node.attrs["device"] == "cpu":
            raise CodegenError(
                "a tensor is moved to the CPU, which a CUDA graph does not wait for", loc=node.loc,
                hint="move it outside the function, or leave cuda_graph out",
            )  # fmt: skip
    others = sorted(devices_of(graph) - {"cpu"})
    if len(others) > 1:
        raise CodegenError(
            f"cuda_graph=True, but {graph.name} computes on {' and '.join(others)}",
            hint="keep the function to one device, or leave cuda_graph out",
        )
    return home_of(graph)


def _on_cpu(type_: Any) -> bool:
    return isinstance(type_, TensorType) and type_.device == "cpu"
