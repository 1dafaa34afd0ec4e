"""Calls with objects among their arguments: which is which, how long they live, threads, shapes."""


from __future__ import annotations

import copy
import gc
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from gradof import differentiate, value_and_grad
from gradof.errors import RetraceWarning
from gradof.runtime.state import StateGuard
from tests.runtime.batches import (
    Batch,
    Graph,
    everything,
    nested,
    number,
    of_graph,
    reads,
    state_of,
    w,
    with_options,
)


def of_two(a: Any, b: Any) -> Any:
    a.y = a.x * w
    y = (b.x * w).sin().sum() + a.y.sum()
    return y * 2 if a is b else y + b.y.sum() if hasattr(b, "y") else y


def test_two_objects_may_be_one() -> None:
    compiled = differentiate(of_two)
    for i in range(8):
        found = []
        for f in (of_two, compiled):
            a: Any = Batch(number(i))
            b: Any = Batch(number(i + 1))
            if i % 3 == 0:
                b = a
            elif i % 3 == 1:
                b.x = a.x
            loss = f(a, b)
            found.append((loss, *torch.autograd.grad(loss, w), state_of(a), state_of(b)))
        torch.testing.assert_close(found[1], found[0])
    info = compiled.cache_info()
    assert (info.misses, info.eager_runs) == (3, 0)


@pytest.mark.parametrize("nest", [
    lambda b: ([b], {}), lambda b: ((b, 2.0), {}), lambda b: ((), {"batch": b}),
    lambda b: ({"a": b},), lambda b: ([[b, b]],),
])  # fmt: skip
def test_objects_in_containers_and_by_name(nest: Callable[[Any], Any]) -> None:
    def loss(x: Any, given: Any, named: Any = None) -> Any:
        batch = (named or given)
        while not isinstance(batch, Batch):
            batch = batch["batch" if "batch" in batch else "a"] if isinstance(batch, dict) else (
                batch[0])  # fmt: skip
        return (batch.x * x).sin().sum()

    compiled = differentiate(loss)
    for i in range(4):
        x, batch = number(i).requires_grad_(), Batch(number(2 * i))
        mine, theirs = compiled(x, *nest(batch)), loss(x, *nest(batch))
        torch.testing.assert_close(mine, theirs)
        torch.testing.assert_close(torch.autograd.grad(mine, x), torch.autograd.grad(theirs, x))
    assert compiled.cache_info()[:2] == (3, 1)


def test_gradients_of_other_arguments() -> None:
    def loss(v: Any, batch: Any) -> Any:
        return (batch.x * v).sin().sum()

    ours = value_and_grad(loss)
    for i in range(4):
        v, batch = number(i), Batch(number(2 * i))
        value, slope = ours(v, batch)
        torch.testing.assert_close(value, loss(v, batch))
        torch.testing.assert_close(slope, batch.x * (batch.x * v).cos())
    assert ours.base.cache_info().misses == 1


def test_batches_are_not_kept_alive() -> None:
    compiled = differentiate(of_graph)
    for i in range(3):
        graph = Graph(x=number(i))
        tensor = weakref.ref(graph.x)
        compiled(graph).backward()
        there = weakref.ref(graph)
        del graph
        gc.collect()
        assert there() is None
        assert tensor() is None


def test_threads_have_objects_of_their_own() -> None:
    compiled = differentiate(reads)
    compiled(Batch(number(0)))
    wrong: list[Any] = []

    def run(k: int) -> None:
        for i in range(100):
            batch = Batch(number(100 * k + i))
            if not torch.allclose(compiled(batch), reads(batch)):
                wrong.append((k, i))

    threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert compiled.cache_info().misses == 1


def test_backward_after_the_next_call() -> None:
    compiled = differentiate(reads)
    batches = [Batch(number(i)) for i in range(3)]
    losses = [compiled(batch) for batch in batches]
    for batch, loss in zip(batches, losses, strict=True):
        (mine,), (theirs,) = (torch.autograd.grad(y, w) for y in (loss, reads(batch)))
        torch.testing.assert_close(mine, theirs)


def test_a_tensor_of_the_object_has_a_gradient() -> None:
    compiled = differentiate(nested)
    for i in range(4):
        batch = everything(2 * i)
        for tensor in (batch.inner.x, batch.data["bias"], batch.parts[1]):
            tensor.requires_grad_(i > 0)
        inputs = [batch.inner.x, batch.data["bias"], batch.parts[1]] if i else [w]
        mine = torch.autograd.grad(compiled(batch), inputs)
        theirs = torch.autograd.grad(nested(batch), inputs)
        torch.testing.assert_close(mine, theirs)


def test_a_copy_is_as_good() -> None:
    compiled = differentiate(with_options)
    batch: Any = Batch(number(1), scale=2.0, training=True)
    first = compiled(batch)
    torch.testing.assert_close(compiled(copy.copy(batch)), first)
    batch.scale = 3.0
    torch.testing.assert_close(compiled(batch), with_options(batch))
    assert compiled.cache_info().entries <= 2


def test_shapes_that_never_come_again_are_traced_a_few_times() -> None:
    compiled = differentiate(lambda batch: (batch.x.sin() * w[0]).sum())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RetraceWarning)
        for n in range(1, 60):
            batch = Batch(torch.ones(n, dtype=torch.float64))
            torch.testing.assert_close(compiled(batch), (batch.x.sin() * w[0]).sum())
    assert compiled.cache_info().misses <= 20


class _Operator:
    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


class _Tag:
    __slots__ = ()  # one that is not looked into: it counts as who it is


class _Distribution:
    """As gpytorch has it: a shape, and a part that is kept under another name when first read."""

    def __init__(self, tensor: torch.Tensor, tag: Any = None) -> None:
        self.shape, self.tag = torch.Size([len(tensor)]), tag
        self.made = _Operator(tensor)

    def read(self) -> _Operator:
        if "kept" not in vars(self):
            self.kept = self.made
        return self.kept


@pytest.mark.parametrize("tagged", [False, True])
@pytest.mark.filterwarnings("ignore::gradof.errors.RetraceWarning")
def test_what_is_kept_in_an_object_is_its_own(tagged: bool) -> None:
    def loss(of: _Distribution, y: torch.Tensor) -> torch.Tensor:
        assert of.shape == y.shape and of.tag != 1
        return (of.read().tensor * y).sum()

    compiled, w = differentiate(loss), torch.ones(3, requires_grad=True)
    seen: list[_Distribution] = []
    for n in range(1, 6):
        of, w.grad = _Distribution(w * n, _Tag() if tagged else None), None
        compiled(of, torch.tensor([1.0, 2.0, 3.0])).backward()
        assert w.grad is not None and w.grad.tolist() == [n, 2 * n, 3 * n]
        assert vars(of)["kept"] is of.made
        seen.append(of)
    if not tagged:  # an equal size is no other object
        assert compiled.cache_info().misses == 1 and compiled.cache_info().eager_runs == 0


def test_a_call_is_told_from_many_traces_by_one_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by all that each trace has read: steps of decoding have caches of many lengths."""
    checks = 0
    check = StateGuard.check

    def counted(guard: StateGuard) -> bool:
        nonlocal checks
        checks += 1
        return check(guard)

    monkeypatch.setattr(StateGuard, "check", counted)

    def fn(batch: Any) -> Any:
        return (batch.x.sin() * batch.scale).sum()

    def step(n: int, scale: Any) -> None:
        nonlocal checks
        checks = 0
        batch: Any = Batch(torch.arange(float(n), requires_grad=True))
        batch.scale = scale
        loss = compiled(batch)
        torch.testing.assert_close(loss, (batch.x.sin() * scale).sum())
        (grad,) = torch.autograd.grad(loss, batch.x)
        torch.testing.assert_close(grad, batch.x.cos() * scale)

    compiled, scales = differentiate(fn, strict=True), [torch.tensor(2.0), torch.ones(1)]
    for n in range(1, 11):
        step(n, scales[0])
    for n in (*range(1, 11), *range(1, 11)):
        step(n, scales[0])
        assert checks <= 4, "of ten traces the one that serves the call is looked at"
    for n in range(1, 11):  # what tells is another tensor now
        step(n, scales[1])
    for n in range(1, 11):
        for scale in scales:
            step(n, scale)
    assert compiled.cache_info().misses == 20
