"""What mkdocs does to a page first: blocks that the tests run are Python to its highlighter."""

from __future__ import annotations

from typing import Any


def on_page_markdown(markdown: str, **kwargs: Any) -> str:
    """The page with its ```python run blocks as ```python."""
    return markdown.replace("```python run\n", "```python\n")
