"""Every test that docs/semantics.md names exists, and every row names one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "semantics.md").read_text(encoding="utf-8")
ROWS = [r for r in PAGE.splitlines() if r.startswith("| ") and "what gradof does" not in r]


@pytest.mark.cases(1000)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:40])
def test_the_tests_of_a_row_exist(row: str) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row)
    assert named, "a behaviour without a test"
    for file, test in named:
        source = (ROOT / file).read_text(encoding="utf-8")
        assert re.search(rf"^def {test}\(", source, re.MULTILINE), f"{file} has no {test}"


def test_the_page_has_rows() -> None:
    assert len(ROWS) > 30
