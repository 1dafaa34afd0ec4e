"""The page in a browser: what lights up, the slider's numbers, keys, search, how fast it paints.

`make explore-test` runs it, where there is a Chromium.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gradof import differentiate
from gradof.cli.explore import write_page
from tests.explore import programs
from tests.explore.chromium import chromium

pytestmark = pytest.mark.browser
ROOT = Path(__file__).parents[2]
TARGETS = {
    "digits": f"{ROOT}/examples/digits.py:loss",
    **{name: f"{programs.__file__}:{name}" for name in ("layer_norm", "gpt2", "kalman")},
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from chromium()


class Opened:
    """A page in the browser, with what it said on the console."""

    def __init__(self, browser: Any, path: Path, data: dict[str, Any], **how: Any) -> None:
        self.data = data
        self.said: list[str] = []
        self.page = browser.new_page(viewport={"width": 1500, "height": 950}, **how)
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector(".view[data-view=source] .l.h")

    def open(self, id_: str) -> None:
        self.page.locator(f".tab[data-tab={id_}]:visible").first.click()
        view = next((v for v in self.data["views"] if v["id"] == id_), None)
        if view is not None:
            self.page.wait_for_function(
                "([id, n]) => document.querySelectorAll(`.view[data-view=${id}] .l`).length === n",
                arg=[id_, len(view["lines"])],
            )

    def lit(self, id_: str) -> list[int]:
        found: list[int] = self.page.eval_on_selector_all(
            f".view[data-view={id_}] .l.on", "rows => rows.map(r => +r.dataset.k)"
        )
        return sorted(found)

    def expected(self, id_: str, nodes: set[int]) -> list[int]:
        (view,) = (v for v in self.data["views"] if v["id"] == id_)
        made = [set(self.data["lines"][line][1]) for line in view["lines"]]
        return [k for k, origins in enumerate(made) if nodes & origins]

    def click(self, id_: str, k: int) -> set[int]:
        """Click on line k of a view that is open; the nodes it comes from."""
        self.page.locator(f".view[data-view={id_}] .l[data-k='{k}'] > u").click()
        (view,) = (v for v in self.data["views"] if v["id"] == id_)
        return set(self.data["lines"][view["lines"][k]][1])


@pytest.fixture(scope="module", params=TARGETS)
def opened(request: pytest.FixtureRequest, browser: Any, tmp_path_factory: Any) -> Opened:
    import json

    from gradof.runtime.explore import page as pages

    found: list[dict[str, Any]] = []
    packed = pages.packed
    with pytest.MonkeyPatch.context() as patch:

        def note(data: dict[str, Any]) -> str:
            found.append(data)
            return packed(data)

        patch.setattr(pages, "packed", note)
        path = tmp_path_factory.mktemp("page") / f"{request.param}.html"
        write_page(TARGETS[request.param], path, (), None, calls=1, checked=False, timed=True)
    assert path.stat().st_size < 2_000_000
    return Opened(browser, path, json.loads(json.dumps(found[0])))


def test_a_click_lights_up_the_right_lines_in_all_views(opened: Opened) -> None:
    ids = [view["id"] for view in opened.data["views"]]
    for id_ in ids:
        opened.open(id_)
    (source,) = (v for v in opened.data["views"] if v["id"] == "source")
    made = [k for k, line in enumerate(source["lines"]) if opened.data["lines"][line][1]]
    opened.open("source")
    for k in made[:: max(1, len(made) // 5)]:
        nodes = opened.click("source", k)
        for id_ in ids:
            assert opened.lit(id_) == opened.expected(id_, nodes), (id_, k)
        opened.page.keyboard.press("Escape")
        assert not any(opened.lit(id_) for id_ in ids)
    for id_ in ("df", "code"):  # and back to the source
        opened.open(id_)
        (view,) = (v for v in opened.data["views"] if v["id"] == id_)
        last = [k for k, line in enumerate(view["lines"]) if opened.data["lines"][line][1]][-1]
        nodes = opened.click(id_, last)
        assert opened.lit("source") == opened.expected("source", nodes) != []
        opened.page.keyboard.press("Escape")
    assert opened.said == []


def test_every_view_opens(opened: Opened) -> None:
    for id_ in ("findings", "graph", "passes", "time", "traces", "audit", "ledger"):
        opened.open(id_)
    opened.open("graph")
    opened.page.wait_for_selector(".graph g.n", timeout=20_000)
    shown = opened.page.locator(".graph g.n").count()
    assert shown == sum(node["op"] != "Constant" for node in opened.data["nodes"])
    opened.open("passes")
    opened.page.locator(".step", has_text="choose-captures").first.click()
    assert opened.page.locator(".split .about b").inner_text() == "choose-captures"
    assert opened.said == []


def test_the_drawing_is_saved_as_svg(opened: Opened) -> None:
    opened.open("graph")
    opened.page.wait_for_selector(".graph g.n", timeout=20_000)
    with opened.page.expect_download() as found:
        opened.page.locator(".zoom [data-z=svg]").click()
    assert found.value.suggested_filename == f"{opened.data['name']}.svg"
    root = ElementTree.parse(found.value.path()).getroot()
    space = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{space}svg" and float(root.get("width", "0")) > 50
    shown = [node["op"] for node in opened.data["nodes"] if node["op"] != "Constant"]
    groups = [g for g in root.iter(f"{space}g") if g.get("data-n")]
    assert [g.findtext(f"{space}text") for g in groups] == shown
    assert all(r.get("fill", "").startswith("rgb") for r in root.iter(f"{space}rect"))


def test_it_paints_within_a_second(opened: Opened) -> None:
    paints = opened.page.evaluate(
        "performance.getEntriesByType('paint').map(entry => [entry.name, entry.startTime])"
    )
    assert dict(paints)["first-contentful-paint"] < 1000


def test_keys_search_and_themes(opened: Opened) -> None:
    page = opened.page
    opened.open("source")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    assert len(opened.lit("source")) >= 1
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("GradOf")
    assert page.locator("#results button").count() > 0
    page.keyboard.press("Enter")
    assert opened.lit("reverse")
    page.keyboard.press("Escape")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.keyboard.press("t")
    assert opened.said == []


def test_the_slider_has_the_numbers_of_explain(browser: Any, tmp_path: Path) -> None:
    inputs = programs.gpt2_example_inputs()
    exploration = differentiate(programs.gpt2).explore(*inputs)
    opened = Opened(browser, exploration.write(tmp_path / "page.html"), exploration.data)
    opened.open("ledger")
    for at in (0, 5, 10):
        opened.page.locator("#slider").fill(str(at))
        budget = exploration.data["ledger"]["budgets"][at]["budget"]
        told = differentiate(programs.gpt2, memory_budget=budget).explain(*inputs)
        total = sum(s.nbytes for s in told.saved)
        shown = opened.page.locator("#budget").inner_text()
        assert (None if shown == "None" else float(shown)) == budget
        words = opened.page.locator("#saved-words").inner_text()
        count, beyond = len(told.saved), told.saved_bytes
        assert words.startswith(f"{count} values, {total} bytes ({beyond} beyond inputs and")
        tiles = opened.page.locator(".leaf").count()
        assert tiles == sum(s.nbytes > 0 for s in told.saved)
    assert opened.said == []


def test_a_phone_has_one_view_at_a_time(browser: Any, tmp_path: Path) -> None:
    exploration = differentiate(programs.layer_norm).explore(*programs.layer_norm_example_inputs())
    opened = Opened(browser, exploration.write(tmp_path / "page.html"), exploration.data)
    opened.page.set_viewport_size({"width": 390, "height": 844})
    opened.open("df")
    assert opened.page.locator(".pane:visible").count() == 1
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert opened.said == []
