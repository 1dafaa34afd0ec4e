"""What of the compiler a run of random programs has reached, and what it has not.

    reach = Reach()
    reach.add(verdict.compiled)        of each program
    reach.missing()                    ops of the table that no graph had, forms that never fitted
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from gradof.ops.registry import all_ops

# Ops that no program for a CPU can have, or that only transforms of graphs make: op -> why.
BEYOND = {
    "AutogradAdd": "of the reverse before it is split", "AutogradZero": "folded before it runs",
    "attention": "kernels of a GPU", "attention_backward": "kernels of a GPU",
    "cuda_random_seed": "CUDA", "cuda_random_state": "CUDA", "set_cuda_random_state": "CUDA",
    "dynamic_slice": "loops", "dynamic_slice_scatter": "loops", "dynamic_unslice": "loops",
    "to_device": "two devices", "once_differentiable": "torch.autograd.Function",
}  # fmt: skip


class Reach:
    """Counts of ops in graphs, of emitters of kernels, and of forms that were drawn."""

    def __init__(self) -> None:
        self.ops: Counter[str] = Counter()
        self.emitters: Counter[str] = Counter()
        self.forms: Counter[str] = Counter()

    def add(self, compiled: Any) -> None:
        """Take down what a compiled function made."""
        if compiled is None:
            return
        for plan in _plans(compiled.plans()):
            self.ops.update(node.kind for node in plan.graph.walk())
            if "prepared" in vars(plan):
                self.ops.update(node.kind for node in plan.prepared.walk())
            if "executable" in vars(plan):
                self.emitters.update(_emitters(plan.executable))

    def missing(self) -> list[str]:
        """Ops of the table that nothing had, by name."""
        return [op.name for op in all_ops() if op.name not in self.ops and op.name not in BEYOND]


def _plans(plans: Any) -> Iterator[Any]:
    """Plans, those of their gradients, and of theirs."""
    for plan in plans:
        yield plan
        for gradient in plan.gradients.values():
            yield gradient.f
            yield from _plans([special.plan for special in gradient.dfs.values()])


def _emitters(executable: Any) -> Iterator[str]:
    """The classes of the kernels that an executable calls, and statements of the library's."""
    yield "statements"
    for kernel in executable.kernels:
        yield type(kernel).__name__
