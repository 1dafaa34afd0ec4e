"""Containers of torch's pytree registry, and objects of any class in results."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections import OrderedDict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree

import gradof
from gradof.errors import GradofError
from gradof.tracer.core.pytree import flatten


class Batch:
    """Registered, with a context that has no hash."""

    def __init__(self, parts: list[Any], names: list[str]) -> None:
        self.parts, self.names = parts, names


@dataclass
class Out(OrderedDict):  # type: ignore[type-arg]
    """As transformers' ModelOutput: a dataclass that is a dict, and registered."""

    value: Any = None
    hidden: Any = None

    def __post_init__(self) -> None:
        self.update({k: v for k, v in vars(self).items() if v is not None})


@dataclass
class Plain(OrderedDict):  # type: ignore[type-arg]
    """The same, not registered."""

    value: Any = None

    def __post_init__(self) -> None:
        self["value"] = self.value


class Cache:
    """An object of no particular class."""

    def __init__(self, config: Any) -> None:
        self.layers: list[Any] = []
        self.config = config
        self.seen = {"length": 0}


class Slots:
    __slots__ = ("inner", "x")
    inner: list[Any]
    x: torch.Tensor


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    pytree.register_pytree_node(
        Batch, lambda b: (b.parts, b.names), lambda parts, names: Batch(list(parts), names)
    )
    pytree.register_pytree_node(
        Out, lambda o: (list(o.values()), list(o)), lambda v, k: Out(**dict(zip(k, v, strict=True)))
    )
    yield
    for cls in (Batch, Out):
        del pytree.SUPPORTED_NODES[cls]


def test_registered_classes_are_containers() -> None:
    tree = (Batch([1, {"a": 2}], ["p", "q"]), deque([3]), Out(value=4))
    leaves, treedef = flatten(tree)
    assert leaves == [1, 2, 3, 4]
    assert treedef.paths("r") == ("r[0]['p']", "r[0]['q']['a']", "r[1][0]", "r[2]['value']")
    again = treedef.unflatten([5, 6, 7, 8])
    assert again[0].parts == [5, {"a": 6}] and again[0].names == ["p", "q"]
    assert again[1] == deque([7]) and again[2].value == 8 and dict(again[2]) == {"value": 8}


def test_their_context_is_part_of_the_structure() -> None:
    one, same, other = (flatten(Batch([1], [n]))[1] for n in ("p", "p", "q"))
    assert one == same and hash(one) == hash(same) and one != other


def test_a_registered_class_as_argument_and_result() -> None:
    @gradof.differentiate
    def f(batch: Batch, w: torch.Tensor) -> Out:
        assert batch.names == ["x"]
        h = torch.tanh(batch.parts[0] @ w)
        return Out(value=h.sum(), hidden=(h,))

    x, w = torch.randn(4, 3), torch.randn(3, 2, requires_grad=True)
    for _ in range(3):
        out = f(Batch([x], ["x"]), w)
        assert type(out) is Out and list(out) == ["value", "hidden"] and out["value"] is out.value
        (grad,) = torch.autograd.grad(out.value + 2 * out.hidden[0].sum(), w)
        v = w.detach().requires_grad_()
        (expected,) = torch.autograd.grad(3 * torch.tanh(x @ v).sum(), v)
        torch.testing.assert_close(grad, expected)
    info = f.cache_info()
    assert info.misses == 1 and info.backward_runs == 3


def test_a_dict_that_is_a_dataclass_without_registration() -> None:
    @gradof.differentiate
    def f(x: torch.Tensor) -> Plain:
        return Plain(value=x * 2)

    for _ in range(2):
        out = f(torch.ones(2))
        assert type(out) is Plain and out["value"] is out.value
        assert out.value.tolist() == [2.0, 2.0]


def test_objects_of_results_are_new_at_every_call() -> None:
    config = Cache(None)

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.config = config
            self.lin = torch.nn.Linear(3, 3)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, Cache, Cache]:
            cache, empty = Cache(self.config), Cache(None)
            layer = Slots()
            layer.x, layer.inner = self.lin(x), [x.sum(), "k"]
            cache.layers.append(layer)
            cache.layers.append(Slots())
            cache.seen["length"] += x.shape[0]
            return x.sum(), cache, empty

    model = Model()
    compiled = gradof.differentiate(model)
    caches = []
    for i in range(3):
        x = torch.full((2, 3), float(i))
        _, cache, empty = compiled(x)
        torch.testing.assert_close(cache.layers[0].x, model.lin(x))
        assert cache.layers[0].inner[0] == 6 * i and cache.layers[0].inner[1] == "k"
        assert cache.config is config and cache.seen == {"length": 2}
        cache.layers[0].x.sum().backward()
        cache.seen["length"] = 99  # the caller's, and no one else's
        empty.layers.append(1)
        assert empty.layers == [1] and not hasattr(cache.layers[1], "x")
        caches += [cache, cache.layers[0], empty]
    assert len(set(map(id, caches))) == 9
    info = compiled.cache_info()
    assert info.misses == 1 and info.backward_runs == 3


def test_objects_that_no_copy_is_made_of_are_refused() -> None:
    def within_itself(x: torch.Tensor) -> Cache:
        cache = Cache(None)
        cache.layers += [x * 2, cache]
        return cache

    def in_a_set(x: torch.Tensor) -> set[torch.Tensor]:
        return {x * 2}

    for fn in (within_itself, in_a_set):
        with pytest.raises(GradofError, match="of the result"):
            gradof.differentiate(fn, strict=True)(torch.ones(2))


def test_a_container_of_another_kind_that_is_changed_is_refused() -> None:
    def attribute(x: torch.Tensor, seen: Batch) -> torch.Tensor:
        seen.parts = [x * 2]
        return x.sum()

    with pytest.raises(GradofError, match="a Batch among the arguments is changed"):
        gradof.differentiate(attribute, strict=True)(torch.ones(2), Batch([1], ["n"]))


def test_numpy_users_never_load_torch() -> None:
    code = (
        "import sys, numpy as np, gradof; from dataclasses import dataclass\n"
        "f = gradof.grad(lambda d: (d['x'] ** 2).sum()); f({'x': np.ones(3)})\n"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_partial_with_traced_tensors() -> None:
    model = torch.nn.Linear(3, 3)

    class Flow(torch.nn.Module):
        def inner(self, scale: Any, y: Any, power: int = 1) -> Any:
            return (model(y) * scale) ** power

        def forward(self, x: Any) -> Any:
            return functools.partial(self.inner, x.exp(), power=2), functools.partial(model)

    flow, x = Flow(), torch.randn(2, 3, requires_grad=True)
    fast = gradof.differentiate(flow)
    for _ in range(2):
        found, same = fast(x)
        wanted, _ = flow(x)
        assert type(found) is functools.partial and same.func is model
        assert found.func == flow.inner and found.keywords == {"power": 2}
        torch.testing.assert_close(found(x), wanted(x))
        slopes = [torch.autograd.grad(f(x).sum(), x)[0] for f in (found, wanted)]
        torch.testing.assert_close(*slopes)
    assert fast.cache_info().misses == 1 and fast.cache_info().eager_runs == 0


def _adds(x: Any, w: Any) -> Any:
    """As a residual connection that is finished by the caller."""
    h, n = (x * w).tanh(), 3

    def inner(y: Any) -> Any:
        return h * y

    def add(y: Any, k: Any = h * 2, *, s: float = 2.0) -> Any:
        """What docs say."""
        return inner(y) * k + s + n

    return h.sum(), add


def test_a_function_that_closes_over_traced_tensors() -> None:
    fast = gradof.differentiate(_adds, strict=True)
    made = []
    for seed in range(3):
        torch.manual_seed(seed)
        x, w = (torch.randn(3, dtype=torch.float64, requires_grad=True) for _ in "xw")
        (a, mine), (b, eager) = fast(x, w), _adds(x, w)
        found, wanted = a + mine(x).sum(), b + eager(x, s=2.0).sum()
        torch.testing.assert_close(found, wanted)
        torch.testing.assert_close(*(torch.autograd.grad(y, (x, w)) for y in (found, wanted)))
        assert mine.__qualname__ == eager.__qualname__ and mine.__doc__ == "What docs say."
        made.append((mine, mine(x)))
    assert not torch.equal(made[0][1], made[0][0](torch.ones(3)))
    assert len({id(f) for f, _ in made}) == 3 and torch.equal(made[0][0](x), made[0][0](x))
    assert fast.cache_info().misses == 1


def _over_a_list(x: Any) -> Any:
    parts = [x.exp()]
    return lambda y: parts[0] * y


def _counting(x: Any) -> Any:
    total = x * 0

    def more(y: Any) -> Any:
        nonlocal total
        total = total + y
        return total

    return more


def _of_itself(x: Any) -> Any:
    h = x.exp()

    def power(n: int) -> Any:
        return h if n == 0 else power(n - 1) * n

    return power


@pytest.mark.parametrize("fn", [_over_a_list, _counting, _of_itself])
def test_functions_that_several_could_change_run_eagerly(fn: Any) -> None:
    """Or that lead to themselves: made anew they would be two."""
    x = torch.ones(3, requires_grad=True)
    with pytest.warns(gradof.errors.EagerWarning, match="of the result"):
        mine = gradof.differentiate(fn)(x)
    y = 2 if fn is _of_itself else x
    assert torch.equal(mine(y), fn(x)(y))
    with pytest.raises(gradof.errors.TraceError, match="of the result"):
        gradof.differentiate(fn, strict=True)(x)


def test_a_dataclass_that_is_registered_is_made_by_what_was_registered() -> None:
    @dataclass
    class Kept:  # as tensordict's: its fields are in an attribute that is none
        x: Any

        def __post_init__(self) -> None:
            self.inner = {"x": self.x}
            del self.x

    pytree.register_pytree_node(
        Kept, lambda k: ([k.inner["x"]], None), lambda parts, _: Kept(*parts)
    )
    try:
        found = gradof.differentiate(lambda x: Kept(x * 2), strict=True)(torch.ones(2))
        assert type(found) is Kept and found.inner["x"].tolist() == [2.0, 2.0]
    finally:
        del pytree.SUPPORTED_NODES[Kept]


class Doubled:
    """What it keeps is under the name of a property."""

    def __init__(self, x: Any) -> None:
        vars(self)["x"] = x

    @property
    def x(self) -> Any:
        return vars(self)["x"] * 2.0


@pytest.mark.parametrize("library", [np, torch])
def test_an_attribute_may_have_the_name_of_a_property(library: Any) -> None:
    x = library.asarray([1.0, 2.0, 3.0])
    found = gradof.differentiate(lambda x: Doubled(x * x))(x)
    assert type(found) is Doubled and found.x.tolist() == [2.0, 8.0, 18.0]
    line = gradof.differentiate(lambda c: np.poly1d(c))(np.array([2.0, 1.0]))
    assert type(line) is np.poly1d and line(3.0) == 7.0


@dataclass
class Counted:
    """The same, of an argument that is taken apart."""

    count: Any

    @property
    def x(self) -> Any:
        return vars(self)["x"]


@pytest.mark.parametrize("library", [np, torch])
def test_it_is_written_to_where_it_is_kept(library: Any) -> None:
    def store(x: Any, held: Counted) -> Any:
        vars(held)["x"], held.count = x * 3.0, x.sum()
        return x

    held, x = Counted(0.0), library.asarray([1.0, 2.0])
    compiled = gradof.differentiate(store)
    for factor in (1.0, 2.0):
        compiled(x * factor, held)
        assert held.x.tolist() == [3.0 * factor, 6.0 * factor]
        assert float(held.count) == 3.0 * factor
