"""Pieces of Python source: wrapped lines, tuples, identifiers."""

from __future__ import annotations

import textwrap
import unicodedata


def wrapped(line: str) -> list[str]:
    """A line within brackets, broken at its blanks where it is long."""
    return textwrap.wrap(
        line, 100, subsequent_indent=" " * 8, break_long_words=False, break_on_hyphens=False
    )


def as_tuple(texts: list[str]) -> str:
    """Source of a tuple; of one element it needs its comma."""
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"


def identifier(name: str) -> str:
    """The name as a Python identifier that is no keyword."""
    # NFKC, as Python reads identifiers: two names must not become one
    name = unicodedata.normalize("NFKC", name)
    text = "".join(c if f"_{c}".isidentifier() else "_" for c in name)
    return text if text.isidentifier() else f"_{text}"
