"""The page's data: complete, linked both ways, and the numbers of `explain`."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from gradof import differentiate
from gradof.cli.main import main
from gradof.ir.printer import print_graph
from gradof.runtime.explore import traces
from gradof.runtime.explore.page import Exploration
from tests.explore import programs

KEYS = {
    "schema", "version", "name", "library", "backend", "inputs", "forward", "backward", "kernels",
    "views", "nodes", "passes", "ledger", "time", "traces", "calls", "findings", "audit", "lines",
}  # fmt: skip
# What no node stands behind: heads, results, documentation.
BARE = re.compile(r'^\s*(graph |return|nest |def |.*"""|block|->|Reverse|in \d|out \d|#|'
                  "import |from |$|body|end)")  # fmt: skip
CONSTANT = re.compile(r"= (Constant|cast\[dtype=\w+\] [\d.-]+ |full)")


@pytest.fixture(scope="module")
def page() -> Exploration:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADOF_BACKEND", "auto")
        compiled = differentiate(programs.layer_norm)
        found: Exploration = compiled.explore(*programs.layer_norm_example_inputs())
        return found


def lines_of(data: dict[str, Any], id_: str) -> list[tuple[str, list[int]]]:
    """Text and origins of the lines of a view."""
    (view,) = (v for v in data["views"] if v["id"] == id_)
    return [tuple(data["lines"][k][:2]) for k in view["lines"]]


def said(data: dict[str, Any], id_: str) -> str:
    """A view as it is printed, with the user's lines."""
    (view,) = (v for v in data["views"] if v["id"] == id_)
    made = []
    for k in view["lines"]:
        text, origins, printed = data["lines"][k]
        made.append(f"{text}  # {data['nodes'][origins[0]]['loc']}" if printed else text)
    return "\n".join(made) + "\n"


def test_the_model_is_complete_and_the_page_has_it(page: Exploration) -> None:
    assert page.data.keys() == KEYS
    packed = re.search(r'id="model">([^<]*)</script>', page.html)
    assert packed is not None
    assert json.loads(gzip.decompress(base64.b64decode(packed[1]))) == page.data
    ids = [view["id"] for view in page.data["views"]]
    assert ids[:7] == ["source", "trace", "reverse", "f", "df", "loops", "code"]
    assert ids[-1] == "triton"


def test_the_page_needs_nothing_from_outside(page: Exploration) -> None:
    assert not re.search(r"https?://|\ssrc=|href=|url\(|@import|fetch\(|XMLHttp", page.html)
    assert len(page.html) < 400_000
    assert "{{" not in page.html.replace("${{", "")


def test_the_views_are_what_show_prints(page: Exploration) -> None:
    gradient = differentiate(programs.layer_norm).gradient(*programs.layer_norm_example_inputs())
    assert said(page.data, "f") == print_graph(gradient.f)
    assert said(page.data, "df") == print_graph(gradient.df)


@pytest.mark.parametrize("id_", ["trace", "reverse", "f", "df", "loops", "code"])
def test_each_line_says_where_it_comes_from(page: Exploration, id_: str) -> None:
    bare = [text for text, origins in lines_of(page.data, id_)
            if not origins and not BARE.match(text) and not CONSTANT.search(text)]  # fmt: skip
    assert not bare, "\n".join(bare)


def test_links_lead_there_and_back(page: Exploration) -> None:
    """From each of the user's lines to every view, and from each line of a view to the user's."""
    data = page.data
    source = lines_of(data, "source")
    mine = {n for _, origins in source for n in origins}
    assert mine == set(range(len(data["nodes"])))
    at = {n: text for text, origins in source for n in origins}
    (root,) = (n for n, node in enumerate(data["nodes"]) if node["op"] == "rsqrt")
    assert "torch.rsqrt(variance + 1e-5)" in at[root]
    for id_ in ("trace", "reverse", "f", "df", "loops", "code", "triton"):
        assert any(root in origins for _, origins in lines_of(data, id_)), id_
    every = [set(origins) for view in data["views"] for k in view["lines"]
             for origins in [data["lines"][k][1]]]  # fmt: skip
    assert set().union(*every) <= mine
    kernels = data["kernels"]
    assert not kernels or any(root in k["origins"] for k in kernels)


def test_passes_are_steps_with_their_changes(page: Exploration) -> None:
    passes = page.data["passes"]
    names = [step["name"] for step in passes if step["part"] == "reverse"]
    assert names[0] == "trace" and "reverse" in names and "choose-captures" in names
    assert {"f", "df"} <= {step["part"] for step in passes}
    at = next(k for k, step in enumerate(passes) if step["name"] == "reverse")
    made = passes[at]
    assert made["added"] > 10 and made["about"]
    last = [step["lines"] for step in passes[:at] if step["lines"]][-1]
    before = [page.data["lines"][k][0] for k in last]
    after = [page.data["lines"][k][0] for k in made["lines"]]
    # what stays has its name still, so that a diff shows what has changed
    assert after[: len(before) - 1] == before[:-1]


def test_the_ledger_has_the_numbers_of_explain(page: Exploration) -> None:
    inputs = programs.layer_norm_example_inputs()
    ledger = page.data["ledger"]
    assert ledger["budgets"][ledger["current"]]["budget"] is None
    for row in ledger["budgets"][::5]:
        told = differentiate(programs.layer_norm, memory_budget=row["budget"]).explain(*inputs)
        values = [ledger["values"][k] for k in row["saved"]]
        assert row["bytes"] == sum(s.nbytes for s in told.saved)
        assert row["beyond"] == told.saved_bytes
        assert [(v["name"], v["bytes"], v["why"], v["loc"]) for v in values] == [
            (s.name, s.nbytes, s.why, s.loc) for s in told.saved
        ]  # fmt: skip


def test_what_two_lines_share_comes_from_both() -> None:
    def twice(x: Any) -> Any:
        a = np.exp(x)
        b = np.exp(x)
        return np.sum(a * b)

    data = differentiate(twice).explore(np.ones(3)).data
    f = [origins for text, origins in lines_of(data, "f") if "= exp(" in text]
    assert f == [[0, 1]]
    exps = [text for text, origins in lines_of(data, "source") if {0, 1} & set(origins)]
    assert [t.strip() for t in exps] == ["a = np.exp(x)", "b = np.exp(x)"]


def test_statements_are_timed_and_the_arguments_stay() -> None:
    x, w = np.ones((40, 30)), np.ones((30, 20))
    data = differentiate(lambda x, w: np.sum(np.tanh(x @ w))).explore(x, w).data
    assert (x == 1.0).all() and (w == 1.0).all()
    rows = data["time"]["rows"]
    product = next(r for r in rows if r["operations"])
    assert product["operations"] == 2 * 40 * 30 * 20 and product["part"] == "f"
    assert all(r["seconds"] > 0 and r["best"] > 0 for r in rows)
    assert {r["part"] for r in rows} == {"f", "df"}


def explored(name: str, tmp_path: Path) -> dict[str, Any]:
    """What the page of a program says, by the command line."""
    out = tmp_path / f"{name}.html"
    target = f"{programs.__file__}:{name}"
    words = ["explore", target, "-o", str(out), "--calls", "4", "--no-time"]
    run = CliRunner().invoke(main, words)
    assert run.exit_code == 0, run.output
    packed = re.search(r'id="model">([^<]*)</script>', out.read_text())
    assert packed is not None
    data: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(packed[1])))
    return data


def test_a_saved_value_that_could_be_computed_again_is_found(tmp_path: Path) -> None:
    data = explored("block", tmp_path)
    (saved,) = data["findings"]
    assert saved["level"] == "slow" and "memory_budget=" in saved["hint"]
    assert "%a" in saved["text"] and "%s" in saved["text"]
    assert ["a = x @ up", "s = torch.softmax(F.gelu(a), dim=-1)"] == [
        text for _, text in saved["lines"][:2]
    ]
    rows = data["ledger"]["budgets"]
    budget = float(saved["hint"].partition("memory_budget=")[2].partition(")")[0])
    (lean,) = (row for row in rows if row["budget"] == budget)
    left = {data["ledger"]["values"][k]["name"] for k in lean["saved"]}
    assert not left & {"a", "s"}, "the slider shows what the finding says"


def test_a_trace_at_every_call_is_found(tmp_path: Path) -> None:
    data = explored("recent", tmp_path)
    (traced,) = data["findings"]
    assert traced["level"] == "slow" and traced["title"] == "Traced 4 times in as many calls"
    assert "because of width" in traced["text"] and "A Python value" in traced["hint"]
    assert [text for _, text in traced["lines"]] == [
        "last = series[-width:]", "trend = last.cumsum(0) / width"
    ]  # fmt: skip
    ops = {data["nodes"][n]["op"] for n in traced["origins"]}
    assert {"slice", "cumsum"} <= ops
    first, *others = data["traces"]
    assert first["reason"] == "the first call" and first["changes"] == []
    assert [c["place"] for row in others for c in row["changes"]] == ["width"] * 3


def test_a_branch_that_is_not_taken_is_found(tmp_path: Path) -> None:
    branch = explored("distance", tmp_path)["findings"][0]
    assert branch["level"] == "wrong" and "spoils the gradient of sqrt" in branch["title"]
    assert "nan_safe" in branch["hint"] and "torch.sqrt(" in branch["lines"][0][1]


@pytest.mark.parametrize(("reason", "changes", "advice"), [
    ("args[0] is f32[8,3], was f32[4,3]", [("x", "f32[4,3]", "f32[8,3]")], traces.SIZES),
    ("args[1] is 'sum', was 'mean'; args[2] is any int, was 3",
     [("how", "'mean'", "'sum'"), ("args[2]", "3", "any int")], traces.ARGUMENT),
    ("self.sizes was (1, 2) and is (1, 3)", [("self.sizes", "(1, 2)", "(1, 3)")], traces.STATE),
    ("log had 3 items and has 4", [("log", "3 items", "4")], traces.STATE),
    ("Python read other values: another path", [], traces.PATH),
    ("the arguments have another structure", [], traces.OTHER),
])  # fmt: skip
def test_a_reason_is_told_place_by_place(
    reason: str, changes: list[tuple[str, str, str]], advice: str
) -> None:
    found = traces.changes_of(reason, ["x", "how"])
    assert [(c["place"], c["was"], c["now"]) for c in found] == changes
    rows = [{"reason": reason, "seconds": 0.0, "changes": found}]
    assert traces.main_cause(rows, ["x", "how"]).advice == advice


def test_a_nan_is_not_promised_what_does_not_mend_it() -> None:
    def energy(points: Any) -> Any:
        d = points[:, None] - points[None, :]
        return np.sum(np.exp(-np.sqrt(np.sum(d**2, axis=-1))))

    (nan,) = differentiate(energy).explore(np.arange(6.0).reshape(3, 2)).data["findings"]
    assert nan["title"] == "NaN in the gradient" and "nan_safe" not in nan["hint"]
    assert nan["lines"] == [[nan["lines"][0][0], nan["lines"][0][1]]]
    assert "np.sqrt" in nan["lines"][0][1]
    assert len(nan["origins"]) == len(set(nan["origins"]))


def test_a_torch_module_and_a_report() -> None:
    from gradof.runtime.explore.model import model_of
    from gradof.testing import check

    model = differentiate(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Tanh()))
    assert model.explore(torch.ones(4, 3)).data["name"].endswith("forward")

    def loss(x: Any) -> Any:
        return torch.tanh(x).sum()

    x = torch.ones(3, requires_grad=True)
    compiled = differentiate(loss)
    report = check(loss, (x,), per_op=True)
    audit = model_of(compiled, compiled.bind((x,), {}), time=False, report=report)["audit"]
    assert audit["ok"] and [o["op"] for o in audit["ops"]] == ["tanh", "sum"]


def test_one_native_function_is_timed_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    from gradof.codegen.machine.engine import status
    from gradof.codegen.whole.function import WholeExecutable

    monkeypatch.setenv("GRADOF_BACKEND", "auto")

    def path(x: Any, w: Any) -> Any:
        for _ in range(40):
            x = np.tanh(x @ w)
        return np.sum(x)

    compiled = differentiate(path)
    x, w = np.ones((4, 8)), np.eye(8) * 0.5
    data = compiled.explore(x, w).data
    bound = compiled.bind((x, w), {})
    whole = isinstance(bound.entry.plan.executable, WholeExecutable)
    assert whole or not status()[0]
    texts = [row["text"] for row in data["time"]["rows"]]
    assert any("one native function" in text for text in texts) or not whole
    bare = [text for text, origins in lines_of(data, "f")
            if not origins and not BARE.match(text) and not CONSTANT.search(text)]  # fmt: skip
    assert not bare, bare
