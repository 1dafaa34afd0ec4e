"""docs/conventions.md, row by row: its tables are run in torch and in gradof, and must be true.

    | `torch.maximum(x, y)` | x = 2, y = 2 | 0.5, 0.5 |
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as nnf

import gradof

PAGE = Path(__file__).parents[2] / "docs" / "conventions.md"
HEADER = "| expression | at | gradient |"
ROW = re.compile(r"\| `(?P<expression>.+)` \| (?P<point>[^|]+) \| (?P<slopes>[^|]+) \|")
PART = re.compile(r"(x|y) = (\S+)")


class Row(NamedTuple):
    """A function, the point by the names of its arguments, and the gradient there."""

    expression: str
    point: dict[str, float]
    slopes: list[float]

    def function(self) -> Callable[..., Tensor]:
        code = f"lambda {', '.join(self.point)}: {self.expression}"
        fn: Callable[..., Tensor] = eval(code, {"torch": torch, "nnf": nnf})
        return fn


def rows(text: str) -> list[Row]:
    """The rows under the tables' own header; other tables of the page are others' to test."""
    found: list[Row] = []
    inside = False
    for line in text.splitlines():
        inside = line == HEADER or (inside and line.startswith("|"))
        if not inside or line == HEADER or line.startswith("|---"):
            continue
        match = ROW.fullmatch(line)
        assert match, f"a row that cannot be read: {line}"
        parts = match["point"].strip().split(", ")
        point = {}
        for part in parts:
            name = PART.fullmatch(part)
            assert name, f"a point that cannot be read: {line}"
            point[name[1]] = float(name[2])
        found.append(Row(match["expression"], point,
                         [float(s) for s in match["slopes"].split(",")]))  # fmt: skip
    return found


ROWS = rows(PAGE.read_text(encoding="utf-8"))


def slopes(fn: Callable[..., Tensor], row: Row) -> tuple[Tensor, Tensor]:
    leaves = [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in row.point.values()]
    value = fn(*leaves)
    return value.detach(), torch.stack(torch.autograd.grad(value, leaves))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.expression} at {row.point}")
def test_row(row: Row) -> None:
    stated = torch.tensor(row.slopes, dtype=torch.float64)
    fn = row.function()
    value, eager = slopes(fn, row)
    torch.testing.assert_close(eager, stated, equal_nan=True, rtol=1e-12, atol=0)
    compiled: Any = gradof.differentiate(fn)
    own_value, ours = slopes(compiled, row)
    assert compiled.cache_info().backward_runs == 1
    assert "Opaque" not in {node.kind for node in compiled.trace(
        *(torch.tensor(v, dtype=torch.float64) for v in row.point.values())).walk()}  # fmt: skip
    torch.testing.assert_close(own_value, value, equal_nan=True)
    torch.testing.assert_close(ours, stated, equal_nan=True, rtol=1e-12, atol=0)


# Expressions that numpy has under the same name.
SHARED = re.compile(
    r"torch\.(abs|sign|sinc|sqrt|reciprocal|log|hypot|maximum|minimum|fmax|fmin|logaddexp|floor"
    r"|round|fmod|remainder|exp|tanh)\(x(, y)?\)|[x0.]+ \*\* [-y0-9.]+|x \* y"
)
SHARED_ROWS = [row for row in ROWS if SHARED.fullmatch(row.expression)]
IN_NUMPY = [row for row in SHARED_ROWS if str(row.point) != "{'x': nan}"]  # see the last test


@pytest.mark.parametrize("row", IN_NUMPY, ids=lambda row: f"{row.expression} at {row.point}")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_row_in_numpy(row: Row) -> None:
    code = f"lambda {', '.join(row.point)}: {row.expression.replace('torch.', 'np.')}"
    fn: Callable[..., Any] = eval(code, {"np": np})
    ours = gradof.grad(fn, tuple(range(len(row.point))))(*map(np.float64, row.point.values()))
    np.testing.assert_allclose(ours, row.slopes, rtol=1e-12, atol=0)


def test_abs_of_nan_is_the_one_row_that_differs_in_numpy() -> None:
    assert [row.expression for row in SHARED_ROWS if row not in IN_NUMPY] == ["torch.abs(x)"]
    slope = gradof.grad(lambda x: np.abs(x))(np.float64("nan"))
    assert np.isnan(slope)


def test_no_row_is_passed_over() -> None:
    text = PAGE.read_text(encoding="utf-8")
    tables = text.count(HEADER)
    assert tables >= 7 and len(ROWS) >= 60 and len(IN_NUMPY) >= 25
    assert len({(r.expression, tuple(r.point.items())) for r in ROWS}) == len(ROWS)
    with pytest.raises(AssertionError, match="cannot be read"):
        rows(f"{HEADER}\n|---|---|---|\n| torch.abs(x) | x = 0 | 0 |")
