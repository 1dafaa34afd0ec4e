"""Cells of recurrent networks are traced as torch's own ops on values."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

import gradof
from gradof.ir.clone import same_structure
from gradof.tracer.torch import cells
from gradof.tracer.torch.overrides import OVERRIDES
from gradof.tracer.torch.tracer import trace_torch

_KINDS: dict[str, Any] = {
    "gru": nn.GRUCell, "lstm": nn.LSTMCell, "rnn": nn.RNNCell,
    "relu": lambda x, h, bias: nn.RNNCell(x, h, bias, nonlinearity="relu"),
}  # fmt: skip
_FUNCTIONS = (torch.gru_cell, torch.lstm_cell, torch.rnn_tanh_cell, torch.rnn_relu_cell)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", _KINDS)
def test_the_graph_is_that_of_torchs_own_cell(
    kind: str, bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = _KINDS[kind](3, 4, bias=bias)
    x = torch.randn(2, 3)

    def graph() -> Any:
        return trace_torch(lambda x: cell(x), (x,), {}).graph

    ours = graph()
    for function in _FUNCTIONS:
        monkeypatch.delitem(OVERRIDES, function)
    assert same_structure(ours.block, graph().block, names=False)


@pytest.mark.parametrize(
    ("x", "h"), [((2, 4), (2, 4)), ((2, 3), (3, 4)), ((2, 3), (2, 5)), ((3,), (2, 4))]
)
def test_a_wrong_shape_has_torchs_words(x: tuple[int, ...], h: tuple[int, ...]) -> None:
    cell = nn.GRUCell(3, 4)
    weights = list(cell.parameters())
    with pytest.raises((RuntimeError, IndexError)) as eager:
        torch.gru_cell(torch.ones(x), torch.ones(h), *weights)
    with pytest.raises(type(eager.value)) as ours:
        gradof.differentiate(torch.gru_cell, strict=True)(torch.ones(x), torch.ones(h), *weights)
    assert str(eager.value) in str(ours.value)


def test_other_dtypes_are_torchs() -> None:
    cell = nn.GRUCell(3, 4)
    given = [torch.ones(2, 3), torch.ones(2, 4), *cell.parameters()]
    assert cells.fits(3, *given)
    assert not cells.fits(3, given[0].double(), *given[1:])
    assert not cells.fits(3, *given[:-1])


def test_no_symbolic_mathematics_is_loaded() -> None:
    code = (
        "import sys, torch, gradof\n"
        "cell = torch.nn.GRUCell(3, 4)\n"
        "gradof.differentiate(lambda x: cell(x).sum())(torch.ones(2, 3)).backward()\n"
        "assert 'sympy' not in sys.modules, 'which takes half a second'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
