"""Long functions of small arrays are native kernels; short ones, and very long ones, are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gradof import differentiate, tuning, value_and_grad
from gradof.codegen import compile_graph, has_small_kernels
from gradof.codegen.machine.engine import status
from gradof.ir.parser import parse_graph
from gradof.testing import check

pytestmark = [pytest.mark.skipif(not status()[0], reason=status()[1]),
              pytest.mark.usefixtures("op_by_op")]  # fmt: skip


def _chain(ops: int, cells: int) -> str:
    lines = [f"graph f(%v0 : f64[{cells}]):"]
    lines += [f" %v{i + 1} : f64[{cells}] = tanh(%v{i})" for i in range(ops)]
    return "\n".join([*lines, f" return (%v{ops})"])


LEAST, MOST = tuning.SMALL_KERNEL_LEAST, tuning.SMALL_KERNEL_MOST
CELLS = tuning.SMALL_KERNEL_CELLS


@pytest.mark.parametrize("ops, cells, small", [
    (LEAST, CELLS, True), (LEAST - 1, CELLS, False), (LEAST, CELLS - 1, False),
    (MOST, CELLS, True), (MOST + 1, CELLS, False),
])  # fmt: skip
def test_which_are_kernels(ops: int, cells: int, small: bool) -> None:
    graph = parse_graph(_chain(ops, cells))
    assert has_small_kernels(graph) == small
    graph.small_kernels = small
    made = compile_graph(graph, backend="native")
    assert [k.emitter for k in made.kernels] == ["native"] * small
    assert not compile_graph(graph, backend="tiles").kernels
    x = np.linspace(-2.0, 2.0, cells)
    want = x
    for _ in range(ops):
        want = np.tanh(want)
    np.testing.assert_allclose(made(x)[0], want, rtol=1e-14)


def _pendulum(x: Any) -> Any:
    angle, speed = x[:1500], x[1500:]
    for _ in range(4):
        speed = speed - 0.1 * np.sin(angle)
        angle = angle + 0.1 * speed
    return np.sum(angle * speed)


def test_value_and_gradient_of_a_small_simulation() -> None:
    """The value alone is that with the gradient: a function is compiled in one way."""
    x = np.linspace(-1.0, 1.0, 3000)
    assert check(_pendulum, (x,), order=2).ok
    value, _ = value_and_grad(_pendulum)(x)
    assert value == differentiate(_pendulum)(x)
