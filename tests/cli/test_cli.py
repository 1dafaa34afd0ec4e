"""Every command in process; what only a real process shows is in test_process.py."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gradof.autodiff.differentiate import STEPS
from gradof.cli.main import main
from gradof.codegen.targets.nests import NEST_PASSES
from gradof.codegen.targets.passes import GRAPH_PASSES
from gradof.ir.parser import parse_graph
from gradof.ops.registry import all_ops, get_op
from gradof.passes.pipeline import PASSES

TORCH = """
import torch
from gradof import differentiate

@differentiate
def loss(x, w, power=2):
    h = torch.tanh(x @ w)
    return (h ** power).sum()

def other(x):
    return x.sin().sum()

def loss_example_inputs():
    return torch.ones(4, 3), torch.ones(3, 2, requires_grad=True)

def example_inputs():
    return torch.ones(5, requires_grad=True)

def branch(x):
    return x if x.data_ptr() else -x

def broken(x):
    raise KeyError("mine")

class Holder:
    @staticmethod
    def inside(x):
        return x.exp().sum()

number = 3
"""
NUMPY = """
import numpy as np

def loss(x, w):
    h = np.tanh(x @ w)
    return np.sum(h * h)
"""
LOSS = """graph f(%x : f32[4,3], %b : f32[3]):
  %z : f32[4,3] = add(%x, %b)
  %h : f32[4,3] = softmax[dim=1](%z)
  %y : f32[4,3] = mul(%h, %z)
  %s : f32[] = sum[dims=(0,1), keepdims=False](%y)
  return (%s)
"""
GRAPH = """graph f(%x : f32[3]):
  %a : f32[3] = tanh(%x)
  %b : f32[3] = tanh(%x)
  %unused : f32[3] = exp(%a)
  %y : f32[3] = mul(%a, %b)
  return (%y)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["", *__import__("sys").path])
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    unique = tmp_path.name.replace("-", "_")
    (tmp_path / f"t_{unique}.py").write_text(TORCH)
    (tmp_path / f"n_{unique}.py").write_text(NUMPY)
    return tmp_path


@pytest.fixture
def t(folder: Path) -> str:
    return next(p.name for p in folder.glob("t_*.py"))


@pytest.fixture
def n(folder: Path) -> str:
    return next(p.name for p in folder.glob("n_*.py"))


def run(*args: str, stdin: str | None = None, code: int = 0) -> Result:
    result = CliRunner().invoke(main, args, input=stdin)
    assert result.exit_code == code, result.output
    return result


def test_show_trace(t: str) -> None:
    out = run("show", f"{t}:loss").stdout
    graph = parse_graph(out)
    assert [node.kind for node in graph.nodes()][:2] == ["mm", "tanh"]
    assert f"# {t}:7" in out
    assert "#" not in run("show", f"{t}:loss", "--no-locs").stdout


def test_show_f_and_df(t: str) -> None:
    f = parse_graph(run("show", f"{t}:loss", "--stage", "f").stdout)
    df = parse_graph(run("show", f"{t}:loss", "--stage", "df").stdout)
    assert len(f.outputs) > 1  # the value, and what is saved
    assert len(df.outputs) == 1  # only w requires grad
    assert "GradOf[name='mm']" in str(df)


def test_show_reverse(t: str) -> None:
    graph = parse_graph(run("show", f"{t}:loss", "--stage", "reverse").stdout)
    assert [node.kind for node in graph.nodes()][-1] == "Reverse"


def test_show_numpy_is_python(t: str) -> None:
    source = run("show", f"{t}:loss", "--stage", "numpy").stdout
    compile(source, "shown", "exec")
    assert "np.tanh(" in source
    assert len(re.findall("^def ", source, re.M)) == 2


def test_show_gradient_and_explain(t: str) -> None:
    assert "# df_output_vjps = (1)" in run("show", f"{t}:loss", "--stage", "gradient").stdout
    report = run("show", f"{t}:loss", "--stage", "explain").stdout
    assert "saved for the backward" in report


def test_show_a_numpy_function(n: str) -> None:
    args = ("--arg", "x=f64[4,3]", "--arg", "w=f64[3,2]")
    graph = parse_graph(run("show", f"{n}:loss", *args).stdout)
    assert str(graph.inputs[0].type) == "f64[4,3]"
    source = run("show", f"{n}:loss", *args, "--stage", "numpy").stdout
    compile(source, "shown", "exec")


def test_show_is_repeatable(t: str) -> None:
    assert run("show", f"{t}:loss").stdout == run("show", f"{t}:loss").stdout


def test_args(t: str) -> None:
    spec = ("--arg", "x=f64[7,3]", "--arg", "w=f64[3, 2]", "--arg", "power=3")
    out = run("show", f"{t}:loss", *spec).stdout
    graph = parse_graph(out)
    assert [str(v.type) for v in graph.inputs] == ["f64[7,3]", "f64[3,2]"]
    assert [str(v.type) for v in parse_graph(run(
        "show", f"{t}:other", "--arg", "x=f32[]").stdout).inputs] == ["f32[]"]  # fmt: skip


def test_library(n: str) -> None:
    args = ("--arg", "x=f32[4,3]", "--arg", "w=f32[3,2]", "--stage", "explain")
    assert "numpy arrays" in run("show", f"{n}:loss", *args).stdout
    # a torch tensor handed to numpy functions is refused, not converted
    assert run("show", f"{n}:loss", *args, "--library", "torch", code=2).stderr


def test_example_inputs(t: str) -> None:
    assert "f32[4,3]" in run("show", f"{t}:loss").stdout  # its own
    assert "f32[5]" in run("show", f"{t}:other").stdout  # the file's, one argument bare
    assert "f32[5]" in run("show", f"{t}:Holder.inside").stdout


def test_module_target(t: str) -> None:
    assert "tanh" in run("show", f"{t.removesuffix('.py')}:loss").stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("show", "nowhere.py:loss"), "no file nowhere.py"),
        (("show", "nocolon"), "cannot read the target 'nocolon'"),
        (("show", ":loss"), "cannot read the target"),
        (("show", "no_such_package_here:f"), "cannot import no_such_package_here"),
        (("show", "{t}:nope"), "has no 'nope'"),
        (("show", "{t}:number"), "is a int, not a function"),
        (("show", "{t}:loss", "--arg", "x"), "cannot read --arg 'x'"),
        (("show", "{t}:loss", "--arg", "x=f33[2]"), "f33"),
        (("show", "{t}:loss", "--arg", "x=bf16[2]"), "bf16"),
        (("show", "{t}:loss", "--arg", "x=nonsense+"), "cannot read --arg"),
        (("show", "{t}:loss", "--arg", "z=f32[2]"), "do not fit loss"),
        (("show", "{t}:loss", "--arg", "x=3", "--arg", "w=4"), "without any array"),
        (("show", "{t}:branch"), "data_ptr"),
        (("show", "{n}:loss"), "no inputs for the target"),
        (("opt", "nowhere.ir"), "no file nowhere.ir"),
    ],
)
def test_bad_input_is_exit_code_2(
    t: str, n: str, args: tuple[str, ...], message: str
) -> None:
    result = run(*(a.format(t=t, n=n) for a in args), code=2)
    assert message in result.stderr
    assert "Error: " in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


def test_errors_name_the_users_line(t: str) -> None:
    result = run("show", f"{t}:branch", code=2)
    line = TORCH.splitlines().index("    return x if x.data_ptr() else -x") + 1
    assert f"{t}:{line}" in result.stderr
    assert "hint: " in result.stderr


def test_an_exception_of_the_target_is_exit_code_3(t: str, folder: Path) -> None:
    result = run("show", f"{t}:broken", code=3)
    assert "KeyError: 'mine'" in result.stderr
    (folder / "wrong_syntax.py").write_text("def f(:\n")
    assert "SyntaxError" in run("show", "wrong_syntax.py:f", code=3).stderr


def test_usage_errors_are_exit_code_2(t: str) -> None:
    assert "'--stage'" in run("show", f"{t}:loss", "--stage", "nope", code=2).stderr
    assert "No such command" in run("nope", code=2).stderr
    assert "--order" in run("check", f"{t}:loss", "--order", "3", code=2).stderr


def test_opt_from_stdin_and_file(folder: Path) -> None:
    assert parse_graph(run("opt", stdin=GRAPH).stdout) == parse_graph(GRAPH)
    (folder / "f.ir").write_text(GRAPH)
    passes = ("-p", "common-subexpression", "--pass", "eliminate-dead-code")
    out = run("opt", "f.ir", *passes).stdout
    assert [node.kind for node in parse_graph(out).nodes()] == ["tanh", "mul"]
    assert run("opt", "-", *passes, stdin=GRAPH).stdout == out
    assert run("opt", stdin=out).stdout == out


def test_opt_lists_passes() -> None:
    lines = run("opt", "--list").stdout.splitlines()
    listed = [line.split()[0] for line in lines if line and not line.startswith("#")]
    of_nests = {name for steps in NEST_PASSES.values() for name in steps}
    assert set(listed) == {*PASSES, *GRAPH_PASSES, *STEPS, "f", "df", *of_nests}
    assert all(len(line.split()) > 2 for line in lines if line)
    parts = [line for line in lines if line.startswith("#") and line != "# its loop nests"]
    targets = [f"# --target {name}" for name in ("numpy", "tiles", "native", "triton")]
    assert parts[2:] == [*targets, "# to be asked for"]


@pytest.mark.parametrize("name", sorted({*GRAPH_PASSES, *STEPS, "f", "df"}))
def test_each_pass_runs_alone_on_a_text(name: str) -> None:
    """What comes out is text that parses and verifies, and the same passes run on it again."""
    out = run("opt", "-p", name, "--target", "triton", stdin=LOSS).stdout
    assert run("opt", stdin=out).stdout == out


def test_passes_run_one_after_the_other_and_by_target() -> None:
    out = run("opt", "-p", "df", "-p", "eliminate-dead-code", stdin=LOSS).stdout
    assert out.startswith("graph df(%ds")
    assert "FusionGroup" in run("opt", "-p", "fuse", stdin=LOSS).stdout
    assert "FusionGroup" not in run("opt", "-p", "fuse", "--target", "numpy", stdin=LOSS).stdout
    assert "native" in run("opt", "-p", "fuse", "--target", "x", stdin=LOSS, code=2).stderr


def test_show_prints_the_graph_after_every_pass(t: str) -> None:
    text = run("show", f"{t}:loss", "--stage", "passes").stdout
    heads = [line.split(":")[1].strip() for line in text.splitlines() if line.startswith("# ")]
    assert heads[: len(STEPS)] == list(STEPS)
    assert heads.count("canonicalize") >= 2  # of f, and of df
    one = run("show", f"{t}:loss", "--after", "reverse").stdout
    assert one.startswith("# loss: reverse\ngraph loss(") and "GradOf" in one and one in text
    assert "choose-captures" in run("show", f"{t}:loss", "--after", "nope", code=2).stderr


def test_opt_unknown_pass() -> None:
    result = run("opt", "-p", "nope", stdin=GRAPH, code=2)
    assert "nope" in result.stderr
    assert "eliminate-dead-code" in result.stderr


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("graph f(%x : f32[3]):\n  %y : f32[3] = tanh(%z)\n  return (%y)\n", "<stdin>:2:22"),
        ("graph f(%x : f33[3]):\n  return (%x)\n", "<stdin>:1:"),
        ("graf f():\n", "<stdin>:1:1"),
        ("", "<stdin>:1:1"),
    ],
)
def test_opt_malformed(text: str, where: str) -> None:
    result = run("opt", stdin=text, code=2)
    assert where in result.stderr
    assert result.stdout == ""


def test_opt_names_the_file_of_malformed_text(folder: Path) -> None:
    (folder / "bad.ir").write_text("graph f(%x : f32[3]):\n  return (%y)\n")
    assert "bad.ir:2:11" in run("opt", "bad.ir", code=2).stderr


def test_opt_names_the_place_of_what_is_not_utf_8(folder: Path) -> None:
    (folder / "latin.gr").write_bytes(b"graph f(%x : f32[1]):\n return (%x) # caf\xe9:1")
    message = run("opt", "latin.gr", code=2).stderr
    assert "byte 0xe9 is not UTF-8" in message and "latin.gr:2:19" in message


def test_opt_refuses_wrong_types() -> None:
    text = "graph f(%x : f32[3]):\n  %y : f32[4] = tanh(%x)\n  return (%y)\n"
    assert "f32[4]" in run("opt", stdin=text, code=2).stderr


def test_ops() -> None:
    rows = [line.split("\t") for line in run("ops").stdout.splitlines()]
    assert len(rows) == len(list(all_ops()))
    assert all(len(row) == 4 for row in rows)
    found = run("ops", "--name", "aten.tanh").stdout.splitlines()
    assert any(row.startswith("tanh(x) -> y\tprimitive\tx\t") for row in found)
    assert run("ops", "--name", "no such op").stdout == ""


def test_check_a_right_function(t: str, n: str) -> None:
    report = run("check", f"{t}:loss").stdout
    assert "all right" in report
    assert "gradient of" in report
    assert "second" in run("check", f"{t}:loss", "--order", "2").stdout
    args = ("--arg", "x=f64[4,3]", "--arg", "w=f64[3,2]", "--seed", "1")
    assert "all right" in run("check", f"{n}:loss", *args).stdout


def test_check_finds_a_wrong_rule(t: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {**get_op("tanh").vjp, "x": lambda g, y: g * (1.0 - y)}
    monkeypatch.setitem(get_op("tanh").vjp, "x", wrong["x"])
    result = run("check", f"{t}:loss", code=1)
    assert "tanh" in result.stdout
    assert f"{t}:7" in result.stdout


@pytest.mark.parametrize("command", ["show", "check", "opt", "ops"])
def test_help_has_examples(command: str) -> None:
    text = run(command, "--help").stdout
    assert "Examples:" in text
    assert f"gradof {command} " in text
    assert run(command, "-h").stdout == text


def test_help_of_the_group() -> None:
    text = run("--help").stdout
    for word in ("show", "check", "opt", "ops", "Exit codes"):
        assert word in text
    assert "version" in run("--version").stdout


def test_doctor_tells_what_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    done = CliRunner().invoke(main, ["doctor"])
    assert done.exit_code == 0
    lines = dict(line.split(maxsplit=1) for line in done.output.splitlines())
    assert {"gradof", "numpy", "torch", "threads", "triton"} <= set(lines)
    assert "native code" in done.output
    monkeypatch.setenv("GRADOF_BACKEND", "tiles")
    assert "numpy tiles (GRADOF_BACKEND=tiles)" in CliRunner().invoke(main, ["doctor"]).output


def test_show_fused_prints_groups_their_bytes_and_loops(tmp_path: Path) -> None:
    target = tmp_path / "m.py"
    target.write_text(TORCH)
    text = CliRunner().invoke(
        main, ["show", f"{target}:loss", "--stage", "fused", "--arg", "x=f32[4,3]", "--arg",
               "w=f32[3,2]"],
    ).output  # fmt: skip
    assert "FusionGroup(" in text
    assert re.search(r"# kernel 0: \d+ nodes, reads \d+ bytes, writes \d+ bytes", text)
    assert "nest kernel_0 over rows" in text and "fold[kind='sum'" in text


def test_show_triton_prints_the_kernels_of_f_and_df(tmp_path: Path) -> None:
    target = tmp_path / "m.py"
    target.write_text(TORCH)
    text = CliRunner().invoke(
        main, ["show", f"{target}:loss", "--stage", "triton", "--arg", "x=f32[4,3]", "--arg",
               "w=f32[3,2]"],
    ).output  # fmt: skip
    assert "def loss_kernel0(" in text and "def dloss_kernel0(" in text
    assert "# mm: the library's own" in text
    assert re.search(r"_tanh\(\w+\)  # .*m\.py:7", text)


def test_doctor_tells_what_runs_cuda_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    def line() -> str:
        output = CliRunner().invoke(main, ["doctor"]).output
        (found,) = (text for text in output.splitlines() if text.startswith("CUDA tensors"))
        return found

    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert line() == "CUDA tensors  torch sees no CUDA device"
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda: "a device")
    monkeypatch.setenv("GRADOF_BACKEND", "numpy")
    assert "torch alone on a device" in line()
    monkeypatch.setenv("GRADOF_BACKEND", "auto")
    assert "Triton kernels and torch on a device" in line() or "triton is not installed" in line()
