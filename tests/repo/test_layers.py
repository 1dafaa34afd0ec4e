"""Imports go one way, as docs/architecture.md says; torch and triton stay behind named doors.

errors → ir → ops → passes → {tracer | autodiff | codegen} → runtime → gradof, testing, cli

An import inside a function counts like any other: a late import is an import.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

RANK = {
    "gradof.errors": 0,
    "gradof.tuning": 0,  # thresholds
    "gradof.ir": 1,
    "gradof.ops": 2,
    "gradof.passes": 3,
    "gradof.tracer": 4,
    "gradof.autodiff": 4,
    "gradof.codegen": 4,
    "gradof.runtime": 5,
    "gradof": 6,  # the public names
    "gradof.testing": 7,
    "gradof.cli": 8,
    "gradof.pytest_plugin": 8,
    "gradof.__main__": 9,  # `python -m gradof` is the command line
}

# The rooms of codegen and tracer, each below those that follow; files right under the folder come
# last. Rooms of one rank never import each other.
CODEGEN = {
    "machine": 0, "fusion": 0, "lowering": 2, "matmul": 1, "loops": 3, "tiles": 4, "triton": 4,
    "llvm": 5, "whole": 6, "targets": 7, "host": 8, "export": 9,
}
TRACER = {"state": 0, "core": 1, "aten": 2, "numpy": 3, "scipy": 4, "torch": 5}
ROOMS = {
    **{f"gradof.codegen.{name}": rank for name, rank in CODEGEN.items()},
    **{f"gradof.tracer.{name}": rank for name, rank in TRACER.items()},
}

# Files that load torch when they are loaded: their names begin with these. No other file may load
# them when it is loaded itself: test_files_with_torch_are_imported_lazily.
TORCH_FILES = ("tracer/torch/", "tracer/aten/", "gradof/runtime/torch_", "gradof/testing/torch_",
               "gradof/testing/fuzz/torch_")

# Rooms and files that may not import torch at all, not even in a function.
NO_TORCH = (
    "gradof/errors.py", "gradof/ir/", "gradof/ops/", "gradof/passes/", "autodiff/", "tracer/numpy/",
    "tracer/scipy/",
)

# The one room that may import triton, inside functions.
TRITON_ROOM = "codegen/triton/"


def sources() -> dict[str, str]:
    """Path from the root to dotted module name, for every file of the package."""
    found = {}
    for folder in ("gradof", "tracer", "autodiff", "codegen"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            parts = parts if parts[0] == "gradof" else ("gradof", *parts)
            parts = parts[:-1] if parts[-1] == "__init__" else parts
            found[path.relative_to(ROOT).as_posix()] = ".".join(parts)
    return found


SOURCES = sources()
MODULES = frozenset(SOURCES.values())


def room(module: str) -> str:
    """`gradof.ir.core` is in `gradof.ir`; a module right under gradof is in `gradof`."""
    head = ".".join(module.split(".")[:2])
    return head if head in RANK else "gradof"


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and module of every import below `tree`; `from gradof import ir` is `gradof.ir`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.module is not None and node.level == 0, f"relative, line {node.lineno}"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield node.lineno, full if full in MODULES else node.module


def module_level(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The imports that run when the module does: none in functions or under TYPE_CHECKING."""
    pending: list[ast.AST] = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending += node.orelse
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from imported(node)
        else:
            pending += ast.iter_child_nodes(node)


@functools.cache
def parse(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text(encoding="utf-8"))


def library(module: str) -> str:
    return module.split(".")[0]


def test_imports_go_one_way() -> None:
    wrong = []
    for file in SOURCES:
        here = room(SOURCES[file])
        wrong += [
            f"{file}:{line} {here} imports {module}"
            for line, module in imported(parse(file))
            if library(module) == "gradof"
            and room(module) != here
            and RANK[room(module)] >= RANK[here]
        ]
    assert not wrong, "\n".join(wrong)


def small_room(module: str) -> str:
    """`gradof.codegen.loops.ir` is in `gradof.codegen.loops`; a file right under codegen, alone."""
    return ".".join(module.split(".")[:3])


def test_imports_inside_codegen_and_tracer_go_one_way() -> None:
    wrong = []
    for file in [f for f, module in SOURCES.items() if small_room(module) in ROOMS]:
        here = small_room(SOURCES[file])
        wrong += [
            f"{file}:{line} {here} imports {module}"
            for line, module in imported(parse(file))
            if room(module) == room(here) and small_room(module) != here
            and ROOMS.get(small_room(module), 9) >= ROOMS[here]
        ]
    assert not wrong, "\n".join(wrong)


def test_no_private_name_crosses_files() -> None:
    wrong = []
    for file in SOURCES:
        wrong += [
            f"{file}:{node.lineno} imports {alias.name}"
            for node in ast.walk(parse(file))
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("gradof")
            for alias in node.names
            if alias.name.startswith("_") and not alias.name.endswith("__")
        ]
    assert not wrong, "\n".join(wrong)


def test_torch_and_triton_are_imported_where_they_may_be() -> None:
    for file in SOURCES:
        _check_torch_and_triton(file)


def _check_torch_and_triton(file: str) -> None:
    tree = parse(file)
    anywhere = {library(module) for _, module in imported(tree)}
    on_load = {library(module) for _, module in module_level(tree)}
    if file.startswith(NO_TORCH):
        assert "torch" not in anywhere, f"{file} must not know torch"
    if not file.startswith(TORCH_FILES):
        assert "torch" not in on_load, f"{file}: import torch in a function, or move it to torch/"
    if not file.startswith(TRITON_ROOM):
        assert "triton" not in anywhere, f"{file}: triton belongs to {TRITON_ROOM}"
    assert "triton" not in on_load, f"{file}: import triton in a function"


def test_files_with_torch_are_imported_lazily() -> None:
    wrong = []
    for file in [f for f in SOURCES if not f.startswith(TORCH_FILES)]:
        wrong += [
            f"{file}:{line} imports {module} when it is loaded, and with it torch"
            for line, module in module_level(parse(file))
            if module in {name for path, name in SOURCES.items() if path.startswith(TORCH_FILES)}
        ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("prefix", TORCH_FILES)
def test_files_with_torch_import_it(prefix: str) -> None:
    files = [file for file in SOURCES if file.startswith(prefix)]
    on_load = {library(module) for file in files for _, module in module_level(parse(file))}
    assert "torch" in on_load, f"no {prefix}*.py imports torch: {files}"


def test_no_module_imports_itself_in_a_circle() -> None:
    by_module = {module: file for file, module in SOURCES.items()}
    edges = {
        module: {target for _, target in module_level(parse(file)) if target in by_module}
        for module, file in by_module.items()
    }
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " → ".join((*path[path.index(module) :], module))
        if module not in done:
            for target in edges[module]:
                visit(target, (*path, module))
            done.add(module)

    for module in edges:
        visit(module, ())
