"""Machine code that is freed with its last user."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import gradof
from gradof.codegen.machine import engine
from gradof.runtime import once

pytestmark = pytest.mark.skipif(not engine.vector_bits(), reason="no native code here")


def _codes() -> int:
    gc.collect()
    return len(engine._OWNED)


def test_the_code_of_a_shape_goes_with_its_entry() -> None:
    def loss(x: Any) -> Any:
        return np.sum(np.tanh(x) ** 2 * x.size)

    before = _codes()
    run = gradof.grad(loss)
    for n in range(2, 7):
        x = np.linspace(-1.0, 1.0, n)
        t = np.tanh(x)
        np.testing.assert_allclose(run(x), 2 * n * t * (1 - t * t), rtol=1e-12)
    assert _codes() >= before + 5
    del run
    once.forget_compiled()
    assert _codes() == before


def test_a_function_that_is_held_keeps_its_code() -> None:
    text = "define i64 @two() {\n  ret i64 2\n}\n"
    first, second = engine.Code(text, "quick"), engine.Code(text, "quick")
    assert first.address_of("two") == second.address_of("two")
    count = _codes()
    del first
    assert _codes() == count
    del second
    assert _codes() == count - 1
