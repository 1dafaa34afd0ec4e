"""The golden fixture: it compares, it shows the difference, it writes only when told to."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

CONFTEST = Path(__file__).parents[1] / "conftest.py"


def run(pytester: pytest.Pytester, text: str, *flags: str) -> pytest.RunResult:
    pytester.makeconftest(CONFTEST.read_text(encoding="utf-8"))
    pytester.makepyfile(test_it=f"def test_prints(golden):\n    golden({text!r})\n")
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", "--import-mode=importlib", *flags)


def test_golden_is_written_compared_and_shown_when_it_differs(pytester: pytest.Pytester) -> None:
    stored = pytester.path / "goldens" / "test_it" / "test_prints.txt"

    run(pytester, "a\nb").assert_outcomes(failed=1)
    assert not stored.exists()

    run(pytester, "a\nb", "--update-golden").assert_outcomes(passed=1)
    assert stored.read_text(encoding="utf-8") == "a\nb\n"
    run(pytester, "a\nb").assert_outcomes(passed=1)

    result = run(pytester, "a\nc")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*-b", "*+c", "*--update-golden*"])
    assert stored.read_text(encoding="utf-8") == "a\nb\n"
