"""Choices that only change times, and last bits, and are made by timing: GRADOF_AUTOTUNE."""

from __future__ import annotations

import functools
import os
import platform
import time
from pathlib import Path

from gradof.codegen.machine.threads import n_threads
from gradof.errors import ConfigError


def is_on() -> bool:
    """GRADOF_AUTOTUNE, 1 by default; ConfigError where it is neither 0 nor 1."""
    value = os.environ.get("GRADOF_AUTOTUNE", "1")
    if value not in ("0", "1"):
        raise ConfigError(f"GRADOF_AUTOTUNE is {value!r}", hint="1 times what is close, 0 does not")
    return value == "1"


@functools.cache
def processor() -> str:
    """What this processor is called, for what is kept of times that were taken on it."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    found = next((line for line in lines if line.startswith("model name")), "")
    return found or f"{platform.machine()} {platform.processor()}"


def now() -> float:
    """A clock to take times by: of this thread where it works alone, as others may hold its core.

    What several threads share takes as long as it takes.
    """
    return time.thread_time() if n_threads() == 1 else time.perf_counter()
