"""An elementwise op of one `op(...)` statement runs in every back end; nothing else knows of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from scipy import special

import gradof
from gradof.cli.main import main
from gradof.codegen import compile_graph
from gradof.codegen.host.torch_emit import emit_torch
from gradof.codegen.llvm.kernel import NativeKernel
from gradof.codegen.machine.engine import status
from gradof.codegen.tiles.kernel import TileKernel
from gradof.ir.opinfo import OPS
from gradof.ir.parser import parse_graph
from gradof.ops import registry
from gradof.tracer.numpy.ufuncs import COMPOSED
from tests.codegen import one_statement
from tests.codegen.triton_process import run

USER = """import numpy as np
from scipy import special

def loss(x):
    return np.sum(special.cosm1(x) * x)
"""


@pytest.fixture(autouse=True)
def statement(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The op, for one test, in place of the composition by which the tracer records cosm1."""
    monkeypatch.delitem(COMPOSED["scipy.special"], "cosm1")
    ops, names = dict(OPS), dict(registry._BY_API_NAME)
    one_statement.define()
    yield
    for table, before in ((OPS, ops), (registry._BY_API_NAME, names)):
        table.clear()
        table.update(before)  # type: ignore[arg-type]  # each has its own values back


def large() -> tuple[Any, Any, Any]:
    """The graph of arrays large enough for kernels, its operands and its result."""
    text = one_statement.GRAPH.replace("40,30", "400,300").replace("[30]", "[300]")
    x = np.random.default_rng(1).uniform(-3, 3, (400, 300))
    w = np.random.default_rng(2).uniform(1, 2, 300)
    return parse_graph(text), (x, w), special.cosm1(x) * w


@pytest.mark.parametrize("backend", ["numpy", "tiles", "native"])
def test_arrays(backend: Any) -> None:
    if backend == "native" and not status()[0]:
        pytest.skip("no native code here")
    graph, operands, want = large()
    executable = compile_graph(graph, backend=backend)
    (have,) = executable(*operands)
    np.testing.assert_allclose(have, want, rtol=1e-14)
    kinds = [type(kernel) for kernel in executable.kernels]
    assert kinds == {"numpy": [], "tiles": [TileKernel], "native": [NativeKernel]}[backend]
    if backend == "native":
        assert "cosm1" in executable.kernels[0].source  # one instruction until it is emitted


def test_torch_has_no_such_function_and_computes_it_by_others() -> None:
    graph, operands, want = large()
    executable = emit_torch(graph, fused=False)
    (have,) = executable(*map(torch.from_numpy, operands))
    np.testing.assert_allclose(have.numpy(), want, rtol=1e-14)
    assert "torch.sin(" in executable.source and "cosm1(" not in executable.source


def test_tensors_by_triton_and_as_an_exported_file(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="triton is not installed: pip install 'gradof[triton]'")
    found = run("one_statement", "triton", tmp_path, interpret=True)
    assert found.pop("count") == 1
    assert set(found) == {"kernels", "exported f", "exported df"}
    assert max(found.values()) < 1e-14, found


def test_gradients_of_both_orders() -> None:
    x = np.linspace(-3, 3, 50)
    first = gradof.grad(lambda x: np.sum(special.cosm1(x)))
    np.testing.assert_allclose(first(x), -np.sin(x), rtol=1e-14)
    assert first.cache_info().backward_runs == 1
    second = gradof.grad(lambda x: np.sum(gradof.grad(lambda y: np.sum(special.cosm1(y)))(x)))
    np.testing.assert_allclose(second(x), -np.cos(x), rtol=1e-14)


def test_shown_and_exported_as_numpy(tmp_path: Path) -> None:
    path = tmp_path / "user_of_cosm1.py"
    path.write_text(USER)
    arguments = [f"{path}:loss", "--arg", "x=f64[6]"]
    shown = CliRunner().invoke(main, ["show", *arguments])
    assert "f64[6] = cosm1(%x)  # " in shown.output
    target = tmp_path / "exported.py"
    done = CliRunner().invoke(main, ["export", *arguments, "-o", str(target)])
    assert done.exit_code == 0, done.output
    assert "-2 * np.square(np.sin(x * 0.5))" in target.read_text()
    code = "import sys, exported; assert 'gradof' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
