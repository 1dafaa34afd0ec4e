"""softmax(Q K^T) V with pointwise changes of the scores, as one op with a backward of its own.

    s = q @ kt;  s = each of `steps` of s;  o = softmax(s) @ v;  l = log of the softmax's sum

`steps` are changes of the scores in order: `("mul", ("s", 0.25))`, `("where", ("x0", "s", -inf))`,
with "s" for the scores and "x0", "x1" for tensors, operands after q, kt and v. With `safe` a row of
which all scores are -inf gives 0, not nan. With `causal` row m meets keys 0 to m + causal alone:
the scores of all others are -inf, whatever the steps made of them.

Neither op is traced: `gradof.codegen.triton.attention.recognise` puts them into graphs that Triton
runs. The backward has no derivative of its own. `attention_in_primitives` and
`backward_in_primitives` are what a graph that is differentiated has in their place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gradof.ir.attrs import Attr
from gradof.ir.types import BOOL, F32, TensorType, Type
from gradof.ops.expr import Expr, F
from gradof.ops.families import known_shape, tensor
from gradof.ops.registry import Family, Refused, op

Step = tuple[str, tuple[str | int | float, ...]]


def _infer(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    q, _, v = (tensor(t) for t in inputs[:3])
    *batch, rows, _ = known_shape(q)
    shape = (*batch, rows)
    return v.with_shape((*shape, known_shape(v)[-1])), TensorType(F32, shape, q.device)


def _infer_backward(inputs: Sequence[Type], attrs: Mapping[str, Attr]) -> tuple[Type, ...]:
    return tuple(inputs[:3])


def _attention_vjp(
    g_o: Expr, g_l: Expr, operands: list[Expr], o: Expr, l: Expr, steps: tuple[Step, ...],  # noqa: E741
    causal: int | None,
) -> list[Expr | None]:
    q, kt, v, *extras = operands
    last = o.rank - 1
    delta = F.sum(g_o.cast(F32) * o.cast(F32), dims=(last,), keepdims=False) - g_l
    grads = F.attention_backward.multiple(
        q, kt, v, l, g_o, delta, *extras, steps=steps, causal=causal
    )
    return [*grads, *[None] * len(extras)]


op("attention(*operands; steps, safe, causal) -> o, l", family=Family(_infer),
   traits={"structural"}, vjp={"operands": _attention_vjp},
   doc="softmax(q @ kt) @ v and the log of each row's sum; in graphs that Triton runs.")
op("attention_backward(*operands; steps, causal) -> dq, dkt, dv", family=Family(_infer_backward),
   traits={"structural"}, vjp={"operands": Refused("it is taken apart first")},
   doc="The gradients of attention, of q, kt, v, l, the cotangent of o, and a sum per row.")


def attention_in_primitives(
    q: Expr, kt: Expr, v: Expr, *extras: Expr, steps: tuple[Step, ...], safe: bool,
    causal: int | None,
) -> tuple[Expr, Expr]:
    """What `attention` computes; in float32, rounded once."""
    s = changed(_product(q, kt), [_wide(x) for x in extras], steps)[-1]
    if causal is not None:
        s = F.where(_below(s, causal), s, -math.inf)
    last = s.rank - 1
    top = F.detach(F.amax(s, dims=(last,), keepdims=True))
    if safe:
        dead = top == -math.inf
        e = F.exp(s - F.where(dead, 0.0, top))
        total = F.sum(e, dims=(last,), keepdims=True)
        sums = F.where(dead, math.inf, F.log(F.where(dead, 1.0, total)) + top)
        p = e / F.where(dead, 1.0, total)
    else:
        e = F.exp(s - top)
        total = F.sum(e, dims=(last,), keepdims=True)
        sums = F.log(total) + top
        p = e / total
    return (p @ _wide(v)).cast(v.dtype), sums.reshape(s.shape[:-1])


def backward_in_primitives(
    q: Expr, kt: Expr, v: Expr, sums: Expr, g: Expr, delta: Expr, *extras: Expr,
    steps: tuple[Step, ...], causal: int | None,
) -> tuple[Expr, Expr, Expr]:  # fmt: skip
    """What `attention_backward` computes; in float32, rounded once."""
    wide_extras = [_wide(x) for x in extras]
    values = changed(_product(q, kt), wide_extras, steps)
    rows = (*sums.shape, 1)
    last = values[-1]
    below = None if causal is None else _below(last, causal)
    p = F.exp((last if below is None else F.where(below, last, -math.inf)) - sums.reshape(rows))
    d = p * (_wide(g) @ _wide(v).mT - delta.reshape(rows))
    if below is not None:
        d = F.where(below, d, 0.0)
    d = pulled_back(d, values, wide_extras, steps)
    return (
        (d @ _wide(kt).mT).cast(q.dtype), (_wide(q).mT @ d).cast(kt.dtype),
        (p.mT @ _wide(g)).cast(v.dtype),
    )  # fmt: skip


def _below(s: Expr, causal: int) -> Expr:
    """Which scores a causal mask leaves."""
    shape, device = s.shape[-2:], tensor(s.type).device
    every = F.full.with_emitter(s.emitter)(dtype=BOOL, shape=shape, device=device, value=True)
    return F.tril(every, diagonal=causal)


def changed(s: Expr, extras: Sequence[Expr], steps: Sequence[Step]) -> list[Expr]:
    """The scores, then what each step makes of them."""
    values = [s]
    for name, args in steps:
        values.append(getattr(F, name)(*[_operand(a, values[-1], extras) for a in args]))
    return values


def pulled_back(
    d: Expr, values: Sequence[Expr], extras: Sequence[Expr], steps: Sequence[Step]
) -> Expr:
    """The gradient of the scores, of that of the last of `values`."""
    for (name, args), y in zip(reversed(steps), reversed(values), strict=False):
        others = [_operand(a, d, extras) for a in args if a != "s"]
        if name in ("neg", "sub"):
            d = d if name == "sub" and args[0] == "s" else -d
        elif name in ("mul", "div"):
            d = d * others[0] if name == "mul" else d / others[0]
        elif name == "tanh":
            d = d * (1.0 - y * y)
        elif name == "where":
            d = F.where(others[0], *((d, 0.0) if args[1] == "s" else (0.0, d)))
    return d


def _operand(arg: str | int | float, s: Expr, extras: Sequence[Expr]) -> Any:
    if isinstance(arg, str):
        return s if arg == "s" else extras[int(arg[1:])]
    return arg


def _product(q: Expr, kt: Expr) -> Expr:
    return _wide(q) @ _wide(kt)


def _wide(x: Expr) -> Expr:
    return x.cast(F32) if x.dtype.is_float and x.dtype != F32 else x
