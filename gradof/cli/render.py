"""Printing: colours in a terminal, plain text in a pipe (rich decides, and honours NO_COLOR)."""

from __future__ import annotations

import linecache
import re
from collections.abc import Sequence

from rich.console import Console
from rich.highlighter import RegexHighlighter
from rich.syntax import Syntax
from rich.table import Table
from rich.theme import Theme

from gradof.errors import GradofError
from gradof.ops.registry import Op

_THEME = Theme(
    {
        "ir.value": "cyan",
        "ir.type": "green",
        "ir.block": "bold magenta",
        "ir.op": "bold",
        "ir.loc": "dim",
        "ir.keyword": "bold blue",
    }
)


class _IRHighlighter(RegexHighlighter):
    base_style = "ir."
    highlights = [  # noqa: RUF012  # rich's own class-attribute interface
        r"(?P<value>%[\w.]+)",
        r"(?P<type>\b(?:bool|[iuf]\d+|bf16)\[[\d,*]*\](?:@[\w:]+)?)",
        r"(?P<block>\b(?:GradOf|AutogradAdd|AutogradZero|Reverse)\b)",
        r"= (?P<op>\w+)",
        r"(?P<keyword>^\s*(?:graph|return|block)\b|->)",
        r"(?P<loc>#.*$)",
    ]


def print_code(text: str, language: str) -> None:
    """Print IR or Python; in a pipe exactly `text`."""
    console = Console(theme=_THEME, soft_wrap=True)
    if not console.is_terminal:
        print(text, end="" if text.endswith("\n") else "\n")
    elif language == "gradof-ir":
        highlighter = _IRHighlighter()
        for line in text.splitlines():
            console.print(highlighter(line), markup=False, highlight=False)
    elif language == "python":
        console.print(Syntax(text, "python", background_color="default", word_wrap=False))
    else:
        console.print(text, markup=False, highlight=False)


def print_error(error: GradofError) -> None:
    """An error on stderr: the class in red, then its message."""
    console = Console(stderr=True, soft_wrap=True)
    console.print(f"[bold red]{type(error).__name__}[/]:", end=" ", highlight=False)
    console.print(str(error), markup=False, highlight=False)
    for line in excerpt(error.loc):
        console.print(line, markup=False, highlight=False)


def excerpt(loc: object) -> list[str]:
    """The user's line of an error with the one before it, and a caret below what it is about.

    `loc` is `file:line`, or `file:line:column`; nothing for what is no line of a file.
    """
    match = re.fullmatch(r"(.+?):(\d+)(?::(\d+))?", str(loc))
    if match is None:
        return []
    file, number = match[1], int(match[2])
    text = linecache.getline(file, number).rstrip()
    if not text.strip():
        return []
    before = linecache.getline(file, number - 1).rstrip() if number > 1 else ""
    width = len(str(number))
    start = int(match[3]) - 1 if match[3] else len(text) - len(text.lstrip())
    carets = "^" if match[3] else "^" * len(text.partition("  #")[0].strip())
    rows = [f"{number - 1:>{width}} | {before}"] if before.strip() else []
    return [*rows, f"{number} | {text}", f"{' ' * width} | {' ' * start}{carets}"]


def print_ops(records: Sequence[Op]) -> None:
    """A table of ops; tab-separated in a pipe."""
    rows = [
        (
            record.schema,
            "composite" if record.is_composite else "primitive",
            ", ".join(k for k, rule in record.vjp.items() if rule is not None)
            or ("by expansion" if record.is_composite else "none"),
            ", ".join(record.names),
        )
        for record in records
    ]
    console = Console()
    if not console.is_terminal:
        for row in rows:
            print("\t".join(row))
        return
    table = Table("op", "kind", "gradients of", "serves")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    console.print(f"{len(rows)} ops")
