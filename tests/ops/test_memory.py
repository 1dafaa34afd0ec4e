"""Memory that is used again never has two arrays at a time."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import gradof
from gradof.codegen import compile_graph
from gradof.errors import ConfigError
from gradof.ir.parser import parse_graph
from gradof.ops import memory
from gradof.ops.memory import LEAST, clear, empty, kept, limit

F64 = np.dtype("f8")
SHAPE = (LEAST // 8, 2)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    gc.collect()
    clear()
    yield
    limit.cache_clear()
    clear()


def address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def test_the_memory_of_an_array_that_is_gone_is_given_again() -> None:
    first = empty(SHAPE, F64)
    assert first.shape == SHAPE and first.dtype == F64 and first.flags.writeable
    assert first.flags.c_contiguous
    place = address(first)
    del first
    assert kept() == LEAST * 2
    second = empty(SHAPE, F64)
    assert address(second) == place and kept() == 0


VIEWS: dict[str, Callable[[Any], Any]] = {
    "slice": lambda a: a[5:], "transpose": lambda a: a.T[1:].T,
    "reshape": lambda a: a.reshape(-1)[::2], "dtype": lambda a: a.view("i8"),
    "torch": lambda a: torch.from_numpy(a)[3:].t(), "memoryview": memoryview,
}  # fmt: skip


@pytest.mark.cases(4)
@pytest.mark.parametrize("view", VIEWS)
def test_not_while_a_view_is_there(view: str) -> None:
    array = empty(SHAPE, F64)
    array[...] = 7.0
    held = VIEWS[view](array)
    del array
    gc.collect()
    assert kept() == 0
    other = empty(SHAPE, F64)
    other[...] = 0.0
    if view == "memoryview":
        assert held[0, 0] == 7.0
    elif view == "dtype":
        assert (held.view("f8") == 7.0).all()
    else:
        assert (held == 7.0).all()
    del held
    assert kept() == LEAST * 2


def test_tensors_saved_for_a_backward_keep_theirs() -> None:
    x = torch.from_numpy(empty(SHAPE, F64)).fill_(2.0).requires_grad_()
    y = x * x
    del x
    empty(SHAPE, F64)[...] = 5.0
    (grad,) = torch.autograd.grad(y.sum(), [y.grad_fn.next_functions[0][0].variable])  # type: ignore[union-attr]
    assert (grad == 4.0).all()


def test_small_arrays_are_numpys_own() -> None:
    assert empty((4, 4), F64).base is None
    assert empty((0, 1 << 30), F64).shape == (0, 1 << 30)
    assert empty((), F64).shape == ()


def test_of_about_the_size_only() -> None:
    del_me = empty((4 * LEAST,), np.dtype("u1"))
    del del_me
    assert kept() == 4 * LEAST
    small = empty((2 * LEAST,), np.dtype("u1"))
    assert kept() == 4 * LEAST, "twice as large is too large"
    near = empty((4 * LEAST - LEAST // 2,), np.dtype("u1"))
    assert kept() == 0
    assert small.nbytes + near.nbytes < 6 * LEAST


def test_no_more_is_kept_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADOF_KEPT_MB", "4")
    limit.cache_clear()
    arrays = [empty((LEAST,), np.dtype("u1")) for _ in range(7)]
    last = address(arrays[-1])
    while arrays:
        arrays.pop(0)
    assert kept() == 4 << 20
    assert address(empty((LEAST,), np.dtype("u1"))) == last, "the longest unused went"


def test_none_is_kept_where_none_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADOF_KEPT_MB", "0")
    limit.cache_clear()
    assert empty(SHAPE, F64).base is None
    assert kept() == 0


@pytest.mark.parametrize("text", ["", "much", "-1", "1.5"])
def test_a_limit_that_is_none(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADOF_KEPT_MB", text)
    limit.cache_clear()
    with pytest.raises(ConfigError, match="GRADOF_KEPT_MB"):
        empty(SHAPE, F64)
    with pytest.raises(ConfigError, match="GRADOF_KEPT_MB"):  # of a graph of small arrays, too
        compile_graph(parse_graph("graph f(%x : f32[2]):\n %y : f32[2] = tanh(%x)\n return (%y)"))


def test_release_memory_gives_it_back() -> None:
    empty(SHAPE, F64)
    assert kept() > 0
    gradof.release_memory()
    assert kept() == 0


def test_threads_never_share() -> None:
    before, wrong = len(memory._IN_USE), list[int]()

    def work(me: int) -> None:
        for k in range(60):
            array = empty((LEAST + (k % 3) * 70000,), np.dtype("u1"))
            array[:: 4096] = me
            again = empty((LEAST,), np.dtype("u1"))
            again[:: 4096] = 100 + me
            if not (array[:: 4096] == me).all():
                wrong.append(me)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert kept() <= limit() and len(memory._IN_USE) <= before
