"""Results that other results are computed from, and hooks on them.

    h, y = compiled(x)          y is computed from h
    h.retain_grad()
    y.backward()                TraceError; from the next call on the function runs eagerly

The backward of a call goes from all results to the arguments at once: what reaches `h` through `y`
is never there by itself. A hook of `h` is called before it, by torch, with the cotangent of `h`
alone, where eager's would get the whole gradient.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from gradof.errors import TraceError
from gradof.ir.core import Graph, Loc
from gradof.runtime.shell import is_distributed
from gradof.tracer.core.result import TensorOut, Traced

Refs = list[weakref.ref[Any]]


class InnerResults:
    """Those of one trace; `tell` is called with the error of a hook on one."""

    def __init__(
        self, inner: dict[int, tuple[int, ...]], loc: Loc | None, tell: Callable[[TraceError], None]
    ) -> None:
        self._inner, self._loc, self._tell = inner, loc, tell

    def refer(self, outputs: Sequence[Any]) -> Refs:
        """The inner results of a call."""
        return [weakref.ref(outputs[i]) for i in self._inner]

    def check(self, refs: Refs, cotangents: Sequence[Any]) -> None:
        """Raise TraceError where a hook of one missed what comes through the others."""
        for (i, later), ref in zip(self._inner.items(), refs, strict=True):
            result = ref()
            if result is None or not _is_hooked(result):
                continue
            if any(cotangents[j] is not None for j in later):
                error = TraceError(
                    f"result {i} of the call has a hook, or retains its gradient, and another "
                    "result is computed from it: what comes through that one would be missing",
                    loc=self._loc,
                    hint="call it again, it runs eagerly from now on; or differentiate the two "
                    "steps, to this result and from it, apart",
                )
                self._tell(error)
                raise error


def _is_hooked(result: Any) -> bool:
    """Whether a hook reads the gradient; those of torch's distributed wrappers wait for it."""
    hooks = result._backward_hooks
    return result.retains_grad or bool(hooks and not all(map(is_distributed, hooks.values())))


def inner_results(
    traced: Traced, loc: Loc | None, tell: Callable[[TraceError], None]
) -> InnerResults | None:
    """The results of a trace that gradients of other results flow through; None without any."""
    stored = (out for store in traced.stores for out in store.outputs)
    shown = {
        out.index for out in (*traced.outputs, *stored)
        if isinstance(out, TensorOut) and out.requires_grad
    }  # fmt: skip
    inner = _inner(traced.graph, shown) if len(shown) > 1 else {}
    return InnerResults(inner, loc, tell) if inner else None


def _inner(graph: Graph, shown: set[int]) -> dict[int, tuple[int, ...]]:
    outputs = graph.outputs
    own: dict[Any, int] = {}  # by value, which results it is: bits
    for i in shown:
        if outputs[i].is_inexact and outputs[i].node is not None:
            own[outputs[i]] = own.get(outputs[i], 0) | 1 << i
    flows: dict[Any, int] = {}  # by value, the results its gradient flows to
    for node in graph.nodes():
        if node.kind == "detach":
            continue
        read = 0
        for part in (node, *(n for block in node.blocks for n in block.walk())):
            for value in part.inputs:
                read |= flows.get(value, 0)
        for value in node.outputs:
            found = (read if value.is_inexact else 0) | own.get(value, 0)
            if found:
                flows[value] = found
    later: dict[int, tuple[int, ...]] = {}
    for i in shown:
        bit, others = own.get(outputs[i], 0), [j for j in shown if outputs[j] is not outputs[i]]
        reached = sorted(j for j in others if flows.get(outputs[j], 0) & bit)
        if reached:
            later[i] = tuple(reached)
    return later
