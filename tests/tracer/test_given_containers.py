"""Containers among the arguments that a function changes: the caller's, at every call."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, UserDict, defaultdict, deque
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import gradof
from gradof.errors import EagerWarning, OutputError, TraceError

W = torch.tensor([0.5, -1.0, 2.0], requires_grad=True)


class Items(dict[str, Any]):
    """A dict with attributes."""

    seen: int


@dataclasses.dataclass
class Record:
    x: Any
    y: Any = None


def _items(**items: Any) -> Items:
    made = Items(items)
    made.seen = 0
    return made


@pytest.mark.parametrize("make", [dict, OrderedDict, lambda **k: defaultdict(list, k), _items])
def test_items_are_set_added_and_taken_away_as_in_eager(make: Any) -> None:
    def fn(batch: Any, out: Any, name: str = "y") -> Any:
        batch[name] = batch["x"] * W
        batch["list"].append(batch["y"].sum())
        batch["n"] = len(batch)
        batch["own"] = batch
        out["same"] = batch["list"]
        out["kept"] = (batch["x"], batch["name"])
        del batch["gone"]
        return batch, batch["y"].sum()

    fast = gradof.differentiate(fn, strict=True)
    for _ in range(5):
        x, history = torch.randn(3), [7]
        batch = make(x=x, list=history, gone=3, name="a")
        out: dict[Any, Any] = {1: 2}
        result, total = fast(batch, out)
        assert result is batch is batch["own"]
        assert out["same"] is history is batch["list"] and out[1] == 2
        assert out["kept"][0] is x is batch["x"]
        assert list(batch) == ["x", "list", "name", "y", "n", "own"] and batch["n"] == 5
        W.grad = None
        (2 * total + batch["y"].square().sum() + history[1]).backward()
        assert W.grad is not None and torch.allclose(W.grad, 3 * x + 2 * W.detach() * x * x)
    assert fast.cache_info().hits == 4


def test_attributes_of_records_namespaces_and_others() -> None:
    def fn(record: Any, space: Any, users: Any, last: Any, items: Any) -> Any:
        record.y = record.x * W
        record.new = record.y + 1
        space.y = record.new * 2
        users["k"] = space.y
        last.append(record.y)
        items.seen += 1
        items["z"] = record.y
        del users["z"], space.gone
        return record.y.sum()

    fast = gradof.differentiate(fn, strict=True)
    for _ in range(4):
        x = torch.randn(3)
        record, space, users = Record(x), SimpleNamespace(gone=1), UserDict(z=torch.ones(3))
        last, items = deque([1, 2], maxlen=2), _items(a=x)
        fast(record, space, users, last, items)
        assert record.x is x and torch.equal(record.y, x * W) and record.y.requires_grad
        assert vars(record).keys() == {"x", "y", "new"} and vars(space).keys() == {"y"}
        assert users.keys() == {"k"} and torch.equal(users["k"], (x * W + 1) * 2)
        assert last[0] == 2 and last[1] is items["z"] and last.maxlen == 2
        assert items.seen == 1 and items["a"] is x
    assert fast.cache_info().hits == 3


def test_containers_within_others_and_tensors_changed_in_place() -> None:
    def fn(batch: dict[str, Any], factor: float) -> Any:
        batch["x"].mul_(factor)
        batch["inner"][0]["y"] = batch["x"].detach() * factor
        batch["inner"].insert(0, {"first": batch["x"].sum()})
        return batch["inner"][1]["y"] * W

    fast = gradof.differentiate(fn, strict=True)
    for factor in (2.0, 3.0, 4.0):
        x = torch.ones(3)
        inner = {"old": (1, None)}
        batch: dict[str, Any] = {"x": x, "inner": [inner, "text"]}
        fast(batch, factor)
        assert batch["x"] is x and torch.equal(x, torch.full((3,), factor))
        assert batch["inner"][1] is inner and inner.keys() == {"old", "y"}
        assert torch.equal(inner["y"], x * factor)
        assert batch["inner"][0]["first"] == 3 * factor and batch["inner"][2] == "text"


def test_a_module_keeps_the_callers_dict() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(3, 2)

        def forward(self, batch: dict[str, Any]) -> dict[str, Any]:
            batch["out"] = self.linear(batch["x"])
            self.last = batch
            return batch

    net = Net()
    fast = gradof.differentiate(net, strict=True)
    for _ in range(3):
        batch = {"x": torch.randn(4, 3)}
        assert fast(batch) is batch is net.last
        net.zero_grad()
        loss: Any = batch["out"].sum()
        loss.backward()
        assert net.linear.weight.grad is not None
        assert torch.allclose(net.linear.weight.grad[0], batch["x"].sum(0))


def test_numpy_callers_see_their_containers_changed() -> None:
    def fn(p: dict[str, Any]) -> Any:
        p["b"] = p["a"] * 2
        p["c"].append(p["b"].sum())
        return (p["b"] ** 2).sum() * p["c"][0]

    for run in (gradof.differentiate(fn), gradof.value_and_grad(fn)):
        for i in range(3):
            a = np.arange(3.0) + i
            p: dict[str, Any] = {"a": a, "c": [2.0]}
            found = run(p)
            assert p["a"] is a and np.array_equal(p["b"], a * 2)
            assert p["c"] == [2.0, (a * 2).sum()] and type(p["c"][0]) is float
    _, grads = found
    assert np.allclose(grads["a"], 16 * a) and grads.keys() == {"a", "c"}


def test_a_numpy_function_that_prints_changes_the_callers(capsys: Any) -> None:
    def fn(p: dict[str, Any]) -> Any:
        p["b"] = p["a"] * 2
        print(p["b"].sum())
        return p["b"].sum()

    fast = gradof.differentiate(fn)
    for i in range(3):
        p = {"a": np.arange(3.0) + i}
        assert fast(p) == p["b"].sum()
    assert capsys.readouterr().out.split() == ["6.0", "12.0", "18.0"]


def test_transforms_of_a_result_that_is_the_callers_container() -> None:
    def fn(p: dict[str, Any]) -> Any:
        p["b"] = p["a"] * 2
        return p

    for a in (np.ones(2), torch.ones(2)):
        with pytest.raises(OutputError, match="container of its arguments, which it changes"):
            gradof.vjp(fn, {"a": a})


def test_derivatives_of_the_second_order_go_through_what_was_stored() -> None:
    def fn(batch: dict[str, Any]) -> None:
        batch["y"] = batch["x"].sin()
        batch["parts"].append((batch["y"] * batch["x"]).sum())

    fast = gradof.differentiate(fn, strict=True)
    for seed in range(3):
        torch.manual_seed(seed)
        x = torch.randn(4, dtype=torch.float64, requires_grad=True)
        cotangent = torch.randn(4, dtype=torch.float64)
        found = []
        for run in (fn, fast):
            batch: dict[str, Any] = {"x": x, "parts": []}
            assert run(batch) is None
            first, = torch.autograd.grad(batch["parts"][0] ** 2, x, create_graph=True)
            found.append((first, *torch.autograd.grad(first, x, cotangent)))
        for eagers, ours in zip(*found, strict=True):
            assert torch.allclose(eagers, ours, rtol=1e-12)
    assert fast.cache_info().backward_runs and not fast.cache_info().eager_runs


CACHE: dict[str, Any] = {}


@pytest.mark.parametrize("is_read_of_state", [True, False])
def test_a_container_that_the_function_reaches_by_itself_is_one_with_the_argument(
    is_read_of_state: bool
) -> None:
    def fn(batch: dict[str, Any], x: Any) -> Any:
        written, read = (batch, CACHE) if is_read_of_state else (CACHE, batch)
        written["y"] = x * 2
        return read["y"] * 1.0

    fast = gradof.differentiate(fn)
    CACHE["y"] = torch.zeros(2)
    first = fast({"y": torch.ones(2)}, torch.ones(2))
    assert first.tolist() == [0.0 if is_read_of_state else 1.0] * 2
    with pytest.warns(EagerWarning, match="also reaches by itself"):
        for n in (1.0, 2.0, 3.0):
            CACHE["y"] = torch.zeros(2)
            assert fast(CACHE, torch.full((2,), n)).tolist() == [2 * n, 2 * n]
    plain = gradof.differentiate(fn)
    CACHE["y"] = np.zeros(2)
    with pytest.raises(TraceError, match="also reaches by itself"):
        plain(CACHE, np.ones(2))
