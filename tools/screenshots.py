"""The pictures of docs/: `make screenshots`. Look at them before you commit.

Each is a page of tests/explore/programs.py in headless Chromium, after the clicks of its row.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import warnings
from pathlib import Path

from playwright.sync_api import sync_playwright

from gradof.cli.explore import write_page
from gradof.errors import RetraceWarning

ROOT = Path(__file__).parents[1]
LINE = ".view[data-view=source] .l:has-text('{}') > u"
# picture → program, size, theme, what is clicked
SHOTS = {
    "explore": ("layer_norm", (1400, 880), "light",
                [LINE.format("rsqrt"), "[data-tab=df]", "[data-tab=time]"]),
    "explore-dark": ("gpt2", (1400, 880), "dark", [LINE.format("F.gelu"), "[data-tab=f]"]),
    "explore-phone": ("kalman", (390, 760), "light", [LINE.format("surprise = ")]),
    "waste-findings": ("kept", (1400, 880), "light", ["[data-tab=findings]", ".card.wrong"]),
    "waste-ledger": ("kept", (1400, 880), "light",
                     ["[data-tab=findings]", ".card:has-text('saved')", "[data-tab=ledger]"]),
    "waste-traces": ("kept", (1000, 560), "light",
                     ["[data-tab=findings]", ".card:has-text('Traced')", "[data-tab=traces]"]),
}  # fmt: skip


def main(folder: Path) -> None:
    """Make the pages, and take the pictures."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("there is no chromium on the path")
    warnings.simplefilter("ignore", RetraceWarning)
    with tempfile.TemporaryDirectory() as made, sync_playwright() as playwright:
        pages = {
            name: write_page(f"{ROOT}/tests/explore/programs.py:{name}", Path(made, f"{name}.html"),
                             (), None, calls=3, checked=False, timed=True)
            for name in dict.fromkeys(shot[0] for shot in SHOTS.values())
        }  # fmt: skip
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for picture, (name, (width, height), theme, clicks) in SHOTS.items():
            page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=theme)
            page.goto(pages[name].as_uri())
            page.wait_for_selector(".view[data-view=source] .l.h")
            for click in clicks:
                page.locator(f"{click}:visible").first.click()
            page.wait_for_timeout(600)
            page.screenshot(path=folder / f"{picture}.png")
            print(folder / f"{picture}.png")
        browser.close()


if __name__ == "__main__":
    main(ROOT / "docs" / "pictures")
