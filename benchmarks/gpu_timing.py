"""Clocks for the GPU benchmark: one of CUDA events, and one of the host for a dry run.

    clock = CudaClock()
    clock.sample(prepare, run)              → Sample(device seconds, host seconds)
    medians(passes_by_side, clock, 100)     → the medians of each side, in shuffled turns

Note [Head start]
Before each run the L2 cache is written over with a buffer larger than it. That is done often enough
that the host has queued the whole run before the device reaches it: so the time between the two
events is the device's alone, and what the host needs to queue a run is measured beside it. A
caller who does nothing else waits for the longer of the two.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from tables import turns

WARM_UP, LEAST = 5, 15  # runs before, and turns even of slow runs
SECONDS = 1.5  # that the turns of one side take at most, about
COPY_BYTES = 1 << 30
AHEAD = 3.0  # of the host's time in the warm-up: a run that the device waits for is told too long
Step = tuple[Callable[[], Any], Callable[[Any], Any]]  # prepare() untimed, run(prepared) timed


class Sample(NamedTuple):
    """Seconds of one run: of the device between two events, of the host to queue it."""

    device: float
    host: float

    @property
    def waited(self) -> float:
        """What a caller waits who does nothing else."""
        return max(self)


class HostClock:
    """Both figures from the host's clock; nothing is flushed. For dry runs only."""

    name = "perf_counter"

    def sample(self, step: Step, ahead: float = 0.0) -> Sample:
        """One run; `ahead` is the head start a device would be given."""
        del ahead
        prepare, run = step
        state = prepare()
        start = time.perf_counter()
        run(state)
        seconds = time.perf_counter() - start
        return Sample(seconds, seconds)

    def copy_bytes(self) -> int:
        """A small copy."""
        return 1 << 20


class CudaClock:
    """CUDA events, the L2 cache flushed before each run; see Note [Head start]."""

    name = "CUDA events"

    def __init__(self, device: str = "cuda") -> None:
        cache = torch.cuda.get_device_properties(device).L2_cache_size
        self.buffer = torch.empty(2 * cache, dtype=torch.uint8, device=device)
        self.flush_seconds = self._flush_seconds()

    def _flush_seconds(self, count: int = 50) -> float:
        self._flush(count)
        start, end = self._events()
        start.record()
        self._flush(count)
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / 1e3 / count

    def _flush(self, count: int) -> None:
        for _ in range(count):
            self.buffer.zero_()

    def _events(self) -> tuple[Any, Any]:
        return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def sample(self, step: Step, ahead: float = 0.0) -> Sample:
        """One run behind flushes of at least `ahead` seconds."""
        prepare, run = step
        state = prepare()
        start, end = self._events()
        torch.cuda.synchronize()
        self._flush(1 + int(ahead / self.flush_seconds))
        start.record()
        before = time.perf_counter()
        kept = run(state)
        host = time.perf_counter() - before
        end.record()
        torch.cuda.synchronize()
        del kept
        return Sample(start.elapsed_time(end) / 1e3, host)

    def copy_bytes(self) -> int:
        """A gigabyte, or an eighth of what is free."""
        return min(COPY_BYTES, torch.cuda.mem_get_info()[0] // 8)


Clock = HostClock | CudaClock


def medians(steps: Mapping[str, Step], clock: Clock, repeats: int) -> dict[str, Sample]:
    """Median of each figure of each side, after a warm-up, in turns of random order.

    Fewer turns than `repeats` where the slowest side would take more than SECONDS.
    """
    warm = {
        side: middle([clock.sample(step) for _ in range(WARM_UP if repeats > WARM_UP else 1)])
        for side, step in steps.items()
    }
    fitting = int(SECONDS / max(s.waited for s in warm.values()))
    samples: dict[str, list[Sample]] = {side: [] for side in steps}
    for side in turns(steps, min(repeats, max(LEAST, fitting))):
        samples[side].append(clock.sample(steps[side], AHEAD * warm[side].host))
    return {side: middle(found) for side, found in samples.items()}


def middle(samples: list[Sample]) -> Sample:
    """The median of each figure by itself."""
    return Sample(*(statistics.median(figures) for figures in zip(*samples, strict=True)))


def copy_bandwidth(clock: Clock, device: str, repeats: int) -> float:
    """Bytes per second that a large copy on the device reads and writes."""
    source = torch.zeros(clock.copy_bytes(), dtype=torch.uint8, device=device).random_()
    target = torch.empty_like(source)
    step = (lambda: None, lambda _: target.copy_(source))
    return 2 * source.nbytes / medians({"copy": step}, clock, repeats)["copy"].device
