"""Objects among the arguments that are others at each call: Note [Renewed objects]."""

from __future__ import annotations

import copy
import gc
import threading
import warnings
import weakref
from abc import ABCMeta
from collections import OrderedDict, UserDict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from gradof import differentiate, value_and_grad
from gradof.errors import RetraceWarning


class Batch:
    def __init__(self, x: Any, **more: Any) -> None:
        self.x = x
        vars(self).update(more)

    @property
    def rows(self) -> int:
        return len(self.x)

    def scaled(self, by: float) -> Any:
        return self.x * by


class Larger(Batch):
    def scaled(self, by: float) -> Any:
        return self.x * by * 10


class Unhashable(Batch):
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unhashable)

    __hash__ = None  # type: ignore[assignment]


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x: Any) -> None:
        self.x = x


class Store:
    """As a graph of PyG's: attributes are in a store, which knows its owner by a weak reference."""

    def __init__(self, owner: Graph) -> None:
        self.__dict__["mapping"] = {}
        self.__dict__["owner"] = weakref.ref(owner)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["mapping"][name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self.mapping[name] = value


class Graph:
    def __init__(self, **given: Any) -> None:
        self.__dict__["store"] = Store(self)
        for name, value in given.items():
            setattr(self.store, name, value)

    def __getattr__(self, name: str) -> Any:
        if "store" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.store, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.store, name, value)

    def __iter__(self) -> Iterator[str]:
        return iter(self.store.mapping)

    def __contains__(self, name: str) -> bool:
        return name in self.store.mapping


class Dynamic(ABCMeta):
    """Makes a class for each call, as PyG's batches are of."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        made = _MADE.setdefault(cls, Dynamic(f"Made{cls.__name__}", (cls,), {}))
        return type.__call__(made, *args, **kwargs)


_MADE: dict[Any, Any] = {}


class Joined(Graph, metaclass=Dynamic):
    pass


class Policy:
    def __init__(self, scale: float) -> None:
        self.scale = scale

    def __call__(self, x: Any) -> Any:
        return (x * w * self.scale).sum()


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, batch: Any) -> Any:
        ctx.batch = batch
        return x * batch.scale

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * ctx.batch.scale, None


w = torch.linspace(-1, 1, 4, dtype=torch.float64, requires_grad=True)
held: Any = Batch(None, scale=3.0)
history: list[Any] = []


def number(i: int) -> torch.Tensor:
    return torch.linspace(0.5, 2.0 + i, 4, dtype=torch.float64)


def reads(batch: Any) -> Any:
    return (batch.x * w).tanh().sum() / batch.rows


def with_options(batch: Any) -> Any:
    y = (batch.x * w).tanh() * batch.scale
    return y.sum() if batch.training else y.square().sum()


def nested(batch: Any) -> Any:
    return (batch.inner.x * w + batch.data["bias"]).sin().sum() * batch.parts[-1].sum()


def sums_all(batch: Any) -> Any:
    return sum((value * w).sin().sum() for value in vars(batch).values())


def sums_items(batch: Any) -> Any:
    return sum((v * w).sin().sum() * len(k) for k, v in batch.data.items())


def asks(batch: Any) -> Any:
    y = (batch.x * w).sum()
    if getattr(batch, "weight", None) is not None:
        y = y * batch.weight.sum()
    return y if hasattr(batch, "plain") else y.square()


def calls_methods(batch: Any) -> Any:
    return (batch.scaled(2.0) * w).sum()


def writes(batch: Any) -> Any:
    batch.y = batch.x * w
    batch.count = batch.count + 1
    batch.data["y"] = batch.y.sin()
    batch.parts.append(batch.y.cos())
    batch.inner.last = batch.y.sum()
    return batch.data["y"].sum() * batch.parts[-1].sum() + batch.count * batch.inner.last


def takes_away(batch: Any) -> Any:
    x = batch.data.pop("bias") + batch.x
    del batch.x
    batch.parts.clear()
    return (x * w).sum()


def only_appends(batch: Any) -> Any:
    batch.parts.append((batch.x * w).sum())
    return (batch.x * w).cos().sum()


def in_place(batch: Any) -> Any:
    batch.x.mul_(2)
    return (batch.x * w).sin().sum()


def gives_back(batch: Any) -> Any:
    batch.y = batch.x * w
    return batch


def gives_a_part(batch: Any) -> Any:
    return (batch.x * w).sum(), batch.inner


def is_held(batch: Any) -> Any:
    return (batch.x * w).sum() * (held.scale if batch is held.batch else 1.0)


def keeps(batch: Any) -> Any:
    history[:] = [batch]
    return (batch.x * w).sum()


def of_function(batch: Any) -> Any:
    apply: Any = Scaled.apply
    return apply(batch.x * w, batch).sum()


def of_graph(graph: Any) -> Any:
    graph.h = graph.x * w
    scale = sum(len(name) for name in graph)
    return graph.h.sin().sum() * scale * (2.0 if "y" in graph else 1.0)


def of_owner(graph: Any) -> Any:
    return (graph.store.owner().x * w).sum()


def of_encoding(batch: Any) -> Any:
    return (batch["x"] * w).sum() * (2.0 if "y" in batch else 1.0)


def everything(i: int) -> Any:
    return Batch(
        number(i), inner=Batch(number(i + 1)), count=i, parts=[number(i), number(i + 2)],
        data=OrderedDict(bias=number(i + 3)) if i % 2 else {"bias": number(i + 3)},
    )  # fmt: skip


def alternates(i: int) -> Any:
    more: list[dict[str, Any]] = [{}, {"weight": number(i)}, {"weight": None}, {"plain": 1}]
    return Batch(number(i), **more[i % 4])


def conflict(i: int) -> Batch:
    held.batch = Batch(number(i))
    return held.batch if i % 3 == 0 else Batch(number(i + 1))


PROGRAMS: list[tuple[Callable[[Any], Any], Callable[[int], Any], int, int]] = [
    # the function, its arguments, traces, runs of eager
    (reads, lambda i: Batch(number(i)), 1, 0),
    (reads, lambda i: Unhashable(number(i)), 1, 0),
    (reads, lambda i: Batch(number(i)) if i % 2 else Larger(number(i)), 2, 0),
    (calls_methods, lambda i: Batch(number(i)) if i % 2 else Larger(number(i)), 2, 0),
    (reads, lambda i: Batch(number(i).float() if i % 2 else number(i)), 2, 0),
    (with_options, lambda i: Batch(number(i), scale=2.0, training=i % 2 == 0), 2, 0),
    (with_options, lambda i: Batch(number(i), scale=1.0 + i, training=True), 2, 0),
    (nested, everything, 2, 0),
    (sums_all, lambda i: Batch(number(i), y=number(1)), 1, 0),
    (sums_all, lambda i: Batch(number(i), **{"yz"[i % 2]: number(1)}), 2, 0),
    (sums_items, lambda i: Batch(0, data={"a": number(i), "b" * (i % 2 + 1): number(2)}), 2, 0),
    (asks, alternates, 4, 0),
    (writes, everything, 2, 0),
    (takes_away, everything, 2, 0),
    (only_appends, everything, 1, 0),
    (in_place, lambda i: Batch(number(i)), 1, 0),
    (gives_back, lambda i: Batch(number(i)), 1, 0),
    (gives_a_part, everything, 1, 0),
    (is_held, conflict, 1, 10),
    (keeps, lambda i: Batch(number(i)), 2, 0),
    (of_function, lambda i: Batch(number(i), scale=1.0 + i), 1, 10),
    (of_graph, lambda i: Graph(x=number(i)), 1, 0),
    (of_graph, lambda i: Graph(x=number(i), **{"yz"[i % 2]: number(i)}), 2, 0),
    (of_graph, lambda i: Joined(x=number(i)), 1, 0),
    (lambda policy: policy(w), lambda i: Policy(1.0 + i), 2, 0),
    (of_owner, lambda i: Graph(x=number(i)), 1, 0),
    (of_encoding, lambda i: UserDict(x=number(i), **{"yz"[i % 2]: 1}), 2, 0),
    (lambda b: (b.x * w).sum(), lambda i: Slotted(number(i)), 0, 10),
]


def state_of(obj: Any) -> Any:
    if isinstance(obj, torch.Tensor):
        return obj.detach().clone()
    if isinstance(obj, (list, tuple)):
        return [state_of(part) for part in obj]
    if isinstance(obj, (dict, UserDict)):
        return {key: state_of(value) for key, value in obj.items()}
    if isinstance(obj, weakref.ref):
        return None
    if isinstance(obj, Slotted):
        return obj.x
    return state_of(vars(obj)) if hasattr(obj, "__dict__") else obj


def total(result: Any) -> Any:
    if isinstance(result, tuple):
        return result[0]
    return result.y.sum() if isinstance(result, Batch) else result  # type: ignore[attr-defined]


@pytest.mark.parametrize(("fn", "make", "traces", "eager"), PROGRAMS)
def test_each_call_has_an_object_of_its_own(
    fn: Callable[[Any], Any], make: Callable[[int], Any], traces: int, eager: int
) -> None:
    compiled = differentiate(fn)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RetraceWarning)  # of those that count as who they are
        for i in range(10):
            found = []
            for f in (fn, compiled):
                batch = make(i)
                result = f(batch)
                (slope,) = torch.autograd.grad(total(result), w)
                shown = result if isinstance(result, torch.Tensor) else None
                found.append((shown, slope, state_of(batch)))
                if fn is gives_back:
                    assert result is batch
                if fn is gives_a_part:
                    assert result[1] is batch.inner
                if fn is keeps:
                    assert history[0] is batch
            torch.testing.assert_close(found[1], found[0])
    info = compiled.cache_info()
    assert (info.misses, info.eager_runs) == (traces, eager)


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
