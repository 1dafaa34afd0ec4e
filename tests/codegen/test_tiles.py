"""The source of numpy tiles: few passes over the cells, the numbers of the nest, in any tile."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from gradof import tuning
from gradof.codegen.fusion.fuse import fuse
from gradof.codegen.loops.interpret import run_nest
from gradof.codegen.loops.ir import LoopNest
from gradof.codegen.loops.lower import schedule
from gradof.codegen.machine.threads import run_chunks
from gradof.codegen.tiles import kernel as tiles
from gradof.codegen.tiles import memory as tile_memory
from gradof.codegen.tiles import select as tile_select
from gradof.codegen.tiles import sums as tile_sums
from gradof.codegen.tiles.kernel import TileKernel
from gradof.ir.core import Graph
from gradof.ir.parser import parse_graph
from gradof.passes.pipeline import CLEAN_UP, run_passes

LOSS = """graph f(%x : {d}[8,40], %j : i64[8,1], %g : {d}[8,1]):
  %i : i64[8,1] = in_range[size=40, wraps=False, error='index'](%j)
  %m : {d}[8,1] = amax[dims=(1,), keepdims=True](%x)
  %c : {d}[8,40] = sub(%x, %m)
  %e : {d}[8,40] = exp(%c)
  %s : {d}[8,1] = sum[dims=(1,), keepdims=True](%e)
  %l : {d}[8,1] = log(%s)
  %p : {d}[8,40] = sub(%c, %l)
  %o : {d}[8,1] = gather[dim=1](%p, %i)
  %z : {d}[8,40] = full[shape=(8, 40), dtype={d}, value=0.0, device='cpu']()
  %h : {d}[8,40] = scatter_add[dim=1](%z, %i, %g)
  %n : {d}[8,40] = neg(%h)
  %t : {d}[8,1] = sum[dims=(1,), keepdims=True](%n)
  %q : {d}[8,1] = div(%t, %s)
  %k : {d}[8,40] = mul(%q, %e)
  %d : {d}[8,40] = add(%h, %k)
  return (%o, %d)"""
NORM = """graph f(%x : {d}[6,32], %y : {d}[6,32], %w : {d}[32]):
  %s : {d}[6,1] = sum[dims=(1,), keepdims=True](%x)
  %c : {d}[6,32] = sub(%x, %s)
  %q : {d}[6,32] = square(%c)
  %v : {d}[6,1] = sum[dims=(1,), keepdims=True](%q)
  %r : {d}[6,1] = rsqrt(%v)
  %n : {d}[6,32] = mul(%c, %r)
  %a : {d}[6,32] = mul(%n, %w)
  %p : {d}[6,32] = mul(%a, %y)
  %l : {d}[] = sum[dims=(0, 1), keepdims=False](%p)
  %g : {d}[32] = sum[dims=(0,), keepdims=False](%n)
  %h : {d}[6,32] = neg(%a)
  %t : {d}[32] = sum[dims=(0,), keepdims=False](%h)
  %o : {d}[6,1] = sum[dims=(1,), keepdims=True](%h)
  return (%a, %l, %g, %t, %o)"""
LINE = """graph f(%x : {d}[100], %y : {d}[100]):
  %e : {d}[100] = exp(%x)
  %p : {d}[100] = mul(%e, %y)
  %s : {d}[] = sum[dims=(0,), keepdims=False](%p)
  %m : {d}[] = amax[dims=(0,), keepdims=False](%e)
  %r : {d}[] = div(%s, %m)
  return (%e, %r, %m)"""
MASKS = """graph f(%x : {d}[9,24], %y : {d}[9,24], %r : {d}[9,1], %d : {d}[]):
  %0 : float = Constant[value=0.0]()
  %1 : float = Constant[value=-2.5]()
  %p : bool[9,24] = gt(%x, %0)
  %a : {d}[9,24] = where(%p, %x, %0)
  %b : {d}[9,24] = where(%p, %1, %y)
  %c : {d}[9,24] = where(%p, %0, %r)
  %e : {d}[9,24] = where(%p, %a, %b)
  %k : {d}[9,24] = cast[dtype={d}](%p)
  %g : {d}[9,24] = mul(%d, %y)
  %h : {d}[9,24] = mul(%g, %x)
  %i : {d}[9,24] = mul(%g, %e)
  %s : {d}[24] = sum[dims=(0,), keepdims=False](%g)
  %m : {d}[9,1] = amax[dims=(1,), keepdims=True](%i)
  %n : {d}[9,1] = amin[dims=(1,), keepdims=True](%h)
  %t : {d}[24] = amax[dims=(0,), keepdims=False](%h)
  return (%a, %b, %c, %e, %k, %h, %i, %s, %m, %n, %t)"""
BUSY = """graph f(%x : {d}[9,24]):
  %a : {d}[9,24] = exp(%x)
  %b : {d}[9,24] = sin(%a)
  %c : {d}[9,24] = cos(%a)
  %d : {d}[9,24] = mul(%b, %c)
  %e : {d}[9,24] = add(%d, %a)
  return (%e)"""
DTYPES = {"f32": np.float32, "f64": np.float64}


def nest_of(text: str) -> LoopNest:
    graph = parse_graph(text)
    run_passes(graph, ("expand-composites", *CLEAN_UP))
    together: Graph = fuse(graph, lambda node: True, lambda group: True)
    (group,) = (n for n in together.nodes() if n.kind == "FusionGroup")
    return schedule(group)


def inputs_of(nest: LoopNest, seed: int = 3) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [
        rng.integers(0, nest.sizes[-1], b.shape) if b.dtype.name == "i64"
        else rng.standard_normal(b.shape).astype(DTYPES[b.dtype.name])
        for b in nest.inputs
    ]  # fmt: skip


def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a tile, which has whole blocks, may be small."""
    monkeypatch.setattr(tuning, "SUM_COLUMNS", 8)
    monkeypatch.setattr(tuning, "SUM_CELLS", 60)


@pytest.mark.parametrize("cells", [1, 70, 1 << 17])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("text", [LOSS, NORM, LINE, MASKS])
@pytest.mark.parametrize("torch", [False, True])
def test_numbers_are_those_of_the_nest_in_any_tile(
    torch: bool, text: str, dtype: str, cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "TILE_CELLS", cells)
    small_blocks(monkeypatch)
    nest = nest_of(text.replace("{d}", dtype))
    inputs = inputs_of(nest)
    kept = [a.copy() for a in inputs]
    have, want = TileKernel(nest, torch)(*inputs), run_nest(nest, inputs)
    for h, w in zip(have, want, strict=True):
        assert h.dtype == w.dtype and h.shape == w.shape
        eps = np.finfo(w.dtype).eps
        np.testing.assert_allclose(h, w, rtol=100 * eps, atol=50 * eps * np.abs(w).max())
    for a, b in zip(inputs, kept, strict=True):
        np.testing.assert_array_equal(a, b)


def test_one_cell_a_row_needs_no_pass_over_the_cells() -> None:
    source = TileKernel(nest_of(LOSS.replace("{d}", "f32"))).source
    assert "arange" not in source and source.count("picked(") == 1
    assert source.count("np.exp(") == 1 and "place(" in source
    assert "place" not in source.split("np.multiply")[0]  # into the output of what it adds to
    assert "k = np.multiply(q, e, out=out1[start:stop])" in source


def test_a_column_that_is_not_there_is_picked_as_zero_and_placed_nowhere() -> None:
    nest = nest_of(LOSS.replace("{d}", "f32"))
    inputs = inputs_of(nest)
    index = next(k for k, b in enumerate(nest.inputs) if b.dtype.name == "i64")
    inputs[index][:4, 0] = [-1, -100, 40, 1 << 40]
    for h, w in zip(TileKernel(nest)(*inputs), run_nest(nest, inputs), strict=True):
        np.testing.assert_allclose(h, w, rtol=1e-5, atol=1e-6)


def test_a_tile_has_so_many_blocks_that_numpy_lets_other_threads_run() -> None:
    """numpy keeps Python's lock during a call of BLAS for up to 500 vectors, of any length."""
    assert tuning.TILE_CELLS // tuning.SUM_COLUMNS > 500


def test_products_are_summed_without_an_array_of_them() -> None:
    source = TileKernel(nest_of(NORM.replace("{d}", "f32"))).source
    assert "v = dot(c, c)" in source and "dot(a, y)" in source and "np.square" not in source
    assert "np.negative(folded(np.add, a, (0,), block_rows(n1)))" in source
    assert "h = np.negative" not in source  # only its sums are negated


def test_a_sum_over_everything_is_cut_into_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "TILE_CELLS", 16)
    small_blocks(monkeypatch)
    ran: list[tuple[int, int]] = []

    def run(work: Callable[[int, int], None], n: int, chunk: int, *how: Any) -> None:
        def told(start: int, stop: int) -> None:
            ran.append((start, stop))
            work(start, stop)

        run_chunks(told, n, chunk, *how)

    monkeypatch.setattr(tiles, "run_chunks", run)
    nest = nest_of(LINE.replace("{d}", "f32"))
    TileKernel(nest)(*inputs_of(nest))
    assert len(ran) == 7  # of two blocks each, but the last


@pytest.mark.parametrize("number", [1.0, 3.0, np.nan])
def test_a_product_with_one_is_its_other_operand(number: float) -> None:
    nest = nest_of(MASKS.replace("{d}", "f32"))
    kernel, inputs = TileKernel(nest), inputs_of(nest)
    assert "g = y if d == 1 else np.multiply(d, y, out=" in kernel.source
    (place,) = (k for k, b in enumerate(nest.inputs) if b.shape == ())
    inputs[place] = np.array(number, np.float32)
    kept = [a.copy() for a in inputs]
    for h, w in zip(kernel(*inputs), run_nest(nest, inputs), strict=True):
        np.testing.assert_allclose(h, w, rtol=1e-5)
    for a, b in zip(inputs, kept, strict=True):
        np.testing.assert_array_equal(a, b)


def test_cells_are_added_to_a_copy_of_what_may_be_an_input() -> None:
    text = """graph f(%y : f32[4,64], %d : f32[], %j : i64[4,1], %g : f32[4,1]):
      %i : i64[4,1] = in_range[size=64, wraps=False, error='index'](%j)
      %a : f32[4,64] = mul(%d, %y)
      %z : f32[4,64] = full[shape=(4, 64), dtype=f32, value=0.0, device='cpu']()
      %h : f32[4,64] = scatter_add[dim=1](%z, %i, %g)
      %b : f32[4,64] = add(%a, %h)
      %e : f32[4,64] = exp(%b)
      %s : f32[4,1] = sum[dims=(1,), keepdims=True](%b)
      return (%e, %s)"""
    nest = nest_of(text)
    kernel, inputs = TileKernel(nest), inputs_of(nest)
    assert "place(" in kernel.source
    inputs = [np.ones((), np.float32) if b.shape == () else a
              for a, b in zip(inputs, nest.inputs, strict=True)]  # fmt: skip
    kept = [a.copy() for a in inputs]
    for h, w in zip(kernel(*inputs), run_nest(nest, inputs), strict=True):
        np.testing.assert_allclose(h, w, rtol=1e-5, atol=1e-5)
    for a, b in zip(inputs, kept, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_masks_choose_bits_as_where_does(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40] if dtype != np.int64 else [0, -1, 1 << 40]
    x, y = (rng.choice(np.array(special, dtype), (7, 30)) for _ in range(2))
    mask, row = rng.random((7, 30)) < 0.5, y[:, :1]
    for a, b in ((x, y), (x, 0), (0, y), (x, -0.0), (row, x), (x, row), (2, 0), (0, 0), (3, -1)):
        if dtype == np.int64 and isinstance(b, float):
            continue
        out = np.empty_like(x)
        want = np.where(mask, np.asarray(a, dtype), np.asarray(b, dtype))
        assert tile_select.chosen(mask, a, b, out) is out
        assert out.tobytes() == want.tobytes()


@pytest.mark.parametrize("text", [LOSS, NORM, LINE, MASKS])
def test_bits_do_not_depend_on_threads(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "TILE_CELLS", 70)
    small_blocks(monkeypatch)
    nest = nest_of(text.replace("{d}", "f32"))
    inputs, kernel = inputs_of(nest), TileKernel(nest)
    found = []
    for threads in ("1", "2", "5", "1"):
        monkeypatch.setenv("GRADOF_NUM_THREADS", threads)
        found.append([a.tobytes() for a in kernel(*inputs)])
    assert all(f == found[0] for f in found)


def test_names_of_users_are_not_those_of_the_source() -> None:
    text = LOSS.replace("{d}", "f32")
    for mine, theirs in zip("mcesl", ("total", "dot", "s0", "place", "at3_x"), strict=True):
        text = text.replace(f"%{mine} ", f"%{theirs} ").replace(f"%{mine},", f"%{theirs},")
        text = text.replace(f"%{mine})", f"%{theirs})")
    nest = nest_of(text)
    assert {"total", "dot", "s0", "place", "at3_x"} & {i.name for i in nest.body}
    inputs = inputs_of(nest)
    for h, w in zip(TileKernel(nest)(*inputs), run_nest(nest, inputs), strict=True):
        np.testing.assert_allclose(h, w, rtol=1e-5, atol=1e-6)


def test_the_state_of_numpy_is_put_back() -> None:
    nest = nest_of(NORM.replace("6,32", "6,512").replace("[32]", "[512]").replace("{d}", "f32"))
    before = np.getbufsize(), np.geterr()
    TileKernel(nest)(*inputs_of(nest))
    assert (np.getbufsize(), np.geterr()) == before


# --- scratch -------------------------------------------------------------------------------------


def test_kernels_of_a_thread_share_memory_which_one_of_them_has_at_a_time() -> None:
    small, large = (TileKernel(nest_of(t.replace("{d}", "f64"))) for t in (BUSY, NORM))
    tile_memory._KEPT.clear()
    with tile_memory.scratch(large, (600, 32)) as arrays:
        first = arrays[0]
    with tile_memory.scratch(small, (5, 24)) as arrays:
        assert np.shares_memory(first, arrays[0])
        with tile_memory.scratch(large, (6, 32)) as inner:  # as from a finalizer
            assert not any(np.shares_memory(a, b) for a in arrays for b in inner)
    with tile_memory.scratch(small, (9, 24)) as arrays:
        assert len(arrays) > 1 and all(a.shape == (9, 24) for a in arrays)
        assert all(a.ctypes.data % 64 == 0 for a in arrays)
        pairs = itertools.combinations(arrays, 2)
        assert not any(np.shares_memory(a, b) for a, b in pairs)


def test_scratch_is_kept_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = TileKernel(nest_of(NORM.replace("{d}", "f64")))
    tile_memory._KEPT.clear()
    monkeypatch.setattr(tuning, "TILE_KEPT", 4096)
    with tile_memory.scratch(kernel, (600, 32)) as arrays:
        gone = weakref.ref(arrays[0].base)
    del arrays
    assert gone() is None and not tile_memory._KEPT


def test_a_kernel_may_run_on_many_threads_at_once() -> None:
    nest = nest_of(NORM.replace("{d}", "f64"))
    kernel = TileKernel(nest)
    given = [inputs_of(nest, seed) for seed in range(8)]
    want = [kernel(*inputs) for inputs in given]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            for have, expected in zip(pool.map(lambda i: kernel(*i), given), want, strict=True):
                assert all(h.tobytes() == w.tobytes() for h, w in zip(have, expected, strict=True))


# --- sums ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 31, 1000, 4096, 4097, 10_000, 100_003, 1_000_000])
@pytest.mark.parametrize("positive", [False, True])
def test_sums_are_as_near_to_float64_as_numpys(n: int, positive: bool) -> None:
    rng = np.random.default_rng(n)
    rows = max(8, 200_000 // n)
    make = rng.random if positive else rng.standard_normal
    x, y = (make((rows, n)).astype(np.float32) for _ in range(2))
    for have, want, terms in (
        (tile_sums.total(x), np.add.reduce(x, axis=1, keepdims=True), x.astype(np.float64)),
        (tile_sums.dot(x, y), np.add.reduce(x * y, axis=1, keepdims=True),
         x.astype(np.float64) * y),
    ):  # fmt: skip
        assert have.dtype == np.float32 and have.shape == (rows, 1)
        exact, scale = terms.sum(1, keepdims=True), np.abs(terms).sum(1, keepdims=True)
        mine, numpys = (np.mean(np.abs(s - exact) / scale) for s in (have, want))
        assert mine <= 4 * numpys + 2e-8  # a third of one rounding


@pytest.mark.parametrize("n", [40, 9000])
def test_sums_of_columns_that_lie_apart_and_of_one_row_for_all(n: int) -> None:
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((n, 6)).T, rng.standard_normal((6, n))
    row = rng.standard_normal((1, n))
    np.testing.assert_allclose(tile_sums.dot(x, y), (x * y).sum(1, keepdims=True), rtol=1e-10)
    np.testing.assert_allclose(tile_sums.dot(y, row), (y * row).sum(1, keepdims=True), rtol=1e-10)
    np.testing.assert_allclose(tile_sums.total(x), x.sum(1, keepdims=True), rtol=1e-10)
    np.testing.assert_allclose(tile_sums.total(y[0]), y[0].sum(keepdims=True), rtol=1e-10)


def folded(ufunc: Any, x: Any) -> Any:
    """All rows as one block."""
    return tile_sums.folded(ufunc, x, (0,), len(x))


@pytest.mark.parametrize("shape", [(40, 2), (100, 7), (70, 32), (33, 5000), (3, 8), (1, 1)])
def test_narrow_rows_are_reduced_in_long_loops(shape: tuple[int, int]) -> None:
    x = np.random.default_rng(2).standard_normal(shape)
    for ufunc in (np.maximum, np.minimum, np.add):
        for have, axis in ((tile_sums.along(ufunc, x), 1), (folded(ufunc, x), 0)):
            np.testing.assert_allclose(have, ufunc.reduce(x, axis=axis, keepdims=True), rtol=1e-12,
                                       atol=1e-13 if ufunc is np.add else 0)  # fmt: skip
        apart = x[:, ::-1]
        want = ufunc.reduce(apart, axis=0, keepdims=True)
        np.testing.assert_allclose(folded(ufunc, apart), want, rtol=1e-12)


def test_what_is_not_finite_stays_so() -> None:
    x = np.array([[np.inf, 1, 2], [np.inf, -np.inf, 0], [np.nan, 0, 0]], np.float32)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(tile_sums.total(x), [[np.inf], [np.nan], [np.nan]])
        np.testing.assert_array_equal(tile_sums.dot(x, x), [[np.inf], [np.inf], [np.nan]])


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_a_sigmoid_is_four_statements_over_one_array(dtype: str) -> None:
    nest = nest_of(f"graph f(%x : {dtype}[40]):\n %y : {dtype}[40] = sigmoid(%x)\n"
                   f" %z : {dtype}[40] = mul(%y, %x)\n return (%y, %z)")  # fmt: skip
    kernel = TileKernel(nest)
    assert "op_sigmoid" not in kernel.source and "np.exp" in kernel.source
    x = np.linspace(-120, 120, 40).astype("f4" if dtype == "f32" else "f8")
    x[:4] = [np.inf, -np.inf, np.nan, 0]
    y, z = kernel(x)
    with np.errstate(all="ignore"):
        exact = (1 / (1 + np.exp(-x.astype(np.longdouble)))).astype(x.dtype)
        product = y * x
    eps = np.finfo(x.dtype)
    np.testing.assert_allclose(y, exact, rtol=4 * eps.eps, atol=4 * eps.tiny)
    np.testing.assert_array_equal(z, product)
