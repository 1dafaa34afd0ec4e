"""What the kernels of one pass are: the time of each on the device, its registers and its spills.

    profiled(step)      → [Launch("softmax_kernel", seconds=2.1e-4, count=1), ...]

Times are torch.profiler's, which reads them from the device; nothing is flushed between runs. What
the compiler used of registers and spilled is known of Triton's kernels alone, and is that of the
worst tile that was compiled, which need not be the one that was found fastest.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Any

import torch
from gpu_timing import Step

RUNS = 5


@dataclass
class Launch:
    """One kernel of a pass: seconds of a launch, launches of the pass, bytes that spill."""

    name: str
    seconds: float
    count: float
    registers: int | None = None
    spills: int | None = None
    shared: int | None = None
    warps: int | None = None


def profiled(step: Step) -> list[Launch]:
    """Everything the device ran in one run of a step, in the order of its time, the longest first.

    What the step prepares is run beforehand and is not counted.
    """
    from torch.profiler import ProfilerActivity, profile

    prepare, run = step
    run(prepare())
    states = [prepare() for _ in range(RUNS)]
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for state in states:
            run(state)
        torch.cuda.synchronize()
    compiled = _compiled()
    launches = []
    for event in found.key_averages():
        if event.self_device_time_total:
            launches.append(Launch(
                event.key[:80], event.self_device_time_total / 1e6 / event.count,
                event.count / RUNS, *compiled.get(event.key, (None,) * 4),
            ))  # fmt: skip
    return sorted(launches, key=lambda launch: -launch.seconds * launch.count)


def _compiled() -> dict[str, tuple[int, int, int, int]]:
    """Registers, spilled bytes, shared memory and warps by name, of all that Triton compiled."""
    from triton.compiler import CompiledKernel

    found: dict[str, tuple[int, int, int, int]] = {}
    kernels: list[Any] = [o for o in gc.get_objects() if type(o) is CompiledKernel]
    for kernel in kernels:
        if isinstance(registers := getattr(kernel, "n_regs", None), int):
            m = kernel.metadata
            mine = (registers, kernel.n_spills, m.shared, m.num_warps)
            # several tiles of one kernel have one name: the worst is told
            found[m.name] = max(found.get(m.name, mine), mine, key=lambda t: (t[1], t[0]))
    return found
