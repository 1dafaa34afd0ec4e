"""Arrays: the caller's are never written, results are the caller's own, dead ones are reused."""

from __future__ import annotations

import itertools
import tracemalloc
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch.utils._python_dispatch import TorchDispatchMode

import gradof
from gradof.codegen import Executable, compile_graph
from gradof.codegen.host.evaluate import interpret
from gradof.codegen.host.torch_emit import emit_torch
from gradof.ir.attrs import to_numpy_dtype
from gradof.ir.builder import Builder
from gradof.ir.core import Graph
from gradof.ir.parser import parse_graph
from gradof.ir.types import F32, F64, TensorType
from gradof.passes.expand_composites import expand_composites
from tests.strategies import Case, graphs

pytestmark = pytest.mark.usefixtures("op_by_op")

Array = NDArray[Any]


def check_owned(results: Sequence[Array], inputs: Sequence[Array], graph: Graph) -> None:
    """Results are real arrays of the declared types, writable, and share memory with nothing."""
    for result, value in zip(results, graph.outputs, strict=True):
        assert type(result) is np.ndarray
        assert isinstance(value.type, TensorType)
        assert result.shape == value.type.shape
        assert result.dtype == to_numpy_dtype(value.type.dtype)
        assert result.flags.writeable
        sizes = zip(result.strides, result.shape, strict=True)
        assert not result.size or all(stride != 0 for stride, n in sizes if n > 1)
        for other in inputs:
            assert not np.shares_memory(result, other)
    for a, b in itertools.combinations(results, 2):
        assert not np.shares_memory(a, b)


CHAIN = """graph f(%x : f32[256,256], %a : f32[256,256], %b : f32[256,256], %k : f32[2]):
  %y : f32[256,256] = mm(%x, %a)
  %v : f32[256,256] = permute[dims=(1, 0)](%b)
  %z : f32[256,256] = mm(%y, %v)
  %u : f32[256,256] = mm(%z, %x)
  %w : f32[256,256] = mm(%u, %x)
  %s : f32[2] = exp(%k)
  return (%y, %z, %w, %s)"""


def test_consumed_inputs_are_let_go_after_their_last_reader() -> None:
    run = compile_graph(parse_graph(CHAIN), consumed=(1, 2, 3))
    assert run.consumed == (1, 2), "%k is small"

    def given() -> list[Array]:
        rng = np.random.default_rng(0)
        return [rng.random((256, 256), np.float32) for _ in range(3)] + [np.ones(2, np.float32)]

    expected = compile_graph(parse_graph(CHAIN))(*given())
    peaks = []
    for consumes in (False, True):
        tracemalloc.start()
        arrays = given()
        results = run.consume(arrays) if consumes else run(*arrays)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert consumes == (not arrays)
        assert all(map(np.array_equal, results, expected))
    assert peaks[0] - peaks[1] > 250_000, "an array of 262 144 bytes less at the end"


def test_consumed_tensors_are_let_go_after_their_last_reader() -> None:
    alive = []

    class Watching(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func is torch.ops.aten.mm.default:
                alive.append([r() is not None for r in references])
            return func(*args, **(kwargs or {}))

    run = emit_torch(parse_graph(CHAIN), fused=False, consumed=(1, 2))
    tensors = [torch.rand(256, 256) for _ in range(3)] + [torch.ones(2)]
    expected = run(*tensors)
    references = [weakref.ref(t.untyped_storage()) for t in tensors[1:3]]
    with Watching():  # type: ignore[no-untyped-call]
        results = run.consume(tensors)
    assert all(map(torch.equal, results, expected))
    assert alive == [[True, True], [False, True], [False, False], [False, False]]


def strided(array: Array, how: str) -> Array:
    """The same numbers in another layout: overlapping, transposed, backwards, or with gaps."""
    if how == "broadcast":
        return np.broadcast_to(array.reshape(-1)[:1].reshape((1,) * array.ndim), array.shape)
    if how == "fortran":
        return np.asarray(array, order="F")
    if how == "backwards":
        return np.ascontiguousarray(array[..., ::-1])[..., ::-1] if array.ndim else array
    if how == "gaps":
        wide = np.zeros((*array.shape, 2), array.dtype)
        wide[..., 0] = array
        return wide[..., 0]
    return array


LAYOUTS = st.sampled_from(["plain", "broadcast", "fortran", "backwards", "gaps"])


@pytest.mark.parametrize("library", ["numpy", "torch"])
@settings(max_examples=150)
@given(case=graphs(dtypes=(F32, F64), max_nodes=16), data=st.data())
def test_emitted_code_agrees_with_the_interpreter(library: Any, case: Case, data: Any) -> None:
    inputs = [
        strided(x, data.draw(LAYOUTS)) if x.size else x for x in case.inputs
    ]  # fmt: skip
    for x in inputs:
        x.flags.writeable = False  # writing into one would raise
    expand_composites(case.graph)
    before = [x.copy() for x in inputs]
    run = compile_graph(case.graph, library=library)
    results = run(*inputs)
    want = interpret(case.graph, inputs, library=library)
    for have, expected, value in zip(results, want, case.graph.outputs, strict=True):
        assert isinstance(value.type, TensorType)
        tol = 1e-12 if value.type.dtype == F64 else 2e-5
        np.testing.assert_allclose(have, expected, rtol=tol, atol=tol, err_msg=run.source)
    check_owned(results, inputs, case.graph)
    for x, old in zip(inputs, before, strict=True):
        np.testing.assert_array_equal(x, old)
    again = run(*inputs)  # nothing of the first call lives on in the second
    for first, second in zip(results, again, strict=True):
        np.testing.assert_array_equal(first, second)
        assert not np.shares_memory(first, second)


@st.composite
def integer_graphs(draw: st.DrawFn) -> Case:
    """Elementwise, shape and reduction ops on one integer type, as dense in reuse as can be."""
    kind = draw(st.sampled_from(["i8", "i16", "i32", "i64", "u8", "bool"]))
    graph = parse_graph(f"graph ints(%a : {kind}[2,3], %b : {kind}[3]): return ()")
    builder = Builder(graph.block)
    pool = list(graph.inputs)
    logical = ["bitwise_and", "bitwise_or", "bitwise_xor", "maximum", "minimum"]
    binary = logical if kind == "bool" else [*logical, "add", "sub", "mul"]
    for _ in range(draw(st.integers(1, 12))):
        x, y = draw(st.sampled_from(pool)), draw(st.sampled_from(pool))
        assert isinstance(x.type, TensorType) and x.type.shape is not None
        step = draw(st.sampled_from(["binary", "binary", "not", "flip", "sum"]))
        if step == "binary":
            pool.append(builder.emit(draw(st.sampled_from(binary)), x, y))
        elif step == "not":
            pool.append(builder.emit("bitwise_not", x))
        elif step == "flip" and x.type.shape:
            pool.append(builder.emit("flip", x, dims=(0,)))
        elif step == "sum" and kind != "bool":
            pool.append(builder.emit("sum", x, dims=(0,) if x.type.shape else (), keepdims=False))
    graph.set_outputs([draw(st.sampled_from(pool)) for _ in range(2)])
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    inputs = [
        rng.integers(0, 2 if kind == "bool" else 100, shape).astype(
            to_numpy_dtype(pool[0].type.dtype)  # type: ignore[union-attr]  # a tensor, see above
        )
        for shape in ((2, 3), (3,))
    ]
    return Case(graph, inputs)


@settings(max_examples=150)
@given(integer_graphs())
def test_integers_agree_exactly_and_wrap_alike(case: Case) -> None:
    results = compile_graph(case.graph)(*case.inputs)
    for have, want in zip(results, interpret(case.graph, case.inputs), strict=True):
        np.testing.assert_array_equal(have, want)
    check_owned(results, case.inputs, case.graph)


# --- reuse --------------------------------------------------------------------------------------


def peak(run: Any, *arrays: Array) -> int:
    """The most bytes held at once during a call, beyond what was held before."""
    run(*arrays)
    gradof.release_memory()
    tracemalloc.start()
    try:
        run(*arrays)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def chain(kind: str, n: int, size: int, **attrs: Any) -> Graph:
    """`n` ops of one kind, each on the last one's result."""
    graph = Graph("chain")
    x = graph.block.add_param(TensorType(F64, (size,)), "x")
    builder = Builder(graph.block)
    for _ in range(n):
        x = builder.emit(kind, x, **attrs)
    graph.set_outputs([x])
    return graph


def test_a_chain_of_ufuncs_needs_one_array() -> None:
    size = 1 << 17
    graph, x = chain("sin", 20, size), np.ones(size)
    run = compile_graph(graph, backend="numpy")
    assert run.source.count("out=") == 19  # all but the first, whose operand is the caller's
    assert peak(run, x) < 2.1 * x.nbytes
    assert peak(lambda a: interpret(graph, [a]), x) > 19 * x.nbytes


def test_a_chain_that_cannot_reuse_lets_go() -> None:
    size = 1 << 17
    graph, x = chain("cumsum", 20, size, dim=0), np.ones(size)
    run = compile_graph(graph)
    assert "out=" not in run.source
    assert peak(run, x) < 2.1 * x.nbytes


def executed(text: str) -> Executable:
    return compile_graph(parse_graph(text))


def test_a_view_keeps_its_array_from_being_reused() -> None:
    run = executed("""graph f(%x : f64[3,3]):
      %a : f64[3,3] = sin(%x)
      %v : f64[3,3] = permute[dims=(1, 0)](%a)
      %b : f64[3,3] = exp(%x)
      %c : f64[3,3] = mul(%b, %v)
      return (%c)""")
    x = np.random.default_rng(0).random((3, 3))
    np.testing.assert_array_equal(run(x)[0], np.exp(x) * np.sin(x).T)
    assert "b = np.exp(x)\n" in run.source  # not over a, which v still reads


def test_a_broadcast_of_a_dead_array_is_read_before_it_is_written_over() -> None:
    run = executed("""graph f(%x : f64[3,1], %y : f64[3,4]):
      %a : f64[3,4] = sin(%y)
      %r : f64[1,4] = slice[dim=0, start=1, stop=2, step=1](%a)
      %e : f64[3,4] = expand[shape=(3, 4)](%r)
      %b : f64[3,4] = mul(%e, %x)
      %c : f64[3,4] = neg(%b)
      return (%c)""")
    x, y = np.arange(3.0).reshape(3, 1), np.arange(12.0).reshape(3, 4)
    assert "b = np.multiply(e, x, out=a)" in run.source
    np.testing.assert_array_equal(run(x, y)[0], -(np.sin(y)[1:2] * x))


def test_a_product_is_not_written_over_its_own_operand() -> None:
    run = executed("""graph f(%x : f64[3,3]):
      %a : f64[3,3] = sin(%x)
      %b : f64[3,3] = mm(%a, %x)
      %c : f64[3,3] = mm(%b, %x)
      %d : f64[3,3] = exp(%c)
      return (%d)""")
    assert "b = np.matmul(a, x)\n" in run.source
    assert "c = np.matmul(b, x, out=a)" in run.source  # a is dead and not read here
    x = np.random.default_rng(0).random((3, 3))
    np.testing.assert_allclose(run(x)[0], np.exp(np.sin(x) @ x @ x), rtol=1e-12)


def test_dtypes_and_shapes_are_not_mixed_up() -> None:
    run = executed("""graph f(%x : f64[3,2]):
      %a : f64[3,2] = sin(%x)
      %b : f32[3,2] = cast[dtype=f32](%a)
      %c : bool[3,2] = gt(%b, %b)
      %d : bool[3,2] = logical_not(%c)
      %e : f64[2,3] = reshape[shape=(2, 3)](%x)
      %g : f64[2,3] = exp(%e)
      %h : f64[3,2] = exp(%x)
      return (%d, %g, %h)""")
    assert "d = np.logical_not(c" in run.source
    x = np.ones((3, 2))
    d, g, h = run(x)
    assert d.all() and (g.shape, h.shape) == ((2, 3), (3, 2))
    np.testing.assert_array_equal(h, np.exp(x))


def test_outputs_of_a_second_call_leave_the_first_alone() -> None:
    run = executed("graph f(%x : f64[3]): %y : f64[3] = sin(%x) return (%y, %y, %x)")
    x = np.ones(3)
    first = run(x)
    kept = [y.copy() for y in first]
    run(np.zeros(3))
    for y, old in zip(first, kept, strict=True):
        np.testing.assert_array_equal(y, old)
    assert not any(np.shares_memory(a, b) for a, b in itertools.combinations((*first, x), 2))


def test_arrays_of_no_dimension_and_of_no_elements() -> None:
    run = executed("""graph f(%x : f32[], %e : f32[0,3]):
      %a : f32[] = sin(%x)
      %b : f32[] = exp(%a)
      %r : f32[1,1] = reshape[shape=(1, 1)](%b)
      %t : f32[] = reshape[shape=()](%r)
      %f : f32[0,3] = exp(%e)
      %g : f32[0,3] = sin(%f)
      %s : f32[3] = sum[dims=(0,), keepdims=False](%g)
      return (%b, %t, %g, %s, %r)""")
    x, e = np.array(0.5, np.float32), np.zeros((0, 3), np.float32)
    results = run(x, e)
    check_owned(results, [x, e], parse_graph("""graph g(%b : f32[], %t : f32[], %g : f32[0,3],
      %s : f32[3], %r : f32[1,1]): return (%b, %t, %g, %s, %r)"""))
    np.testing.assert_array_equal(results[3], np.zeros(3))
    assert results[0] == results[1] == results[4][0, 0] == np.exp(np.sin(x))
