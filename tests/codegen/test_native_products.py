"""The native kernel of products: right for all sizes and strides, the same bits, and in use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import gradof
from gradof import tuning
from gradof.codegen import compile_graph
from gradof.codegen.lowering import products
from gradof.codegen.lowering.numpy import Library
from gradof.codegen.machine.engine import vector_bits
from gradof.codegen.matmul import products as native
from gradof.ir.parser import parse_graph

pytestmark = pytest.mark.skipif(not vector_bits(), reason="no native code here")

LAYOUTS = ("plain", "transposed", "sliced", "flipped", "one row", "one column")
Function = Callable[..., Any]


def made(shape: tuple[int, ...], layout: str, dtype: Any = np.float32) -> Any:
    """Normal numbers in some layout of the last two axes, with nan around what is sliced."""
    *batch, rows, columns = shape
    rng = np.random.default_rng([rows, columns])
    if layout == "transposed":
        return np.swapaxes(rng.standard_normal((*batch, columns, rows)).astype(dtype), -1, -2)
    if layout == "sliced":
        around = np.full((*batch, 2 * rows + 1, columns + 3), np.nan, dtype)
        part = around[..., 1::2, 1:-2]
        part[...] = rng.standard_normal(shape)
        return part
    if layout == "one row":
        return np.broadcast_to(rng.standard_normal((*batch, 1, columns)).astype(dtype), shape)
    if layout == "one column":
        return np.broadcast_to(rng.standard_normal((*batch, rows, 1)).astype(dtype), shape)
    plain = rng.standard_normal(shape).astype(dtype)
    return plain[..., ::-1, ::-1] if layout == "flipped" else plain


def check(a: Any, b: Any) -> Any:
    found = native.product(a, b, openmp=True)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert found.shape == exact.shape and found.dtype == a.dtype
    assert found.flags.c_contiguous and found.flags.writeable
    if a.dtype == np.float32:
        scale = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
        bound = np.finfo(np.float32).eps * (1 + a.shape[-1] / 2) * scale
    else:  # the comparison's own rounding, too
        scale = np.abs(a) @ np.abs(b)
        bound = np.finfo(np.float64).eps * (1 + a.shape[-1]) * scale
    assert (np.abs(found - exact) <= bound).all()
    return found


@pytest.fixture(params=[256, 512], autouse=True)
def bits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Registers of either width, where the processor has them."""
    width: int = request.param
    if width > vector_bits():
        pytest.skip("no such registers here")
    monkeypatch.setattr(native, "vector_bits", lambda: width)
    native._LAYOUTS.clear()
    yield width
    native._LAYOUTS.clear()


@pytest.fixture
def every_product(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Products of torch callers may be native on any processor; the shapes of those that were."""
    monkeypatch.setattr(products, "has_native", lambda: True)
    shapes: list[tuple[int, ...]] = []
    original = native.product

    def noted(a: Any, b: Any, openmp: bool) -> Any:
        found = original(a, b, openmp)
        if found is not None:
            shapes.append(found.shape)
        return found

    monkeypatch.setattr(native, "product", noted)
    return shapes


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("first", LAYOUTS)
@pytest.mark.parametrize("second", LAYOUTS)
def test_every_layout(first: str, second: str, dtype: Any) -> None:
    check(made((2, 29, 37), first, dtype), made((2, 37, 45), second, dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "sizes",
    [(1, 1, 1), (8, 1, 32), (6, 4, 16), (7, 3, 31), (9, 5, 33), (17, 64, 64), (1, 300, 100),
     (300, 1, 10), (300, 70, 90), (13, 1030, 20), (8, 256, 32), (3, 257, 31), (11, 512, 5),
     (128, 64, 128), (64, 3, 200)],
)  # fmt: skip
def test_sizes(sizes: tuple[int, int, int], dtype: Any) -> None:
    m, k, n = sizes
    for first, second in (("plain", "plain"), ("transposed", "plain"), ("plain", "transposed")):
        check(made((m, k), first, dtype), made((k, n), second, dtype))
        check(made((3, m, k), first, dtype), made((3, k, n), second, dtype))


def test_long_sums_are_as_near_to_float64_as_torchs() -> None:
    a, b = made((40, 5000), "plain"), made((5000, 50), "plain")
    exact = a.astype(np.float64) @ b
    torchs = torch.mm(torch.from_numpy(a), torch.from_numpy(b)).numpy()
    mine, other = (np.sqrt(np.mean((y - exact) ** 2)) for y in (native.product(a, b, True), torchs))
    assert mine < 2 * other


SIZE = st.integers(1, 70)
LAYOUT = st.sampled_from(LAYOUTS)


@given(SIZE, SIZE, SIZE, st.integers(1, 3), LAYOUT, LAYOUT)
def test_any_sizes(m: int, k: int, n: int, stack: int, first: str, second: str) -> None:
    check(made((stack, m, k), first), made((stack, k, n), second))


@pytest.mark.parametrize(
    "shapes",
    [((5, 20, 30), (30, 40)), ((20, 30), (5, 30, 40)), ((5, 1, 20, 30), (7, 30, 40)),
     ((2, 3, 20, 30), (1, 3, 30, 40)), ((2, 3, 20, 30), (2, 1, 30, 40)), ((1, 20, 30), (30, 40)),
     ((2, 3, 4, 20, 30), (2, 3, 4, 30, 40))],
)  # fmt: skip
def test_stacks_broadcast(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    check(made(shapes[0], "plain"), made(shapes[1], "plain"))


def test_heads_are_read_where_they_lie() -> None:
    """The stacks of a layer with several heads: two axes that are not one."""
    q, k = (made((2, 50, 4, 16), "plain").transpose(0, 2, 1, 3) for _ in range(2))
    check(q, np.swapaxes(k, -1, -2))


def test_three_leading_axes_that_are_not_two_are_left_to_others() -> None:
    a = made((2, 3, 4, 20, 30), "plain").transpose(2, 1, 0, 3, 4)
    b = made((4, 3, 2, 30, 40), "plain")
    assert native.product(a, b, openmp=True) is None


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sizes", [(0, 4, 9, 3), (2, 0, 9, 3), (2, 4, 0, 3), (2, 4, 9, 0)])
def test_without_elements(sizes: tuple[int, int, int, int], dtype: Any) -> None:
    stack, m, k, n = sizes
    found = native.product(np.ones((stack, m, k), dtype), np.ones((stack, k, n), dtype), True)
    np.testing.assert_array_equal(found, np.zeros((stack, m, n), dtype))


def test_infinity_and_nan_stay_in_their_row_and_column() -> None:
    a, b = made((2, 21, 40), "plain"), made((2, 40, 41), "plain")
    a[0, 20, 3], a[1, 0, 39], b[0, 5, 40], b[1, 39, 0] = np.inf, np.nan, -np.inf, np.nan
    found = native.product(a, b, openmp=True)
    expected = torch.bmm(torch.from_numpy(a), torch.from_numpy(b))
    np.testing.assert_array_equal(np.isnan(found), expected.isnan().numpy())
    np.testing.assert_array_equal(np.isinf(found), expected.isinf().numpy())


@pytest.mark.parametrize("openmp", [False, True])
def test_bits_depend_on_neither_threads_nor_layouts(
    openmp: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "MATMUL_THREAD", 1)
    a, b = made((3, 150, 50), "plain"), made((3, 50, 70), "plain")
    found = []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("GRADOF_NUM_THREADS", threads)
        found += [native.product(a, b, openmp) for _ in range(5)]
    at, bt = (np.swapaxes(v, -1, -2) for v in (a, b))
    ac, bc = (np.swapaxes(np.ascontiguousarray(v), -1, -2) for v in (at, bt))
    found += [native.product(ac, bc, openmp), native.product(a, bc, openmp)]
    found += [np.swapaxes(native.product(bt, at, openmp), -1, -2)]
    found += [np.stack([native.product(x, y, openmp) for x, y in zip(a, b, strict=True)])]
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


def test_several_callers_at_once() -> None:
    pairs = [(made((2, 40, 30 + j), "plain"), made((2, 30 + j, 50), "plain")) for j in range(6)]
    expected = [native.product(a, b, openmp=True) for a, b in pairs]
    with ThreadPoolExecutor(4) as threads:
        for _ in range(20):
            found = list(threads.map(lambda pair: native.product(pair[0], pair[1], True), pairs))
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_array_equal(one, other)


def test_layouts_that_are_kept_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "_MAX_LAYOUTS", 3)
    for m in range(1, 9):
        check(made((m, 5), "plain"), made((5, 6), "plain"))
    assert len(native._LAYOUTS) <= 3


# --- where they are used --------------------------------------------------------------------------


def attention(x: Any, wq: Any, wk: Any, wv: Any) -> Any:
    q, k, v = x @ wq, x @ wk, x @ wv
    return (torch.softmax(q @ k.transpose(-1, -2) / 8.0, -1) @ v).square().sum()


def gradients(fn: Function, arrays: list[Any]) -> list[Any]:
    given = [torch.from_numpy(a).requires_grad_() for a in arrays]
    value = fn(*given)
    return [value.detach(), *torch.autograd.grad(value, given)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.usefixtures("op_by_op")
def test_attention_is_computed_by_it(every_product: list[tuple[int, ...]], dtype: Any) -> None:
    arrays = [made((4, 96, 48), "plain", dtype)] + [made((48, 48), "plain", dtype) / 8] * 3
    found = gradients(gradof.differentiate(attention), arrays)
    assert sum(len(shape) == 3 for shape in every_product) == 6  # two, and four of the gradient
    exact = gradients(attention, [a.astype(np.float64) for a in arrays])
    rtol = 2e-5 if dtype is np.float32 else 1e-12
    for mine, expected in zip(found, exact, strict=True):
        scale = expected.abs().max().item()
        torch.testing.assert_close(mine.double(), expected, rtol=rtol, atol=rtol * scale)


def test_a_weights_gradient_is_computed_by_it(every_product: list[tuple[int, ...]]) -> None:
    arrays = [made((256, 64), "plain"), made((64, 96), "plain")]
    gradients(gradof.differentiate(lambda x, w: (x @ w).tanh().sum()), arrays)
    assert (64, 96) in every_product or (96, 64) in every_product


@pytest.mark.parametrize("backend", ["tiles", "numpy"])
def test_other_backends_are_torchs(
    backend: str, every_product: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADOF_BACKEND", backend)
    arrays = [made((4, 96, 48), "plain")] + [made((48, 48), "plain") / 8] * 3
    found = gradients(gradof.differentiate(attention), arrays)
    assert not every_product
    torch.testing.assert_close(found, gradients(attention, arrays), rtol=1e-4, atol=1e-3)


def test_without_llvmlite_they_are_torchs(
    every_product: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from gradof.codegen.machine import engine

    monkeypatch.undo()
    monkeypatch.setattr(engine, "status", lambda: (0, "llvmlite is not installed"))
    products.has_native.cache_clear()
    try:
        assert not products.has_native()
        arrays = [made((4, 96, 48), "plain")] + [made((48, 48), "plain") / 8] * 3
        found = gradients(gradof.differentiate(attention), arrays)
    finally:
        products.has_native.cache_clear()
    torch.testing.assert_close(found, gradients(attention, arrays), rtol=1e-4, atol=1e-3)


def test_more_axes_than_it_takes_are_torchs(every_product: list[tuple[int, ...]]) -> None:
    graph = parse_graph("graph f(%a : f32[4,3,2,20,30], %b : f32[4,3,2,30,40]):\n"
                        " %y : f32[4,3,2,20,40] = bmm(%a, %b)\n return (%y)")  # fmt: skip
    run = compile_graph(graph, library="torch")
    a = made((2, 3, 4, 20, 30), "plain").transpose(2, 1, 0, 3, 4)
    b = made((4, 3, 2, 30, 40), "plain")
    np.testing.assert_allclose(run(a, b)[0], a @ b, rtol=1e-4, atol=1e-4)
    assert not every_product
    run(np.ascontiguousarray(a), b)
    assert every_product == [(4, 3, 2, 20, 40)]


def test_stacks_of_a_numpy_caller_are_computed_by_it(every_product: list[tuple[int, ...]]) -> None:
    def fn(a: Any, b: Any) -> Any:
        return np.sum(np.tanh(a @ b))

    a, b = made((32, 64, 64), "plain"), made((32, 64, 64), "plain")
    found = gradof.value_and_grad(fn, argnums=(0, 1))(a, b)[1]
    assert every_product == [(32, 64, 64)] * 3
    c = 1 - np.tanh(a.astype(np.float64) @ b) ** 2
    exact = c @ np.swapaxes(b, -1, -2), np.swapaxes(a, -1, -2) @ c
    for mine, expected in zip(found, exact, strict=True):
        np.testing.assert_allclose(mine, expected, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize(
    ("shapes", "native_for"),
    [(((8, 128, 64), (8, 64, 128)), {"torch", "numpy"}), (((8, 3, 64), (8, 64, 999)), set()),
     (((8, 128, 64), (8, 64, 3)), set()), (((64, 128, 64), (64, 64, 3)), {"torch"}),
     (((2, 512, 512), (2, 512, 512)), {"torch"}), (((8, 16, 16), (8, 16, 16)), set())],
)  # fmt: skip
def test_stacks_that_are_worth_it(
    every_product: None, shapes: tuple[Any, Any], native_for: set[Library]
) -> None:
    a, b = (",".join(map(str, shape)) for shape in shapes)
    y = ",".join(map(str, (*shapes[0][:2], shapes[1][2])))
    graph = parse_graph(f"graph f(%a : f32[{a}], %b : f32[{b}]):\n"
                        f" %y : f32[{y}] = bmm(%a, %b)\n return (%y)")  # fmt: skip
    (node,) = graph.nodes()
    libraries: tuple[Library, ...] = ("torch", "numpy")
    assert {x for x in libraries if products.native_product(node, x)} == native_for


@pytest.mark.parametrize("library", ["oneDNN", "MKL"])
def test_the_choice_follows_from_shapes_and_strides(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "float32_library", lambda: library)

    def chosen(m: int, k: int, n: int, first: str, second: str, dtype: Any = np.float32) -> bool:
        a, b = np.empty((m, k), dtype), np.empty((k, n), dtype)
        a = np.empty((k, m), dtype).T if first == "T" else a
        return products._is_native(a, np.empty((n, k), dtype).T if second == "T" else b)

    mkl = library == "MKL"
    assert chosen(784, 128, 512, "T", "N")  # the gradient of a weight
    assert chosen(1024, 64, 192, "N", "N") and chosen(64, 1024, 64, "N", "N")
    assert chosen(128, 784, 512, "N", "N") is mkl
    assert chosen(1024, 512, 16, "N", "N") and chosen(1024, 128, 16, "T", "N")
    assert chosen(128, 512, 64, "N", "T") is mkl
    assert chosen(1024, 512, 512, "T", "N") is mkl
    assert chosen(128, 784, 512, "N", "N", np.float64)
    assert not chosen(4096, 1024, 512, "N", "N") and not chosen(64, 1024, 4096, "N", "N")
