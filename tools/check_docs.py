"""After `mkdocs build`: what the search finds, and that no page asks for anything outside."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

SITE = Path(__file__).parents[1] / "build" / "site"
FOUND = ("memory_budget", "RetraceWarning", "hvp")


def main() -> None:
    """Look at the site; exits with what is wrong."""
    index = json.loads((SITE / "search" / "search_index.json").read_text(encoding="utf-8"))
    text = "\n".join(doc["title"] + "\n" + doc["text"] for doc in index["docs"])
    wrong = [f"the search does not find {word}" for word in FOUND if word not in text]
    fetched = re.compile(r'<(?:script|img)[^>]+src="https?:|<link[^>]+rel="stylesheet"[^>]+https?:')
    wrong += [f"{page.relative_to(SITE)} fetches from outside" for page in SITE.rglob("*.html")
              if fetched.search(page.read_text(encoding="utf-8"))]  # fmt: skip
    wrong += [f"{page.relative_to(SITE)} has a block that is none" for page in SITE.rglob("*.html")
              if "<p>```" in page.read_text(encoding="utf-8")]  # fmt: skip
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{len(index['docs'])} entries in the search; python -m http.server -d {SITE}")


if __name__ == "__main__":
    main()
