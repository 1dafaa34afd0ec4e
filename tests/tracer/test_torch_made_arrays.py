"""Tensors of numpy arrays that a torch function makes itself: constants, if of known numbers.

What gives other elements at another call is noticed, or runs eagerly.
"""

from __future__ import annotations

import collections
import contextvars
import ctypes
import functools
import io
import random
import tempfile
import types
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.utils import random as in_c
from sklearn.utils.random import sample_without_replacement

import gradof
from gradof.errors import EagerWarning, RetraceWarning

Tensor = torch.Tensor
Function = Callable[["State", Tensor], Any]
VARIABLE: contextvars.ContextVar[Any] = contextvars.ContextVar("VARIABLE")


class Slotted:
    """An object without a `__dict__`."""

    __slots__ = ("table",)
    table: Any


class State:
    """What the functions below read; `change` is what happens to it between two calls."""

    def __init__(self) -> None:
        self.table = np.arange(4.0)
        self.buffer = bytearray(np.ones(4).tobytes())
        self.queue = collections.deque([np.ones(4)])
        self.objects = np.array([np.ones(4), None], dtype=object)
        self.slotted = Slotted()
        self.slotted.table = np.ones(4)
        self.space = types.SimpleNamespace(table=np.ones(4))
        self.reference, self.seed, self.size = weakref.ref(self.table), 0, 4
        self.rows = iter([np.full(4, float(i)) for i in range(9)])
        self.data = (ctypes.c_double * 4)(1.0, 1.0, 1.0, 1.0)
        self.stream = io.BytesIO(np.ones(4).tobytes())
        self.generator, self.bits = np.random.RandomState(0), np.random.PCG64(0)
        self.view = types.MappingProxyType({"table": self.table})
        self.mean = self.table.mean
        with tempfile.NamedTemporaryFile() as file:
            np.ones(4).tofile(file)
            self.mapped = np.memmap(file.name, np.float64, "r+")
        VARIABLE.set(np.ones(4))

    def change(self) -> None:
        """Other elements, in the same objects."""
        arrays = [self.table, self.queue[0], self.slotted.table, self.space.table, self.mapped]
        for array in (*arrays, VARIABLE.get(), self.objects[0]):
            array[1] += 5.0
        self.buffer[:8] = np.full(1, 4.0).tobytes()
        self.stream.write(np.full(1, 4.0).tobytes())
        self.data[0], self.seed, self.size = 3.0, 1, 2


def _mask(s: State, x: Tensor) -> Any:
    mask = np.zeros((4, 4), dtype=bool)
    for i in range(4):
        mask[i, : i + 1] = True
    return x.masked_fill(torch.from_numpy(mask), 0.0)


def _kernel(n: int) -> Any:
    kernel = np.outer(np.hanning(n), np.hanning(n))
    kernel[0] = 1.0
    return kernel


def _normalised(s: State, x: Tensor) -> Any:
    kernel = _kernel(4)
    kernel /= kernel.sum()
    return x @ torch.from_numpy(kernel)


def _grid(s: State, x: Tensor) -> Any:
    a, b = np.meshgrid(np.arange(4), np.arange(4))
    return x * torch.from_numpy((a - b) ** 2 / 2.0)


def _written_in_parts(s: State, x: Tensor) -> Any:
    made = np.empty(4)
    np.multiply(s.table, 3.0, out=made)
    made[0] = s.table[3]
    return x * torch.from_numpy(made)


def _copied_and_written(s: State, x: Tensor) -> Any:
    made = np.zeros(4)
    rows = []
    for k in range(3):
        made[:] = k
        rows.append(torch.tensor(made))
    return x * torch.stack(rows).sum(0), made


@functools.lru_cache
def _size(n: int) -> int:
    return n + 1


class Sizes(list[int]):
    """A list of the user's own."""

    def append(self, value: int) -> None:
        """As a list's."""
        super().append(value)


def _of_own_list(s: State, x: Tensor) -> Any:
    sizes = Sizes()
    sizes.append(_size(3))
    return x * torch.from_numpy(np.arange(float(sizes[0])))


def _result(s: State, x: Tensor) -> Any:
    made = _kernel(4)
    made += 1.0
    return x * 2, made


MADE: dict[str, Function] = {
    "eye": lambda s, x: x @ torch.from_numpy(np.eye(4)),
    "copy": lambda s, x: x @ torch.tensor(np.eye(4)),
    "index": lambda s, x: x[np.triu_indices(4)],
    "places": lambda s, x: x[np.arange(0, 4, 2)],
    "truths": lambda s, x: x[np.array([True, False, True, False])],
    "linspace": lambda s, x: x * torch.as_tensor(np.linspace(0, 1, 4)),
    "new_tensor": lambda s, x: x * x.new_tensor(np.arange(4.0)),
    "of a type": lambda s, x: x * torch.DoubleTensor(np.arange(4.0)),
    "list": lambda s, x: x * torch.tensor([np.float64(1.5) * i for i in range(4)]),
    "seeded": lambda s, x: x * torch.from_numpy(np.random.RandomState(s.seed).rand(4)),
    "permuted": lambda s, x: x[np.random.default_rng(3).permutation(4)],
    "doubled": lambda s, x: x * torch.from_numpy(s.table * 2),
    "deque": lambda s, x: x * torch.from_numpy(s.queue[0] * 2),
    "objects": lambda s, x: x * torch.from_numpy(s.objects[0] * 2),
    "slot": lambda s, x: x * torch.from_numpy(s.slotted.table * 2),
    "namespace": lambda s, x: x * torch.from_numpy(s.space.table + 1),
    "view of a dict": lambda s, x: x * torch.from_numpy(s.view["table"] + 1),
    "context variable": lambda s, x: x * torch.from_numpy(VARIABLE.get() * 2),
    "method": lambda s, x: x * torch.from_numpy(np.full(4, s.mean())),
    "reference": lambda s, x: x * torch.from_numpy(s.reference() * 2),  # type: ignore[operator]
    "number of a method": lambda s, x: x * float(s.mean()),
    "of ctypes": lambda s, x: x * torch.from_numpy(np.ctypeslib.as_array(s.data) * 2),
    "mapped": lambda s, x: x * torch.from_numpy(np.asarray(s.mapped) * 2),
    "bytes": lambda s, x: x * torch.tensor(np.ndarray((4,), np.float64, s.buffer)),
    "size": lambda s, x: x * torch.from_numpy(np.full(4, float(s.size))),
    "size of x": lambda s, x: x * torch.from_numpy(np.arange(float(x.shape[0]))),
    "mask": _mask, "normalised": _normalised, "grid": _grid, "parts": _written_in_parts,
    "result": _result, "copied and written": _copied_and_written, "own list": _of_own_list,
    "tensor as result": lambda s, x: (x * 2, torch.from_numpy(s.table * 2)),
    "part as result": lambda s, x: (x * 2, torch.from_numpy(np.eye(4))[1:], torch.ones(2)),
    "a draw of Python's": lambda s, x: x * torch.from_numpy(np.full(4, random.random())),
    "draws": lambda s, x: x * torch.from_numpy(np.array([np.random.rand(), s.seed, 2.0, 3.0])),
    "numbers of x": lambda s, x: x * torch.from_numpy(np.full(4, x.detach().sum().item())),
}  # fmt: skip


def _shared_and_written(s: State, x: Tensor) -> Any:
    made = np.ones(4)
    shared = torch.from_numpy(made)
    shared[0] = 9.0
    return x * shared * float(made[0])


def _of_one_memory(s: State, x: Tensor) -> Any:
    made = np.ones(4)
    return x * 2, torch.from_numpy(made), made


def _copied_and_shared(s: State, x: Tensor) -> Any:
    made = np.ones(4)
    copy, shared = torch.tensor(made), torch.from_numpy(made)
    made[0] = 9.0
    return x * copy * shared


def _changed_between(s: State, x: Tensor) -> Any:
    made = np.ones(4)
    shared = torch.from_numpy(made)
    first = x * shared
    made[0] = 9.0
    return first + x * shared


def _shuffled(s: State, x: Tensor) -> Any:
    places = np.arange(4)
    np.random.shuffle(places)
    return x[places]


OTHER: dict[str, Function] = {
    "drawn": lambda s, x: x * torch.from_numpy(np.random.rand(4)),
    "chosen": lambda s, x: x[np.random.choice(4, 2, replace=False)],
    "of a generator": lambda s, x: x * torch.from_numpy(s.generator.rand(4)),
    "of its bits": lambda s, x: x * torch.from_numpy(np.random.Generator(s.bits).random(4)),
    "number of its bits": lambda s, x: x * float(np.random.Generator(s.bits).random()),
    "iterator": lambda s, x: x * torch.from_numpy(next(s.rows) * 2),
    "stream": lambda s, x: x * torch.tensor(np.array(np.frombuffer(s.stream.getbuffer()))),
    "over bytes": lambda s, x: x * torch.from_numpy(np.frombuffer(s.buffer) * 2),
    "array and tensor": _of_one_memory, "copied and shared": _copied_and_shared,
    "shared": _shared_and_written, "between": _changed_between, "shuffled": _shuffled,
}  # fmt: skip


def _copied(other: Any) -> Any:
    return other.clone() if isinstance(other, Tensor) else other.copy()


def _runs(fn: Function, compiled: bool) -> tuple[list[Any], Any]:
    np.random.seed(0)
    random.seed(0)
    state, found = State(), []
    call: Any = lambda x: fn(state, x)  # noqa: E731
    if compiled:
        call = gradof.differentiate(call)
    for i in range(4):
        if i == 2:
            state.change()
        x = (torch.arange(16.0, dtype=torch.float64).reshape(4, 4) + i).requires_grad_()
        out = call(x)
        value, *others = out if isinstance(out, tuple) else (out,)
        (slope,) = torch.autograd.grad(value.sum(), x)
        found += [value.detach(), slope, *map(_copied, others)]
        for other in others:
            other += 1.0  # as the caller may
        found += map(_copied, others)
    return found, call


def _info(fn: Function) -> Any:
    want, _ = _runs(fn, compiled=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RetraceWarning)
        have, compiled = _runs(fn, compiled=True)
    for h, w in zip(have, want, strict=True):
        assert type(h) is type(w)
        torch.testing.assert_close(h, w)
    return compiled.cache_info()


@pytest.mark.parametrize("name", MADE)
def test_an_array_of_known_numbers_is_a_constant(name: str) -> None:
    info = _info(MADE[name])
    assert info.eager_runs == 0 and info.forward_runs == 4


@pytest.mark.parametrize("name", OTHER)
def test_an_array_that_is_another_one_at_each_call_runs_eagerly(name: str) -> None:
    with pytest.warns(EagerWarning):
        assert _info(OTHER[name]).eager_runs == 4


def _sampled(s: State, x: Tensor) -> Any:
    return x[in_c.sample_without_replacement(4, 2, random_state=s.seed)]


def _sampled_by_its_name(s: State, x: Tensor) -> Any:
    return x[np.arange(4)[sample_without_replacement(4, 2, random_state=s.seed)]]


@pytest.mark.parametrize("fn", [_sampled, _sampled_by_its_name])
def test_an_array_that_code_in_c_gives_runs_eagerly(fn: Function) -> None:
    with pytest.warns(EagerWarning, match=r"may come from sklearn\.utils\._random\.sample_wi"):
        assert _info(fn).eager_runs == 4


def test_an_array_of_a_context_variable_in_a_numpy_function() -> None:
    VARIABLE.set(np.ones(3))
    compiled = gradof.differentiate(lambda x: x * VARIABLE.get())
    for i in range(2):
        np.testing.assert_array_equal(compiled(np.ones(3)), VARIABLE.get())
        VARIABLE.get()[i] += 1.0
