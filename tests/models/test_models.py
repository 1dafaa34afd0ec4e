"""The page that `make models` writes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.models.page import figures, page


def test_the_page_counts_what_failed() -> None:
    equal: dict[str, Any] = {
        "name": "a", "status": "equal", "reason": "", "traces": 2, "first": 0.5, "first_cpu": 0.4,
        "hot": 1.0, "eager": 2.0, "parameters": 5,
    }  # fmt: skip
    rows: list[dict[str, Any]] = [
        equal, {**equal, "name": "b", "traces": 1},
        {"name": "c", "status": "wrong", "reason": "x|y"},
        {"name": "d", "status": "noeager", "reason": "not built"},
    ]
    found = figures(rows)
    assert (found["known"], found["ran"], found["equal"], found["wrong"]) == (4, 3, 2, 1)
    assert found["once"] == 50 and found["passed"] == pytest.approx(200 / 3)
    text = page(rows)
    assert "| c | wrong | x/y |" in text and "a (2)" in text and "| d | not built |" in text
