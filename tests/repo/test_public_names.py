"""The public names are a promise: this list, `gradof.__all__` and docs/api.md say the same."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import gradof
from gradof import errors

ROOT = Path(__file__).parents[2]

PUBLIC = [
    "__version__",
    "cfunc",
    "checkpoint",
    "cond",
    "custom_vjp",
    "differentiate",
    "errors",
    "fori_loop",
    "grad",
    "hessian",
    "hvp",
    "jacobian",
    "jvp",
    "limits",
    "primitive",
    "release_memory",
    "scan",
    "stop_gradient",
    "value_and_grad",
    "value_of",
    "vjp",
    "while_loop",
]


def test_all_is_the_frozen_list() -> None:
    assert sorted(gradof.__all__) == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_name_is_there_and_described(name: str) -> None:
    value = getattr(gradof, name)
    if name != "__version__":
        assert value.__doc__


def test_dir_shows_the_public_names_and_no_other() -> None:
    assert sorted(dir(gradof)) == PUBLIC


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'gradient_tape'"):
        _ = gradof.gradient_tape


def test_docs_list_every_public_name_and_no_other() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    listed = re.findall(r"^### `(\w+)", page, re.MULTILINE)
    assert sorted(listed) == PUBLIC


def test_every_error_is_under_one_root_and_in_the_tree_of_its_module() -> None:
    classes = [value for value in vars(errors).values() if isinstance(value, type)]
    public = [
        cls for cls in classes if issubclass(cls, Exception) and not issubclass(cls, Warning)
    ]
    assert all(issubclass(cls, errors.GradofError) for cls in public)
    tree = (errors.__doc__ or "").split("Each message")[0]
    assert sorted(re.findall(r"\b(\w+Error)\b", tree)) == sorted(cls.__name__ for cls in public)
    warnings = [cls.__name__ for cls in classes if issubclass(cls, Warning)]
    assert sorted(re.findall(r"^    (\w+Warning)\b", tree, re.MULTILINE)) == sorted(warnings)
