"""The rules of `make packages`, and what its comparison sees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.packages.build import arguments, built
from tests.packages.compare import compare, differences
from tests.packages.inputs import candidates, make
from tests.packages.run import Run
from tests.packages.survey import chosen, objects, summary

Tensor = torch.Tensor


class Block(torch.nn.Module):
    def __init__(self, dim: int, num_heads: int, act: torch.nn.Module) -> None:
        super().__init__()
        self.heads, self.act = num_heads, act
        self.layer = torch.nn.Linear(dim, dim * num_heads)
        self.norm = torch.nn.BatchNorm1d(dim * num_heads)
        self.calls = 0

    def forward(self, x: Tensor, scale: float) -> dict[str, Tensor]:
        self.calls += 1
        return {"y": self.act(self.norm(self.layer(x))) * scale}


def test_an_object_is_built_called_and_compared_by_rule() -> None:
    made = arguments(Block, 4)
    assert made is not None and (made["dim"], made["num_heads"]) == (8, 2)
    outcome = compare("block", Block)
    assert (outcome.status, outcome.reason) == ("equal", ""), outcome
    assert outcome.inputs["x"] == ["float", [2, 8]] and outcome.backward_runs and outcome.eager
    assert not outcome.warned


def test_what_cannot_be_traced_and_what_eager_refuses() -> None:
    def talks(x: Tensor) -> Tensor:
        print(x.shape)
        return x.exp()

    def counts(x: Tensor) -> Tensor:
        return (x > 0).sum()

    outcome = compare("talks", talks)
    assert outcome.status == "fallback" and "print is called" in outcome.reason
    assert compare("counts", counts).status == "noeager"


@pytest.mark.parametrize(("change", "told"), [
    ({"values": {"y": torch.ones(2) * 1.01}}, "values y is off"),
    ({"gradients": {"input x": None}}, "gradients input x is None"),
    ({"state": {"n": 2}}, "state n is 2, eager's 1"),
    ({"flags": {"random": 1}}, "random is 1, eager's 0"),
    ({"error": ValueError("no")}, "our error ValueError: no"),
])  # fmt: skip
def test_differences_are_told(change: dict[str, Any], told: str) -> None:
    def run(**more: Any) -> Run:
        ones = torch.ones(2)
        given: dict[str, Any] = {
            "values": {"y": ones}, "gradients": {"input x": ones}, "state": {"n": 1},
            "flags": {"random": 0}, **more,
        }  # fmt: skip
        return Run(**given)

    assert not list(differences(run(), run()))
    assert any(told in text for text in differences(run(), run(**change)))


def test_inputs_differ_by_number_alone() -> None:
    recipe = next(candidates(lambda x, target: (x - target).sum()))
    first, again, other = (make(recipe, seed, grad=True) for seed in (0, 0, 1))
    assert torch.equal(first["x"], again["x"]) and not torch.equal(first["x"], other["x"])
    assert next(built(torch.nn.Flatten)) is not None


def test_objects_of_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "surveyed_one.py").write_text(
        "import torch\nclass M(torch.nn.Module): pass\n"
        "def f(x): return x\ndef g(n: int): return n\n"
    )
    (tmp_path / "surveyed_two.py").write_text("import no_such_library\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert [name for name, _ in objects(tmp_path)] == ["surveyed_one:M", "surveyed_one:f"]


def test_the_list_and_the_summary() -> None:
    packages, needs = chosen()
    assert len(packages) >= 50 and len(needs) >= 40
    assert not any(line.startswith(("torch==", "numpy==")) for line in (*packages, *needs))
    rows: list[dict[str, Any]] = [
        {"name": "a x:F", "status": "equal", "reason": "", "eager": 1e-4, "ours": 2e-4,
         "first": 0.2},
        {"name": "a x:G", "status": "noeager", "reason": ""},
        {"name": "b y:H", "status": "wrong", "reason": "off", "first": 1.3},
    ]
    first, *others = summary(rows)
    assert first.startswith("2 of 3 objects run by eager, of 2 packages: 1 equal, 1 wrong")
    assert others == [
        "a x:F equal: 2.00 of eager's 100 us", "b y:H wrong: off",
        "b y:H: first gradient 1.3 s", "a x:F: first gradient 0.2 s",
    ]  # fmt: skip
