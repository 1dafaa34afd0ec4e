"""Whose threads run numpy tiles: torch's for torch callers, a pool of ours for the others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from gradof import tuning
from gradof.codegen.machine import openmp, threads
from gradof.codegen.machine.threads import run_chunks
from gradof.codegen.tiles import memory as tile_memory
from gradof.codegen.tiles.kernel import TileKernel
from tests.codegen.test_tiles import NORM, inputs_of, nest_of, small_blocks

needs_openmp = pytest.mark.skipif(not openmp.has_threads(), reason="torch has no OpenMP here")


@needs_openmp
def test_every_chunk_runs_once_on_threads_of_torchs() -> None:
    ran: list[tuple[int, int]] = []
    who: set[int] = set()
    inside: list[int] = []
    both = threading.Barrier(2)

    @contextmanager
    def around() -> Iterator[None]:
        inside.append(threading.get_ident())
        both.wait(20)  # two threads are there at once
        yield

    def work(start: int, stop: int) -> None:
        assert threading.get_ident() in inside
        who.add(threading.get_ident())
        ran.append((start, stop))

    pool = {t.ident for t in threading.enumerate()} - {threading.get_ident()}
    run_chunks(work, 103, 10, threads=2, around=around, torchs=True)
    assert sorted(ran) == [(k, min(103, k + 10)) for k in range(0, 103, 10)]
    assert len(inside) == 2 and threading.get_ident() in inside and not who & pool


@needs_openmp
@pytest.mark.parametrize("torchs", [False, True])
def test_an_error_of_a_chunk_is_raised_and_the_next_call_runs(torchs: bool) -> None:
    def fails(start: int, stop: int) -> None:
        if start == 40:
            raise ZeroDivisionError("chunk 4")

    for _ in range(3):
        with pytest.raises(ZeroDivisionError, match="chunk 4"):
            run_chunks(fails, 100, 10, threads=2, torchs=torchs)
        ran: list[tuple[int, int]] = []
        run_chunks(lambda *chunk, ran=ran: ran.append(chunk), 100, 10, threads=2, torchs=torchs)
        assert len(ran) == 10


@needs_openmp
def test_kernels_of_torch_callers_run_there_with_memory_that_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tuning, "TILE_CELLS", 70)
    monkeypatch.setenv("GRADOF_NUM_THREADS", "2")
    small_blocks(monkeypatch)
    calls: list[int] = []
    original = openmp.together

    def noted(worker: Any, count: int) -> None:
        calls.append(count)
        original(worker, count)

    monkeypatch.setattr(openmp, "together", noted)
    nest = nest_of(NORM.replace("{d}", "f32"))
    inputs = inputs_of(nest)
    TileKernel(nest)(*inputs)
    assert not calls, "a numpy caller's run on our own"
    kernel = TileKernel(nest, torch=True)
    tile_memory._KEPT.clear()
    want = [a.tobytes() for a in kernel(*inputs)]
    for _ in range(20):
        assert [a.tobytes() for a in kernel(*inputs)] == want
    assert calls == [2] * 21
    assert 1 <= len(tile_memory._KEPT) <= 2
    monkeypatch.setattr(openmp, "has_threads", lambda: False)  # as in a forked process
    assert [a.tobytes() for a in kernel(*inputs)] == want
    monkeypatch.setenv("GRADOF_NUM_THREADS", "1")
    assert [a.tobytes() for a in kernel(*inputs)] == want
    assert calls == [2] * 21


def test_memory_of_threads_that_ended_is_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tile_memory, "n_threads", lambda: 2)
    kernel = TileKernel(nest_of(NORM.replace("{d}", "f64")))
    tile_memory._KEPT.clear()
    idents = iter(range(10, 100))
    numbers = SimpleNamespace(get_ident=lambda: next(idents))
    monkeypatch.setattr(tile_memory, "threading", numbers)
    for _ in range(9):
        with tile_memory.scratch(kernel, (6, 32)) as arrays:
            assert all(a.shape == (6, 32) for a in arrays)
    assert list(tile_memory._KEPT) == [15, 16, 17, 18]
    tile_memory._KEPT.clear()


def test_torchs_threads_are_not_there_in_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    assert torch.get_num_threads() >= 1
    monkeypatch.setattr(openmp, "_FIRST_PROCESS", None)
    assert not openmp.has_threads()
    ran: list[int] = []
    run_chunks(lambda start, stop: ran.append(start), 40, 10, threads=2, torchs=True)
    assert sorted(ran) == [0, 10, 20, 30]


def test_threads_of_ours_are_used_for_numpy_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []
    original = threads.run_together

    def noted(worker: Any, count: int) -> None:
        ran.append(count)
        original(worker, count)

    monkeypatch.setattr(threads, "run_together", noted)
    total = np.zeros(10)

    def work(start: int, stop: int) -> None:
        total[start:stop] += 1

    run_chunks(work, 10, 2, threads=2)
    assert ran == [2] and (total == 1).all()
