"""Objects of classes that are written in C: what they say is asked for again at each call."""

from __future__ import annotations

import decimal
import mmap
import sqlite3
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import gradof
from gradof.errors import EagerWarning, TraceError
from gradof.runtime.state_in_c import OfC
from gradof.tracer.state.in_c import methods_in_c, names_in_c

_OPEN: list[sqlite3.Connection] = []


def _connected(factory: type[sqlite3.Connection] = sqlite3.Connection) -> sqlite3.Connection:
    made = sqlite3.connect(":memory:", factory=factory)
    _OPEN.append(made)
    made.execute("create table t(a)")
    return made


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Python 3.13 warns of connections that are not closed."""
    yield
    while _OPEN:
        _OPEN.pop().close()


class _Connection(sqlite3.Connection):
    """A class of Python's on top of it."""


class _Attribute:
    def __init__(self) -> None:
        self.held: Any = _connected()

    def __call__(self, x: Any) -> Any:
        return x.sum() * (self.held.total_changes + 1)

    def change(self) -> None:
        self.held.execute("insert into t values (1)")


class _OfASubclass(_Attribute):
    def __init__(self) -> None:
        self.held = _connected(_Connection)


class _OfAContext(_Attribute):
    def __init__(self) -> None:
        self.held = decimal.Context()

    def __call__(self, x: Any) -> Any:
        return x.sum() * self.held.prec

    def change(self) -> None:
        self.held.prec += 1


class _OfABitGenerator(_Attribute):
    def __init__(self) -> None:
        self.held = np.random.PCG64(3)

    def __call__(self, x: Any) -> Any:
        return x.sum() * (self.held.state["state"]["state"] % 97)

    def change(self) -> None:
        self.held.random_raw()


class _Items(_Attribute):
    def __init__(self) -> None:
        self.held = mmap.mmap(-1, 8)

    def __call__(self, x: Any) -> Any:
        return x.sum() * (self.held[0] + 1)

    def change(self) -> None:
        self.held[0] = self.held[0] + 1


class _Method(_Attribute):
    def __call__(self, x: Any) -> Any:
        return x.sum() * self.held.execute("insert into t values (1)").lastrowid

    def rows(self) -> int:
        return int(self.held.execute("select count(*) from t").fetchone()[0])


def _ones(library: str) -> Any:
    return np.ones(3) if library == "numpy" else torch.ones(3)


@pytest.mark.filterwarnings("ignore::gradof.errors.RetraceWarning")
@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("make", [_Attribute, _OfASubclass, _OfAContext, _OfABitGenerator, _Items])
def test_what_changes_is_read_again(
    make: Callable[[], _Attribute], library: str
) -> None:
    model = make()
    compiled = gradof.differentiate(model)
    for _ in range(3):
        for _ in range(2):
            assert float(compiled(_ones(library))) == float(model(_ones(library)))
        model.change()
    assert compiled.cache_info()[:2] == (3, 3)


def test_a_function_that_calls_a_method_runs_itself() -> None:
    model = _Method()
    compiled = gradof.differentiate(model)
    with pytest.warns(EagerWarning, match="Connection.execute, code in C, of an object in reach"):
        assert float(compiled(_ones("torch"))) == 3
    for k in range(2, 5):
        assert float(compiled(_ones("torch"))) == 3 * k
    assert model.rows() == 4, "no trace has called it"
    assert compiled.cache_info().misses == 1, "one trace was tried"
    with pytest.raises(TraceError, match="it would run once") as found:
        gradof.grad(model)(_ones("numpy"))
    assert model.rows() == 4 and "test_state_in_c.py" in str(found.value)


def test_what_is_compared_is_what_can_be() -> None:
    connection = _connected()
    assert "total_changes" in names_in_c(sqlite3.Connection)
    assert "execute" in methods_in_c(sqlite3.Connection)
    held = OfC(connection, ["total_changes", "row_factory", "not_there"])
    assert held()
    connection.execute("insert into t values (1)")
    assert not held()
    closed = OfC(connection, ["not_there"])
    assert not closed  # nothing to compare
    for known in (torch.Tensor, np.ndarray, list, decimal.Decimal, _Method):
        assert not methods_in_c(known) or known is decimal.Decimal
