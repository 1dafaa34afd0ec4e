"""Pieces of Python source: names that are given once, wrapped lines, tuples, identifiers."""

from __future__ import annotations

import itertools
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence


class Names:
    """Names that are each given once; `taken` are those that are no longer free."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self.taken = set(taken)
        self._suffixes: dict[str, itertools.count[int]] = {}

    def unique(self, base: str) -> str:
        """`base`, or with the first number behind it that makes it a name of its own."""
        name = base
        while name in self.taken:
            name = f"{base}_{next(self._suffixes.setdefault(base, itertools.count(1)))}"
        self.taken.add(name)
        return name


def wrapped(line: str) -> list[str]:
    """A line within brackets, broken at its blanks where it is long."""
    return textwrap.wrap(
        line, 100, subsequent_indent=" " * 8, break_long_words=False, break_on_hyphens=False
    )


def as_tuple(texts: Sequence[str]) -> str:
    """Source of a tuple; of one element it needs its comma."""
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"


def identifier(name: str) -> str:
    """The name as a Python identifier that is no keyword."""
    # NFKC, as Python reads identifiers: two names must not become one
    name = unicodedata.normalize("NFKC", name)
    text = "".join(c if f"_{c}".isidentifier() else "_" for c in name)
    return text if text.isidentifier() else f"_{text}"
