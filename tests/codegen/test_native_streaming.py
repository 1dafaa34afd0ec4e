"""Outputs that are written past the cache: which are, and that their bits are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradof
from gradof import tuning
from gradof.codegen.llvm import kernel, streaming
from gradof.codegen.llvm.kernel import NativeKernel
from gradof.ops import memory
from tests.codegen.test_native import CHAINS, arrays_for, nests

ROWS = 8200  # of 40 numbers and more are a megabyte
NT = "!nontemporal"


def texts(run: NativeKernel) -> str:
    return "\n".join(code.text for code in run._variants.values())


def results(text: str, sizes: dict[int, int], monkeypatch: pytest.MonkeyPatch, cache: int) -> Any:
    monkeypatch.setattr(streaming, "last_cache", lambda: cache)
    (nest,) = nests(text)
    run = NativeKernel(nest)
    return [run(*arrays_for(nest, sizes)) for _ in range(3)][-1], texts(run)


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("columns", [16, 48, 160, 37])
@pytest.mark.parametrize("threads", ["1", "3"])
def test_bits_are_the_same(
    name: str, columns: int, threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADOF_NUM_THREADS", threads)
    sizes = {6: ROWS * 3, 2: ROWS, 4: ROWS, 7: columns, 42: ROWS * columns + 5}
    past, text = results(CHAINS[name], sizes, monkeypatch, cache=1)
    plain, other = results(CHAINS[name], sizes, monkeypatch, cache=1 << 60)
    assert NT not in other and "sfence" not in other
    on_lines = columns % 16 == 0 or name == "flat sums"
    assert (NT in text) == on_lines, "rows are whole lines, or there is but one"
    assert ("sfence" in text) == on_lines
    for a, b in zip(past, plain, strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "f16"])
def test_gradients_of_every_dtype(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(streaming, "last_cache", lambda: 1)
    found: list[int] = []

    def spied(*args: Any) -> list[int]:
        outputs = streaming.streamed(*args)
        found.extend(outputs)
        return outputs

    monkeypatch.setattr(kernel, "streamed", spied)
    kind = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16,
            "f16": torch.float16}[dtype]  # fmt: skip
    x = torch.randn(4096, 256).to(kind).requires_grad_()
    w = torch.randn(256).to(kind).requires_grad_()

    def fn(x: Any, w: Any) -> Any:
        y = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-3) * w
        return y, x > 0.5

    compiled = gradof.differentiate(fn)
    for _ in range(3):
        (have, mask), (want, larger) = compiled(x, w), fn(x, w)
        torch.testing.assert_close(have, want, rtol=2e-2 if kind.itemsize == 2 else 1e-5, atol=1e-2)
        assert bool((mask == larger).all())
        cotangent = torch.randn_like(want)
        got = torch.autograd.grad(have, (x, w), cotangent)
        due = torch.autograd.grad(want, (x, w), cotangent)
        for g, d in zip(got, due, strict=True):
            scale = float(d.abs().max())
            assert float((g - d).abs().max()) <= (3e-2 if kind.itemsize == 2 else 1e-4) * scale
    assert len(found) >= 3, "the value, the mask, and a gradient are past the cache"


def test_what_may_lie_anywhere_is_not_streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "last_cache", lambda: 1)
    (nest,) = nests("graph f(%x : f32[6,7]):\n %y : f32[6,7] = cosh(%x)\n return (%y)")
    large, small = np.ones((ROWS, 64), np.float32), np.ones((ROWS // 100, 64), np.float32)
    for x, is_streamed in ((small, False), (large, True)):
        run = NativeKernel(nest)
        run(x)
        assert (NT in texts(run)) == is_streamed, "malloc's memory begins anywhere"
    run = NativeKernel(nest)
    place = np.empty(large.nbytes + 4, np.uint8)[4:].view(np.float32).reshape(large.shape)
    (there,) = run(large, into=[(0, place)])
    assert there is place and NT not in texts(run)
    np.testing.assert_allclose(place, np.cosh(large), rtol=1e-6)
    monkeypatch.setenv("GRADOF_KEPT_MB", "0")
    memory.limit.cache_clear()
    try:
        run = NativeKernel(nest)
        run(large)
        assert NT not in texts(run)
    finally:
        monkeypatch.undo()
        memory.limit.cache_clear()


@pytest.mark.parametrize("n", [1, 63, 1 << 14, 1_000_003, 33_333_333, 1 << 26])
def test_chunks_of_one_axis_begin_at_lines(n: int) -> None:
    (nest,) = nests("graph f(%x : f32[7]):\n %y : f32[7] = cosh(%x)\n return (%y)")
    run = NativeKernel(nest)
    assert run.split
    count, chunk = run._chunks(1, n, None)  # type: ignore[arg-type]  # which it does not look at
    assert count == n and chunk % memory.ALIGNED == 0 and chunk >= min(n, tuning.NATIVE_CHUNK)


def test_the_cache_has_a_size() -> None:
    assert streaming.last_cache() >= 1 << 18
