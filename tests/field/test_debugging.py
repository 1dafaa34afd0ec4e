"""Further reports of section G: what was compiled, where it comes from, what it keeps."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from click.testing import CliRunner
from torch import nn

from gradof import differentiate
from gradof.cli.main import main
from gradof.errors import GradientMismatchError, OpaqueOpWarning, UnsupportedOpError
from gradof.ir.core import Graph
from gradof.ir.parser import parse_graph
from gradof.testing import check, shrink
from tests.testing.test_harness import planted

Tensor = torch.Tensor
F64 = torch.float64
FILE = Path(__file__).name
WRONG_GELU: dict[str, Any] = {
    "vjp": {"x": lambda g, x, approximate: g * (1.0 - x * x)},
    "reads": {"x": ("g", "x", "approximate")},
}  # fmt: skip


def _leaf(*shape: int, seed: int = 0, dtype: torch.dtype = F64) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=F64, generator=generator).to(dtype).requires_grad_()


def _unused(graph: Graph) -> list[str]:
    """Nodes whose results nobody reads."""
    return [n.kind for n in graph.walk() if not any(v.has_uses for v in n.outputs)]


# --- what was compiled ----------------------------------------------------------------------------


def test_pytorch_119186_an_unknown_function_is_an_error_or_a_named_op() -> None:
    """Elsewhere a log with nothing in it: nothing had been compiled. Never in silence here."""
    make: Any = torch.library.Library
    library = make("gradof_field", "DEF")
    library.define("secret(Tensor x) -> Tensor")
    library.impl("secret", lambda x: x.clone() * 3, "CompositeExplicitAutograd")
    library.impl("secret", lambda x: torch.empty_like(x), "Meta")

    def fn(x: Tensor) -> Any:
        return torch.ops.gradof_field.secret(x.sin()).cos()

    x = torch.rand(3, dtype=F64)
    with pytest.raises(UnsupportedOpError, match="secret"):
        differentiate(fn, strict=True)(x)
    compiled = differentiate(fn)
    with pytest.warns(OpaqueOpWarning, match="secret"):
        torch.testing.assert_close(compiled(x), fn(x))
    line = fn.__code__.co_firstlineno + 1
    (opaque,) = compiled.explain(x).opaque
    assert "secret" in opaque and f"{FILE}:{line}" in opaque


def test_torchdynamo_2007_the_code_that_runs_is_printed(tmp_path: Path) -> None:
    """One command shows the statements of f and df, each with its line; there is no flag to set."""
    target = tmp_path / "model.py"
    target.write_text("import numpy as np\n\ndef loss(x, w):\n    h = np.tanh(x @ w)\n"
                      "    return np.sum(h * h)\n")  # fmt: skip
    done = CliRunner().invoke(main, ["show", f"{target}:loss", "--stage", "numpy",
                                     "--arg", "x=f64[4,3]", "--arg", "w=f64[3,2]"])  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "def loss(x, w)" in done.output and "def dloss(" in done.output
    body = [line for line in done.output.splitlines() if " = np." in line]
    unknown = [line for line in body if not line.endswith(("model.py:4", "model.py:5"))]
    assert len(body) >= 6 and all("np.add(" in line for line in unknown), "sums of gradients alone"


@pytest.mark.parametrize("backend", ["native", "tiles"])
def test_pytorch_112334_each_kernel_lists_its_ops_and_their_lines(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also pytorch#190535, #141560, tritonparse#180: from a kernel to the lines it comes from."""
    monkeypatch.setenv("GRADOF_BACKEND", backend)

    def fn(x: Tensor) -> Tensor:
        h = torch.exp(x * 2)
        return h / h.sum(-1, keepdim=True)

    compiled = differentiate(fn)
    x = _leaf(300, 400, dtype=torch.float32)
    torch.testing.assert_close(compiled(x), fn(x))
    first = fn.__code__.co_firstlineno
    (plan,) = compiled.plans()
    ((_, gradient),) = plan.gradients.items()
    rows = [row for row in gradient.f.executable.listing.splitlines() if "  # " in row]
    for op, line in ((r"= (exp|np\.exp)\b", 1), (r"(= div|torch_div)\b", 2)):
        (row,) = [row for row in rows if re.search(op, row)]
        assert row.endswith(f"{FILE}:{first + line}")


def test_pytorch_133383_every_printed_node_is_read() -> None:
    """In the trace, in f and in df, of a function half of which is dead."""

    def fn(x: Tensor, w: Tensor) -> Tensor:
        unused = [torch.exp(x * n) for n in range(4)]
        h = torch.relu(x @ w)
        _, index = h.max(dim=-1)
        assert len(unused) == 4 and index.shape == (5,)
        return F.layer_norm(h, (3,)).square().sum()

    compiled = differentiate(fn)
    x, w = _leaf(5, 4), _leaf(4, 3, seed=1)
    gradient = compiled.gradient(x, w)
    for graph in (compiled.trace(x, w), gradient.f, gradient.df):
        assert _unused(graph) == []
        assert "exp" not in [n.kind for n in graph.walk()]
        assert str(parse_graph(str(graph))) == str(graph), "what is printed is all there is"


# --- what is saved --------------------------------------------------------------------------------


def test_pytorch_132939_the_ledger_lists_exactly_what_autograd_holds() -> None:
    """Counted by torch itself: the tensors packed for the backward are those of the report."""

    def fn(x: Tensor, w: Tensor) -> Tensor:
        h = torch.tanh(x @ w)
        return torch.softmax(h, -1).square().sum()

    compiled = differentiate(fn)
    x, w = _leaf(6, 4), _leaf(4, 3, seed=1)
    packed: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        packed.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        compiled(x, w).backward()
    said = compiled.explain(x, w).saved
    assert sorted(s.nbytes for s in said) == sorted(t.nbytes for t in packed)
    assert all(s.readers and s.why for s in said)
    lines = {s.loc for s in said if s.kind != "an input"}
    first = fn.__code__.co_firstlineno
    assert any(loc.endswith(f"{FILE}:{first + 1}") for loc in lines)


def test_pytorch_149258_no_product_is_computed_twice_by_itself() -> None:
    """A chain of products: eager saves each operand; without a budget none is computed again."""

    def fn(x: Tensor, *weights: Tensor) -> Tensor:
        for w in weights:
            x = torch.relu(x @ w)
        return x.sum()

    weights = [_leaf(10, 10, seed=n) for n in range(8)]
    gradient = differentiate(fn).gradient(_leaf(20, 10), *weights)
    kinds = [n.kind for n in gradient.df.walk()]
    forward = [n.kind for n in gradient.f.walk()]
    assert forward.count("mm") == 8
    assert kinds.count("mm") == 16, "two per layer: for the operand and for the weight"
    tight = differentiate(fn, memory_budget=0.0).gradient(_leaf(20, 10), *weights)
    assert [n.kind for n in tight.df.walk()].count("mm") > 16, "with a budget it is, by choice"


def test_torchlens_28_a_report_one_can_read() -> None:
    """The text has, per saved value: name, type, bytes, kind, line, reader and reason."""

    def fn(x: Tensor) -> Tensor:
        hidden = torch.sigmoid(x)
        return (hidden * hidden.exp()).sum()

    text = str(differentiate(fn).explain(_leaf(100)))
    (row,) = [line for line in text.splitlines() if line.strip().startswith("%hidden")]
    line = fn.__code__.co_firstlineno + 1
    for part in ("f64[100]", "800 bytes", "a temporary", f"{FILE}:{line}", "for "):
        assert part in row, text


# --- the smallest failing program -----------------------------------------------------------------


class _Decoder(nn.Module):
    """Attention, norms and a feed-forward net: some sixty calls of aten."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.norms = nn.ModuleList([nn.LayerNorm(8), nn.LayerNorm(8)])
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            q, k, v = self.qkv(self.norms[0](x)).chunk(3, -1)
            x = x + self.out(torch.softmax(q @ k.transpose(-1, -2), -1) @ v)
            x = x + self.down(F.gelu(self.up(self.norms[1](x))))
        return x.square().mean()


def test_pytorch_156437_an_accuracy_failure_is_cut_down_to_one_call(tmp_path: Path) -> None:
    """The program that is written passes with the right rule, and fails with the wrong one."""
    torch.manual_seed(0)
    model, x = _Decoder(), torch.randn(2, 5, 8)
    assert check(model, (x,)).ok
    path = tmp_path / "failure.py"
    with planted("gelu", **WRONG_GELU):
        found = shrink(model, (x,))
        assert found is not None and len(found.calls) == 1
        assert "aten.gelu" in found.body() and FILE in found.calls[0].loc
        path.write_text(found.source())
        with pytest.raises(GradientMismatchError):
            runpy.run_path(str(path), run_name="__main__")
    runpy.run_path(str(path), run_name="__main__")


def test_torchdynamo_1811_the_small_program_fails_as_the_large_one() -> None:
    """Also pytorch#96971: a wrong gradient stays a wrong gradient, not an exception."""
    torch.manual_seed(0)
    model, x = _Decoder(), torch.randn(2, 5, 8)
    with planted("gelu", **WRONG_GELU):
        whole = check(model, (x,), raise_on_error=False)
        found = shrink(model, (x,))
        assert found is not None
        assert any("gelu" in str(c) for c in whole.culprits)
        assert found.says and all("gradient" in line for line in found.says)


def test_pytorch_59114_a_check_without_anything_to_differentiate_is_an_error() -> None:
    """Tests that never exercised the gradient passed; here such a check cannot pass."""
    with pytest.raises(GradientMismatchError, match="nothing to compare"):
        check(lambda x: x.argmax(), (torch.rand(3, requires_grad=True),))
