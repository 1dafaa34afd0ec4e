"""Plain arrays of Python's state that a numpy function changes: each call changes them, as plain.

Plain numpy changes them unseen. So a trace that finds one changed is taken again, with the array as
an input, and what is done to it is part of the graph.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gradof

LINES = {
    "an element": "s.calls[0] += 1",
    "all": "s.calls += 2",
    "by a mask of x": "s.calls[x > 0.5] += 1",
    "by a place that x decides": "s.calls[np.argmax(x)] += 1",
    "add.at": "np.add.at(s.calls, [0, 1, 0], 1)",
    "by a count": "s.calls[s.count % 3] += 1; s.count += 1",
    "fill": "s.calls.fill(3)",
    "copyto": "np.copyto(s.calls, 4)",
    "out": "np.multiply(s.calls, 2, out=s.calls)",
    "a view": "v = s.calls[1:]; v += 1",
    "through reshape": "s.calls.reshape(3, 1)[1] += 1",
    "a swap": "s.calls[0], s.calls[1] = s.calls[1] + 1, s.calls[0]",
    "read": "s.calls += 1; x = x * s.calls",
    "a branch": "s.calls[0] += 1\n    if s.calls[0] > 3: x = x * 3",
    "a mask of itself": "s.calls[s.calls > 2] = 0; s.calls += 1",
    "a log": "s.log[:-1] = s.log[1:].copy(); s.log[-1] = x",
    "booleans": "s.seen |= x > 0.5",
    "no dims": "s.total += 1",
    "another array each time": "s.calls = s.calls + 1",
}


def _world(dtype: type) -> SimpleNamespace:
    return SimpleNamespace(
        calls=np.array([3, 1, 2], dtype), log=np.zeros((4, 3)), seen=np.zeros(3, bool),
        total=np.array(2, dtype), count=0,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", [float, int, np.float32, np.int8])
@pytest.mark.parametrize("line", LINES)
def test_each_call_changes_them(line: str, dtype: type) -> None:
    def run(compiled: bool) -> list[Any]:
        space: dict[str, Any] = {"np": np, "s": _world(dtype)}
        exec(f"def f(x):\n    {LINES[line]}\n    return (x ** 2).sum()", space)
        f, found = space["f"], []
        both = gradof.value_and_grad(f)
        for call in range(5):
            x = np.array([0.3, 0.7, 1.2]) * (1 + call % 3)
            value, slope = both(x) if compiled else (f(x), None)
            if slope is not None and "x =" not in LINES[line]:
                np.testing.assert_allclose(slope, 2 * x)
            found.append((round(float(value), 9), repr(space["s"])))
        return found

    assert run(compiled=True) == run(compiled=False)


def test_a_number_of_evaluations_is_one_trace() -> None:
    evaluations = np.zeros(1, int)

    def cost(x: Any) -> Any:
        evaluations[0] += 1
        return np.sum(x**2)

    both = gradof.value_and_grad(cost)
    for call in range(1, 6):
        both(np.full(3, float(call)))
        assert evaluations[0] == call
    assert both.cache_info().misses == 1
