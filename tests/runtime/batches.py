"""Objects that are made for each call, and functions of them."""

from __future__ import annotations

import weakref
from collections import OrderedDict, UserDict
from collections.abc import Iterator
from typing import Any

import torch

w = torch.linspace(-1, 1, 4, dtype=torch.float64, requires_grad=True)


class Batch:
    def __init__(self, x: Any, **more: Any) -> None:
        self.x = x
        vars(self).update(more)

    @property
    def rows(self) -> int:
        return len(self.x)

    def scaled(self, by: float) -> Any:
        return self.x * by


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


def number(i: int) -> torch.Tensor:
    return torch.linspace(0.5, 2.0 + i, 4, dtype=torch.float64)


def reads(batch: Any) -> Any:
    return (batch.x * w).tanh().sum() / batch.rows


def with_options(batch: Any) -> Any:
    y = (batch.x * w).tanh() * batch.scale
    return y.sum() if batch.training else y.square().sum()


def nested(batch: Any) -> Any:
    return (batch.inner.x * w + batch.data["bias"]).sin().sum() * batch.parts[-1].sum()


def of_graph(graph: Any) -> Any:
    graph.h = graph.x * w
    scale = sum(len(name) for name in graph)
    return graph.h.sin().sum() * scale * (2.0 if "y" in graph else 1.0)


def everything(i: int) -> Any:
    return Batch(
        number(i), inner=Batch(number(i + 1)), count=i, parts=[number(i), number(i + 2)],
        data=OrderedDict(bias=number(i + 3)) if i % 2 else {"bias": number(i + 3)},
    )  # fmt: skip


def state_of(obj: Any) -> Any:
    if isinstance(obj, torch.Tensor):
        return obj.detach().clone()
    if isinstance(obj, (list, tuple)):
        return [state_of(part) for part in obj]
    if isinstance(obj, (dict, UserDict)):
        return {key: state_of(value) for key, value in obj.items()}
    if isinstance(obj, set):
        return {name: 1 for name in sorted(obj)}
    if isinstance(obj, weakref.ref):
        return None
    if hasattr(type(obj), "__slots__"):
        return obj.x.detach()
    return state_of(vars(obj)) if hasattr(obj, "__dict__") else obj
