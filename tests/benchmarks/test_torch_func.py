"""The programs of benchmarks/torch_func.py: values and gradients are eager's, and only ours run."""

from __future__ import annotations

import pytest
import torch

import gradof
from benchmarks.torch_func import programs

PROGRAMS = programs()


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch's own, on import
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_step_is_eagers(name: str) -> None:
    program = PROGRAMS[name]
    compiled = gradof.differentiate(program.loss, strict=True)
    expected = program.step(program.loss)
    for _ in range(2):
        torch.testing.assert_close(program.step(compiled), expected, rtol=1e-8, atol=1e-10)
    info = compiled.cache_info()
    assert info.misses == 1 and info.backward_runs == 2
