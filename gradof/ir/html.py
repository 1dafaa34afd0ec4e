"""Small pieces of HTML for notebooks, legible on light and on dark pages; text is escaped.

>>> framed("graph f, 3 nodes", code(str(graph)))
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence

_WORDS = re.compile(
    r"(?P<loc>#.*$)|(?P<value>%[\w.]+)|(?P<type>\b(?:bool|bf16|[iufc]\d+)(?:\[[\d,*]*\])?)"
    r"|(?P<op>(?<== )[A-Za-z_]\w*)|(?P<word>\b(?:graph|return|block)\b|-&gt;)", re.MULTILINE
)  # fmt: skip
_COLOURS = {"loc": "#8a8f98", "value": "#2b8cbe", "type": "#5c9a3c", "op": "", "word": "#a35bbd"}
_MONO = "font-family:ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;font-size:12px"
_FRAME = (
    "border:1px solid rgba(128,128,128,.3);border-radius:8px;overflow:auto;max-height:34em;"
    "margin:4px 0;text-align:left"
)


class Safe(str):
    """HTML that is not to be escaped."""


def _text(value: object) -> str:
    return value if isinstance(value, Safe) else html.escape(str(value))


def framed(title: str, *parts: str) -> Safe:
    """Parts below a title."""
    head = (
        '<div style="padding:6px 12px;font-weight:600;border-bottom:1px solid '
        f'rgba(128,128,128,.25)">{html.escape(title)}</div>'
    )
    return Safe(f'<div class="gradof" style="{_FRAME}">{head}{"".join(parts)}</div>')


def code(text: str) -> Safe:
    """A graph's text with its words in colour."""

    def coloured(match: re.Match[str]) -> str:
        style = f"color:{_COLOURS[match.lastgroup or '']}" if match.lastgroup != "op" else (
            "font-weight:600")  # fmt: skip
        return f'<span style="{style}">{match[0]}</span>'

    shown = _WORDS.sub(coloured, html.escape(text.rstrip("\n"), quote=False))
    return Safe(f'<pre style="margin:0;padding:8px 12px;line-height:1.5;{_MONO}">{shown}</pre>')


def side_by_side(parts: Iterable[tuple[str, str]]) -> Safe:
    """Parts with a heading each, next to one another where there is room."""
    cells = "".join(
        f'<div style="flex:1 1 420px;min-width:0;overflow:auto"><div style="padding:5px 12px 0;'
        f'opacity:.65">{html.escape(title)}</div>{part}</div>' for title, part in parts
    )  # fmt: skip
    return Safe(f'<div style="display:flex;flex-wrap:wrap">{cells}</div>')


def lines(texts: Sequence[str]) -> Safe:
    """Lines of plain text."""
    shown = "".join(f"<div>{html.escape(text)}</div>" for text in texts)
    return Safe(f'<div style="padding:6px 12px;line-height:1.5">{shown}</div>' if texts else "")


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Safe:
    """A table; cells that are `Safe` are HTML."""
    cell = "padding:2px 10px;text-align:left;white-space:nowrap"
    top = "".join(f'<th style="{cell};font-weight:500;opacity:.65">{_text(h)}</th>' for h in head)
    body = "".join(
        "<tr>" + "".join(f'<td style="{cell};{_MONO}">{_text(c)}</td>' for c in row) + "</tr>"
        for row in rows
    )
    return Safe(
        f'<table style="border-collapse:collapse;margin:2px"><thead><tr>{top}</tr></thead>'
        f"<tbody>{body}</tbody></table>"
    )


def bar(value: float, most: float) -> Safe:
    """A bar as long as its share of the most."""
    width = 90 * value / most if most else 0
    return Safe(f'<div style="width:{width:.0f}px;height:9px;border-radius:3px;'
                'background:#4f86d8"></div>')  # fmt: skip


def verdict(right: bool) -> Safe:
    """Right, or wrong, in its colour."""
    colour, word = ("#2e9e62", "right") if right else ("#d0453e", "WRONG")
    return Safe(f'<span style="color:{colour};font-weight:600">{word}</span>')
