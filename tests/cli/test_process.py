"""The installed command as scripts and terminals see it: streams, exit codes, colours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

GRAPH = "graph f(%x : f32[3]):\n  %y : f32[3] = tanh(%x)  # f.py:2\n  return (%y)\n"
ESCAPE = "\x1b["


def gradof(*args: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    env = {k: v for k, v in os.environ.items() if k not in ("FORCE_COLOR", "NO_COLOR")}
    command = Path(sys.executable).with_name("gradof")
    return subprocess.run(
        [command, *args], input=stdin, env={**env, **environment}, capture_output=True, text=True
    )


def test_plain_in_a_pipe() -> None:
    done = gradof("opt", stdin=GRAPH)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == GRAPH


def test_colours_when_forced() -> None:
    done = gradof("opt", stdin=GRAPH, FORCE_COLOR="1", TERM="xterm-256color")
    assert ESCAPE in done.stdout
    assert "tanh" in done.stdout


@pytest.mark.parametrize("colour", ["", "1"])
def test_errors_go_to_stderr(colour: str) -> None:
    done = gradof("show", "nowhere.py:f", FORCE_COLOR=colour, TERM="xterm-256color")
    assert (done.returncode, done.stdout) == (2, "")
    assert "no file nowhere.py" in done.stderr
    assert (ESCAPE in done.stderr) == bool(colour)


def test_numpy_targets_need_no_torch(tmp_path: Path) -> None:
    path = tmp_path / "closed.py"
    path.write_text(
        "import sys, numpy as np\n"
        "def f(x):\n    assert 'torch' not in sys.modules\n    return np.sum(np.exp(x))\n"
    )
    done = gradof("show", f"{path}:f", "--arg", "x=f64[3]", "--stage", "df")
    assert done.returncode == 0, done.stderr
    assert "GradOf[name='exp']" in done.stdout
