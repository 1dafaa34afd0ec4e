"""softmax(Q K^T) V as the user wrote it, run as flash kernels in Triton's interpreter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.sample import all_and, only

pytest.importorskip("triton", reason="triton is not installed: pip install 'gradof[triton]'")


@pytest.fixture(scope="module", params=all_and(8))
def seen(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    environment = {
        **os.environ, "GRADOF_BACKEND": "triton", "TRITON_INTERPRET": "1",
        "TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("triton")), **only(request.param),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "tests.runtime.triton_attention"], env=environment,
        cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_every_case_runs_as_a_flash_kernel_and_saves_no_scores(seen: dict[str, Any]) -> None:
    assert len(seen["cases"]) == (15 if seen["settings"] else 4)
    for name, row in seen["cases"].items():
        (said,) = row["said"]
        assert said.endswith(": run as a flash kernel; second derivatives as primitives"), name
        assert "triton_attention.py:" in said, name
        assert "attention_forward(" not in row["source"]  # the launch; kernels are not in it
        assert "_attention(" in row["source"] and "matmul" not in row["source"], name
        assert row["saved"] <= 4 * (2 * 3 * 37 + 37 * 29), (name, row["saved"])


def test_values_and_gradients_are_right(seen: dict[str, Any]) -> None:
    for name, row in seen["cases"].items():
        if name.endswith("float32"):
            assert len(row["ours"]) == 7 and max(row["ours"] + row["value"]) < 5e-6, (name, row)
        else:
            # Probabilities are rounded before they meet V; where eager computes torch's own
            # attention in float32, that is one rounding more: half a unit in the last place each.
            unit = 2.0**-11 if name.endswith("float16") and "bfloat16" not in name else 2.0**-8
            pairs = zip(row["ours"], row["eager"], strict=True)
            assert all(ours < max(1.2 * eager, unit) for ours, eager in pairs), (name, row)


def test_other_ways_to_the_kernels(seen: dict[str, Any]) -> None:
    settings = seen["settings"]
    if not settings:
        pytest.skip("a sample has none of them: make long")
    # the value is returned turned, so it is saved beside the log of each row's sum
    assert settings.pop("heads saved") == 4 * 2 * 3 * 37 * (1 + 40)
    assert settings.pop("nan") == [True] * 4
    assert len(settings) == 13
    for name, errors in settings.items():
        assert errors and max(errors) < 5e-6, (name, errors)
