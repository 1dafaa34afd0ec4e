"""scan, fori_loop, while_loop and cond: as in Python, traced and plain, in numpy and torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import gradof
from gradof.codegen.machine.engine import vector_bits
from gradof.codegen.whole.function import WholeExecutable
from gradof.errors import DataDependentError, OutputError, ShapeError
from gradof.runtime.function import Differentiated


def smooth(p: Any, seen: Any) -> Any:
    def step(carry: Any, z: Any) -> Any:
        level, n = carry
        return (p * z + (1 - p) * level, n + 1.0), {"off": z - level}

    (level, n), ys = gradof.scan(step, (seen[0], 0.0), seen[1:])
    return (ys["off"] ** 2).sum() + level * n


def by_hand(p: Any, seen: Any) -> Any:
    level, total, n = seen[0], 0.0, 0.0
    for z in seen[1:]:
        total = total + (z - level) ** 2
        level, n = p * z + (1 - p) * level, n + 1.0
    return total + level * n


def tables(a: Any, b: Any) -> Any:
    def row(carry: Any, x: Any) -> Any:
        carry, ys = gradof.scan(lambda c, y: (np.tanh(c + x * y), c), carry, b, reverse=True)
        return carry, ys.sum()

    carry, ys = gradof.scan(row, a[0] * 0.5, a)
    return carry + ys.sum()


def tables_by_hand(a: Any, b: Any) -> Any:
    carry, total = a[0] * 0.5, 0.0
    for x in a:
        for y in b[::-1]:
            total = total + carry
            carry = np.tanh(carry + x * y)
    return carry + total


def powers(x: Any) -> Any:
    return gradof.fori_loop(2, 9, lambda i, v: v * x[i % 3] + 0.1 * i, x[0]).sum()


def powers_by_hand(x: Any) -> Any:
    v = x[0]
    for i in range(2, 9):
        v = v * x[i % 3] + 0.1 * i
    return v.sum()


def root(a: Any) -> Any:
    return gradof.while_loop(
        lambda x: abs(x * x - a) > 1e-12 * a, lambda x: 0.5 * (x + a / x), a * 1.0
    )


def root_by_hand(a: Any) -> Any:
    x = a * 1.0
    while abs(x * x - a) > 1e-12 * a:
        x = 0.5 * (x + a / x)
    return x


def branch(x: Any) -> Any:
    return gradof.cond(x.sum() > 0, lambda y: np.log(y).sum(), lambda y: (y**2).sum(), x)


def branch_by_hand(x: Any) -> Any:
    return np.log(x).sum() if x.sum() > 0 else (x**2).sum()


CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = {
    "scan": (smooth, by_hand, (np.float64(0.3), np.linspace(1, 2, 9) ** 2)),
    "nested": (tables, tables_by_hand, (np.linspace(0.1, 0.8, 5), np.linspace(-1, 1, 4))),
    "fori": (powers, powers_by_hand, (np.array([0.7, 1.1, 0.9]),)),
    "while": (root, root_by_hand, (np.float64(7.0),)),
    "cond": (branch, branch_by_hand, (np.array([0.5, 2.0]),)),
    "other branch": (branch, branch_by_hand, (np.array([-0.5, 0.0]),)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_form_is_what_python_does(name: str) -> None:
    form, plain, args = CASES[name]
    np.testing.assert_allclose(form(*args), plain(*args), rtol=1e-13)
    graph = Differentiated(form).trace(*args)
    assert any(node.kind == "Loop" for node in graph.walk()), str(graph)
    slope, want = gradof.grad(form), gradof.grad(plain)
    np.testing.assert_allclose(slope(*args), want(*args), rtol=1e-11)
    again = gradof.grad(lambda *a: (slope(*a) ** 2).sum())
    wants = gradof.grad(lambda *a: (want(*a) ** 2).sum())
    np.testing.assert_allclose(again(*args), wants(*args), rtol=1e-10)


def test_another_number_of_steps_is_no_error_and_mostly_no_new_trace() -> None:
    slope = gradof.grad(root)
    for a in (7.0, 3.0, 1e9, 2.0):
        np.testing.assert_allclose(slope(np.float64(a)), 0.5 / np.sqrt(a), rtol=1e-9)
    assert slope.cache_info().misses == 2, "1e9 takes more than sixteen steps"


@pytest.mark.skipif(not vector_bits(), reason="no native code here")
def test_our_own_code_is_no_state_of_a_function_and_its_decisions_are_native() -> None:
    slope = gradof.grad(lambda a: root(a) + branch(np.stack([a, a])))
    for a in (7.0, 3.0, 5.0):
        slope(np.float64(a))
    assert slope.cache_info().misses == 1
    compiled = Differentiated(root)
    decisions = compiled.paths(compiled.bind((np.float64(7.0),), {}).call)[0]
    assert isinstance(decisions.executable, WholeExecutable)
    assert decisions.failure([np.array(7.0)]) is None
    failed = decisions.failure([np.array(1e9)])  # more steps than there is room for
    assert failed is not None and failed.value is False


def test_both_branches_are_one_trace() -> None:
    slope = gradof.grad(branch)
    np.testing.assert_allclose(slope(np.array([0.5, 2.0])), [2.0, 0.5])
    np.testing.assert_allclose(slope(np.array([-0.5, 0.0])), [-1.0, 0.0])
    assert slope.cache_info().misses == 1


def test_torch_runs_them_as_python_and_rolls_the_steps() -> None:
    p = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    seen = torch.linspace(1, 2, 40, dtype=torch.float64) ** 2
    compiled: Any = gradof.differentiate(smooth)
    (found,) = torch.autograd.grad(compiled(p, seen), p)
    (want,) = torch.autograd.grad(by_hand(p, seen), p)
    torch.testing.assert_close(found, want)
    assert compiled.cache_info().backward_runs == 1
    assert any(node.kind == "Loop" for node in compiled.trace(p, seen).walk())


def test_no_steps() -> None:
    def loss(x: Any, rows: Any) -> Any:
        last, ys = gradof.scan(lambda c, r: (c * r.sum(), c + r), x, rows)
        return last + ys.sum()

    args = np.float64(3.0), np.zeros((0, 2))
    assert loss(*args) == 3.0
    assert gradof.grad(loss)(*args) == 1.0


def test_wrong_uses_are_errors_that_say_what_to_do() -> None:
    x = np.ones(3)
    with pytest.raises(ShapeError, match="lengths"):
        gradof.scan(lambda c, r: (c, None), 0.0, (np.ones(2), np.ones(3)))
    with pytest.raises(OutputError, match="not a pair"):
        gradof.scan(lambda c, r: c, 0.0, x)
    with pytest.raises(OutputError, match="carries on"):
        gradof.grad(lambda x: gradof.scan(lambda c, r: (x, r), x[0], x)[0].sum())(x)
    with pytest.raises(DataDependentError, match="branches on a value"):
        gradof.grad(lambda x: gradof.scan(lambda c, r: (c + r if r > 0 else c, r), x[0], x)[0])(x)
