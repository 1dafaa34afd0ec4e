"""Launches past triton's JIT, counted with a driver that has no device."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.codegen.triton_process import run

pytest.importorskip("triton", reason="pip install 'gradof[triton]'")


def test_launches_past_the_jit_are_those_of_the_jit(tmp_path: Path) -> None:
    found = run("triton_launch", "", tmp_path, interpret=False)
    assert len(found) == 9
    assert {k: v for k, v in found.items() if v != "ok"} == {}
