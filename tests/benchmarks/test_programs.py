"""The benchmark of whole programs: its list, a row, and what the tables say of rows."""

from __future__ import annotations

import warnings
from typing import Any

import pytest


@pytest.fixture
def programs(module: Any) -> Any:
    return module("programs")


def _row(name: str, eager: float, gradof: float, runs: str = "ours") -> dict[str, Any]:
    times = {"eager": eager, "gradof": gradof}
    return {
        "name": name, "train": times, "infer": dict(times), "memory": {"eager": 4e6, "gradof": 2e6},
        "first": 0.5, "equal": 0.0, "backward_runs": 3, "train_runs": runs, "infer_runs": "ours",
    }  # fmt: skip


@pytest.mark.long  # it imports all of transformers
def test_the_list_follows_its_rule(programs: Any) -> None:
    names = programs.listed()
    assert len(names) == len(set(names)) > 150
    networks = [n for n in names if ", " not in n]
    assert "resnet" in networks and sum(n.startswith("transformers ") for n in networks) > 20
    further = programs.listed(further=True)
    assert len(further) == 10 and not set(further) & set(names)


@pytest.mark.parametrize("name", ["Linear, 4096", "BatchNorm2d, 4096"])
def test_a_row_has_eagers_gradients_and_both_times(programs: Any, name: str) -> None:
    row = programs.measure(name, seconds=0.0)
    assert row["equal"] < 2e-3 and row["backward_runs"] > 0
    assert row["train_runs"] == row["infer_runs"] == "ours"  # nothing is tried here
    for what in ("train", "infer"):
        assert row[what]["eager"] > 0 and row[what]["gradof"] > 0


def test_a_program_begins_without_what_others_kept(
    programs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though its parent has looked for its own cache, as it does when it warms up."""
    from gradof.codegen.machine.object_cache import object_cache

    mine = object_cache()
    monkeypatch.setattr(
        programs, "measure", lambda name, seconds: {"other": object_cache() is not mine}
    )
    assert list(programs.run(["Linear, 4096"], 0.0)) == [{"other": True}]
    assert object_cache() is mine


def test_a_wrong_gradient_is_seen(programs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    import gradof

    right = gradof.differentiate
    class Wrong(torch.nn.Module):
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Any) -> Any:
            return self.inner(x) * 1.01

    monkeypatch.setattr(gradof, "differentiate", lambda model: right(Wrong(model)))
    assert programs.measure("Linear, 4096", seconds=0.0)["equal"] > 2e-3


def test_every_layer_can_be_made(module: Any) -> None:
    layers = module("program_layers")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch's, of a default of KLDivLoss
        for name in layers.layer_names():
            layer, inputs = layers.make_layer(f"{name}, 4096")
            assert inputs, name
            layer(*inputs.values())


def test_the_tables_put_the_slowest_first_and_say_whose_code_runs(
    module: Any, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    made = module("program_report").Report()
    for row in (_row("fast", 0.02, 0.01), _row("slow", 0.02, 0.04, "eager"), _row("LSTM, 9", 1, 1),
                {"name": "odd", "left_out": "not run"}):  # fmt: skip
        made.add(row)
    page = tmp_path / "page.md"
    page.write_text("before <!-- programs: begin -->old<!-- programs: end --> after")
    made.write(page)
    text = page.read_text()
    assert text.startswith("before") and text.endswith("after") and "old" not in text
    assert text.index("| slow |") < text.index("| fast |") and "| eager, ours |" in text
    assert "geometric mean of eager / gradof 1.00 of 2" in text and "least 0.50, 1 below" in text
    assert "1 run as they are" in text and "left out: odd: not run" in text
    assert "slow" in capsys.readouterr().out
