"""A long native function is compiled quickly at first, and well once it is called again."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gradof import tuning
from gradof.codegen.machine.c_entry import PROTOTYPES
from gradof.codegen.machine.engine import vector_bits
from gradof.codegen.machine.object_cache import object_cache
from gradof.codegen.whole.function import WholeExecutable
from gradof.ir.core import Graph
from gradof.ir.parser import parse_graph

pytestmark = pytest.mark.skipif(not vector_bits(), reason="no native code here")


@pytest.fixture(autouse=True)
def new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Nothing is on disk, and every function is long."""
    monkeypatch.setenv("GRADOF_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tuning, "EARLY_LINES", 0)
    object_cache.cache_clear()
    yield
    object_cache.cache_clear()


def graph(number: float) -> Graph:
    return parse_graph(f"""graph f(%x : f64[5,7], %i : i64[3]):
  %c : float = Constant[value={number}]()
  %y : f64[5,7] = tanh(%x)
  %z : f64[5,7] = mul(%y, %c)
  %s : f64[5] = sum[dims=(1,), keepdims=False](%z)
  %k : i64[3] = in_range[size=5, wraps=False, error='index'](%i)
  %r : f64[3] = index_select[dim=0](%s, %k)
  return (%r)
""")


def executable(number: float) -> WholeExecutable:
    def op_by_op() -> Any:
        def statements(x: Any, i: Any) -> Any:
            if (i >= 5).any():
                raise IndexError("index 5 is out of range")
            return (np.take((np.tanh(x) * number).sum(1), i),)

        return statements

    return WholeExecutable(graph(number), "f", op_by_op)


X, ROWS = np.linspace(-1.0, 1.0, 35).reshape(5, 7), np.array([4, 0, 2])


def test_the_third_call_is_of_optimised_code_and_the_same_bits() -> None:
    run = executable(1.25)
    quick, found = run._code, []
    for _ in range(5):
        found.append(run(X, ROWS)[0])
        assert (run._code is quick) == (len(found) <= tuning.EARLY_CALLS)
    assert all(np.array_equal(found[0], each) for each in found)
    assert not run._watched.asks


def test_code_that_is_on_disk_is_taken_at_once() -> None:
    first = executable(1.5)
    for _ in range(3):
        first(X, ROWS)
    again = executable(1.5)
    assert not again._watched.asks
    assert np.array_equal(again(X, ROWS)[0], first(X, ROWS)[0])


def test_what_takes_long_or_is_short_is_optimised_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tuning, "EARLY_CELLS", 0)
    assert not executable(1.75)._watched.asks
    monkeypatch.undo()
    monkeypatch.setattr(tuning, "EARLY_LINES", 10_000)
    assert not executable(1.75)._watched.asks


@pytest.mark.parametrize("calls", [0, 1, 2, 3])
def test_other_arrays_and_errors_among_the_first_calls(calls: int) -> None:
    run = executable(2.0 + calls)
    want = run.statements(X, ROWS)[0]
    for _ in range(calls):
        run(X, ROWS)
    wide = np.repeat(X, 2, axis=1)[:, ::2]
    np.testing.assert_allclose(run(wide, ROWS)[0], want, atol=1e-12)
    with pytest.raises(IndexError, match="out of range"):
        run(X, np.array([4, 5, 2]))
    np.testing.assert_allclose(run(X, ROWS)[0], want, atol=1e-12)


def test_a_c_function_is_of_optimised_code() -> None:
    run = executable(3.5)
    quick = run._code
    call = PROTOTYPES["pointers"](run.c_function("pointers"))
    assert run._code is not quick and not run._watched.asks
    out = np.zeros(3)
    given = (ctypes.c_void_p * 2)(X.ctypes.data, ROWS.ctypes.data)
    made = (ctypes.c_void_p * 1)(out.ctypes.data)
    assert call(given, made) == 0
    assert np.array_equal(out, run(X, ROWS)[0])
