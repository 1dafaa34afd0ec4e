"""What everybody gets, whether they look at pages or not, stays small: the wheel and the import."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
DATA_BYTES = 200_000  # of the files that are no Python: the page's styles, scripts and licences
MODULES = 3  # of gradof, that `import gradof` loads; it loads the others when one is used
STANDARD = {"numpy", "sympy", "click", "rich", "networkx"}


def test_the_data_of_the_package_is_small() -> None:
    """3 MB were allowed for the page."""
    patterns = PROJECT["tool"]["setuptools"]["package-data"]
    files = [file for pattern in patterns["gradof"] for file in (ROOT / "gradof").glob(pattern)]
    assert patterns.keys() == {"gradof"} and any(file.name == "vendor.js" for file in files)
    assert sum(file.stat().st_size for file in files) < DATA_BYTES


def test_an_import_loads_few_modules() -> None:
    code = "import sys, json; import gradof; print(json.dumps([*sys.modules]))"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    ours = [name for name in json.loads(run.stdout) if name.split(".")[0] == "gradof"]
    assert len(ours) <= MODULES, ours


def test_numpy_users_need_nothing_new() -> None:
    """Neither to use it nor to write a page: what is vendored is in the package."""
    assert {d.split(">")[0] for d in PROJECT["project"]["dependencies"]} == STANDARD
    code = (
        "import sys, numpy as np, gradof\n"
        "page = gradof.differentiate(lambda x: np.sum(np.tanh(x))).explore(np.ones(3))\n"
        "assert len(page.html) > 100_000\n"
        "print(sorted(sys.modules.keys() & {'torch', 'onnx', 'scipy', 'IPython', 'mkdocs'}))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"
