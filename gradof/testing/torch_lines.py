"""The first line of the user's code where our values leave eager's.

For what no op shows by itself: ops with attributes, whose lowering has no library function to be
held against, and composites with a wrong expansion. Eager runs once more under a dispatch mode
that keeps every tensor by the user's line; a value of ours that leaves its line (another line
reads it, or it is returned) has to be among that line's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gradof.ir.core import Graph, Value
from gradof.testing.closeness import distance, largest
from gradof.testing.report import Culprit
from gradof.tracer.core.pytree import flatten
from gradof.tracer.state.source import user_loc

_EPS_FACTOR = 1e5  # of the working precision: chains of ops may have rounded apart


class _ByLine(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own __init_subclass__
    """Keeps the floating-point results of every aten call, by the user's line."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: dict[str, list[Any]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in flatten(result)[0]:
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and not leaf.is_meta:
                wide = leaf.to(torch.float32) if leaf.dtype is torch.bfloat16 else leaf
                self.seen.setdefault(str(user_loc()), []).append(wide.detach().clone().numpy())
        return result


def first_diverging_line(
    run_eager: Callable[[], Any], graph: Graph, values: dict[Value, Any]
) -> Culprit | None:
    """The first node of `graph` whose value eager does not have on the same line; None if none.

    `values` are those of the graph for the inputs that `run_eager` uses.
    """
    with _ByLine() as log:  # with history: the function may take gradients itself
        run_eager()
    for node in graph.nodes():
        out = node.outputs[0] if node.outputs else None
        if out is None or not isinstance(values[out], np.ndarray | np.generic):
            continue
        mine = np.asarray(values[out])
        leaves_line = any(use.node.loc != node.loc for use in out.uses)
        if mine.dtype.kind != "f" or not leaves_line or node.kind == "Constant":
            continue
        peers = [x for x in log.seen.get(str(node.loc), []) if x.shape == mine.shape]
        if not peers:
            continue
        error = min(distance(mine, x) / max(largest(x), 1e-8) for x in peers)
        if not error <= _EPS_FACTOR * float(np.finfo(mine.dtype).eps):
            return Culprit(node.kind, str(node.loc), "its value, held against that line's,", error)
    return None
