"""A call of a `custom_vjp` function within a numpy trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from gradof.ir.core import Loc
from gradof.ops.expr import Expr
from gradof.tracer.core.custom_rule import RuleRecording
from gradof.tracer.core.pytree import flatten
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.recorder import Recorder


class Call(Protocol):
    """One call: `gradof.runtime.custom.Call`, or that of one of autograd's primitives."""

    leaves: list[Any]

    @property
    def line(self) -> Loc | None:
        """Where the rule is defined."""

    def forward(self, leaves: Sequence[Any]) -> tuple[Any, Any]:
        """The result and the residuals."""

    def residuals_with(self, residuals: Any, result: Any) -> Any:
        """The residuals, with the result that has the rule where they have the result."""

    def backward(self, residuals: Any, cotangent: Any) -> list[Any]:
        """One gradient or None per leaf."""


def record(call: Call, recorder: Recorder) -> Any:
    """Run `fwd` and `bwd`, traced; returns the result, whose gradient is the rule."""
    recorder.enter()
    loc = recorder.loc
    live = [i for i, leaf in enumerate(call.leaves) if _is_float(leaf)]
    wrt = [recorder.traced(call.leaves[i]) for i in live]
    operands = [w.expr.value for w in wrt]
    result, residuals = call.forward(call.leaves)
    leaves, tree = flatten(result)
    arrays = [i for i, leaf in enumerate(leaves) if isinstance(leaf, (TracedArray, np.ndarray))]
    raw = [recorder.traced(leaves[i]) for i in arrays]
    if not raw:
        return result
    recorder.builder.loc = loc
    rule = RuleRecording(recorder.builder, [r.expr.value for r in raw], operands)
    outs = dict(enumerate(leaves))
    cotangents: dict[int, Any] = dict.fromkeys(range(len(leaves)))
    for i, array, out, stand_in in zip(
        arrays, raw, rule.node.outputs, rule.cotangents, strict=True
    ):
        outs[i] = recorder.wrap(recorder.numpy(np.copy, array), Expr(out, recorder.emitter))
        cotangents[i] = (
            np.zeros_like(array.memory) if stand_in is None
            else recorder.wrap(recorder.numpy(np.copy, array), Expr(stand_in, recorder.emitter))
        )  # fmt: skip
    found = tree.unflatten(list(outs.values()))
    residuals = call.residuals_with(residuals, found)
    grads = call.backward(residuals, tree.unflatten(list(cotangents.values())))
    values = [
        None if grads[i] is None
        else recorder.traced(grads[i]).expr.cast(recorder.ir_dtype(w.dtype)).value
        for i, w in zip(live, wrt, strict=True)
    ]  # fmt: skip
    rule.close(values, call.line)
    recorder.builder.loc = loc
    return found


def _is_float(leaf: Any) -> bool:
    return isinstance(leaf, (TracedArray, np.ndarray, np.generic)) and leaf.dtype.kind in "fc"
