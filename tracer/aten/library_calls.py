"""What is one call of torch's, with torch's own backward (`gradof.ops.library`)."""

from __future__ import annotations

from collections.abc import Sequence

from gradof.ir.attrs import Attr
from gradof.ops.expr import Expr, F
from gradof.tracer.aten.registry import Call, aten


@aten("gradof::lstm.default", "gradof::gru.default", "gradof::rnn_tanh.default",
      "gradof::rnn_relu.default")  # fmt: skip
def recurrent(
    c: Call, x: Expr, states: Expr | Sequence[Expr], params: Sequence[Expr], *settings: Attr
) -> list[Expr]:
    """Layers of a recurrent network, as one call of torch's (`gradof.tracer.torch.library`)."""
    operands = [x, *(states if isinstance(states, Sequence) else [states]), *params]
    places: list[Attr] = [("t", i) for i in range(len(operands))]
    first = 1 if isinstance(states, Expr) else len(states)
    hidden = places[1] if isinstance(states, Expr) else ("list", *places[1 : 1 + first])
    name = c.func.name().replace("gradof::", "aten::").split(".")[0] + ".input"
    *results, _ = F.library_call.multiple(
        *operands, name=name,
        call=(places[0], hidden, ("list", *places[1 + first :]), *settings, ("dict",)),
        types=tuple((c.type(i).dtype, c.type(i).shape) for i in range(len(c.results))),
    )
    return results


@aten("gradof::attention.default")
def attention(
    c: Call, q: Expr, k: Expr, v: Expr, mask: Expr | None, causal: bool, scale: float | None,
    grouped: bool,
) -> Expr:  # fmt: skip
    """Attention with many scores, as one call of torch's (`gradof.tracer.torch.library`)."""
    operands = [q, k, v] if mask is None else [q, k, v, mask]
    settings = ("dict", ("scale", scale), ("enable_gqa", grouped))
    result, _ = F.library_call.multiple(
        *operands, name="aten::scaled_dot_product_attention",
        call=(("t", 0), ("t", 1), ("t", 2), None if mask is None else ("t", 3), 0.0, causal,
              settings),
        types=((c.type().dtype, c.type().shape),),
    )  # fmt: skip
    return result


@aten("gradof::ctc_loss.default")
def ctc_loss(
    c: Call, log_probs: Expr, targets: Expr, steps: Sequence[int], lengths: Sequence[int],
    *settings: Attr,
) -> list[Expr]:  # fmt: skip
    """A CTC loss of many steps, as one call of torch's (`gradof.tracer.torch.ctc`)."""
    *results, _ = F.library_call.multiple(
        log_probs, targets, name="aten::_ctc_loss.default",
        call=(("t", 0), ("t", 1), ("list", *steps), ("list", *lengths), *settings, ("dict",)),
        types=tuple((c.type(i).dtype, c.type(i).shape) for i in range(len(c.results))),
    )
    return results


@aten("_grouped_mm.default")
def grouped_mm(
    c: Call, a: Expr, b: Expr, ends: Expr | None = None, bias: Expr | None = None,
    out_dtype: Attr = None,
) -> Expr:  # fmt: skip
    """Products of groups of rows with a matrix each, as a mixture of experts has them."""
    operands: list[Expr] = []
    places: list[Attr] = []
    for given in (a, b, ends, bias):
        places.append(None if given is None else ("t", len(operands)))
        operands += [] if given is None else [given]
    result, _ = F.library_call.multiple(
        *operands, name="aten::_grouped_mm.default", call=(*places, out_dtype, ("dict",)),
        types=((c.type().dtype, c.type().shape),),
    )
    return result


@aten("histc.default")
def histc(
    c: Call, x: Expr, bins: int = 100, least: float = 0, most: float = 0
) -> Expr:
    """A histogram, which has no gradient."""
    result, _ = F.library_call.multiple(
        F.detach(x), name="aten::histc.default", call=(("t", 0), bins, least, most, ("dict",)),
        types=((c.type().dtype, c.type().shape),),
    )
    return result


@aten("searchsorted.Tensor")
def searchsorted(
    c: Call, ends: Expr, x: Expr, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Expr | None = None,
) -> Expr:  # fmt: skip
    """Places of numbers among those that are in order, which have no gradient."""
    operands = [F.detach(ends), F.detach(x), *([] if sorter is None else [sorter])]
    settings = ("dict", ("out_int32", out_int32), ("right", right), ("side", side),
                ("sorter", None if sorter is None else ("t", 2)))  # fmt: skip
    result, _ = F.library_call.multiple(
        *operands, name="aten::searchsorted.Tensor", call=(("t", 0), ("t", 1), settings),
        types=((c.type().dtype, c.type().shape),),
    )
    return result

