"""What the terminal says: without arguments, of errors, of long runs, and where GRADOF_LOG asks."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from rich.console import Console

from gradof import differentiate
from gradof.cli import progress as progress_module
from gradof.cli.main import main
from gradof.cli.progress import progress
from gradof.cli.render import excerpt
from gradof.errors import InputError
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
    bound = compiled.bind((np.ones((4, 3)), np.ones((3, 2))), {})
    with pytest.raises(InputError, match="nothing was timed"):
        Exploration(model_of(compiled, bound, time=False)).write(tmp_path / "step.json")
