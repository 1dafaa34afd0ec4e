"""`gradof opt` on the text of loop nests, and `gradof show --stage nests`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from gradof.cli.main import main
from gradof.codegen.loops.interpret import run_nest
from gradof.codegen.loops.text import parse_nest, parse_nests
from gradof.codegen.targets.nests import NEST_PASSES

NEST = """nest norms over rows (2,), columns (3, 4)
  in 0: x : bf16[2,3,4] dims (0, 1, 2)
  out 0: y : bf16[2,3,4] dims (0, 1, 2)
  out 1: s : bf16[2] dims (0, None, None)
  %x = load[buffer=0] : bf16 cell 0
  %q = mul %x %x : bf16 cell 0
  %r = reduce[kind='sum'] %q : bf16 row 1
  %g = sign %r : bf16 row 1
  %y = mul %x %g : bf16 cell 1
  store[buffer=0] %y : bf16 cell 1  # model.py:4
  store[buffer=1] %r : bf16 row 1
"""
EVERY = [(target, name) for target, steps in NEST_PASSES.items() for name in steps]


def run(*args: str, stdin: str = "", code: int = 0) -> Result:
    result = CliRunner().invoke(main, args, input=stdin)
    assert result.exit_code == code, result.output
    return result


@pytest.mark.parametrize(("target", "name"), EVERY)
def test_each_pass_runs_alone_on_a_text(target: str, name: str) -> None:
    out = run("opt", "-p", name, "--target", target, stdin=NEST).stdout
    again = run("opt", "--target", target, stdin=out).stdout
    assert again == out and parse_nests(out)


def test_passes_run_one_after_the_other(tmp_path: Path) -> None:
    file = tmp_path / "norms.nest"
    file.write_text(NEST)
    out = run("opt", str(file), "-p", "widen-half", "-p", "expand-sign", "-p", "merge-axes").stdout
    nest = parse_nest(out)
    assert nest.sizes == (2, 12) and not any(i.op == "sign" for i in nest.body)
    assert [i.op for i in nest.body].count("rounded") == 3
    x = np.random.default_rng(0).integers(-3, 3, (2, 3, 4)).astype(np.float32)
    y, s = run_nest(nest, [x.reshape(2, 12)])
    np.testing.assert_array_equal(y.reshape(x.shape), x)
    np.testing.assert_array_equal(s, (x * x).sum((1, 2)))


def test_a_pass_of_another_target_is_named() -> None:
    message = run("opt", "-p", "sums-first", stdin=NEST, code=2).stderr
    assert "unknown pass 'sums-first' over nests for native" in message and "widen-half" in message
    assert "tiles, native, triton" in run("opt", "--target", "numpy", stdin=NEST, code=2).stderr


def test_a_broken_nest_is_named_with_its_line(tmp_path: Path) -> None:
    wrong = NEST.replace("reduce[kind='sum'] %q", "reduce[kind='sum'] %z")
    assert "z is read before it is made" in run("opt", stdin=wrong, code=2).stderr
    file = tmp_path / "bad.nest"
    file.write_text(NEST.replace("%q = mul", "%q mul"))
    assert f"{file.name}:6:6" in run("opt", str(file), code=2).stderr


def test_show_prints_the_nests_of_every_target_after_every_pass(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(
        "import torch\ndef loss(x):\n    return torch.softmax(x, -1).square().sum()\n"
    )
    text = run("show", f"{tmp_path / 'model.py'}:loss", "--stage", "nests", "--arg", "x=f32[4,80]")
    heads = [line for line in text.stdout.splitlines() if line.startswith("# ")]
    for target in NEST_PASSES:
        assert any(line.startswith(f"# {target}, ") for line in heads)
    assert any("torch-softmax" in line and "nothing" not in line for line in heads)
    nests = [part for part in text.stdout.split("\n\n") if "\nnest " in part]
    assert nests and all(parse_nest(part[part.index("nest ") :]) for part in nests)
