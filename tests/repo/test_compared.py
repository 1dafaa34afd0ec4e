"""docs/compared.md: each cell has a test or a source, and what it says of torch is so."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "compared.md").read_text(encoding="utf-8")
ROWS = [r for r in PAGE.splitlines() if r.startswith("| ") and "gradof |" not in r]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:40])
def test_each_cell_has_a_test_or_a_source(row: str) -> None:
    _, _, ours, *others, _ = row.split("|")
    assert len(others) == 4
    for cell in (ours, *others):
        tests = re.findall(r"`(tests/[\w/]+\.py)`", cell)
        named = re.findall(r"`(test_\w+)`", cell)
        assert tests or named or "](https://" in cell or cell.strip() == "-", cell
        assert all((ROOT / file).is_file() for file in tests), cell
        assert all(callable(globals()[name]) for name in named), cell
    assert "`tests/" in ours, "what is said of gradof is tested"


def test_the_page_has_rows() -> None:
    assert len(ROWS) >= 15


def branches(x: Tensor) -> Tensor:
    return (x * 2.0).sum() if x.sum() > 0 else (x * x).sum()


@pytest.mark.filterwarnings("ignore")  # torch's own, as it compiles
def test_torch_compile() -> None:
    """A branch breaks the graph without a word, and a second derivative is refused."""
    graphs: list[Any] = []

    def backend(module: Any, _: Any) -> Any:
        graphs.append(module)
        return module.forward

    x = torch.ones(3, requires_grad=True)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", UserWarning)
        assert torch.compile(branches, backend=backend)(x).item() == 6.0
    assert len(graphs) == 2 and not [w for w in seen if "break" in str(w.message)]
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="Data-dependent"):
        torch.compile(branches, backend=backend, fullgraph=True)(x)
    cubed = torch.compile(lambda x: (x**3).sum(), backend="aot_eager")
    (slope,) = torch.autograd.grad(cubed(x), x, create_graph=True)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        torch.autograd.grad(slope.sum(), x)
    torch._dynamo.reset()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_torchscript() -> None:
    """Branches and shapes are one graph, which torch's autograd differentiates twice."""
    scripted = torch.jit.script(branches)
    assert "prim::If" in str(scripted.graph)
    assert scripted(torch.ones(3)).item() == 6.0 and scripted(-torch.ones(5)).item() == 5.0
    x = torch.ones(3, requires_grad=True)
    for _ in range(3):  # the second and later calls are optimised
        (slope,) = torch.autograd.grad(scripted(-x), x, create_graph=True)
        (curvature,) = torch.autograd.grad(slope.sum(), x)
    assert curvature.tolist() == [2.0] * 3
