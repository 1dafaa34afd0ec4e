"""Graphs of small arrays as one native function, beside the same graphs op by op."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gradof import tuning
from gradof.codegen import compile_graph
from gradof.codegen.machine.engine import vector_bits
from gradof.codegen.whole.function import WholeExecutable
from gradof.ir.attrs import Dense, format_attr
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
    "cumprod": ("cumprod[dim=0](%x)", "12,10"),
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


SYSTEMS = """graph f(%a : T[2,5,5], %b : T[2,5,3]):
  %one : T[5,5] = Constant[value=EYE]()
  %t : T[2,5,5] = permute[dims=(0, 2, 1)](%a)
  %g : T[2,5,5] = bmm(%a, %t)
  %s : T[2,5,5] = add(%g, %one)
  %x : T[2,5,3] = solve(%a, %b)
  %i : T[2,5,5] = inv(%t)
  %d : T[2] = det(%a)
  %c : T[2,5,5] = cholesky(%s)
  %h : T[2,5,5] = permute[dims=(0, 2, 1)](%c)
  %l : T[2,5,3] = solve_triangular[lower=True](%c, %b)
  %u : T[2,5,3] = solve_triangular[lower=False](%h, %b)
  return (%x, %i, %d, %c, %l, %u)
"""


def systems(dtype: str) -> Any:
    eye = format_attr(Dense.of(np.eye(5).astype(NUMPY[dtype])))
    return parse_graph(SYSTEMS.replace("EYE", eye).replace("T[", f"{dtype}["))


@pytest.mark.parametrize(("dtype", "tolerance"), [("f64", 1e-12), ("f32", 1e-4)])
def test_linear_systems(dtype: str, tolerance: float) -> None:
    graph = systems(dtype)
    _, found, expected = both(graph, arrays_of(graph))
    for mine, other in zip(found, expected, strict=True):
        assert mine.dtype == other.dtype
        np.testing.assert_allclose(mine, other, rtol=tolerance, atol=tolerance)


def test_what_numpy_refuses_raises_its_error() -> None:
    run = compile_graph(systems("f64"))
    assert isinstance(run, WholeExecutable)
    with pytest.raises(np.linalg.LinAlgError, match="Singular"):
        run(np.zeros((2, 5, 5)), np.ones((2, 5, 3)))


def test_arguments_of_any_layout_and_threads() -> None:
    graph = graph_of("add(%x, %y)", "12,10", "f64")
    arrays = arrays_of(graph)
    run, expected, _ = both(graph, arrays)
    turned = np.asfortranarray(arrays[0])
    odd = np.frombuffer(b"x" + arrays[1].tobytes(), np.uint8)[1:].view(np.float64)
    for given in ([turned, *arrays[1:]], [arrays[0], odd.reshape(12, 10), *arrays[2:]]):
        for mine, other in zip(run(*given), expected, strict=True):
            assert np.array_equal(mine, other)
    wrong: list[int] = []

    def work(k: int) -> None:
        mine = [a + k if a.dtype.kind == "f" else a for a in arrays]
        for _ in range(300):
            if not np.array_equal(run(*mine)[0], mine[0] + mine[1]):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_results_are_arrays_of_their_own() -> None:
    """Also where they are arguments, views of them, or one value twice; of no elements, too."""
    graph = parse_graph("""
graph f(%x : f64[3,4], %e : f64[0,4], %s : f64[]):
  %t : f64[4,3] = permute[dims=(1, 0)](%x)
  %k : f64[3,4] = mul(%x, %s)
  %z : f64[0,4] = mul(%e, %s)
  %sum : f64[4] = sum[dims=(0,), keepdims=False](%z)
  %c : f64[3,4] = cat[dim=0](%e, %k)
  return (%x, %t, %k, %k, %z, %sum, %c, %s)
""")
    arrays = [np.arange(12.0).reshape(3, 4), np.empty((0, 4)), np.array(2.0)]
    _, found, expected = both(graph, arrays)
    for k, (mine, other) in enumerate(zip(found, expected, strict=True)):
        assert type(mine) is np.ndarray and mine.flags.writeable
        assert mine.shape == other.shape and np.array_equal(mine, other)
        assert not any(np.shares_memory(mine, a) for a in [*arrays, *found[:k]])


FUNCTIONS = ("exp", "log1p", "tanh", "sigmoid", "sin", "erf", "sqrt")


def test_functions_are_within_a_few_units_of_numpys() -> None:
    """In registers, in vectors, and where no vector is full; 0-d ones by glibc."""
    for shape in ("", "3", "8", "13", "7,3"):
        lines = [f"graph f(%x : f64[{shape}]):", f"  %a : f64[{shape}] = abs(%x)"]
        lines += [f"  %{f} : f64[{shape}] = {f}(%a)" for f in FUNCTIONS]
        results = ", ".join(f"%{f}" for f in FUNCTIONS)
        graph = parse_graph("\n".join([*lines, f"  return ({results})"]))
        _, found, expected = both(graph, arrays_of(graph))
        for mine, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-15)  # 4 ulps


@pytest.mark.parametrize("shape", [(7,), (163,), (5, 9), (3, 4, 5), (1, 1), (0,), (4, 0), (0, 3)])
def test_booleans_in_order_are_the_same_bits(shape: tuple[int, ...]) -> None:
    """What an index by a mask begins with: the places of the elements, those kept first."""
    size = ",".join(map(str, shape))
    rng = np.random.default_rng(0)
    for dim in range(len(shape)):
        for descending in (False, True):
            graph = parse_graph(f"""
graph f(%x : bool[{size}]):
  %two : int = Constant[value=2]()
  %v : bool[{size}], %i : i64[{size}] = sort[dim={dim}, descending={descending}, stable=True](%x)
  %j : i64[{size}] = mul(%i, %two)
  return (%v, %i, %j)
""")
            for share in (0.0, 0.3, 1.0):
                _, found, expected = both(graph, [rng.random(shape) < share])
                for mine, other in zip(found, expected, strict=True):
                    assert mine.dtype == other.dtype and np.array_equal(mine, other)
