"""What notebooks show, in IPython's own shell."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gradof.testing import check
from gradof.testing.report import Report, Row

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def shell() -> Iterator[Any]:
    from IPython.core.interactiveshell import InteractiveShell

    shells: Any = InteractiveShell
    made = shells.instance()
    made.history_manager.enabled = False
    made.run_cell("import numpy as np\nx = np.ones((3, 2))\n%load_ext gradof").raise_error()
    yield made
    shells.clear_instance()


def shown(shell: Any, cell: str) -> tuple[str, str]:
    """What a notebook is given to show for a cell: HTML and plain text."""
    result = shell.run_cell(cell)
    result.raise_error()
    data, _ = shell.display_formatter.format(result.result)
    return data.get("text/html", ""), data["text/plain"]


CELL = "%%gradof {}\ndef loss(x, power=2):\n    h = np.tanh(x)\n    return np.sum(h ** power)\n"


def test_the_magic_shows_f_and_df_of_a_cell(shell: Any) -> None:
    html, _ = shown(shell, CELL.format("loss(x)"))
    assert "f and df of loss" in html and html.count("<pre") == 2
    assert "tanh" in html and "GradOf" in html
    html, text = shown(shell, CELL.format("loss(x, power=3) --explain"))
    assert "saved for the backward" in html and text.startswith("loss: ")
    html, _ = shown(shell, CELL.format("loss(x) --trace"))
    assert "graph loss" in html
    html, text = shown(shell, CELL.format("loss(x) --page"))
    assert html.startswith("<iframe srcdoc=") and "<Exploration of loss" in text


@pytest.mark.parametrize("line", ["", "loss", "loss(x) --nope", "loss(", "loss(x) --page --trace"])
def test_a_line_without_a_call_is_an_error(shell: Any, line: str) -> None:
    result = shell.run_cell(CELL.format(line))
    assert "cannot read %%gradof" in str(result.error_in_exec or result.error_before_exec)


def test_a_failing_cell_shows_its_own_error(shell: Any) -> None:
    result = shell.run_cell("%%gradof f(x)\nraise KeyError('mine')")
    assert isinstance(result.error_in_exec, KeyError)


def test_reports_have_html_and_text(shell: Any) -> None:
    import numpy as np

    report = check(lambda x: np.sum(np.tanh(x)), (np.ones(3),), per_op=True)
    data, _ = shell.display_formatter.format(report)
    assert "all right" in data["text/html"] and data["text/plain"] == str(report)
    assert "tanh" in data["text/html"] and "WRONG" not in data["text/html"]


def test_a_wrong_gradient_is_shown_as_wrong() -> None:
    report = Report("loss", [Row("gradient of x", "float64", 1.0, 1e-7, 1e-6, 2.0)], nodes=3)
    assert "WRONG" in report._repr_html_() and "gradient of x" in report._repr_html_()


def test_text_of_the_users_is_escaped() -> None:
    from gradof.ir.html import framed, table

    html = framed("<b>", table(("<i>",), [("<script>",)]))
    assert "<b>" not in html and "<i>" not in html and "<script>" not in html


def test_a_notebook_runs_and_shows_itself(shell: Any) -> None:
    """Cell by cell, as a kernel runs it: the example's own file."""
    cells = json.loads((ROOT / "examples" / "see_it.ipynb").read_text(encoding="utf-8"))["cells"]
    found = [
        shown(shell, "".join(cell["source"])) for cell in cells if cell["cell_type"] == "code"
    ]
    assert len(found) == 6
    for word, (html, text) in zip(
        ("GradOf", "saved for the backward", "graph loss", "all right", "<iframe"), found[1:],
        strict=True,
    ):  # fmt: skip
        assert word in html and text
