"""Whose threads run native kernels: OpenMP's, a pool's, one's own; results are the same bits."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gradof import tuning
from gradof.codegen.llvm.kernel import NativeKernel
from gradof.codegen.machine import parallel, pool
from gradof.codegen.machine.engine import vector_bits
from tests.codegen.test_native import nests

ROOT = Path(__file__).parents[2]
TEXT = """graph f(%x : f32[500,42]):
  %e : f32[500,42] = exp(%x)
  %s : f32[] = sum[dims=(0,1), keepdims=False](%e)
  %c : f32[42] = amax[dims=(0,), keepdims=False](%e)
  return (%e, %s, %c)
"""
pytestmark = pytest.mark.skipif(not vector_bits(), reason="no native code here")


@pytest.fixture
def x(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An array of many chunks, each worth a thread."""
    monkeypatch.setattr(tuning, "NATIVE_CHUNK", 64)
    monkeypatch.setattr(tuning, "NATIVE_THREAD", 1)
    monkeypatch.setenv("GRADOF_NUM_THREADS", "3")
    return np.random.default_rng(0).random((500, 42)).astype(np.float32)


def bits(arrays: tuple[Any, ...]) -> list[bytes]:
    return [np.asarray(a).tobytes() for a in arrays]


def test_a_pool_and_openmp_give_the_same_bits(x: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert torch.get_num_threads() > 0
    (nest,) = nests(TEXT)
    used: list[int] = []
    share = pool.Pool.run

    def counted(self: pool.Pool, job: int) -> bool:
        used.append(len(self.threads))
        return share(self, job)

    monkeypatch.setattr(pool.Pool, "run", counted)
    shared = bits(NativeKernel(nest, openmp=True)(x))
    assert used == [], "torch is loaded, so its threads ran"
    own = bits(NativeKernel(nest)(x))
    assert len(used) == 1 and used[0] >= 2
    monkeypatch.setattr(parallel, "gomp_parallel", lambda: 0)
    without = bits(NativeKernel(nest, openmp=True)(x))
    assert len(used) == 2
    monkeypatch.setenv("GRADOF_NUM_THREADS", "1")
    alone = bits(NativeKernel(nest)(x))
    assert len(used) == 2
    assert shared == own == without == alone


def test_a_pool_runs_ten_thousand_jobs(x: Any) -> None:
    """Threads come early, late, or not at all; every chunk is done once when a call returns."""
    (nest,) = nests(TEXT)
    run = NativeKernel(nest)
    expected = bits(run(x))
    for n in range(10_000):
        got = run(x)
        if n % 50 == 0:
            assert bits(got) == expected
        else:
            assert got[1] == np.frombuffer(expected[1], np.float32)[0]


def test_calls_of_several_threads_at_once(x: Any) -> None:
    """One of them has the pool, the others run alone."""
    (nest,) = nests(TEXT)
    run = NativeKernel(nest)
    expected = bits(run(x))
    with ThreadPoolExecutor(4) as executor:
        found = list(executor.map(lambda _: bits(run(x)), range(400)))
    assert all(each == expected for each in found)


def test_a_busy_pool_is_not_waited_for(x: Any) -> None:
    (nest,) = nests(TEXT)
    run = NativeKernel(nest)
    expected = bits(run(x))
    with pool.pool(3).lock:
        assert bits(run(x)) == expected


def test_a_pool_grows_and_keeps_its_threads(x: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (nest,) = nests(TEXT)
    run = NativeKernel(nest)
    expected = bits(run(x))
    before = pool.pool(3)
    monkeypatch.setenv("GRADOF_NUM_THREADS", "5")
    assert bits(run(x)) == expected
    assert pool.pool(5) is before and len(before.threads) >= 4
    monkeypatch.setenv("GRADOF_NUM_THREADS", "2")  # the others find the job taken
    assert bits(run(x)) == expected
    assert all(t.is_alive() and t.daemon for t in before.threads)
    assert threading.active_count() >= 5


def test_a_forked_process_does_not_wait_for_threads_that_are_gone() -> None:
    code = """
import os, sys, numpy as np, torch
os.environ["GRADOF_BACKEND"] = "native"
from gradof import value_and_grad
fn = value_and_grad(lambda x: np.sum(np.tanh(x) * np.exp(-x * x)))
x = np.linspace(-1, 1, 1 << 20)
value, gradient = fn(x)
child = os.fork()
if not child:
    again, other = fn(x)
    os._exit(0 if again == value and (other == gradient).all() else 1)
sys.exit(os.waitpid(child, 0)[1])
"""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "GRADOF_NUM_THREADS": "2"}
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, env=env, timeout=60)


def test_a_process_of_a_pool_does_not_wait_either() -> None:
    """torch's threads ran before the fork; the child is the first to run a kernel."""
    code = """
import multiprocessing, os, numpy as np, torch
os.environ["GRADOF_BACKEND"] = "native"
def child(queue):
    from gradof import value_and_grad
    fn = value_and_grad(lambda x: np.sum(np.tanh(x) * np.exp(-x * x)))
    queue.put(fn(np.linspace(-1, 1, 1 << 20))[0])
torch.set_num_threads(2)
(torch.rand(1 << 22) * 2).sum()
context = multiprocessing.get_context("fork")
queue = context.Queue()
process = context.Process(target=child, args=(queue,))
process.start()
print(queue.get(timeout=50))
process.join()
"""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "GRADOF_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, env=env, timeout=60,
                          capture_output=True, text=True)  # fmt: skip
    assert abs(float(done.stdout)) < 1e-6, "an odd function over a symmetric range"
