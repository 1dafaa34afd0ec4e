"""What the GPU benchmark makes of its figures, and the steps of `make gpu`."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest


def report_of(module: Any, **changes: Any) -> Any:
    made = module("gpu_report")
    row = made.Row(
        "softmax", "8x8", "bf16", products=False, judged=True, formulas={"forward": "x + y",
        "backward": "y + dy + dx"}, nbytes={"forward": 80, "backward": 120, "together": 200},
        device={"forward": {"gradof": 1.0, "eager": 4.0, "torch.compile": 2.0},
                "backward": {"gradof": 2.0, "eager": 2.0, "torch.compile": 1.0},
                "together": {"gradof": 3.0, "eager": 6.0, "torch.compile": 3.0}},
        host={w: {"gradof": 6.0, "eager": 1.0, "torch.compile": 1.0}
              for w in ("forward", "backward", "together")},
        first={"gradof": 1.0, "eager": 0.5, "torch.compile": 10.0},
        errors={"y": [1.0, 4.0], "dx": [3.0, 4.0]}, kernels={"forward": 1, "backward": 2},
    )  # fmt: skip
    environment = {"device": "Some GPU, sm_90", "driver": "1", "torch": "2", "gradof": "abc"}
    return made.Report(**{"environment": environment, "gpu": True, "copies": [90.0, 100.0],
                          "rows": [row], **changes})  # fmt: skip


def test_ratios_and_shares(module: Any) -> None:
    report = report_of(module)
    (row,) = report.rows
    assert row.ratio("forward") == 2.0 and row.ratio("backward", "eager") == 1.0
    assert row.ratio("together", waited=True) == 0.5  # gradof's host takes longer than its device
    assert report.copy == 100.0 and report.share(row, "forward") == 0.8
    summary = "\n".join(report.summary())
    assert "forward, device time: geometric mean of torch.compile / gradof 2.00" in summary
    assert "backward, device time: geometric mean of torch.compile / gradof 0.50" in summary
    assert "softmax: 0 of 2 reach 85% of a copy's bandwidth; least 60% (backward bf16" in summary
    assert "first gradient: geometric mean of gradof / torch.compile 0.10" in summary
    assert "a fifth or less: 1 of 1" in summary


def test_a_dry_run_claims_no_bandwidth(module: Any) -> None:
    report = report_of(module, gpu=False)
    assert report.summary()[0] == module("gpu_report").NO_GPU
    text = report.text()
    assert "reach 85%" not in text and "device time" not in text


def test_a_side_that_is_missing_is_a_dash_and_no_ratio(module: Any) -> None:
    report = report_of(module)
    (row,) = report.rows
    for seconds in (*row.device.values(), *row.host.values()):
        del seconds["torch.compile"]
    row.left_out["torch.compile"] = "it cannot"
    assert math.isnan(row.ratio("forward"))
    text = report.text()
    assert "left out: torch.compile: it cannot (softmax bf16 8x8)" in text
    assert "| softmax | bf16 | 8x8 | 1000.00 ms | 4000.00 ms | - | - | 4.00 | 8e-08 | 80% |" in text
    assert "torch.compile / gradof 2.00" not in text


def test_what_failed_is_told_and_has_no_figures(module: Any) -> None:
    report = report_of(module)
    (row,) = report.rows
    row.failed, row.device, row.host = ["dx is off"], {}, {}
    assert report.failures == ["softmax bf16 8x8: dx is off"]
    assert "FAILED: softmax bf16 8x8: dx is off" in report.text()
    assert "reach 85%" not in report.text()


def test_parts_are_written_read_and_made_one(module: Any, tmp_path: Path) -> None:
    made, whole = module("gpu_report"), report_of(module)
    first, timed = report_of(module), report_of(module)
    first.rows[0].device, first.rows[0].host, first.rows[0].errors = {}, {}, {}
    timed.rows[0].first = {}
    other = made.Row("rope", "2", "f32", False, False, {}, {})
    first.rows.append(other)
    first.write(tmp_path, "first")
    timed.write(tmp_path, "timed")
    parts = [made.Report.read(tmp_path / f"{name}.json") for name in ("first", "timed")]
    merged = made.Report.merged(parts)
    assert merged.rows == [whole.rows[0], other] and merged.copies == [90.0, 100.0] * 2
    json.loads((tmp_path / "timed.json").read_text())
    parts[1].environment["gradof"] = "def"
    with pytest.raises(SystemExit, match="these parts differ in gradof"):
        made.Report.merged(parts)


# --- the session ------------------------------------------------------------------------------


def test_the_steps_of_a_session(
    module: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    session, out = module("gpu_session"), Path("results")
    monkeypatch.setattr(session.shutil, "which", lambda name: f"/bin/{name}")
    found = {step.name: step for step in session.steps(out, workers=4)}
    assert tuple(found) == session.STEPS
    assert found["quick"].commands[0][1][2:] == ["--quick", "--out", "results/quick"]
    ((_, tests),) = found["tests"].commands
    assert tests[1:5] == ["-m", "pytest", "-m", "gpu"] and tests[tests.index("-n") + 1] == "4"
    assert "tests/benchmarks/test_gpu.py" in tests and "tests/ops/test_tables.py" not in tests
    # each workload is in one of the parts
    parts = {name: found[name].commands[0][1] for name in ("memory", "rest")}
    names = [w.name for w in module("gpu_workloads").selected("")]
    chosen = [
        w.name for part in parts.values()
        for w in module("gpu_workloads").selected(part[part.index("--only") + 1])
    ]  # fmt: skip
    assert sorted(chosen) == sorted(names)
    (memcheck, command), _ = found["sanitizer"].commands
    assert memcheck == "memcheck" and command[:3] == ["/bin/compute-sanitizer", "--tool", memcheck]
    assert found["sanitizer"].environment == {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    monkeypatch.setattr(session.shutil, "which", lambda name: None)
    assert not session.do(session.steps(out, workers=1)[-1], out)
    assert "compute-sanitizer is not installed" in capsys.readouterr().out


def test_a_session_goes_on_where_it_was(
    module: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    session = module("gpu_session")
    step = session.Step("quick", (("quick", [sys.executable, "-c", "raise SystemExit(2)"]),))
    monkeypatch.setattr(session, "commit", lambda: "abc")
    assert session.done(step, tmp_path) is None
    assert session.do(step, tmp_path) == session.done(step, tmp_path) == {"quick": 2}
    monkeypatch.setattr(session, "commit", lambda: "def")
    assert session.done(step, tmp_path) is None


def test_what_a_step_prints_is_kept_and_its_code_told(
    module: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, "-c", "print('hello'); raise SystemExit(3)"]
    assert module("gpu_session").run("step", command, {}, tmp_path) == 3
    log = (tmp_path / "step.txt").read_text()
    assert log.startswith("hello\n") and "== step: exit code 3" in log
    assert "hello" in capsys.readouterr().out
