"""`CustomRule`: values whose gradient is what the user says, not what the graph would give.

    %y : f32[3] = CustomRule[results=1, wrt=(1,)](%raw, %x, %saved)
      block(%dy, %y, %saved):
        %dx = mul(%dy, %saved)
        -> (%dx)

The node returns its first `results` operands. Its block is the user's rule: from the cotangents of
the floating-point results, the results themselves and whatever else it reads, to one gradient for
each operand whose place is in `wrt`. It reads nothing from outside but its params, so it can be
copied anywhere. The raw values get no cotangent through the node; where the rule reads what led to
them, a second derivative goes on through that.

A hook on the gradient of %h is a rule of its raw operand itself:
    %h.1 : f32[3] = CustomRule[results=1, wrt=(0,)](%h)
      block(%dh, %h.1): ...
All that %h gets goes through it, of the second derivative too: see `behind_hooks`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from gradof.errors import CustomRuleError, InferenceError
from gradof.ir.attrs import Attr
from gradof.ir.clone import inline
from gradof.ir.core import Block, Value
from gradof.ir.types import DType, TensorType, Type
from gradof.ops.expr import Expr, F
from gradof.ops.families import int_tuple
from gradof.ops.registry import Family, op
from gradof.tuning import MOST_RULES


def _infer(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    count = attrs["results"]
    if not isinstance(count, int) or not 0 < count <= len(inputs):
        raise InferenceError(f"a CustomRule of {len(inputs)} operands has no {count!r} results")
    return tuple(inputs[:count])


def has_cotangent(type_: Type) -> bool:
    """Whether a result of this type has a cotangent among the params of the rule."""
    return isinstance(type_, TensorType) and type_.dtype.is_inexact


def behind_hooks(value: Value) -> Value:
    """The value as its own rule has to read it: behind the hooks on its gradient.

    The second derivative sends a cotangent to what a rule has read. Eager hands a tensor's hooks
    all that it gets, from there too.
    """
    for node, index in value.uses:
        if node.kind != "CustomRule":
            continue
        results, wrt = node.attrs["results"], node.attrs["wrt"]
        assert isinstance(results, int) and isinstance(wrt, tuple)
        if index < results and index in wrt:
            return behind_hooks(node.outputs[index])
    return value


def _rule(
    g: list[Expr | None], xs: list[Expr], ys: list[Expr], block: Block, results: int,
    wrt: tuple[int, ...],
) -> list[Expr | None]:  # fmt: skip
    given = [seed for seed in g if seed is not None]
    others = xs[len(xs) - (len(block.params) - len(given) - results) :]
    emitter = given[0].emitter
    arguments = [e.value for e in (*given, *ys, *others)]
    values = inline(block, arguments, emitter.body.block, emitter.body.anchor)
    grads: list[Expr | None] = [None] * len(xs)
    for place, value in zip(wrt, values, strict=True):
        grads[place] = emitter.wrap(value)
    return grads


def _first(*xs: Any, results: int, wrt: Any) -> Any:
    copies = tuple(x.copy() for x in xs[:results])
    return copies[0] if results == 1 else copies


def _infer_once(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    return (inputs[0],)


op("CustomRule(*xs; results, wrt) -> *ys", family=Family(_infer), numpy=_first,
   vjp={"xs": _rule}, traits={"wirtinger"},
   doc="Values with a gradient of the user's own.")  # fmt: skip

def _once_rule(g: Expr, xs: list[Expr], deepest: str) -> list[Expr | None]:
    return [
        F.second_derivative(g, dtype=x.dtype, shape=x.shape, deepest=deepest)
        if has_cotangent(x.type) else None
        for x in xs
    ]  # fmt: skip


def _infer_second(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    dtype, first = attrs["dtype"], inputs[0]
    if not isinstance(dtype, DType) or not isinstance(first, TensorType):
        raise InferenceError("second_derivative needs a tensor and a dtype")
    return (TensorType(dtype, int_tuple(attrs["shape"], "shape"), first.device),)


def refuse_second_derivative(g: Any, dtype: Any, shape: Any, deepest: str = "") -> NoReturn:
    """Raise CustomRuleError; `deepest` is the Function whose backward calls itself, if one does."""
    if deepest:
        raise CustomRuleError(
            f"a derivative of order {MOST_RULES + 1} of {deepest}, whose backward calls itself",
            hint="take derivatives of such an order in eager mode",
        )
    raise CustomRuleError(
        "trying to differentiate twice a function that was marked with @once_differentiable",
        hint="take the mark off its backward, if that can be differentiated",
    )


op("once_differentiable(*xs; deepest) -> y", family=Family(_infer_once),
   numpy=lambda *xs, deepest: xs[0].copy(), vjp={"xs": _once_rule},
   doc="The first operand, a gradient that has no derivative.")  # fmt: skip

op("second_derivative(g; dtype, shape, deepest) -> y", family=Family(_infer_second),
   numpy=refuse_second_derivative, vjp={"g": None},
   doc="An error when it is computed.")  # fmt: skip
