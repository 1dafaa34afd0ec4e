"""What native kernels compute without a call or a loop: exp, tanh, extremes, one column."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from gradof.codegen import compile_graph
from gradof.codegen.llvm.kernel import NativeKernel
from gradof.codegen.loops.passes.picked_sums import with_picks
from gradof.codegen.lowering.numpy import Library
from gradof.codegen.machine.engine import vector_bits
from gradof.ir.parser import parse_graph
from tests.codegen.test_native import nests


@pytest.mark.skipif(vector_bits() != 512, reason="the processor has no AVX-512")
@pytest.mark.parametrize("low, high", [(-1.0, 1.0), (-88.0, 89.0), (-110.0, -85.0), (88.0, 90.0)])
def test_inline_exp_is_within_one_ulp(low: float, high: float) -> None:
    n = 1 << 17
    graph = parse_graph(f"graph f(%x : f32[{n}]):\n %y : f32[{n}] = exp(%x)\n return (%y)")
    x = np.linspace(low, high, n, dtype=np.float32)
    x[:3] = np.nan, np.inf, -np.inf
    (y,) = compile_graph(graph, backend="native")(x)
    with np.errstate(over="ignore"):
        exact = np.exp(x.astype(np.float64))
        rounded = exact.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(y), np.isnan(x))
    np.testing.assert_array_equal(np.isinf(y), np.isinf(rounded))
    finite = np.isfinite(rounded)
    ulps = np.abs(y[finite] - exact[finite]) / np.spacing(rounded[finite])
    assert ulps.max() < 1.0


@pytest.mark.skipif(vector_bits() != 512, reason="the processor has no AVX-512")
@pytest.mark.parametrize("top", [1e-37, 1e-3, 0.5, 1.0, 9.2, 30.0, 3e38])
def test_inline_tanh_is_within_three_ulps_and_never_beyond_one(top: float) -> None:
    n = 1 << 17
    graph = parse_graph(f"graph f(%x : f32[{n}]):\n %y : f32[{n}] = tanh(%x)\n return (%y)")
    x = np.linspace(-top, top, n, dtype=np.float32)
    x[:7] = np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45
    (y,) = compile_graph(graph, backend="native")(x)
    exact = np.tanh(x.astype(np.float64))
    np.testing.assert_array_equal(np.isnan(y), np.isnan(x))
    np.testing.assert_array_equal(np.signbit(y[1:]), np.signbit(x[1:]))
    ulps = np.abs(y[1:] - exact[1:]) / np.spacing(np.abs(exact[1:]).astype(np.float32))
    assert ulps.max() < 3.0 and np.abs(y[1:]).max() <= 1.0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_sign_of_nan_is_that_of_the_callers_library(dtype: type) -> None:
    x: NDArray[Any] = np.linspace(-3, 3, 40_000).astype(dtype)
    x[:5] = np.nan, np.inf, -np.inf, 0.0, -0.0
    libraries: tuple[Library, ...] = ("torch", "numpy")
    for name in libraries:
        kind = f"{'f32' if dtype is np.float32 else 'f64'}[40000]"
        graph = parse_graph(
            f"graph f(%x : {kind}):\n %s : {kind} = sign(%x)\n %y : {kind} = mul(%s, %s)\n"
            " return (%s, %y)"
        )
        s, y = compile_graph(graph, library=name, backend="native")(x)
        want = torch.sign(torch.from_numpy(x)).numpy() if name == "torch" else np.sign(x)
        np.testing.assert_array_equal(s, want)
        np.testing.assert_array_equal(y, want * want)


@pytest.mark.parametrize("columns", [1, 15, 16, 63, 64, 65, 130, 9000, 40007])
@pytest.mark.parametrize("op", ["tanh", "exp"])
def test_copies_of_a_loop_compute_every_column(op: str, columns: int) -> None:
    rows = 40000 // columns + 1
    graph = parse_graph(
        f"graph f(%x : f32[{rows},{columns}], %w : f32[{columns}]):\n"
        f" %a : f32[{rows},{columns}] = mul(%x, %w)\n"
        f" %t : f32[{rows},{columns}] = {op}(%a)\n"
        f" %y : f32[{rows},{columns}] = mul(%t, %x)\n"
        f" %s : f32[{rows},1] = sum[dims=(1,), keepdims=True](%y)\n"
        f" %f : f32[{columns}] = sum[dims=(0,), keepdims=False](%y)\n"
        f" %z : f32[{rows},{columns}] = mul(%y, %s)\n return (%s, %f, %z)"
    )
    rng = np.random.default_rng(columns)
    x = rng.standard_normal((rows, columns)).astype(np.float32)
    w = rng.standard_normal(columns).astype(np.float32)
    s, f, z = compile_graph(graph, backend="native")(x, w)
    wide = x.astype(np.float64)
    y = {"tanh": np.tanh, "exp": np.exp}[op](wide * w) * wide
    size = np.abs(y)
    np.testing.assert_allclose(s, y.sum(1, keepdims=True), atol=1e-5 * size.sum(1).max())
    np.testing.assert_allclose(f, y.sum(0), atol=1e-5 * size.sum(0).max())
    np.testing.assert_allclose(z, y * s, rtol=1e-4, atol=1e-5 * size.max() * np.abs(s).max())


@pytest.mark.parametrize("columns", [1, 15, 16, 100, 5000])
@pytest.mark.parametrize("kind", ["amax", "amin"])
def test_maxima_meet_nan_and_infinities(kind: str, columns: int) -> None:
    rows = 40000 // columns + 1
    graph = parse_graph(
        f"graph f(%x : f32[{rows},{columns}]):\n"
        f" %y : f32[{rows}] = {kind}[dims=(1,), keepdims=False](%x)\n return (%y)"
    )
    x = np.random.default_rng(columns).standard_normal((rows, columns)).astype(np.float32)
    x[0, columns // 2], x[1, -1], x[2, 0], x[3] = np.nan, np.nan, np.inf, -np.inf
    (y,) = compile_graph(graph, backend="native")(x)
    np.testing.assert_array_equal(y, (x.max if kind == "amax" else x.min)(axis=1))


@pytest.mark.parametrize("columns", [2, 7, 16, 1000])
def test_a_picked_column_takes_no_loop(columns: int) -> None:
    rows = 40000 // columns + 1
    text = f"""graph f(%x : f32[{rows},{columns}], %t : i64[{rows},1]):
 %m : f32[{rows},1] = sum[dims=(1,), keepdims=True](%x)
 %e : f32[{rows},{columns}] = sub(%x, %m)
 %i : i64[{rows},1] = in_range[size={columns}, wraps=False, error='index'](%t)
 %g : f32[{rows},1] = gather[dim=1](%e, %i)
 %n : f32[{rows},{columns}] = mul(%e, %g)
 return (%g, %n)"""
    rng = np.random.default_rng(columns)
    x = rng.standard_normal((rows, columns)).astype(np.float32)
    t = rng.integers(0, columns, (rows, 1))
    (whole,) = nests(text)
    assert whole.stages == 3
    nest = with_picks(whole)
    assert [i.op for i in nest.body].count("pick") == 1 and nest.stages == 2
    g, n = compile_graph(parse_graph(text), backend="native")(x, t)
    e = x - x.sum(axis=1, keepdims=True)
    expected = np.take_along_axis(e, t, 1)
    np.testing.assert_allclose(g, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(n, e * expected, rtol=1e-3, atol=1e-3)


def test_a_column_that_is_not_there_is_zero() -> None:
    text = """graph f(%x : f32[4,40000], %t : i64[4,1]):
 %m : f32[4,1] = sum[dims=(1,), keepdims=True](%x)
 %e : f32[4,40000] = sub(%x, %m)
 %i : i64[4,1] = in_range[size=40000, wraps=False, error='index'](%t)
 %g : f32[4,1] = gather[dim=1](%e, %i)
 return (%g)"""
    (whole,) = nests(text)
    x = np.ones((4, 40000), np.float32)
    t = np.array([[-1], [0], [39999], [40000]])
    (g,) = NativeKernel(whole)(*(x if b.shape == x.shape else t for b in whole.inputs))
    np.testing.assert_array_equal(g.ravel(), [0.0, -39999.0, -39999.0, 0.0])
