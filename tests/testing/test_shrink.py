"""A failed check is cut down to the smallest program that fails, written as a file that runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from torch import nn

from gradof.cli.main import main
from gradof.errors import GradientMismatchError
from gradof.testing import shrink
from gradof.testing.failures import check_and_write, file_name
from tests.testing.test_harness import inputs, loss, planted

WRONG_TANH: dict[str, Any] = {
    "vjp": {"x": lambda g, y: -(g * (1.0 - y * y))}, "reads": {"x": ("g", "y")},
}  # fmt: skip


def runs(path: Path, *, wrong: str = "") -> bool:
    """Whether the file passes in another process, with a rule planted or without."""
    code = "import runpy, sys\n"
    if wrong:
        code += (
            "from tests.testing.test_harness import planted\n"
            "from tests.testing.test_shrink import WRONG_TANH\n"
            f"context = planted({wrong!r}, **WRONG_TANH)\ncontext.__enter__()\n"
        )
    code += f"runpy.run_path({str(path)!r}, run_name='__main__')\n"
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0 or "GradientMismatchError" in done.stderr, done.stderr
    return done.returncode == 0


def test_one_wrong_op_is_one_call_on_one_number(tmp_path: Path) -> None:
    with planted("tanh", **WRONG_TANH):
        found = shrink(loss, inputs())
        assert found is not None
        (call,) = found.calls
        assert "aten.tanh" in found.body()
        assert [tuple(v.shape) for v in found.arguments()] == [(1, 1)]
        assert "test_harness.py" in call.loc
    path = tmp_path / "failure.py"
    path.write_text(found.source())
    assert runs(path)
    assert not runs(path, wrong="tanh")


def in_place(p: Any) -> Any:
    q = p.copy()
    q[1:] = np.tanh(q[1:]) * 2
    q += p
    return np.sum(q**2)


@pytest.mark.parametrize("fn", [in_place, lambda p: np.sum(np.tanh(p).reshape(2, 3).T @ p[:2])])
def test_numpy_functions_too(fn: Callable[..., Any], tmp_path: Path) -> None:
    p = np.linspace(-1, 1, 6)
    with planted("tanh", **WRONG_TANH):
        found = shrink(fn, (p,))
        assert found is not None and len(found.calls) == 1
        assert "np.tanh(" in found.body()
        np.testing.assert_array_equal(p, np.linspace(-1, 1, 6))
    path = tmp_path / "failure.py"
    path.write_text(found.source())
    assert runs(path)


def test_a_module_and_its_parameters() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.LayerNorm(6), nn.Linear(6, 2))
    with planted("tanh", **WRONG_TANH):
        found = shrink(net, (torch.randn(3, 4),))
    assert found is not None and len(found.calls) == 1 and "aten.tanh" in found.body()


@pytest.mark.usefixtures("op_by_op")
def test_a_wrong_value_is_found_as_well() -> None:
    with planted("exp", numpy="np.expm1"):
        found = shrink(loss, inputs())
    assert found is not None and "aten.exp" in found.body()
    assert any("output" in line for line in found.says)


def test_what_only_the_second_derivative_shows() -> None:
    def first_is_right(g: Any, x: Any) -> Any:
        from gradof.ops.expr import F

        return g * F.cos(F.detach(x))

    with planted("sin", vjp={"x": first_is_right}, reads={"x": ("g", "x")}):
        x = torch.tensor([0.3, 0.5], requires_grad=True)
        assert shrink(lambda t: torch.sin(t).exp().sum(), (x,), order=1) is None
        found = shrink(lambda t: torch.sin(t).exp().sum(), (x,), order=2)
    assert found is not None and found.order == 2
    assert any("second" in line for line in found.says)


def test_calls_of_which_none_is_wrong_alone() -> None:
    def relu_of_zero(g: Any, x: Any) -> Any:  # wrong at 0 alone, which takes two calls to reach
        return g * (x >= 0.0).cast(x.dtype)

    def fn(t: Any) -> Any:
        flat = t * 0.5 + 1.0
        return torch.relu(flat - flat.detach()).sum() + t.sum()

    with planted("relu", vjp={"x": relu_of_zero}, reads={"x": ("g", "x")}):
        found = shrink(fn, (torch.tensor([0.3, 0.5, -1.0], requires_grad=True),))
    assert found is not None and "aten.relu" in found.body()
    assert len(found.calls) <= 2


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert shrink(loss, inputs(), order=2) is None


def test_the_command_line_writes_the_file(tmp_path: Path) -> None:
    target = tmp_path / "model.py"
    target.write_text(
        "import torch\n\ndef loss(x):\n    return torch.tanh(x.exp()).sum()\n\n"
        "def example_inputs():\n    return (torch.randn(4, 3, requires_grad=True),)\n"
    )
    out = tmp_path / "out.py"
    with planted("tanh", **WRONG_TANH):
        done = CliRunner().invoke(main, ["check", f"{target}:loss", "--write", str(out)])
        assert done.exit_code == 1, done.output
        assert str(out) in done.output and "wrong op: tanh" in done.output
        silent = CliRunner().invoke(main, ["check", f"{target}:loss", "--no-shrink"])
        assert silent.exit_code == 1 and "smallest" not in silent.output
    assert "aten.tanh" in out.read_text()
    table = CliRunner().invoke(main, ["check", f"{target}:loss", "--per-op"])
    assert table.exit_code == 0 and "model.py:4" in table.output and "backward" in table.output


def test_the_error_names_the_file(tmp_path: Path) -> None:
    with planted("tanh", **WRONG_TANH):
        with pytest.raises(GradientMismatchError, match="wrong op: tanh") as caught:
            check_and_write(loss, inputs(), folder=tmp_path, name="test_x[a-1]")
        assert file_name("test_x[a-1]") == "gradof_test_x_a_1_failure.py"
        assert str(tmp_path / "gradof_test_x_a_1_failure.py") in str(caught.value.hint)
        with pytest.raises(GradientMismatchError):
            check_and_write(loss, inputs(), folder=tmp_path / "no", name="x", shrink=False)
    assert not (tmp_path / "no").exists()
    assert check_and_write(loss, inputs(), folder=tmp_path, name="x", order=2).ok


def test_the_fixture(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    pytester.makepyfile("""
        import dataclasses
        import torch
        import gradof.ops
        from gradof.ir.opinfo import OPS

        def test_right(gradof_check):
            assert gradof_check(torch.tanh, (torch.randn(3, requires_grad=True),), order=2).ok

        def test_wrong(gradof_check, monkeypatch):
            wrong = dataclasses.replace(OPS["tanh"], vjp={"x": lambda g: g}, reads={"x": ("g",)})
            monkeypatch.setitem(OPS, "tanh", wrong)
            gradof_check(lambda x: torch.tanh(x).exp(), (torch.randn(3, requires_grad=True),))
    """)
    pytester.syspathinsert(Path(__file__).parents[2])
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # installed or not
    done = pytester.runpytest_subprocess("-p", "gradof.pytest_plugin", "--gradof-failures=found")
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["*GradientMismatchError*", "*gradof_test_wrong_failure.py*"])
    assert "aten.tanh" in (pytester.path / "found" / "gradof_test_wrong_failure.py").read_text()
