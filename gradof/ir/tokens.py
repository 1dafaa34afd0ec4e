"""The words of the IR's text forms, each with its line and column.

>>> [t.text for t in tokenize("%y : f32[3] = tanh(%x)", "<text>")][:3]
['%y', ':', 'f32']
"""

from __future__ import annotations

import re

from gradof.errors import ParseError
from gradof.ir.core import Loc

_TOKEN = re.compile(
    r"""(?P<space>[ \t]+)|(?P<newline>\n)|(?P<loc>\#[^\n]*)
    |(?P<value>%[\w.]+)
    |(?P<string>'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")
    |(?P<number>-?(?:inf|nan)(?:j|\b)|-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?j?|-?\.\d+(?:[eE][+-]?\d+)?j?)
    |(?P<name>[^\W\d]\w*(?:\.[^\W\d]\w*)*)
    |(?P<arrow>->)|(?P<punct>[()\[\],:=*<>@+])""",
    re.VERBOSE,
)
HINT = "docs/architecture.md shows the text form, and print_graph writes it"


class Token:
    """A word of the text, and where it is."""

    __slots__ = ("column", "kind", "line", "text")

    def __init__(self, kind: str, text: str, line: int, column: int) -> None:
        self.kind, self.text, self.line, self.column = kind, text, line, column


def tokenize(text: str, source: str) -> list[Token]:
    """The words of a text; ParseError at a character that begins none."""
    tokens: list[Token] = []
    line, start, at = 1, 0, 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ParseError(
                f"unexpected character {text[at]!r}", line=line, column=at - start + 1,
                source=source, hint=HINT,
            )
        kind = str(match.lastgroup)
        if kind not in ("space", "newline"):
            tokens.append(Token(kind, match.group(), line, at - start + 1))
        at = match.end()
        if kind == "newline":
            line, start = line + 1, at
    tokens.append(Token("end", "end of text", line, at - start + 1))
    return tokens


def as_loc(token: Token) -> Loc | None:
    """`# file:line` as a Loc; None for any other comment, which is skipped."""
    match = re.fullmatch(r"#\s*(.+):(\d{1,18})\s*", token.text)
    return Loc(match.group(1), int(match.group(2))) if match else None
