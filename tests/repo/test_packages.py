"""The list of packages in pyproject.toml is the tree, and the links lead where they should."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import gradof

ROOT = Path(__file__).parents[2]
LINKS = ("tracer", "autodiff", "codegen")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def packages_in_tree() -> set[str]:
    folders = {path.parent.relative_to(ROOT) for path in (ROOT / "gradof").rglob("*.py")}
    names = {".".join(folder.parts) for folder in folders}
    for link in LINKS:
        below = {path.parent.relative_to(ROOT) for path in (ROOT / link).rglob("*.py")}
        names |= {".".join(("gradof", *folder.parts)) for folder in below}
    return names


def test_package_list_is_complete() -> None:
    assert sorted(PROJECT["tool"]["setuptools"]["packages"]) == sorted(packages_in_tree())


@pytest.mark.parametrize("name", sorted(packages_in_tree()))
def test_package_has_a_described_init(name: str) -> None:
    module = importlib.import_module(name)
    assert module.__file__ is not None, f"{name} has no __init__.py"
    assert module.__doc__, f"{name} has no docstring"


@pytest.mark.parametrize("link", LINKS)
def test_link_leads_to_the_folder_at_the_root(link: str) -> None:
    path = ROOT / "gradof" / link
    assert path.is_symlink(), f"gradof/{link} is no link: git config core.symlinks true, check out"
    assert path.readlink().as_posix() == f"../{link}"


@pytest.mark.parametrize("link", LINKS)
def test_folder_at_the_root_is_imported_under_one_name_only(link: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", f"import {link}"], cwd=ROOT, capture_output=True, text=True
    )
    assert run.returncode == 1
    assert f"this package is gradof.{link}; it was imported as {link}" in run.stderr


def test_rooms_are_found_where_links_are_not_materialised(tmp_path: Path) -> None:
    ignore = shutil.ignore_patterns("__pycache__", *LINKS)
    shutil.copytree(ROOT / "gradof", tmp_path / "gradof", ignore=ignore)
    for link in LINKS:
        (tmp_path / "gradof" / link).write_text(f"../{link}")  # what git writes without links
        shutil.copytree(ROOT / link, tmp_path / link)
    names = ", ".join(f"gradof.{link}" for link in LINKS)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import {names}; "
    code += "print(gradof.tracer.__file__)"
    run = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == str(tmp_path / "tracer" / "__init__.py")


def test_version_is_stated_once() -> None:
    assert gradof.__version__ == PROJECT["project"]["version"]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "## [Unreleased]" in changelog or f"## [{gradof.__version__}]" in changelog
