"""What `gradof` says without arguments: what to do next, of what there is in this folder."""

from __future__ import annotations

import ast
from pathlib import Path

import click

_FILES = 200  # Python files that are looked at


def print_start() -> None:
    """Three things to do next, for a function of this folder if one has inputs."""
    found = _target()
    target = found or "model.py:loss"
    here = "" if found else "   (a function with example_inputs() beside it, or with --arg)"
    click.echo(f"""gradof: gradients you can check, and code you can read.

What to do next{here}:
  gradof explore {target}     the whole compilation as one page
  gradof check   {target}     is the gradient right?
  gradof show    {target} --stage df     the gradient as a graph
  gradof doctor     what this machine gives gradof to work with

gradof --help lists all commands, gradof COMMAND --help has examples of each.""")


def _target() -> str | None:
    """A function of a file here that has example inputs beside it."""
    for path in sorted([*Path().glob("*.py"), *Path().glob("examples/*.py")])[:_FILES]:
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError, OSError):
            continue  # not ours to judge: it is looked at for a name alone
        names = [n.name for n in tree.body if isinstance(n, ast.FunctionDef)]
        for name in names:
            if f"{name}_example_inputs" in names or (name == "loss" and "example_inputs" in names):
                return f"{path.as_posix()}:{name}"
    return None
