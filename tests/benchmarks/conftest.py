"""Modules of the benchmarks' folder, which is no package."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a module of the benchmarks' folder."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module
