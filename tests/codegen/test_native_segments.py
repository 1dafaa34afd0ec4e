"""Native kernels whose columns are segments: what is normalised over a batch and over places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from gradof.codegen.llvm.collapse import collapsed, segmented
from gradof.codegen.llvm.kernel import NativeKernel
from gradof.codegen.loops.interpret import as_nest, nest_sizes, run_nest
from gradof.ir.attrs import to_numpy_dtype
from tests.codegen.test_native import nests
from tests.runtime.compare import check

# Rows are channels; two sums, cells held for the second and third loop, an extreme, broadcasting
NORM = """graph f(%x : {d}[4,3,5,8], %w : {d}[1,3,1,1], %v : {d}[4,1,1,1], %u : {d}[1,1,5,8]):
  %0 : {d}[1,3,1,1] = sum[dims=(0, 2, 3), keepdims=True](%x)
  %n : float = Constant[value=160.0]()
  %1 : {d}[1,3,1,1] = div(%0, %n)
  %2 : {d}[4,3,5,8] = sub(%x, %1)
  %e : {d}[4,3,5,8] = exp(%2)
  %3 : {d}[4,3,5,8] = mul(%2, %e)
  %4 : {d}[1,3,1,1] = sum[dims=(0, 2, 3), keepdims=True](%3)
  %m : {d}[1,3,1,1] = amax[dims=(0, 2, 3), keepdims=True](%x)
  %5 : {d}[4,3,5,8] = sub(%e, %m)
  %6 : {d}[4,3,5,8] = mul(%5, %w)
  %7 : {d}[4,3,5,8] = add(%6, %v)
  %8 : {d}[4,3,5,8] = mul(%7, %u)
  %9 : {d}[4,3,5,8] = add(%8, %4)
  %l : {d}[] = sum[dims=(0, 1, 2, 3), keepdims=False](%8)
  return (%9, %4, %l)"""


def arrays_of(nest: Any, dtype: Any, shape: tuple[int, int, int, int]) -> list[Any]:
    n, c, h, w = shape
    rng = np.random.default_rng(3)
    shapes = {(4, 3, 5, 8): shape, (1, 3, 1, 1): (1, c, 1, 1), (4, 1, 1, 1): (n, 1, 1, 1),
              (1, 1, 5, 8): (1, 1, h, w)}  # fmt: skip
    return [rng.normal(size=shapes[b.shape]).astype(dtype) for b in nest.inputs]


SHAPES = [(4, 3, 5, 8), (4, 3, 7, 7), (2, 5, 16, 16), (3, 2, 1, 33), (40, 3, 9, 9), (2, 2, 60, 70),
          (1, 3, 30, 30), (300, 1, 6, 6)]  # fmt: skip


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_segments_are_the_nest(shape: tuple[int, int, int, int], dtype: str) -> None:
    (nest,) = nests(NORM.replace("{d}", dtype))
    kernel = NativeKernel(nest)
    kind = to_numpy_dtype({i.dtype.name: i.dtype for i in nest.body}[dtype])
    arrays = arrays_of(nest, kind, shape)
    eps = {"f32": 1.2e-7, "f64": 2.3e-16}[dtype]
    for _ in range(2):
        for have, want in zip(kernel(*arrays), run_nest(nest, arrays), strict=True):
            scale = float(np.abs(want).max()) + 1
            np.testing.assert_allclose(have, want, rtol=60 * eps, atol=60 * eps * scale)
        # of other strides: a part of a larger array, whose places are still next to one another
        wide = np.zeros((shape[0], 2 * shape[1], *shape[2:]), kind)
        wide[:, ::2] = next(a for a in arrays if a.shape == shape)
        arrays = [wide[:, ::2] if a.shape == shape else a for a in arrays]
    assert kernel._other is None, "native code ran"


def test_nan_is_met_in_any_segment() -> None:
    (nest,) = nests(NORM.replace("{d}", "f32"))
    kernel = NativeKernel(nest)
    for at in ((0, 1, 2, 3), (3, 2, 4, 7), (2, 0, 0, 0)):
        arrays = arrays_of(nest, np.float32, (4, 3, 5, 8))
        next(a for a in arrays if a.shape == (4, 3, 5, 8))[at] = np.nan
        for have, want in zip(kernel(*arrays), run_nest(nest, arrays), strict=True):
            np.testing.assert_array_equal(np.isnan(have), np.isnan(want))


def test_bits_do_not_depend_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    (nest,) = nests(NORM.replace("{d}", "f32"))
    kernel = NativeKernel(nest)
    arrays = arrays_of(nest, np.float32, (16, 40, 20, 20))
    found = []
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("GRADOF_NUM_THREADS", threads)
        found.append([a.tobytes() for a in kernel(*arrays)])
    assert found[0] == found[1] == found[2] and kernel._other is None


def test_what_has_segments_and_what_has_not() -> None:
    (nest,) = nests(NORM.replace("{d}", "f32"))

    def flat(shape: tuple[int, int, int, int], order: str = "C") -> Any:
        arrays = [np.asarray(a, order=order) for a in arrays_of(nest, np.float32, shape)]  # type: ignore[call-overload]
        sizes = nest_sizes(nest, arrays)
        views = [as_nest(b, a) for b, a in zip(nest.inputs, arrays, strict=True)]
        whole, parts = collapsed(nest, views, sizes), segmented(nest, views, sizes)
        return whole and whole.columns, parts and parts.columns

    assert flat((4, 3, 5, 8)) == (None, (4, 40))
    assert flat((4, 3, 2, 2)) == (None, None), "too short"
    assert flat((1, 3, 5, 8))[0] == (40,)
    assert flat((4, 3, 5, 8), "F") == (None, None)
    (columns, *_) = nests("""graph f(%x : f32[4,3,50]):
      %0 : f32[1,3,1] = sum[dims=(0, 2), keepdims=True](%x)
      %1 : f32[4,3,50] = sub(%x, %0)
      %2 : f32[3,50] = sum[dims=(0,), keepdims=False](%1)
      return (%1, %2)""")
    x = np.random.default_rng(0).normal(size=(4, 3, 50)).astype(np.float32)
    for have, want in zip(NativeKernel(columns)(x), run_nest(columns, [x]), strict=True):
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [(8, 16, 14, 14), (6, 8, 7, 7), (4, 8, 300)])
def test_batch_norms_are_eagers(
    size: tuple[int, ...], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADOF_BACKEND", "native")
    rng = torch.Generator().manual_seed(4)
    x = torch.randn(size, generator=rng, dtype=torch.float64).to(dtype).requires_grad_()
    w, b = (torch.rand(size[1], generator=rng, dtype=torch.float64).to(dtype).requires_grad_()
            for _ in range(2))  # fmt: skip

    def norm(x: Any, w: Any, b: Any) -> Any:
        return torch.tanh(F.batch_norm(x, None, None, w, b, training=True))

    check(norm, x, w, b, order=2 if dtype == torch.float64 else 1)
