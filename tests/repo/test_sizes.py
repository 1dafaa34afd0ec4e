"""A file fits in one reading (400 lines), a function on one screen (60)."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("gradof", "tracer", "autodiff", "codegen", "examples", "benchmarks", "tests")
FILE_LINES = 400
FUNCTION_LINES = 60

FILES = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in FOLDERS
    for path in (ROOT / folder).rglob("*.py")  # rglob does not follow the links in gradof/
)


def test_there_are_files_to_measure() -> None:
    assert {file.split("/")[0] for file in FILES} >= {"gradof", "tracer", "autodiff", "codegen"}


def test_files_and_functions_fit() -> None:
    wrong = [line for file in FILES for line in too_long(file)]
    assert not wrong, "\n".join(wrong)


def too_long(file: str) -> list[str]:
    """What of a file is too long, a line for each."""
    source = (ROOT / file).read_text(encoding="utf-8")
    lines = len(source.splitlines())
    whole = [f"{file} has {lines} lines: split it by what its parts are for"]
    return whole * (lines > FILE_LINES) + [
        f"{file}:{node.lineno} {node.name} has {length} lines"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES
    ]
