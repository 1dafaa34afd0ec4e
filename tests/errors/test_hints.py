"""Every hint of the numpy and scipy tracers: told to the program that needs it, and right."""

from __future__ import annotations

import ast
import linecache
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gradof
from gradof.errors import GradofError
from tests.errors.hints import NO_PROGRAM, PAIRS

X = np.array([0.7, 1.3, 0.9])
ROOT = Path(__file__).parents[2] / "tracer"


def _programs() -> dict[str, tuple[str, str]]:
    found = {}
    for part in PAIRS.split("\n--- ")[1:]:
        hint, _, rest = part.partition("\n")
        refused, _, followed = rest.partition("---- followed\n")
        found[hint] = refused, followed
    return found


PROGRAMS = _programs()


def made(text: str, file: str) -> Any:
    module = types.ModuleType("a_program")
    vars(module)["np"] = np
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), vars(module))
    return vars(module)["f"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("hint", PROGRAMS)
def test_the_hint_is_told_with_the_users_line(hint: str) -> None:
    with pytest.raises(GradofError) as caught:
        gradof.grad(made(PROGRAMS[hint][0], "refused.py"))(X)
    assert (caught.value.hint or "").startswith(hint), str(caught.value)
    assert "refused.py:" in str(caught.value), str(caught.value)


@pytest.mark.parametrize("hint", PROGRAMS)
def test_the_hint_helps(hint: str) -> None:
    text = PROGRAMS[hint][1]
    fn = made(text, "followed.py")
    value, slope = gradof.value_and_grad(fn)(X)
    np.testing.assert_allclose(value, fn(X.copy()), rtol=1e-9)
    step = 1e-3 if "scipy.optimize" in text else 1e-6  # of what scipy finds to eight digits
    want = [(fn(X + d) - fn(X - d)) / (2 * step) for d in np.eye(3) * step]
    np.testing.assert_allclose(slope, want, rtol=1e-4, atol=1e-5)


def _texts(node: ast.AST) -> list[str]:
    """What a hint may begin with: a text, the first of two, or the beginning of an f-string."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.JoinedStr) and node.values:
        return _texts(node.values[0])
    if isinstance(node, ast.BoolOp):
        return [text for value in node.values for text in _texts(value)]
    return []


def _hints() -> dict[str, str]:
    """The hints written in the code of the tracers, with where they are."""
    found = {}
    for path in sorted(p for part in ("numpy", "scipy") for p in (ROOT / part).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            given = [k.value for k in node.keywords if k.arg == "hint"]
            if isinstance(node.func, ast.Attribute) and node.func.attr == "unsupported":
                given += node.args[1:2]
            found.update({text: f"{path.name}:{node.lineno}" for g in given for text in _texts(g)})
    return found


def test_every_hint_has_its_program() -> None:
    known = (*PROGRAMS, *NO_PROGRAM)
    hints = _hints()
    assert len(hints) > 35
    lacking = {text: at for text, at in hints.items() if not text.startswith(known)}
    assert not lacking, lacking
    gone = [k for k in NO_PROGRAM if not any(text.startswith(k) for text in hints)]
    assert not gone, gone
