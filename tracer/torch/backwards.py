"""Backwards that a traced function runs itself: `loss.backward()`, `torch.autograd.backward`.

    weight = nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.Adam([weight])
    for _ in range(20):                      # a graph holds all of the steps
        optimizer.zero_grad()
        loss(weight).backward()
        optimizer.step()

Where they give gradients to leaves alone that the function has made, torch runs them on tensors of
the trace, as it runs `torch.autograd.grad`. `.grad` of what is outside is no part of a graph.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from gradof.errors import TraceError
from gradof.tracer.state.source import user_loc
from gradof.tracer.torch.histories import Histories
from gradof.tracer.torch.inference import has_begun
from gradof.tracer.torch.recorder import Recorder

_AUTOGRAD: Any = torch.autograd


@contextlib.contextmanager
def backwards_inside(recorder: Recorder, histories: Histories) -> Iterator[None]:
    """Within it, those of this thread that would reach what is outside are TraceErrors."""
    here = threading.get_ident()
    run_by_torch = _AUTOGRAD._engine_run_backward

    def run(tensors: Sequence[Any], *given: Any, **options: Any) -> Any:
        if threading.get_ident() != here or not options.get("accumulate_grad"):
            return run_by_torch(tensors, *given, **options)
        if has_begun():
            raise TraceError(
                "a backward runs within inference mode", loc=user_loc(),
                hint="call the function under no_grad instead",
            )  # fmt: skip
        inputs = given[3]  # beside cotangents, retain_graph and create_graph
        if not all(map(histories.leaves.is_one, inputs or _leaves(tensors))):
            raise TraceError(
                "`.backward()` inside a traced function would not reach the real tensors",
                loc=user_loc(),
                hint="use torch.autograd.grad inside, or call backward on the result outside",
            )
        histories.saved.refuse()
        before, recorder.no_grad_is_known = recorder.no_grad_is_known, True
        try:
            return run_by_torch(tensors, *given, **options)
        finally:
            recorder.no_grad_is_known = before

    _AUTOGRAD._engine_run_backward = run
    try:
        yield
    finally:
        _AUTOGRAD._engine_run_backward = run_by_torch


def _leaves(tensors: Sequence[Any]) -> Iterator[Any]:
    """The leaves that a backward gives a gradient to."""
    nodes: list[Any] = []
    for tensor in tensors:  # or a GradientEdge
        if isinstance(tensor, torch.Tensor) and tensor.grad_fn is None:
            yield tensor
        nodes.append(tensor.grad_fn if isinstance(tensor, torch.Tensor) else tensor.node)
    seen = set[Any]()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):  # an AccumulateGrad
            yield node.variable
        nodes += [other for other, _ in node.next_functions]
