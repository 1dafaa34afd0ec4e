"""`gradof export --backend triton`: files that are right, readable and whole without gradof."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gradof.cli.export import derive
from gradof.cli.export_triton import export_triton, triton_module
from gradof.cli.main import main
from gradof.codegen.export.triton import IMPORTS, write_module
from gradof.codegen.triton.interpreter import COUNT_BY_TENSORS
from gradof.errors import TargetError

pytest.importorskip("triton", reason="triton is not installed: pip install 'gradof[triton]'")
torch = pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
TARGETS = """
import numpy as np
import torch
import torch.nn.functional as F

BIAS = torch.ones(3)

def rms_norm(x, weight):
    mean = (x * x).mean(-1, keepdim=True)
    return x * torch.rsqrt(mean + 1e-6) * weight

def cross_entropy(logits, target):
    return F.cross_entropy(logits, target)

def cross_entropy_example_inputs():
    g = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 9, generator=g, dtype=torch.float64, requires_grad=True)
    return logits, torch.tensor([3, 0, 8, -100, 3, 1])

def several(x, unused, w):
    grid = x.permute(1, 0) @ w
    tl = torch.atan2(grid, grid * grid + 1.0)
    return {"y": grid.reshape(-1).exp() * 0.1, "n": 3, "rest": [tl, (x > 0, x.amax(0))], "w": w}

def shared(x):
    return x.T, x * 1.0, x

def settings(p, *more, power=2.0, label="a", **named):
    return p["x"][0].sin() ** power * more[0] + named["z"]

def normal(x):
    centered = x - x.mean()
    return centered / (centered * centered).mean().sqrt()

def closes_over(x):
    return x * BIAS

def branch(x):
    return x.sum() if x.sum() > 0 else -x.sum()

def in_place(x, w):
    return (x.mul_(2.0) * w).sum()

def in_place_example_inputs():
    return torch.ones(3), torch.ones(3, requires_grad=True)

def constant(x):
    return torch.ones(3)

def odd(x):
    return torch.linalg.eigvals(x).abs() + torch.frexp(x).mantissa

def check_tensor(x):
    return x * 2.0

def plain(x):
    return np.sum(np.tanh(x))

def logged(x):
    return x * x, {"largest": x.amax().item(), "n": 3}

HISTORY = []

def storing(x):
    HISTORY.append(x.sum().item())
    return x * x
"""
# A process in which gradof cannot be imported: gradcheck, and the original where it is given.
JUDGE = """
import importlib.util, json, sys
import torch

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("gradof", "scipy"):
            raise ImportError(name)

sys.meta_path.insert(0, Refuse())

def load(path):
    spec = importlib.util.spec_from_file_location("loaded", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

def leaves(tree):
    if isinstance(tree, dict):
        tree = list(tree.values())
    return [t for part in tree for t in leaves(part)] if isinstance(tree, (tuple, list)) else [tree]

path, name, original, shapes = sys.argv[1:]
torch.manual_seed(1)
args = []
for shape in json.loads(shapes):
    if isinstance(shape[-1], str):
        args.append(torch.tensor(json.loads(shape[-1])))
    else:  # as every other element of a transposed tensor
        wide = torch.randn(*shape[:0:-1], 2 * shape[0], dtype=torch.float64)
        args.append(wide.permute(*range(len(shape))[::-1])[::2].requires_grad_())
        assert args[-1].shape == tuple(shape) and (len(shape) < 2 or not args[-1].is_contiguous())
ours = getattr(load(path), name)

def floats(*args):
    return tuple(t for t in leaves(ours(*args)) if torch.is_tensor(t) and t.requires_grad)

def gradients(results):
    heads = [t.sum() for t in results if torch.is_tensor(t) and t.requires_grad]
    return torch.autograd.grad(sum(heads), [t for t in args if t.requires_grad], allow_unused=True)

if original:
    found, wanted = (leaves(f(*args)) for f in (ours, getattr(load(original), name)))
    assert len(found) == len(wanted)
    for mine, theirs in zip(found, wanted):
        assert type(mine) is type(theirs)
        if torch.is_tensor(mine):
            assert mine.requires_grad == theirs.requires_grad
            torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)
        else:
            assert mine == theirs
    for mine, theirs in zip(gradients(found), gradients(wanted)):
        assert (mine is None) == (theirs is None)
assert torch.autograd.gradcheck(floats, args)
assert "gradof" not in sys.modules
"""


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("targets") / "triton_targets.py"
    path.write_text(TARGETS)
    return str(path)


def export(target: str, path: Path, *options: str) -> Result:
    return CliRunner().invoke(
        main, ["export", target, "--backend", "triton", "-o", str(path), *options]
    )


def args(**shapes: tuple[int, ...]) -> list[str]:
    specs = (f"{name}=f64[{','.join(map(str, shape))}]" for name, shape in shapes.items())
    return [part for spec in specs for part in ("--arg", spec)]


def judge(path: Path, name: str, original: str, shapes: list[Any]) -> None:
    """gradcheck in Triton's interpreter, on arguments that are not contiguous."""
    program = COUNT_BY_TENSORS + JUDGE
    done = subprocess.run(
        [sys.executable, "-c", program, str(path), name, original, json.dumps(shapes)],
        env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True,
        cwd=path.parent, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def load(path: Path) -> Any:
    """The file in this process; what its kernels compute is not asked for."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MLP = {"x": (5, 2), "w1": (2, 7), "b1": (7,), "w2": (7, 3), "b2": (3,), "y": (5, 3)}


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        pytest.param("rms_norm", {"x": (5, 8), "weight": (8,)}, marks=pytest.mark.long),
        pytest.param("examples/mlp.py:loss", MLP, marks=pytest.mark.long),
        pytest.param(
            "several", {"x": (4, 3), "unused": (2,), "w": (4, 2)}, marks=pytest.mark.long
        ),
        ("shared", {"x": (3, 2)}),
        pytest.param("logged", {"x": (4, 3)}, marks=pytest.mark.long),
    ],
)
def test_an_exported_file_passes_gradcheck_without_gradof(
    name: str, shapes: dict[str, tuple[int, ...]], targets: str, tmp_path: Path
) -> None:
    example = ":" in name  # it imports gradof itself
    path = tmp_path / "exported.py"
    done = export(str(ROOT / name) if example else f"{targets}:{name}", path, *args(**shapes))
    assert done.exit_code == 0, done.output
    assert "verified" in done.output
    readable(path.read_text(), 400 if name == "several" else 300)
    judge(path, name.rpartition(":")[2], "" if example else targets, list(shapes.values()))


@pytest.mark.long
def test_cross_entropy_with_an_ignored_row(targets: str, tmp_path: Path) -> None:
    path = tmp_path / "ce.py"
    done = export(f"{targets}:cross_entropy", path)
    assert done.exit_code == 0, done.output
    readable(path.read_text())
    judge(path, "cross_entropy", targets, [(6, 9), ["[8, 0, 5, 3, -100, 1]"]])


def readable(text: str, limit: int = 300) -> None:
    """Few lines that fit on a screen, and nothing imported but torch and triton."""
    lines = text.splitlines()
    assert len(lines) < limit
    assert max(map(len, lines)) <= 100
    assert [line for line in lines if line.lstrip().startswith(("import ", "from "))] == [
        "import torch", "import triton", "import triton.language as tl",
        "from torch.autograd.function import once_differentiable",
    ]  # fmt: skip


@pytest.mark.parametrize("rows", [(), pytest.param((3,), marks=pytest.mark.long)])
def test_a_row_too_long_for_one_block(rows: tuple[int, ...], targets: str, tmp_path: Path) -> None:
    path = tmp_path / "normal.py"
    done = export(f"{targets}:normal", path, *args(x=(*rows, 20000)))
    assert done.exit_code == 0, done.output
    readable(path.read_text())


def test_a_file_has_the_users_names_and_lines(targets: str, tmp_path: Path) -> None:
    path = tmp_path / "rms.py"
    done = export(f"{targets}:rms_norm", path, *args(x=(5, 8), weight=(8,)))
    assert done.exit_code == 0, done.output
    text = path.read_text()
    for line in (
        "    # triton_targets.py:9: mean = (x * x).mean(-1, keepdim=True)",
        "    mean = tl.sum(tl.where(cell, x * x, 0), axis=1, keep_dims=True) / 8.0",
        "    # triton_targets.py:10: return x * torch.rsqrt(mean + 1e-6) * weight",
        "class RmsNorm(torch.autograd.Function):",
        "    def forward(ctx, x, weight):",
        "    def backward(ctx, dresult):",
        "        return dx, dweight",
        "def rms_norm(x, weight):",
    ):
        assert line in text.splitlines(), line


def test_file(targets: str, golden: Callable[..., None]) -> None:
    fn = load(Path(targets)).rms_norm
    given = (torch.ones(5, 8, requires_grad=True), torch.ones(8, requires_grad=True))
    name, text = triton_module(derive(fn, given, {}), given, {})
    assert name == "rms_norm"
    golden(text)


def test_other_tensors_are_refused(targets: str, tmp_path: Path) -> None:
    path = tmp_path / "rms.py"
    done = export(f"{targets}:rms_norm", path, *args(x=(5, 8)), "--arg", "weight=f32[8]")
    assert done.exit_code == 0, done.output
    fn = load(path).rms_norm
    x, weight = torch.ones(5, 8, dtype=torch.float64), torch.ones(8)
    with pytest.raises(ValueError, match=r"x is torch.float64 \(4, 8\), not .* \(5, 8\)"):
        fn(x[:4], weight)
    with pytest.raises(ValueError, match=r"x is torch.float32 \(5, 8\), not torch.float64"):
        fn(x.float(), weight)
    with pytest.raises(ValueError, match="weight is a float, not a tensor"):
        fn(x, 2.0)
    with pytest.raises(TypeError, match="weight"):
        fn(x)


def test_other_python_values_are_refused(targets: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.py"
    fn = load(Path(targets)).settings
    x, z = (torch.randn(3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    path.write_text(export_triton(fn, ({"x": [x]}, z, 7), {"power": 3.0, "z": z}))
    ours = load(path).settings
    given: tuple[Any, ...] = ({"x": [x]}, z, 7)
    for other, named, message in (
        (given, {"z": z}, "power is 2.0; the kernels were made for 3.0"),
        (given, {"z": z, "power": 3}, "power is 3; the kernels were made for 3.0"),
        ((*given, 8), {"z": z, "power": 3.0}, r"len\(more\) is 3; .* made for 2"),
        ((*given[:2], 8), {"z": z, "power": 3.0}, r"more\[1\] is 8; .* made for 7"),
        (({"x": [x, x]}, z, 7), {"z": z, "power": 3.0}, r"len\(p\['x'\]\) is 2; .* for 1"),
        (given, {"z": z, "power": 3.0, "label": "b"}, "label is 'b'; .* for 'a'"),
    ):
        with pytest.raises(ValueError, match=message):
            ours(*other, **named)


def test_a_gradient_that_is_not_in_the_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "loss.py"
    done = export(f"{ROOT}/examples/mlp.py:loss", path)
    assert done.exit_code == 0, done.output
    mlp = load(ROOT / "examples" / "mlp.py").example_inputs()
    with pytest.raises(ValueError, match=r"no gradient of x is here: pass x.detach\(\)"):
        load(path).loss(mlp[0].requires_grad_(), *mlp[1:])


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("plain", ["--library", "numpy", *args(x=(3,))], "the arguments are numpy arrays"),
        ("closes_over", args(x=(3,)), "reads tensors that are no arguments: global 'BIAS'"),
        ("branch", args(x=(3,)), "branches on values"),
        ("in_place", [], "in place"),
        ("storing", args(x=(3,)), "writes to Python state"),
        ("constant", args(x=(3,)), "there is no gradient"),
        ("check_tensor", args(x=(3,)), "something else called check_tensor"),
        ("odd", args(x=(3, 3)), "has no torch form"),
    ],
)
def test_what_no_file_can_hold_is_refused(
    name: str, options: list[str], message: str, targets: str, tmp_path: Path
) -> None:
    done = export(f"{targets}:{name}", tmp_path / "no.py", *options)
    assert done.exit_code == 2, done.output
    assert message in " ".join(done.output.split())
    assert not (tmp_path / "no.py").exists()


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        pytest.param(  # a kernel of f
            "1.0 / tl.sqrt", "1.0001 / tl.sqrt", "in output 0", marks=pytest.mark.long
        ),
        ("* -0.125", "* -0.1251", "in gradient of args[0]"),  # of df
        pytest.param(  # what joins them
            "return dx, dweight", "return dx, None", "in gradient of args[1]",
            marks=pytest.mark.long,
        ),
        ("import triton\n", "import triton, gradof\n", "an exported file imports gradof"),
    ],
)
def test_a_file_that_is_wrong_is_not_written(
    right: str, wrong: str, message: str, targets: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    place = "gradof.cli.export_triton."

    def planted(*given: Any) -> Any:
        module = write_module(*given)
        assert (right in module.source) != (right in IMPORTS)
        return replace(module, source=module.source.replace(right, wrong))

    monkeypatch.setattr(f"{place}write_module", planted)
    monkeypatch.setattr(f"{place}IMPORTS", IMPORTS.replace(right, wrong))
    done = export(f"{targets}:rms_norm", tmp_path / "no.py", *args(x=(5, 8), weight=(8,)))
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())
    assert not (tmp_path / "no.py").exists()


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["rms_norm", "several"])
def test_a_file_runs_on_a_device(name: str, targets: str, tmp_path: Path) -> None:
    shapes = {"rms_norm": [(5, 8), (8,)], "several": [(4, 3), (2,), (4, 2)]}[name]
    given = tuple(torch.randn(s, dtype=torch.float64).requires_grad_() for s in shapes)
    original = getattr(load(Path(targets)), name)
    path = tmp_path / "exported.py"
    path.write_text(export_triton(original, given, {}))
    there = tuple(t.detach().cuda().requires_grad_() for t in given)
    results = []
    for fn in (getattr(load(path), name), original):
        found = fn(*there)
        tensors = [found] if torch.is_tensor(found) else [found["y"], *found["rest"][:1]]
        results.append([*tensors, *torch.autograd.grad(
            sum(t.sum() for t in tensors), there, allow_unused=True)])  # fmt: skip
    for mine, theirs in zip(*results, strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10)
    with pytest.raises(TargetError, match="arguments are on a device"):
        export_triton(original, there, {})
