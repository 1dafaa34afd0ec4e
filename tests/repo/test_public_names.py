"""The public names are a promise: this list, `gradof.__all__` and docs/api.md say the same."""

from __future__ import annotations

import re
import types
from pathlib import Path

import pytest

import gradof
from gradof import errors

ROOT = Path(__file__).parents[2]

PUBLIC = [
    "__version__",
    "differentiate",
    "errors",
    "grad",
    "hessian",
    "hvp",
    "jacobian",
    "value_and_grad",
    "vjp",
]


def test_all_is_the_frozen_list() -> None:
    assert sorted(gradof.__all__) == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_name_is_there_and_described(name: str) -> None:
    value = getattr(gradof, name)
    if name != "__version__":
        assert value.__doc__


def test_dir_shows_every_public_name() -> None:
    assert set(gradof.__all__) <= set(dir(gradof))


def test_docs_list_every_public_name_and_no_other() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    listed = re.findall(r"^### `(\w+)", page, re.MULTILINE)
    assert sorted(listed) == PUBLIC


def test_every_error_is_under_one_root_and_in_the_tree_of_its_module() -> None:
    classes = [value for value in vars(errors).values() if isinstance(value, type)]
    public = [cls for cls in classes if issubclass(cls, Exception)]
    assert all(issubclass(cls, errors.GradofError) for cls in public)
    tree = (errors.__doc__ or "").split("Each message")[0]
    assert sorted(re.findall(r"\b(\w+Error)\b", tree)) == sorted(cls.__name__ for cls in public)


def test_submodules_are_not_public_by_accident() -> None:
    extra = {
        name
        for name, value in vars(gradof).items()
        if not name.startswith("_")
        and name not in PUBLIC
        and not isinstance(value, types.ModuleType)
    }
    assert not extra, f"public by accident: {sorted(extra)}; begin the name with _"
