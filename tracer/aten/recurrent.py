"""Recurrent networks and attention: what torch computes in one call."""

from __future__ import annotations

from collections.abc import Sequence

from gradof.ir.attrs import Attr
from gradof.ops.expr import Expr, F
from gradof.tracer.aten.norm import in_float32
from gradof.tracer.aten.registry import Call, aten


def _chunks(x: Expr, n: int) -> list[Expr]:
    """n parts of the columns, equally wide."""
    wide = x.shape[1] // n
    return [
        F.slice(x, dim=1, start=k * wide, stop=(k + 1) * wide, step=1) for k in range(n)
    ]  # fmt: skip


@aten("_thnn_fused_lstm_cell.default")
@in_float32
def lstm_cell(
    c: Call, given: Expr, hidden: Expr, cell: Expr, bias: Expr | None = None,
    hidden_bias: Expr | None = None,
) -> tuple[Expr, Expr, Expr]:  # fmt: skip
    """torch.lstm_cell behind its two products; the third result is torch's memory of the gates."""
    gates = given + hidden
    if bias is not None and hidden_bias is not None:
        gates = gates + (bias + hidden_bias)
    i, f, g, o = _chunks(gates, 4)
    i, f, g, o = F.sigmoid(i), F.sigmoid(f), F.tanh(g), F.sigmoid(o)
    new_cell = f * cell + i * g
    return o * F.tanh(new_cell), new_cell, F.cat(i, f, g, o, dim=1)


@aten("_thnn_fused_gru_cell.default")
@in_float32
def gru_cell(
    c: Call, given: Expr, hidden: Expr, state: Expr, bias: Expr | None = None,
    hidden_bias: Expr | None = None,
) -> tuple[Expr, Expr]:  # fmt: skip
    """torch.gru_cell behind its two products; the second result is what torch keeps."""
    if bias is not None and hidden_bias is not None:
        given, hidden = given + bias, hidden + hidden_bias
    (r, z, n), (hr, hz, hn) = _chunks(given, 3), _chunks(hidden, 3)
    r, z = F.sigmoid(r + hr), F.sigmoid(z + hz)
    n = F.tanh(n + r * hn)
    return n + z * (state - n), F.cat(r, z, n, state, hn, dim=1)


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
