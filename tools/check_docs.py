"""After `mkdocs build`: all links of the site lead somewhere, and nothing is asked of outside.

    python tools/check_docs.py              within the site, anchors too
    python tools/check_docs.py --outside    links to other sites as well, where there is a network
"""

from __future__ import annotations

import functools
import json
import re
import sys
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import unquote, urlsplit

SITE = Path(__file__).parents[1] / "build" / "site"
FOUND = ("memory_budget", "RetraceWarning", "hvp")
LINK = re.compile(r'<(?P<tag>\w+)[^>]*?\s(?:href|src)="(?P<to>[^"]*)"')
FETCHED = re.compile(r'<(?:script|img)[^>]+src="https?:|<link[^>]+rel="stylesheet"[^>]+https?:')
SHELL = ("404.html",)  # which is served at any address, and so has none of its own


@functools.cache
def text_of(page: Path) -> str:
    """A page as it is written."""
    return page.read_text(encoding="utf-8")


@functools.cache
def anchors_of(page: Path) -> frozenset[str]:
    """What a link may name in a page."""
    return frozenset(re.findall(r'\s(?:id|name)="([^"]+)"', text_of(page)))


def wrong_link(page: Path, to: str) -> str | None:
    """What is wrong with a link within the site."""
    parts = urlsplit(to)
    target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    target = target / "index.html" if target.is_dir() else target
    if not target.is_file():
        return f"leads to {to}, which is not there"
    anchor = unquote(parts.fragment)
    if anchor and target.suffix == ".html" and anchor not in anchors_of(target):
        return f"leads to {to}, where there is no #{anchor}"
    return None


def answers(url: str) -> str | None:
    """Why an address outside gives nothing."""
    request = urllib.request.Request(url, headers={"User-Agent": "Mozilla/5.0 (a link check)"})
    try:
        with urllib.request.urlopen(request, timeout=20):
            return None
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        return str(error)


def main(outside: bool) -> None:
    """Look at the site; exits with what is wrong."""
    index = json.loads((SITE / "search" / "search_index.json").read_text(encoding="utf-8"))
    text = "\n".join(doc["title"] + "\n" + doc["text"] for doc in index["docs"])
    wrong = [f"the search does not find {word}" for word in FOUND if word not in text]
    links: dict[str, str] = {}  # addresses outside, with a page that has them
    count = 0
    for page in sorted(SITE.rglob("*.html")):
        name, html = page.relative_to(SITE).as_posix(), text_of(page)
        if FETCHED.search(html):
            wrong.append(f"{name} fetches from outside")
        if "<p>```" in html:
            wrong.append(f"{name} has a block that is none")
        for match in LINK.finditer(html) if name not in SHELL else ():
            to = match["to"].replace("&amp;", "&")
            if urlsplit(to).scheme in ("http", "https"):
                links.setdefault(to.partition("#")[0], name)
            elif not urlsplit(to).scheme and (why := wrong_link(page, to)):
                wrong.append(f"{name} {why}")
            count += 1
    for url, name in links.items() if outside else ():
        if why := answers(url):
            wrong.append(f"{name} leads to {url}: {why}")
    if wrong:
        sys.exit("\n".join(dict.fromkeys(wrong)))
    print(f"{count} links, {len(links)} addresses outside{'' if outside else ' (not asked)'}, "
          f"{len(index['docs'])} entries in the search; open {SITE / 'index.html'}")


if __name__ == "__main__":
    main("--outside" in sys.argv)
