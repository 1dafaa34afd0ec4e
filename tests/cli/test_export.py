"""`gradof export --backend numpy`: files that run, and are right, where gradof is not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from gradof.cli import export as exporting
from gradof.cli.main import main

TARGETS = """
import numpy as np
import torch
import torch.nn.functional as F

def rms_norm(x, weight):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weight

def cross_entropy(logits, target):
    return F.cross_entropy(logits, target)

def cross_entropy_example_inputs():
    g = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 9, generator=g, dtype=torch.float64, requires_grad=True)
    return logits, torch.tensor([3, 0, 8, -100, 3, 1])

def gelu(x, b):
    h = F.gelu(x + b)
    return h * h, h.sum()

def unused(x, unused, y):
    return x.transpose(0, 1) @ y + 1.0, x.sum()

def in_place(x):
    x *= 2.0
    return np.sum(x)

def branch(x):
    return x.sum() if x.sum() > 0 else -x.sum()

def constant(x):
    return x * x.sign().detach(), x > 0

def digamma(x):
    return torch.special.digamma(x)

def recurrent(x, h, w, v, b):
    return torch.rnn_tanh(x, h, [w, v, b, b], True, 1, 0.0, True, False, False)[0].sum()

def half(x):
    return x.sin()

def half_example_inputs():
    return torch.ones(3, dtype=torch.bfloat16, requires_grad=True)

def plain(x, w):
    return np.sum(np.tanh(x @ w), axis=0)

def running(x):
    return np.sum(np.cumsum(x) * np.cumprod(x * 0.1 + 1))
"""
# A process in which gradof cannot be imported runs the file against central differences.
JUDGE = """
import importlib.util, sys
import numpy as np

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("gradof", "torch", "scipy", "triton"):
            raise ImportError(name)

sys.meta_path.insert(0, Refuse())
spec = importlib.util.spec_from_file_location("exported", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
data = np.load(sys.argv[2])
inputs = [data[f"arr_{k}"] for k in range(len(data.files))]
wanted = [int(k) for k in sys.argv[3].split(",")]
rng = np.random.default_rng(1)
outputs = getattr(module, sys.argv[4])(*inputs)[: int(sys.argv[5])]
cotangents = [rng.standard_normal(o.shape) for o in outputs]
values, gradients = module.value_and_gradients(inputs, cotangents)
assert len(gradients) == len(wanted) and any(np.any(g) for g in gradients)
for k, gradient in zip(wanted, gradients):
    direction = rng.standard_normal(inputs[k].shape)
    def value(step):
        moved = [x + step * direction if i == k else x for i, x in enumerate(inputs)]
        found, _ = module.value_and_gradients(moved, cotangents)
        return sum(float((c * v).sum()) for c, v in zip(cotangents, found))
    difference = (value(1e-6) - value(-1e-6)) / 2e-6
    ours = float((gradient * direction).sum())
    assert abs(ours - difference) <= 1e-6 * max(1.0, abs(ours)), (k, ours, difference)
assert "gradof" not in sys.modules
"""


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("targets") / "export_targets.py"
    path.write_text(TARGETS)
    return str(path)


def export(target: str, path: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["export", target, "-o", str(path), *options])


def judge(path: Path, inputs: list[Any], wanted: str, name: str, outputs: int) -> None:
    """Finite differences in a process without gradof."""
    np.savez(path.with_suffix(".npz"), *inputs)
    done = subprocess.run(
        [sys.executable, "-c", JUDGE, str(path), str(path.with_suffix(".npz")), wanted, name,
         str(outputs)], capture_output=True, text=True, cwd=path.parent, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def args(**shapes: str) -> list[str]:
    return [part for name, spec in shapes.items() for part in ("--arg", f"{name}={spec}")]


def random(*shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(2)
    return [rng.standard_normal(shape) for shape in shapes]


MLP = {"x": (5, 2), "w1": (2, 7), "b1": (7,), "w2": (7, 3), "b2": (3,), "y": (5, 3)}


@pytest.mark.parametrize(
    ("name", "shapes", "wanted", "outputs"),
    [
        ("rms_norm", {"x": (4, 8), "weight": (8,)}, "0,1", 1),
        ("gelu", {"x": (3, 1, 4), "b": (2, 1)}, "0,1", 2),
        ("unused", {"x": (4, 3), "unused": (2,), "y": (4, 2)}, "0,2", 2),
        ("plain", {"x": (4, 3), "w": (3, 2)}, "0,1", 1),
        ("examples/mlp.py:loss", MLP, "0,1,2,3,4,5", 1),
    ],
)
def test_an_exported_file_passes_finite_differences_without_gradof(
    name: str, shapes: dict[str, tuple[int, ...]], wanted: str, outputs: int, targets: str,
    tmp_path: Path,
) -> None:  # fmt: skip
    target = name if ":" in name else f"{targets}:{name}"
    name = target.rpartition(":")[2]
    specs = {k: f"f64[{','.join(map(str, v))}]" for k, v in shapes.items()}
    library = "numpy" if name == "plain" else "torch"
    path = tmp_path / "exported.py"
    done = export(target, path, "--library", library, *args(**specs))
    assert done.exit_code == 0, done.output
    assert "verified" in done.output
    text = path.read_text()
    assert len(text.splitlines()) < 300
    assert "gradof" not in "\n".join(line for line in text.splitlines() if "import" in line)
    judge(path, random(*shapes.values()), wanted, name, outputs)


def test_running_sums_of_float32_are_functions_of_the_file(targets: str, tmp_path: Path) -> None:
    path = tmp_path / "running.py"
    done = export(f"{targets}:running", path, "--library", "numpy", *args(x="f32[4]"))
    assert done.exit_code == 0, done.output
    assert "verified" in done.output and "def cumsum" in path.read_text()


def test_cross_entropy_with_an_ignored_row(targets: str, tmp_path: Path) -> None:
    path = tmp_path / "ce.py"
    done = export(f"{targets}:cross_entropy", path)
    assert done.exit_code == 0, done.output
    assert len(path.read_text().splitlines()) < 300
    (logits,) = random((6, 9))
    judge(path, [logits, np.array([3, 0, 8, -100, 3, 1])], "0", "cross_entropy", 1)


def test_lines_of_the_users_are_comments(targets: str, tmp_path: Path) -> None:
    path = tmp_path / "rms.py"
    done = export(f"{targets}:rms_norm", path, *args(x="f64[4,8]", weight="f64[8]"))
    assert done.exit_code == 0, done.output
    lines = path.read_text().splitlines()
    user = "return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weight"
    assert lines.count(f"    # export_targets.py:7: {user}") == 2  # in f and in df
    assert "    t0 = np.multiply(x, x)" in lines


@pytest.mark.parametrize("shape", ["", "0", "3", "2,0,4"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_any_shape_of_a_pointwise_function(
    shape: str, dtype: str, targets: str, tmp_path: Path
) -> None:
    path = tmp_path / "gelu.py"
    done = export(f"{targets}:gelu", path, *args(x=f"{dtype}[{shape}]", b=f"{dtype}[{shape}]"))
    assert done.exit_code == 0, done.output
    assert "import math" in path.read_text()


def test_outputs_without_a_gradient_are_there_too(targets: str, tmp_path: Path) -> None:
    path = tmp_path / "constant.py"
    done = export(f"{targets}:constant", path, *args(x="f64[5]"))
    assert done.exit_code == 0, done.output
    space: dict[str, Any] = {}
    exec(path.read_text(), space)
    (x, g) = random((5,), (5,))
    (y, positive), (dx,) = space["value_and_gradients"]([x], [g, None])
    np.testing.assert_array_equal(y, np.abs(x))
    np.testing.assert_array_equal(positive, x > 0)
    np.testing.assert_array_equal(dx, g * np.sign(x))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("in_place", ["--library", "numpy", *args(x="f64[3]")], "in place"),
        ("branch", args(x="f64[3]"), "branches on values"),
        ("half", [], "numpy has no bf16"),
        ("recurrent", args(x="f32[5,2,3]", h="f32[1,2,4]", w="f32[4,3]", v="f32[4,4]", b="f32[4]"),
         "aten::rnn_tanh.input is torch's own"),
        ("digamma", args(x="f64[3]"), "cannot be exported"),
    ],
)
def test_what_no_file_can_hold_is_refused(
    name: str, options: list[str], message: str, targets: str, tmp_path: Path
) -> None:
    done = export(f"{targets}:{name}", tmp_path / "no.py", *options)
    assert done.exit_code == 2, done.output
    assert message in " ".join(done.output.split())
    assert not (tmp_path / "no.py").exists()


def test_a_file_is_written_over_only_when_asked(targets: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("mine")
    assert export(f"{targets}:gelu", path, *args(x="f64[3]", b="f64[3]")).exit_code == 2
    assert path.read_text() == "mine"
    done = export(f"{targets}:gelu", path, "--force", *args(x="f64[3]", b="f64[3]"))
    assert done.exit_code == 0, done.output
    assert path.read_text() != "mine"


def test_a_file_that_is_wrong_is_not_written(
    targets: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = exporting._module_text
    monkeypatch.setattr(
        exporting, "_module_text", lambda *a: right(*a).replace("np.multiply", "np.add")
    )
    done = export(f"{targets}:gelu", tmp_path / "no.py", *args(x="f64[3]", b="f64[3]"))
    assert done.exit_code == 2
    assert "is not the function's" in " ".join(done.output.split())
    assert not (tmp_path / "no.py").exists()
