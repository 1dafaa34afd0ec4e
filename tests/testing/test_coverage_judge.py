"""The judge of the coverage run: it finds a wrong value, a wrong rule, a lost gradient, a crash."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gradof.ir.opinfo import OPS
from gradof.ops.expr import Expr, F
from gradof.ops.registry import get_op
from gradof.testing.coverage import cover_named, run_torch
from gradof.testing.torch_coverage import OpCoverage


@contextmanager
def changed(name: str, **fields: Any) -> Iterator[None]:
    before = get_op(name)
    OPS[name] = dataclasses.replace(before, **fields)
    try:
        yield
    finally:
        OPS[name] = before


def tanh_with(rule: Callable[..., Expr], reads: tuple[str, ...], dtype: str = "f32") -> OpCoverage:
    with changed("tanh", vjp={"x": rule}, reads={"x": reads}):
        return cover_named("tanh", dtype)


def test_what_is_right() -> None:
    for dtype in ("f32", "f64"):
        row = cover_named("tanh", dtype)
        assert [row.status(order) for order in range(3)] == ["native"] * 3
        assert row.compared == [row.samples] * 3 and not row.opaque
        assert max(row.worst) < (1e-5 if dtype == "f32" else 1e-13)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(
    "rule",
    [
        lambda g, y: g * (y * y - 1.0),
        lambda g, y: g * (1.0 - y * y) * 1.001,
        lambda g, y: g * (1.0 - y),
        lambda g, y: 1.0 - y * y,
    ],
)
def test_a_wrong_rule(rule: Callable[..., Expr], dtype: str) -> None:
    row = tanh_with(rule, ("g", "y"), dtype)
    assert [row.status(order) for order in range(3)] == ["native", "wrong", "wrong"]
    assert "tanh #0" in row.wrong[0][1] and "off eager" in row.wrong[0][1]


def test_a_wrong_second_derivative() -> None:
    row = tanh_with(lambda g, y: g * (1.0 - F.detach(y) * y), ("g", "y"))
    assert [row.status(order) for order in range(3)] == ["native", "native", "wrong"]


def test_a_lost_gradient() -> None:
    with changed("tanh", vjp={"x": None}, reads={}):
        row = cover_named("tanh", "f32")
    assert row.status(0) == "native" and row.status(1) in ("wrong", "error")


def test_a_wrong_value_and_a_crash() -> None:
    with changed("tanh", numpy="np.sin"):
        assert cover_named("tanh", "f32").status(0) == "wrong"
    with changed("tanh", numpy="np.no_such_function"):
        row = cover_named("tanh", "f32")
    assert [row.status(order) for order in range(3)] == ["error"] * 3
    assert "no_such_function" in row.errors[0][1]


@pytest.mark.long
def test_several_processes_give_rows_in_order() -> None:
    seen: list[str] = []
    rows = run_torch(["f64"], ["tanh", "abs"], jobs=2, progress=lambda row: seen.append(row.name))
    assert [row.name for row in rows] == ["tanh", "abs"] and sorted(seen) == ["abs", "tanh"]
    assert all(row.status(2) == "native" for row in rows)
