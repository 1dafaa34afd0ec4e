"""A sample of `make models`: architectures of different kinds, and the rules they are built by."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.models.page import figures, page

# A decoder with a cache, one with rotary positions and grouped heads, an encoder, both together,
# experts, images, two towers, sound.
# With a head, in training: words with dropout, labels of rows, of words and of pixels.
SAMPLE = (
    ("llama", "bert", "GPT2LMHeadModel", "SegformerForSemanticSegmentation"),
    ("mixtral", "clip", "BertForSequenceClassification", "T5ForTokenClassification"),
    ("gpt2", "t5", "vit", "whisper"),
)
ROOT = Path(__file__).parents[2]


@pytest.mark.cases(1)
@pytest.mark.parametrize("names", SAMPLE, ids="-".join)
def test_a_sample_is_equal_to_eager_with_our_own_backward(
    names: tuple[str, ...], tmp_path: Path
) -> None:
    out = tmp_path / "rows.jsonl"
    subprocess.run(
        [sys.executable, "-m", "tests.models.survey", "--out", str(out), *names],
        check=True, cwd=ROOT, stdout=subprocess.DEVNULL, timeout=500,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "GRADOF_CHECK": "0"},
    )  # fmt: skip
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["name"] for row in rows] == list(names)
    for row in rows:
        assert (row["status"], row["reason"]) == ("equal", "")
        assert row["traces"] == 1 and row["backward_runs"] == 5, row
        assert row["parameters"] > 10_000 and row["worst"] > 0


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
    text = page(rows, [equal, {"name": "e", "status": "noeager", "reason": "not built"}])
    assert "| c | wrong | x/y |" in text and "a (2)" in text and "| d | not built |" in text
    assert "| classes with a head | 2 |" in text and "with a head, 1: e." in text
