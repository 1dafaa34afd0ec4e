"""Cells of recurrent networks, behind their products; whole layers are in `library_calls`."""

from __future__ import annotations

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
