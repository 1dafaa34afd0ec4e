"""What the documentation shows, runs: each page's Python blocks in order, as a reader would.

Every ```python block runs; in docs/ they are marked ```python run, so that none is left out. A page
runs in a process of its own, in an empty folder, with warnings as errors.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python(?P<flag>[^\n]*)\n(?P<code>.*?)^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def script(page: Path) -> str:
    """The page's blocks as one script whose line numbers are those of the page; '' for none."""
    text = page.read_text(encoding="utf-8")
    lines = [""] * (text.count("\n") + 1)
    for block in BLOCK.finditer(text):
        flag = block["flag"].strip()
        assert flag == "run" or page.name == "README.md", f"{page.name}: a block that is not run"
        first = text.count("\n", 0, block.start("code"))
        code = block["code"].splitlines()
        lines[first : first + len(code)] = code
    return "\n".join(lines) if any(lines) else ""


DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [page for page in (ROOT / "README.md", *DOCS) if script(page)]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def test_readme_shows_code() -> None:
    assert script(ROOT / "README.md"), "README.md has no ```python block"


@pytest.mark.cases(8)
@pytest.mark.parametrize("page", PAGES, ids=name)
def test_page_runs(page: Path, tmp_path: Path) -> None:
    file = tmp_path / f"{page.stem}.py"
    file.write_text(script(page), encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-W", "error", str(file)],
        cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert run.returncode == 0, f"{page.name} (line numbers are the page's)\n{run.stderr}"


@pytest.mark.parametrize("page", [*sorted(ROOT.glob("*.md")), *DOCS], ids=name)
def test_links_within_the_project_lead_somewhere(page: Path) -> None:
    text = CODE.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
