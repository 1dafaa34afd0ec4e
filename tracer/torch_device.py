"""The device of a trace, and what of torch's state on CUDA devices a trace must leave as it was.

    devices = OneDevice(fn)
    devices.admit(x, "args[0]")           # cuda:0
    devices.admit(y, "args[1]")           # cuda:1, or a CPU tensor with dims: DeviceError

Tensors without dims may be the CPU's beside those of a device, as in eager: they are moved where
they are used (`ops.expr`). Everything else moves where the function says so (`x.to(device)`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from gradof.errors import DeviceError, UnsupportedOpError
from gradof.tracer.source import function_loc, user_loc

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
        if device.type == "cpu" and tensor.dim() == 0:
            return
        if self.first is None:
            self.first = device, what
        elif device != self.first[0]:
            raise DeviceError(
                f"{self.first[1]} is on {self.first[0]}, {what} on {device}",
                loc=function_loc(self.fn),
                hint="move one of them with .to(device) before the call; only tensors without dims "
                "may be the CPU's beside a device's",
            )


@contextlib.contextmanager
def cuda_state() -> Iterator[None]:
    """Inside, ops arrive in parts on CUDA devices as they do on the CPU; generators are put back.

    cuDNN's fused layers are off. A CUDA generator may be drawn from and seeded with the CPU's; to
    read or set its state is refused, because the graph could not do it again.
    """
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # nothing there, and asking would make it
        yield
        return
    states = torch.cuda.get_rng_state_all()
    module: Any = torch.cuda
    private: Any = torch._C
    generators, cudnn = module.default_generators, private._get_cudnn_enabled()
    module.default_generators = tuple(map(_DeviceGenerator, generators))
    private._set_cudnn_enabled(False)
    try:
        yield
    finally:
        private._set_cudnn_enabled(cudnn)
        module.default_generators = generators
        torch.cuda.set_rng_state_all(states)


class _DeviceGenerator:
    """A CUDA device's default generator within a trace."""

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator

    def manual_seed(self, seed: int) -> torch.Generator:
        """As `torch.manual_seed` calls it, which is recorded by the CPU's generator."""
        return self._generator.manual_seed(seed)

    def __getattr__(self, name: str) -> Any:
        def refuse(*args: Any, **kwargs: Any) -> Any:
            raise UnsupportedOpError(
                f"{name} of a CUDA device's random generator cannot be traced", loc=user_loc(),
                hint="call it outside the traced function, or use torch.manual_seed inside",
            )  # fmt: skip

        return refuse
