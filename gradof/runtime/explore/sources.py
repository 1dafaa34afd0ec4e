"""The user's source: the functions whose lines a trace has, with the nodes of each line."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from gradof.ir.core import Graph, Loc
from gradof.ir.origins import NOWHERE, Origin
from gradof.runtime.explore.lines import Lines

_WHOLE = 80  # lines of a file that is shown as a whole
_MOST = 3  # lines that one finding names
_DEFINES = re.compile(r"\s*(?:(?:async\s+)?def|class|import|from)\b|\s*#")


@dataclass(frozen=True)
class Source:
    """The view of the source, with what is asked of its lines."""

    view: dict[str, Any]
    lines: Lines

    def rows(self) -> Iterator[tuple[str, str, list[int]]]:
        """`file:line`, text and nodes of each line that is shown."""
        starts = {f["at"]: f["name"] for f in self.view["files"]}
        name = ""
        for k, (line, number) in enumerate(
            zip(self.view["lines"], self.view["numbers"], strict=True)
        ):  # fmt: skip
            name = starts.get(k, name)
            text, origins, _ = self.lines.rows[line]
            if number:
                yield f"{name}:{number}", text, origins

    def text_of(self, origins: Sequence[int]) -> list[list[str]]:
        """The lines that nodes come from, in the order of the nodes: where, and as written."""
        at = {n: [place, text.strip()] for place, text, nodes in self.rows() for n in nodes}
        found = {at[n][0]: at[n] for n in origins if n in at}
        return list(found.values())[:_MOST]

    def reading(self, word: str | None) -> tuple[tuple[int, ...], list[list[str]]]:
        """The nodes of lines that have a name, and the first such lines; heads aside."""
        if word is None:
            return (), []
        name = re.compile(rf"\b{word}\b")
        rows = [row for row in self.rows()
                if name.search(row[1]) and not _DEFINES.match(row[1])]  # fmt: skip
        nodes = dict.fromkeys(n for _, _, origins in rows for n in origins)
        return tuple(nodes), [[place, text.strip()] for place, text, _ in rows[:_MOST]]


def plain_function(fn: Any) -> Any:
    """Of a bound method the function."""
    return getattr(fn, "__func__", fn)


def source_view(trace: Graph, first: Loc | None, lines: Lines) -> dict[str, Any]:
    """The view of the user's files, that of the function first: lines, their files and numbers.

    Between functions that are left out there is a line of its own, numbered 0.
    """
    nodes: dict[str, dict[int, list[int]]] = {} if first is None else {first.file: {}}
    for node in trace.walk():
        if isinstance(node.loc, Origin) and node.loc.file != NOWHERE:
            found = nodes.setdefault(node.loc.file, {})
            found.setdefault(node.loc.line, []).extend(node.loc.nodes)
    shown: list[int] = []
    numbers: list[int] = []
    files: list[dict[str, Any]] = []
    for file, made in nodes.items():
        start = first.line if first is not None and first.file == file else None
        text = linecache.getlines(file)
        files.append({"name": PurePath(file).name, "path": file, "at": len(shown)})
        last = 0
        for number in _wanted(text, {*made, *([start] if start else [])}):
            if number > last + 1:
                shown.append(lines.add("⋯"))
                numbers.append(0)
            line = text[number - 1].rstrip("\n") if number <= len(text) else "(no source)"
            shown.append(lines.add(line, tuple(made.get(number, ()))))
            numbers.append(number)
            last = number
    return {"id": "source", "title": "Source", "language": "python", "lines": shown,
            "numbers": numbers, "files": files}  # fmt: skip


def _wanted(text: list[str], used: set[int]) -> list[int]:
    """The numbers of the lines to show: a short file, or the functions around what is used."""
    if not text:
        return sorted(used)
    if len(text) <= _WHOLE:
        return list(range(1, len(text) + 1))
    wanted = set(used)
    try:
        tree = ast.parse("".join(text))
    except SyntaxError:  # a notebook's cell with magics of its own: its lines alone
        return sorted(wanted)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            last = node.end_lineno or node.lineno
            if any(first <= line <= last for line in used):
                wanted.update(range(first, last + 1))
    return sorted(wanted)
