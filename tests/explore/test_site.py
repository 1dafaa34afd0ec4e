"""The documentation opened as files: its search finds, without a server or a network."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.explore.chromium import chromium

pytestmark = pytest.mark.browser
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of the site, which is built for it, as files."""
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT, check=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    return folder.as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from chromium()


@pytest.mark.parametrize(
    ("word", "pages"),
    [
        ("memory_budget", {"how_to.html", "api.html"}),
        ("RetraceWarning", {"tracing.html", "reference.html"}),
        ("hvp", {"quickstart.html", "api.html"}),
    ],
)
def test_the_search_finds(site: str, browser: Any, word: str, pages: set[str]) -> None:
    said: list[str] = []
    page = browser.new_page()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{site}/index.html")
    query = page.locator("input[data-md-component=search-query]")
    query.click()
    query.type(word)
    page.wait_for_selector(".md-search-result__link")
    links = page.eval_on_selector_all(".md-search-result__link", "found => found.map(a => a.href)")
    found = {urlsplit(link).path.rpartition("/")[2] for link in links}
    assert pages <= found, found
    assert said == [] and all(url.startswith((site, "data:", "blob:")) for url in asked)
