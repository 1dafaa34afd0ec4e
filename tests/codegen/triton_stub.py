"""A driver for triton without a device: kernels are compiled for sm_90, launches are noted."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.runtime import driver

STREAM = 7


class StubDriver:
    """Every launch is (name of the kernel, grid, arguments), in `launches`."""

    def __init__(self) -> None:
        self.launches: list[tuple[str, tuple[int, ...], tuple[Any, ...]]] = []
        self.device = 0
        self.utils = SimpleNamespace(
            load_binary=lambda name, *_: (name, name, 64, 0, 1024),
            get_device_properties=lambda device: {"max_shared_mem": 1 << 18},
            unload_module=lambda module: None,
        )

    def launcher_cls(self, src: Any, metadata: Any) -> Any:
        """What triton calls to launch a compiled kernel."""

        def launch(x: int, y: int, z: int, stream: int, function: str, *rest: Any) -> None:
            assert stream == STREAM
            self.launches.append((function, (x, y, z), rest[4:]))

        return launch

    def get_current_device(self) -> int:
        """By number."""
        return self.device

    def get_current_stream(self, device: int) -> int:
        """By number."""
        return STREAM

    def get_current_target(self) -> GPUTarget:
        """An H100."""
        return GPUTarget("cuda", 90, 32)


def install() -> StubDriver:
    """Make it the driver of this process."""
    made = StubDriver()
    driver.set_active(made)
    return made
