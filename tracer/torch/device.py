"""The device of a trace, and what of torch's state on CUDA devices a trace must leave as it was.

    devices = OneDevice(fn)
    devices.admit(x, "args[0]")           # cuda:0
    devices.admit(y, "args[1]")           # cuda:1: DeviceError

Tensors of the CPU may be read, too. As in eager those without dims, and indices, stand beside
tensors of a device: they are moved where they are used (`ops.expr`). Everything else moves where
the function says so (`x.to(device)`), or is torch's error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from gradof.errors import DeviceError
from gradof.tracer.state.source import function_loc
from gradof.tracer.torch.random import RecordedGenerator, recorded_seeds
from gradof.tracer.torch.recorder import Recorder

SERVED = ("cpu", "cuda")


class OneDevice:
    """The device that the inputs of one trace share."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        self.first: tuple[torch.device, str] | None = None

    def admit_all(self, leaves: Sequence[Any], paths: Sequence[str]) -> None:
        """Note the tensors among the leaves of the arguments."""
        for leaf, path in zip(leaves, paths, strict=True):
            if isinstance(leaf, torch.Tensor):
                self.admit(leaf, path)

    def admit(self, tensor: torch.Tensor, what: str) -> None:
        """Note an input; DeviceError where no backend serves its device, or for a second one."""
        device = tensor.device
        if device.type not in SERVED:
            raise DeviceError(
                f"{what} is on {device}; compiled functions run on the CPU and on CUDA devices",
                loc=function_loc(self.fn), hint="move the tensor and the module with .cpu()",
            )  # fmt: skip
        if device.type == "cpu":
            return  # where it may not stand beside a device's, torch says so
        if self.first is None:
            self.first = device, what
        elif device != self.first[0]:
            raise DeviceError(
                f"{self.first[1]} is on {self.first[0]}, {what} on {device}",
                loc=function_loc(self.fn),
                hint="move one of them with .to(device) before the call",
            )


@contextlib.contextmanager
def recorded_generators(recorder: Recorder) -> Iterator[None]:
    """Inside, what torch's default generators are told becomes part of the graph."""
    with cuda_state(recorder), recorded_seeds(recorder):
        yield


@contextlib.contextmanager
def cuda_state(recorder: Recorder) -> Iterator[None]:
    """Inside, ops arrive in parts on CUDA devices as they do on the CPU; generators are put back.

    cuDNN's fused layers are off. What generators of devices are told becomes part of the graph.
    """
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # nothing there, and asking would make it
        yield
        return
    states = torch.cuda.get_rng_state_all()
    module: Any = torch.cuda
    private: Any = torch._C
    generators, cudnn = module.default_generators, private._get_cudnn_enabled()
    module.default_generators = tuple(RecordedGenerator(g, recorder) for g in generators)
    private._set_cudnn_enabled(False)
    try:
        yield
    finally:
        private._set_cudnn_enabled(cudnn)
        module.default_generators = generators
        torch.cuda.set_rng_state_all(states)
