"""Objects among the arguments that are others at each call: Note [Renewed objects]."""

from __future__ import annotations

import warnings
from abc import ABCMeta
from collections import UserDict
from collections.abc import Callable
from typing import Any

import pytest
import torch

from gradof import differentiate
from gradof.errors import RetraceWarning
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


class Unreferenced:
    __slots__ = ("__dict__",)

    def __init__(self, x: Any) -> None:
        self.x = x


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


held: Any = Batch(None, scale=3.0)
history: list[Any] = []


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


def of_owner(graph: Any) -> Any:
    return (graph.store.owner().x * w).sum()


def of_a_set(batch: Any) -> Any:
    return (batch.x * w).sum() * (2.0 if "a" in batch.flags else 3.0)


def adds_to_a_set(batch: Any) -> Any:
    batch.flags.add("c")
    return (batch.x * w).sum() * len(batch.flags)


def of_one_list(batch: Any) -> Any:
    batch.parts.append(batch.x)
    return (batch.others[-1] * w).sum() * (2.0 if batch.parts is batch.others else 3.0)


def replaces(batch: Any) -> Any:
    y = (batch.inner.x * w).sum() + (batch.data["bias"] * w).sin().sum()
    batch.inner, batch.data, batch.parts = Batch(y * 2), {"y": y}, [y, batch.parts[0]]
    return y * batch.inner.x + batch.parts[1].sum()


def replaces_what_it_writes_to(batch: Any) -> Any:
    batch.inner.y = batch.x * w
    before, batch.inner = batch.inner, Batch(batch.x)
    return (before.y + batch.inner.x).sum()


def of_encoding(batch: Any) -> Any:
    return (batch["x"] * w).sum() * (2.0 if "y" in batch else 1.0)


def one_list_or_two(i: int) -> Batch:
    parts = [number(i + 1)]
    return Batch(number(i), parts=parts, others=parts if i % 2 else list(parts))


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
    (of_a_set, lambda i: Batch(number(i), flags={"a", "b"} if i % 2 else {"b"}), 2, 0),
    (adds_to_a_set, lambda i: Batch(number(i), flags={"a"}), 1, 0),
    (of_one_list, one_list_or_two, 2, 0),
    (replaces, lambda i: everything(2 * i), 1, 0),
    (replaces_what_it_writes_to, lambda i: everything(2 * i), 1, 0),
    (of_encoding, lambda i: UserDict(x=number(i), **{"yz"[i % 2]: 1}), 2, 0),
    (lambda b: (b.x * w).sum(), lambda i: Unreferenced(number(i)), 0, 10),
    (lambda b: (b.x * w).sum(), lambda i: Slotted(number(i)), 0, 10),
]


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
