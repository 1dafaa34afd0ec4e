"""Which code was faster, kept on disk beside compiled kernels, so that it is timed only once.

    key = verdict_key(plan)
    kept_verdict(key)               # (seconds of ours, seconds of eager's), or None
    keep_verdict(key, 0.011, 0.009)
"""

from __future__ import annotations

import hashlib
import math
import struct

from gradof.codegen.machine.autotune import processor
from gradof.codegen.machine.object_cache import object_cache
from gradof.runtime.arrays import torch_if_loaded
from gradof.runtime.plan import GraphPlan

_FORM = struct.Struct("<dd")


def verdict_key(plan: GraphPlan) -> str:
    """The name of what was timed: the emitted code, and all that it ran on.

    Emitted code says the types of its arguments, and is other code where gradof is another.
    """
    torch = torch_if_loaded()
    digest = hashlib.sha256()
    for part in (torch.__version__, str(torch.get_num_threads()), processor()):
        digest.update(part.encode() + b"\0")
    halves = [gradient.f for gradient in plan.gradients.values()] or [plan]
    for half in halves:
        for source in (half.executable.source, *(k.source for k in half.executable.kernels)):
            digest.update(source.encode() + b"\0")
    return f"verdict-{digest.hexdigest()}"


def kept_verdict(key: str) -> tuple[float, float] | None:
    """Seconds of ours and of eager's, if they are known."""
    found = object_cache().load(key)
    if found is None or len(found) != _FORM.size:
        return None
    ours, eager = _FORM.unpack(found)
    return (ours, eager) if math.isfinite(ours) and eager > 0 else None


def keep_verdict(key: str, ours: float, eager: float) -> None:
    """Keep the times for the next process."""
    object_cache().store(key, _FORM.pack(ours, eager))
