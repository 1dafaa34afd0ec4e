"""The user's source: the functions whose lines a trace has, with the nodes of each line."""

from __future__ import annotations

import ast
import linecache
from pathlib import PurePath
from typing import Any

from gradof.ir.core import Graph, Loc
from gradof.ir.origins import NOWHERE, Origin
from gradof.runtime.explore.lines import Lines

_WHOLE = 80  # lines of a file that is shown as a whole


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
