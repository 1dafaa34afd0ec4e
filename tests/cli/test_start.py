"""What the terminal says: without arguments, of errors, of long runs, and where GRADOF_LOG asks."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

from gradof import differentiate, fori_loop
from gradof.cli import progress as progress_module
from gradof.cli.main import main
from gradof.cli.progress import counted, progress
from gradof.cli.render import excerpt
from gradof.errors import InputError
from gradof.runtime import log
from gradof.runtime.explore.model import model_of
from gradof.runtime.explore.page import Exploration


def test_without_arguments_it_says_what_to_do_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "model.py:loss" in CliRunner().invoke(main, []).output
    (tmp_path / "broken.py").write_text("def f(:")
    (tmp_path / "mine.py").write_text("def loss(x): ...\ndef example_inputs(): ...\n")
    run = CliRunner().invoke(main, [])
    assert run.exit_code == 0 and "gradof explore mine.py:loss" in run.output


def test_an_error_shows_the_users_line_with_a_caret(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def f(x):\n    return x.data_ptr()  # no\n")
    assert excerpt(f"{file}:2") == [
        "1 | def f(x):", "2 |     return x.data_ptr()  # no", "  |     " + "^" * 19
    ]  # fmt: skip
    assert excerpt(f"{file}:2:12")[-1] == "  |            ^"
    assert excerpt(f"{file}:9") == [] == excerpt("<stdin>:1:1") == excerpt(None)


def test_progress_is_shown_after_a_while_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "PATIENCE", 0.05)
    terminal = io.StringIO()
    with progress("exploring", Console(file=terminal, force_terminal=True)) as say:
        say("compiling")
        time.sleep(0.4)
    assert "compiling" in terminal.getvalue()
    file = io.StringIO()
    with progress("exploring", Console(file=file, force_terminal=False)) as say:
        say("compiling")
        time.sleep(0.1)
    assert file.getvalue() == ""


def test_a_bar_of_what_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_module, "PATIENCE", 0.0)
    terminal = io.StringIO()
    with counted("fuzzing", 10, Console(file=terminal, force_terminal=True)) as count:
        count(3, "3 programs, [none] wrong")
        time.sleep(0.3)
    assert "fuzzing: 3 programs, [none] wrong" in terminal.getvalue()


@pytest.mark.parametrize("command", [
    ["fuzz", "--library", "numpy", "--programs", "1", "--size", "small"],
    ["check", "{file}:loss", "--arg", "x=f32[3]"],
], ids=lambda command: command[0])  # fmt: skip
def test_what_takes_long_says_so_on_a_terminal(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text("import numpy as np\ndef loss(x): return np.sum(x * x)\n")
    terminal = io.StringIO()
    monkeypatch.setattr(progress_module, "PATIENCE", 0.0)
    monkeypatch.setattr(progress_module, "Console", lambda **_: Console(
        file=terminal, force_terminal=True, width=120))  # fmt: skip
    words = [word.format(file=tmp_path / "mine.py") for word in command]
    monkeypatch.chdir(tmp_path)  # failing programs would go there
    run = CliRunner().invoke(main, words)
    assert run.exit_code == 0, run.output
    said = "fuzzing" if command[0] == "fuzz" else "comparing with eager and float64"
    assert said in terminal.getvalue() and said not in run.stdout


def test_a_long_trace_says_so_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    def slow(x: np.ndarray) -> np.ndarray:
        time.sleep(0.3)
        return np.asarray(np.sum(x * x))

    terminal = Terminal()
    monkeypatch.setattr(log, "PATIENCE", 0.05)
    monkeypatch.setattr("sys.stderr", terminal)
    compiled = differentiate(slow)
    compiled(np.ones(3))
    compiled(np.ones(3))
    assert terminal.getvalue().count("tracing") == 1
    assert "gradof: tracing " in terminal.getvalue() and "slow, once for" in terminal.getvalue()


def test_a_line_for_each_trace_and_graph_where_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    square = lambda x: np.sum(x * x)  # noqa: E731
    differentiate(square)(np.ones(3))
    assert capfd.readouterr().err == ""
    monkeypatch.setenv("GRADOF_LOG", "1")
    compiled = differentiate(square)
    compiled(np.ones(3))
    compiled(np.ones(3))
    first, second = capfd.readouterr().err.splitlines()
    assert first.startswith("gradof: traced ") and "the first call; 2 nodes, 1 inputs" in first
    assert second.startswith("gradof: compiled ") and "2 nodes, 0 kernels" in second
    monkeypatch.setenv("GRADOF_LOG", str(tmp_path / "log"))
    compiled(np.ones(4))
    assert "was float64[3]" in (tmp_path / "log").read_text()


def test_exports_for_other_viewers(tmp_path: Path) -> None:
    def loss(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return np.asarray(np.sum(np.tanh(x @ w)))

    compiled = differentiate(loss)
    page = compiled.explore(np.ones((4, 3)), np.ones((3, 2)))
    events = json.loads(page.write(tmp_path / "step.json").read_text())["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    assert {e["cat"] for e in slices} == {"f", "df"} and all(e["dur"] > 0 for e in slices)
    assert [e["ts"] for e in slices] == sorted(e["ts"] for e in slices)
    assert any("test_start.py" in line for e in slices for line in e["args"]["lines"])
    text = page.write(tmp_path / "graph.dot").read_text()
    assert text.startswith('digraph "') and "n0 -> n1;" in text and "tanh" in text
    with pytest.raises(InputError, match=r"graph.svg ends in none of .html, .json, .dot, .onnx"):
        page.write(tmp_path / "graph.svg")
    bound = compiled.bind((np.ones((4, 3)), np.ones((3, 2))), {})
    with pytest.raises(InputError, match="nothing was timed"):
        Exploration(model_of(compiled, bound, time=False)).write(tmp_path / "step.json")


def test_the_graph_for_netron(tmp_path: Path) -> None:
    import onnx

    def loss(x: Any, w: Any) -> Any:
        x = fori_loop(0, 12, lambda i, v: np.tanh(v @ w) * 0.5, x)
        return np.sum(np.where(x > 0.0, x, 2.0), axis=(0, 1))

    page = differentiate(loss).explore(np.ones((4, 3)), np.eye(3))
    model = onnx.load(page.write(tmp_path / "graph.onnx"))
    graph = model.graph
    assert [i.name for i in graph.input] == ["x", "w"] and model.producer_name == "gradof"
    assert [d.dim_value for d in graph.input[0].type.tensor_type.shape.dim] == [4, 3]
    ops = [node.op_type for node in graph.node]
    assert ops[-1] == "sum" and {"Loop", "where", "Constant"} <= set(ops)
    total, loop = graph.node[-1], next(n for n in graph.node if n.op_type == "Loop")
    assert total.domain == "gradof" and "test_start.py:" in total.doc_string
    assert {a.name: list(a.ints) for a in total.attribute}["dims"] == [0, 1]
    (body,) = (a.g for a in loop.attribute if a.type == onnx.AttributeProto.GRAPH)
    assert {"mm", "tanh"} <= {node.op_type for node in body.node}
    names = {i.name for i in graph.input} | {o for n in graph.node for o in n.output}
    assert all(i in names for n in graph.node for i in n.input)
    assert all(n.op_type == "Constant" for n in graph.node if n.domain == "")
