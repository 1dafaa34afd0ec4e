"""Torch's functions inside of numpy tiles, on one thread each."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gradof
from gradof.codegen.lowering.numpy import lowering
from gradof.codegen.targets import choose as backend
from gradof.codegen.tiles import kernel as tiles
from gradof.codegen.tiles import torch_calls as tile_torch
from gradof.codegen.tiles.kernel import TileKernel
from gradof.codegen.tiles.torch_calls import one_thread, tile_function, writing
from gradof.ir.opinfo import OPS
from gradof.ops.registry import Op, get_op
from tests.codegen.test_tiles import nest_of

ROOT = Path(__file__).parents[2]

torchs = sorted(
    r.name for r in OPS.values()
    if isinstance(r, Op) and r.torch is not None and "elementwise" in r.traits
    and not r.is_composite
)  # fmt: skip

ATTRS: dict[str, dict[str, Any]] = {
    "softplus": {"beta": 1.5, "threshold": 20.0}, "polygamma": {"n": 1}
}  # fmt: skip


def test_a_thread_is_alone_for_a_while_and_no_other() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        seen: list[int] = []
        inside, done = threading.Event(), threading.Event()

        def other() -> None:
            with one_thread():
                seen.append(torch.get_num_threads())
                inside.set()
                done.wait(20)
            seen.append(torch.get_num_threads())

        thread = threading.Thread(target=other)
        thread.start()
        assert inside.wait(20)
        assert torch.get_num_threads() == 3, "the setting is a thread's own"
        done.set()
        thread.join()
        assert seen == [1, 3]
        with pytest.raises(ZeroDivisionError), one_thread():
            1 / 0  # noqa: B018
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("name", torchs)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_op_of_torchs_writes_where_it_is_told(name: str, dtype: Any) -> None:
    record = get_op(name)
    attrs = ATTRS.get(name, {})
    rng = np.random.default_rng(4)
    arrays = [rng.uniform(0.1, 0.9, (5, 7)).astype(dtype) for _ in record.inputs]
    out = np.full((5, 7), -3, dtype)
    with one_thread():
        assert tile_function(record)(*arrays, out=out, **attrs) is out
        fresh = tile_function(record)(*arrays, **attrs)
        direct = writing(name)
        if direct is not None and not attrs:
            there = torch.full((5, 7), -3, dtype=torch.from_numpy(out).dtype)
            assert direct(*map(torch.from_numpy, arrays), out=there) is there
            np.testing.assert_array_equal(out, there.numpy())
    np.testing.assert_array_equal(out, fresh)
    function = lowering(record, "torch").function
    assert function is not None
    np.testing.assert_array_equal(out, function(*arrays, **attrs))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_they_are_part_of_a_tile_for_torch_callers(
    dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = f"""graph f(%x : {dtype}[3000,40], %w : {dtype}[40]):
  %a : {dtype}[3000,40] = mul(%x, %w)
  %e : {dtype}[3000,40] = erfc(%a)
  %r : {dtype}[3000,1] = sum[dims=(1,), keepdims=True](%e)
  %l : {dtype}[3000,1] = lgamma(%r)
  %y : {dtype}[3000,40] = add(%e, %l)
  return (%y)"""
    kernel = TileKernel(nest_of(text), torch=True)
    assert "torch_erfc(t0, out=" in kernel.source and "torch_lgamma(r)" in kernel.source
    given = (torch.randn(3000, 40).numpy(), np.linspace(-2, 2, 40))
    x, w = (a.astype({"f32": np.float32, "f64": np.float64}[dtype]) for a in given)
    found = []
    for threads in ("1", "2"):
        monkeypatch.setenv("GRADOF_NUM_THREADS", threads)
        found.append(kernel(x, w)[0])
    np.testing.assert_array_equal(*found)
    e = torch.special.erfc(torch.from_numpy(x * w))
    expected = (e + torch.lgamma(e.sum(1, keepdim=True))).numpy()
    eps = np.finfo(x.dtype).eps
    np.testing.assert_allclose(found[0], expected, rtol=200 * eps, atol=200 * eps * 100)


def _loss(x: Any, y: Any) -> Any:
    return (torch.special.erfc(x * y) * torch.sin(y) + torch.erf(x) + torch.sign(y)).sum()


@pytest.mark.parametrize("there", [True, False])
def test_gradients_with_them_are_eagers(there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADOF_BACKEND", "tiles")
    if not there:  # as where torch has threads of another kind
        monkeypatch.setattr(backend, "has_one_thread", lambda: False)
        monkeypatch.setattr(tiles, "has_one_thread", lambda: False)
    ran: list[bool] = []

    class Spied(TileKernel):
        def __call__(self, *arrays: Any) -> Any:
            ran.append(self.calls_torch)
            return super().__call__(*arrays)

    monkeypatch.setitem(backend._TILES, "torch", lambda nest: Spied(nest, torch=True))
    x, y = (torch.randn(300, 400, dtype=torch.float64, requires_grad=True) for _ in range(2))
    fn = gradof.differentiate(_loss)
    for _ in range(4):  # the last ones compute value and gradients together
        value = fn(x, y)
        have = torch.autograd.grad(value * 0.7, (x, y))
        assert ran and any(ran) == there
        expected = _loss(x, y)
        want = torch.autograd.grad(expected * 0.7, (x, y))
        torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-9)
        for h, w in zip(have, want, strict=True):
            torch.testing.assert_close(h, w, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["sigmoid", "hypot", "logaddexp"])
def test_a_cell_is_the_same_wherever_it_is(name: str, dtype: Any) -> None:
    function = writing(name)
    assert function is not None
    rng = np.random.default_rng(1)
    n = len(get_op(name).inputs)
    given = [torch.from_numpy(rng.normal(size=(700, 3)).astype(dtype) * 3) for _ in range(n)]
    whole = function(*given, out=torch.empty_like(given[0]))
    eps = float(np.finfo(dtype).eps)
    torch.testing.assert_close(whole, getattr(torch, name)(*given), rtol=4 * eps, atol=0)
    for first in (1, 7, 64, 333):
        part = [a[first : first + 5] for a in given]
        np.testing.assert_array_equal(
            function(*part, out=torch.empty_like(part[0])), whole[first : first + 5]
        )
    apart = [torch.stack([a, a], -1)[..., 0] for a in given]  # not contiguous
    out = torch.stack([whole, whole * 0], -1)
    function(*apart, out=out[..., 1])
    np.testing.assert_array_equal(out[..., 1], out[..., 0])
    rows = [given[0], *(a[:, :1] for a in given[1:])]
    wide = [a.expand(700, 3).contiguous() for a in rows]
    np.testing.assert_array_equal(
        function(*rows, out=torch.empty_like(whole)), function(*wide, out=torch.empty_like(whole))
    )
    empty = [a[:0] for a in given]
    assert function(*empty, out=torch.empty_like(empty[0])).shape == (0, 3)


ONE_TILE = """graph f(%x : f32[{n},200], %w : f32[200]):
  %m : f32[{n},1] = amax[dims=(1,), keepdims=True](%x)
  %a : f32[{n},200] = sub(%x, %m)
  %b : f32[{n},200] = {op}(%a)
  %s : f32[{n},1] = sum[dims=(1,), keepdims=True](%b)
  %d : f32[{n},200] = mul(%b, %s)
  %y : f32[{n},200] = mul(%d, %w)
  return (%y)"""


@pytest.mark.parametrize(("n", "op", "shared"), [
    (400, "exp", True), (1, "exp", False), (400, "sigmoid", False), (3000, "exp", False)
])  # fmt: skip
def test_torchs_threads_share_one_tile(
    n: int, op: str, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = TileKernel(nest_of(ONE_TILE.format(n=400, op=op)), torch=True)  # for other n, too
    seen: list[int] = []
    of_rows = tile_torch.extreme("max")
    x, w = torch.randn(n, 200).numpy(), torch.randn(200).numpy()

    def amax(a: torch.Tensor) -> Any:
        seen.append(torch.get_num_threads())
        return of_rows(a)

    kernel.run_tile.function.__globals__["torch_amax"] = amax
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (3, 1, 2):
            torch.set_num_threads(threads)
            found.append(kernel(x, w)[0])
            assert set(seen) == {threads if shared else 1}
            seen.clear()
        torch.set_num_threads(2)
        monkeypatch.setenv("GRADOF_NUM_THREADS", "1")  # fewer than torch's
        found.append(kernel(x, w)[0])
        assert set(seen) == {1}
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


@pytest.mark.cases(1)
@pytest.mark.parametrize("call", [
    "torch.special.erfc(x)", "torch.softmax(x[:1 << 16].view(256, 256), 1)",
])  # fmt: skip
def test_a_forked_process_waits_for_no_thread_of_torchs(call: str) -> None:
    code = """
import os, sys, torch, gradof
def fn(x):
    return (CALL * torch.exp(x).max()).sum()
torch.set_num_threads(2)
x = torch.linspace(-2, 2, 1 << 20, dtype=torch.float64)
(torch.rand(1 << 22) * 2).sum()
torch.special.erfc(x)
run = gradof.value_and_grad(fn)
value, gradient = run(x)
child = os.fork()
if not child:
    again, other = run(x)  # compared by numpy: torch's own loops would wait
    os._exit(0 if again == value and (other.numpy() == gradient.numpy()).all() else 1)
sys.exit(os.waitpid(child, 0)[1])
""".replace("CALL", call)
    env = {**os.environ, "PYTHONPATH": str(ROOT), "GRADOF_NUM_THREADS": "2",
           "GRADOF_BACKEND": "tiles"}  # fmt: skip
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, env=env, timeout=60)


def test_settings_that_are_not_there_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    tile_torch._settings.cache_clear()
    monkeypatch.setattr(tile_torch, "torch_cpu", lambda: None)
    try:
        assert not tile_torch.has_one_thread()
    finally:
        monkeypatch.undo()
        tile_torch._settings.cache_clear()
    assert tile_torch.has_one_thread()
