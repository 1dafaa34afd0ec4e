"""Graphs of small arrays as one native function, beside the same graphs op by op."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gradof import tuning
from gradof.codegen import compile_graph
from gradof.codegen.machine.engine import vector_bits
from gradof.codegen.whole.function import WholeExecutable
from gradof.ir.parser import parse_graph
from gradof.ir.types import TensorType

pytestmark = pytest.mark.skipif(not vector_bits(), reason="no native code here")
NUMPY = {"f64": np.float64, "f32": np.float32, "i64": np.int64, "bool": np.bool_}

# Each result, and the shapes of %x and %y; T is the dtype. `large` shapes are in memory.
MOVES = {
    "reshape": ("reshape[shape=(6, 20)](%x)", "6,20"),
    "reshape of a transpose": ("reshape[shape=(120,)](%t)", "120"),
    "slice": ("slice[dim=1, start=1, stop=9, step=3](%x)", "12,3"),
    "slice to few": ("slice[dim=0, start=3, stop=4, step=1](%x)", "1,10"),
    "flip": ("flip[dims=(0, 1)](%x)", "12,10"),
    "permute": ("permute[dims=(1, 0)](%x)", "10,12"),
    "expand": ("expand[shape=(3, 12, 10)](%x)", "3,12,10"),
    "cat": ("cat[dim=1](%x, %y, %x)", "12,30"),
    "slice_scatter": ("slice_scatter[dim=0, start=2, stop=12, step=5](%x, %rows)", "12,10"),
    "unslice": ("unslice[shape=(30, 10), dim=0, start=1, stop=25, step=2](%x)", "30,10"),
    "pad": ("pad[pads=((1, 2), (0, 3)), value=2](%x)", "15,13"),
    "tril": ("tril[diagonal=-1](%x)", "12,10"),
    "triu": ("triu[diagonal=1](%t)", "10,12"),
    "index_select": ("index_select[dim=1](%x, %i)", "12,4"),
    "index_add": ("index_add[dim=0](%x, %i, %four)", "12,10"),
    "gather": ("gather[dim=0](%x, %ij)", "4,2"),
    "scatter": ("scatter[dim=0](%x, %ij, %src)", "12,10"),
    "scatter_add": ("scatter_add[dim=1](%x, %ij, %src)", "12,10"),
}  # fmt: skip
REDUCTIONS = {
    "sum of all": ("sum[dims=(0, 1), keepdims=False](%x)", ""),
    "sum of rows": ("sum[dims=(1,), keepdims=True](%x)", "12,1"),
    "sum of columns": ("sum[dims=(0,), keepdims=False](%x)", "10"),
    "sum of a transpose": ("sum[dims=(0,), keepdims=False](%t)", "12"),
    "sum in the middle": ("sum[dims=(1,), keepdims=False](%z)", "2,15"),
    "sum of both ends": ("sum[dims=(0, 2), keepdims=False](%z)", "4"),
    "prod": ("prod[dims=(1,), keepdims=False](%x)", "12"),
    "amax": ("amax[dims=(0,), keepdims=False](%x)", "10"),
    "amin of all": ("amin[dims=(0, 1), keepdims=False](%x)", ""),
    "cumsum": ("cumsum[dim=0](%x)", "12,10"),
    "cumsum of rows": ("cumsum[dim=1](%t)", "10,12"),
}  # fmt: skip
ELEMENTWISE = {
    "arithmetic": ("sub(%x, %y)", "12,10"),
    "a column": ("mul(%x, %column)", "12,10"),
    "a row": ("mul(%x, %row)", "12,10"),
    "a number": ("add(%x, %one)", "12,10"),
    "both": ("mul(%column, %row)", "12,10"),
    "a transpose": ("mul(%t, %turned)", "10,12"),
    "maximum": ("maximum(%x, %y)", "12,10"),
    "where": ("where(%mask, %x, %one)", "12,10"),
    "clamp": ("clamp[low=1, high=None](%x)", "12,10"),
    "few": ("mul(%few, %few)", "3"),
    "relu": ("relu(%x)", "12,10"),
}  # fmt: skip
CASES = {**MOVES, **REDUCTIONS, **ELEMENTWISE}


def graph_of(expression: str, shape: str, dtype: str) -> Any:
    return parse_graph(f"""
graph f(%x : T[12,10], %y : T[12,10], %i : i64[4], %ij : i64[4,2]):
  %0 : int = Constant[value=3]()
  %t : T[10,12] = permute[dims=(1, 0)](%x)
  %z : T[2,4,15] = reshape[shape=(2, 4, 15)](%x)
  %turned : T[10,12] = permute[dims=(1, 0)](%y)
  %rows : T[2,10] = slice[dim=0, start=0, stop=2, step=1](%y)
  %four : T[4,10] = slice[dim=0, start=8, stop=12, step=1](%y)
  %src : T[4,2] = slice[dim=1, start=0, stop=2, step=1](%four)
  %column : T[12,1] = slice[dim=1, start=3, stop=4, step=1](%y)
  %row : T[1,10] = slice[dim=0, start=3, stop=4, step=1](%y)
  %first : T[1,3] = slice[dim=1, start=0, stop=3, step=1](%row)
  %few : T[3] = reshape[shape=(3,)](%first)
  %corner : T[1,1] = slice[dim=1, start=1, stop=2, step=1](%row)
  %one : T[] = reshape[shape=()](%corner)
  %mask : bool[12,10] = gt(%x, %y)
  %found : T[{shape}] = {expression}
  %twice : T[{shape}] = mul(%found, %0)
  %four_times : T[{shape}] = add(%twice, %found)
  return (%found, %four_times)
""".replace("T[", f"{dtype}["))


def arrays_of(graph: Any, seed: int = 0) -> list[Any]:
    """Arguments; indices are in range of everything that they index."""
    rng = np.random.default_rng(seed)
    found: list[Any] = []
    for value in graph.inputs:
        assert isinstance(value.type, TensorType) and value.type.shape is not None
        dtype = NUMPY[str(value.type.dtype)]
        if dtype is np.int64 and value.hint in ("i", "ij"):
            found.append(rng.integers(0, 10, value.type.shape))
        elif dtype is np.bool_:
            found.append(rng.random(value.type.shape) < 0.5)
        else:
            found.append((rng.standard_normal(value.type.shape) * 3).astype(dtype))
    return found


def both(graph: Any, arrays: list[Any]) -> tuple[Any, tuple[Any, ...], tuple[Any, ...]]:
    """The native function, its results and those of numpy."""
    native = compile_graph(graph)
    assert isinstance(native, WholeExecutable)
    found = native(*arrays)
    assert "statements" not in vars(native)  # it was the native function that ran
    return native, found, compile_graph(graph, backend="numpy")(*arrays)


@pytest.fixture(autouse=True)
def _any_size(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(tuning, "WHOLE_LEAST", 0)
    yield


@pytest.mark.parametrize("dtype", ["f64", "f32", "i64"])
def test_ops_are_the_same_bits(dtype: str) -> None:
    """All in one graph, whose results are those of a graph each."""
    for name, (expression, shape) in CASES.items():
        graph = graph_of(expression, shape, dtype)
        _, found, expected = both(graph, arrays_of(graph))
        for mine, other in zip(found, expected, strict=True):
            assert mine.dtype == other.dtype and mine.shape == other.shape, name
            assert np.array_equal(mine, other), name
