"""Functions of torch that are recorded as one op, with torch's own backward.

    y, h, c = torch.lstm(x, [h0, c0], weights, ...)     →   %y, %h, %c, %kept = library_call[...]

torch takes `lstm`, `gru` and their like apart before a trace sees them, into some ten ops a step
and as many for its gradient: a long sequence would be a graph of thousands of nodes, and no faster
than the library's own loop. So each is an op of a library of ours here, that runs torch's.

Not so where a layer drops some of its results, as the numbers drawn would be torch's own affair;
on devices; in half precision; and under autocast, which has casts between the steps. There the
steps are recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from gradof.tracer.torch.functional import is_wrapper
from gradof.tracer.torch.overrides import OVERRIDES
from gradof.tracer.torch.transforms import transformed

Tensor = torch.Tensor
_LAYERS = {"lstm": 3, "gru": 2, "rnn_tanh": 2, "rnn_relu": 2}  # with the number of their results
_library: Any = torch.library.Library
_OPS = _library("gradof", "FRAGMENT")


def _register(name: str, results: int) -> None:
    states = "Tensor[] hx" if name == "lstm" else "Tensor hx"
    given = ", ".join(["Tensor"] * results)
    _OPS.define(
        f"{name}(Tensor input, {states}, Tensor[] params, bool has_biases, int num_layers, "
        f"float dropout, bool train, bool bidirectional, bool batch_first) -> ({given})"
    )
    run = getattr(torch.ops.aten, name).input
    _OPS.impl(name, lambda *args: tuple(t.clone() for t in run(*args)), "CompositeExplicitAutograd")

    def backward(ctx: Any, *grads: Any) -> Any:
        return ctx.again(grads)

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.again = lambda grads: _step_by_step(run, inputs, grads)

    register: Any = torch.library.register_autograd
    register(f"gradof::{name}", backward, setup_context=setup, lib=_OPS)
    OVERRIDES[getattr(torch, name)] = _as_one(name)


def _step_by_step(run: Any, inputs: tuple[Any, ...], grads: Sequence[Any]) -> Any:
    """The gradient of a layer by its steps, for `torch.autograd.grad` inside a trace."""
    with torch.enable_grad():
        results = run(*inputs)
        parts = [p if isinstance(p, (list, tuple)) else [p] for p in inputs[:3]]
        live = [t for part in parts for t in part if t.requires_grad]
        pairs = [(r, g) for r, g in zip(results, grads, strict=True) if g is not None]
        found = iter(torch.autograd.grad(
            [r for r, _ in pairs], live, [g for _, g in pairs], allow_unused=True,
            create_graph=True,
        ))  # fmt: skip

    def given(part: Any) -> Any:
        if isinstance(part, Tensor):
            return next(found) if part.requires_grad else None
        return [given(t) for t in part]

    return (*map(given, inputs[:3]), *[None] * (len(inputs) - 3))


def _as_one(name: str) -> Callable[..., Any]:
    whole, stepwise = getattr(torch.ops.gradof, name), getattr(torch, name)

    def run(*args: Any, **kwargs: Any) -> Any:
        one = not kwargs and len(args) == 9 and isinstance(args[0], Tensor) and _may_be_one(*args)
        return whole(*args) if one else stepwise(*args, **kwargs)

    return run


def _may_be_one(
    x: Any, states: Any, params: Any, has_biases: Any, layers: int, dropout: float, train: bool,
    *_: Any,
) -> bool:  # fmt: skip
    if isinstance(has_biases, (list, tuple)) or type(layers) is not int:
        return False  # the form for packed sequences
    tensors = [x, *(states if isinstance(states, (list, tuple)) else [states]), *params]
    draws = train and dropout != 0 and layers > 1
    return not draws and not torch.is_autocast_enabled("cpu") and all(
        isinstance(t, Tensor) and t.is_cpu and t.dtype in (torch.float32, torch.float64)
        and is_wrapper(t) and not transformed(t) for t in tensors
    )  # fmt: skip


for _name, _results in _LAYERS.items():
    _register(_name, _results)
