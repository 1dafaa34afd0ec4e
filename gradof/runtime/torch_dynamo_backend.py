"""torch.compile(fn, backend="gradof"): Dynamo captures and guards, gradof differentiates and fuses.

    step = torch.compile(model, backend="gradof", options={"memory_budget": 0.5})
    loss = step(x)                        f and df of every graph that Dynamo captured are ours
    torch.autograd.grad(loss, x, create_graph=True)      to any order

Named as an entry point of the group "torch_dynamo_backends", so torch finds it where gradof is
installed; torch.compile also takes `gradof_backend` itself.

Note [What Dynamo guards]
A graph that Dynamo captured reads its inputs and nothing else, and Dynamo runs it only for inputs
of the dtypes, shapes, strides, requires_grad and devices it was captured for, in the modes of
torch it was captured in. So once such a graph is traced, calls of it are not checked again
(`Differentiated.prepare`). Sizes that Dynamo left open are not guarded: graphs that take them go
through the check of every call, which knows each size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from gradof.errors import InputError
from gradof.runtime.function import Differentiated
from gradof.runtime.torch_dynamo_graph import as_torch_wrote_it, levels_kept

_OPTIONS = frozenset({"strict", "memory_budget", "numerics", "cuda_graph"})


def gradof_backend(
    graph: fx.GraphModule, example_inputs: Sequence[Any], *,
    options: Mapping[str, Any] | None = None, mode: str | None = None,
) -> Callable[..., Any]:  # fmt: skip
    """What torch.compile runs in place of a graph that Dynamo captured.

    `graph` takes tensors, and ints for sizes that vary, and returns a tuple; what comes back takes
    and returns the same. `options` are those of `differentiate`: strict, memory_budget, numerics,
    cuda_graph. Raises InputError for others, and for a `mode`. Nothing is traced before the first
    call; what that may raise, `differentiate` says.
    """
    if mode not in (None, "default"):
        raise InputError(
            f"torch.compile was given mode={mode!r}, which is inductor's",
            hint='use options=, as in options={"memory_budget": 0.5}',
        )
    unknown = sorted(set(options or {}) - _OPTIONS)
    if unknown:
        raise InputError(
            f"torch.compile was given the options {', '.join(unknown)}",
            hint=f"the gradof backend has {', '.join(sorted(_OPTIONS))}",
        )
    graph = as_torch_wrote_it(graph)
    if not any(isinstance(x, torch.Tensor) for x in example_inputs):
        return graph.forward  # such as a call of torch.eye: there is nothing to differentiate
    sized = any(isinstance(x, torch.SymInt) for x in example_inputs)
    return CapturedGraph(Differentiated(levels_kept(graph.forward), **(options or {})), sized).first


class CapturedGraph:
    """One graph of Dynamo's; see Note [What Dynamo guards]."""

    def __init__(self, compiled: Differentiated, sized: bool) -> None:
        self.compiled = compiled
        self._sized = sized
        self._run: Callable[..., Any] | None = None

    def first(self, *args: Any) -> Any:
        """A call; from the second on without a check, where none is needed."""
        if self._run is not None:
            return self._run(*args)
        result = self.compiled(*args)
        self._run = self._after_the_first(args)
        return result

    def _after_the_first(self, args: tuple[Any, ...]) -> Callable[..., Any]:
        if self._sized:
            return self.compiled
        try:
            return self.compiled.prepare(*args)
        except InputError:  # buffers are changed, or elements decide what runs
            return self.compiled
