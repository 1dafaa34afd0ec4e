"""A module that is imported for the first time while a function is traced is not listened to."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

import gradof
from gradof.tracer.state.unheard import Listening, quietly, unprofiled

_BODY = "def step(n):\n    return n + 1\nNUMBER = sum(step(i) for i in range(9))\n"


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    names = [f"unheard_{i}" for i in range(3)]
    for name in names:
        (tmp_path / f"{name}.py").write_text(_BODY)
    monkeypatch.syspath_prepend(tmp_path)
    yield names
    for name in names:
        sys.modules.pop(name, None)


def _after() -> None:
    """A call that is heard."""


def test_only_what_comes_after_is_heard(modules: list[str]) -> None:
    heard: list[str] = []

    def hook(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            heard.append(f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}")

    find = importlib._bootstrap._find_and_load  # type: ignore[attr-defined]
    listening = Listening(hook)
    listening.start()
    try:
        importlib.import_module(modules[0])
        _after()
        quietly(importlib.import_module, modules[1])
        with unprofiled():
            importlib.import_module(modules[2])
            off = sys.getprofile()
    finally:
        listening.stop()
    assert off is None  # an import does not put back what somebody else has taken off
    assert not [name for name in heard if name.startswith("unheard_")]
    assert f"{Path(__file__).stem}._after" in heard
    assert importlib._bootstrap._find_and_load is find  # type: ignore[attr-defined]


def test_the_module_can_be_used_at_once(modules: list[str]) -> None:
    @gradof.differentiate(strict=True)
    def scaled(x: torch.Tensor) -> Any:
        return x * importlib.import_module(modules[0]).NUMBER

    x = torch.ones(2, requires_grad=True)
    for _ in range(2):
        assert scaled(x).tolist() == [45.0, 45.0]
