"""A file fits in one reading (400 lines), a function on one screen (60)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("file", FILES)
def test_file_and_functions_fit(file: str) -> None:
    source = (ROOT / file).read_text(encoding="utf-8")
    lines = len(source.splitlines())
    assert lines <= FILE_LINES, f"{file} has {lines} lines: split it by what its parts are for"
    long = [
        f"{file}:{node.lineno} {node.name} has {length} lines"
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES
    ]
    assert not long, "\n".join(long)
