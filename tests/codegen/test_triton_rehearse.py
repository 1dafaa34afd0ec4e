"""Kernels of a program compiled side by side, with a driver that has no device."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.codegen.triton_process import run

pytest.importorskip("triton", reason="pip install 'gradof[triton]'")


def test_kernels_are_compiled_before_the_first_run(tmp_path: Path) -> None:
    found = run("triton_rehearse", "", tmp_path, interpret=False)
    assert len(found) == 4
    assert {k: v for k, v in found.items() if v != "ok"} == {}
