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
from gradof.codegen import backend
from gradof.codegen.cpu import tile_torch, tiles
from gradof.codegen.cpu.tile_torch import one_thread, tile_function, writing
from gradof.codegen.cpu.tiles import TileKernel
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
    function = gradof.codegen.cpu.lowering.lowering(record, "torch").function
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
            ran.append(self.on_thread is one_thread)
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


def test_a_forked_process_waits_for_no_thread_of_torchs() -> None:
    code = """
import os, sys, torch, gradof
def fn(x):
    return (torch.special.erfc(x) * torch.exp(x)).sum()
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
"""
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
