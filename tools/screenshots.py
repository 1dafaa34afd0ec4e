"""The pictures of docs/: `make screenshots`. Look at them before you commit.

Each is a page of tests/explore/programs.py in headless Chromium, after the clicks of its row.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from gradof.cli.explore import write_page
from gradof.errors import RetraceWarning

ROOT = Path(__file__).parents[1]
LINE = ".view[data-view=source] .l:has-text('{}') > u"
# picture → program, size, theme, what is clicked, and, of a part, its first and last pane
SHOTS = {
    "explore": ("layer_norm", (1400, 880), "light",
                [LINE.format("rsqrt"), "[data-tab=df]", "[data-tab=time]"]),
    "explore-dark": ("gpt2", (1400, 880), "dark", [LINE.format("F.gelu"), "[data-tab=f]"]),
    "explore-phone": ("kalman", (390, 760), "light", [LINE.format("surprise = ")]),
    "waste-saved": ("block", (1400, 900), "light",
                    ["[data-tab=findings]", ".card", "[data-tab=ledger]"]),
    "waste-traces": ("recent", (1200, 760), "light",
                     ["[data-tab=findings]", ".card", "[data-tab=traces]"]),
    "waste-branch": ("distance", (1400, 700), "light", ["[data-tab=findings]", ".card.wrong"]),
    "concept-trace": ("digits", (1300, 760), "light", ["[data-tab=graph]"], 0, 1),
    "concept-reverse": ("digits", (1900, 760), "light", ["[data-tab=passes]"], 1, 1),
    "concept-saved": ("digits", (1200, 1250), "light", [], 3, 3),
    "concept-split": ("digits", (1500, 760), "light", [LINE.format("torch.tanh"), "[data-tab=df]"],
                      0, 1),
    "concept-loops": ("digits", (1500, 760), "light",
                      [LINE.format("torch.tanh"), "[data-tab=f]", "[data-tab=loops]"], 0, 2),
}  # fmt: skip


def around(page: Any, panes: list[int]) -> Any:
    """The part of the page that panes take, from the first to the last."""
    boxes = [page.locator(".pane").nth(k).bounding_box() for k in panes]
    if not boxes:
        return None
    left, top = min(b["x"] for b in boxes), min(b["y"] for b in boxes)
    right = max(b["x"] + b["width"] for b in boxes)
    end = max(b["y"] + b["height"] for b in boxes)
    return {"x": left, "y": top, "width": right - left, "height": end - top}


def main(folder: Path) -> None:
    """Make the pages, and take the pictures."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("there is no chromium on the path")
    warnings.simplefilter("ignore", RetraceWarning)
    with tempfile.TemporaryDirectory() as made, sync_playwright() as playwright:
        pages = {
            name: write_page(f"{ROOT}/tests/explore/programs.py:{name}", Path(made, f"{name}.html"),
                             (), None, calls=5, checked=False, timed=True)
            for name in dict.fromkeys(shot[0] for shot in SHOTS.values())
        }  # fmt: skip
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for picture, (name, (width, height), theme, clicks, *panes) in SHOTS.items():
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=theme)
            page.goto(pages[name].as_uri())
            page.wait_for_selector(".view[data-view=source] .l.h")
            for click in clicks:
                page.locator(f"{click}:visible").first.click()
            page.wait_for_timeout(600)
            page.screenshot(path=folder / f"{picture}.png", clip=around(page, panes))
            print(folder / f"{picture}.png")
        browser.close()


if __name__ == "__main__":
    main(ROOT / "docs" / "pictures")
