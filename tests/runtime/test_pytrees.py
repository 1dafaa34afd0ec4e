"""Nested arguments and results, static arguments, keywords."""

from __future__ import annotations

from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, defaultdict, deque
from dataclasses import dataclass
from types import MappingProxyType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

import gradof
from gradof import differentiate, errors, grad, value_and_grad
from tests.runtime.compare import check, close
from tests.runtime.test_torch_values import leaf


class Pair(NamedTuple):
    a: Tensor
    b: Any


@dataclass
class Params:
    w: Tensor
    inner: dict[str, Tensor]
    power: int = 2


def params() -> Params:
    return Params(leaf(3), {"b": leaf(3, seed=1)})


def use(p: Params, x: Tensor) -> Tensor:
    return ((x * p.w) ** p.power + p.inner["b"]).sum()


def test_dict_list_tuple_namedtuple() -> None:
    def fn(tree: dict[str, Any], pair: Pair) -> Tensor:
        (first, second), last = tree["layers"], tree["last"]
        return (first * second + last * pair.a).sum() * pair.b[0]  # type: ignore[no-any-return]

    tree = {"layers": [leaf(3), leaf(3, seed=1)], "last": leaf(3, seed=2)}
    check(fn, tree, Pair(leaf(3, seed=3), (leaf(),)), order=2)


def test_dataclass_argument() -> None:
    check(use, params(), leaf(3, seed=2), order=2)


def test_gradient_in_the_structure_of_a_dataclass() -> None:
    p, x = params(), leaf(3, seed=2)
    with pytest.raises(errors.LeafTypeError, match="power"):
        grad(use)(p, x)
    tree = {"w": p.w.detach(), "b": [p.inner["b"].detach()]}
    slopes = grad(lambda t, y: ((y * t["w"]) ** 2 + t["b"][0]).sum())(tree, x.detach())
    assert list(slopes) == ["w", "b"]
    close(slopes["b"][0], torch.ones(3).double())
    close(slopes["w"], 2 * (x * p.w * x).detach())


def test_results_keep_their_structure() -> None:
    def fn(x: Tensor) -> Any:
        ordered = OrderedDict(b=x.sin(), a=[x.cos(), ("text", 3)])
        return Pair(x.exp(), ordered), Params(x + 1, {"n": x - 1}), None

    pair, made, none = differentiate(fn)(leaf(3))
    assert type(pair) is Pair
    assert list(pair.b) == ["b", "a"]
    assert type(pair.b) is OrderedDict
    assert pair.b["a"][1] == ("text", 3)
    assert type(made) is Params
    assert made.power == 2
    assert none is None
    check(fn, leaf(3))


def test_struct_sequence_result() -> None:
    out = differentiate(lambda x: x.max(dim=1))(leaf(4, 3))
    assert type(out) is torch.return_types.max
    check(lambda x: x.max(dim=1), leaf(4, 3))


def test_keyword_arguments() -> None:
    def fn(x: Tensor, *rest: Tensor, scale: Tensor, **more: Tensor) -> Tensor:
        return (x * scale + sum(rest) * more["extra"]).sum()

    compiled = differentiate(fn)
    inputs = [leaf(3, seed=i) for i in range(5)]

    def call(f: Any) -> Any:
        a, b, c, d, e = inputs
        return torch.autograd.grad(f(a, b, c, scale=d, extra=e), inputs)

    for got, want in zip(call(compiled), call(fn), strict=True):
        close(got, want)


def test_python_values_are_static() -> None:
    @differentiate
    def fn(x: Tensor, power: int, reduce: str, flag: bool = False) -> Tensor:
        y = x**power
        return (y.sum() if reduce == "sum" else y.mean()) * (2 if flag else 1)

    x = leaf(3)
    close(fn(x, 2, "sum"), (x**2).sum())
    close(fn(x, 3, "mean"), (x**3).mean())
    close(fn(x, 2, "sum", flag=True), 2 * (x**2).sum())
    close(fn(x, 1, "sum", True), 2 * x.sum())
    close(fn(x, True, "sum", True), 2 * x.sum())  # 1 == True, and yet another trace
    assert fn.cache_info().misses == 5
    fn(x, 2, "sum")
    assert fn.cache_info()[:2] == (1, 5)


def test_floats_are_told_apart() -> None:
    fn = differentiate(lambda x, s: x.abs() / s)
    x = leaf(3)
    close(fn(x, 0.0), x.abs() / 0.0)
    close(fn(x, -0.0), x.abs() / -0.0)
    assert fn.cache_info().misses == 2


def test_static_argnames() -> None:
    @differentiate(static_argnames=("options",))
    def fn(x: Tensor, options: tuple[Any, ...]) -> Tensor:
        assert type(options) is tuple
        return x.sum(dim=options)

    x = leaf(2, 3, 4)
    close(fn(x, (0, 2)), x.sum(dim=(0, 2)))
    close(fn(x, options=(1,)), x.sum(dim=(1,)))
    close(fn(x, (0, 2)), x.sum(dim=(0, 2)))
    assert fn.cache_info()[:2] == (1, 2)


def test_static_argnames_must_exist() -> None:
    with pytest.raises(errors.InputError, match="no parameter") as info:
        differentiate(lambda x: x.sum(), static_argnames="nope")(leaf(3))
    assert "its parameters are x" in str(info.value)


def test_unhashable_leaf() -> None:
    with pytest.raises(errors.LeafTypeError, match=r"args\[1\] is a set"):
        differentiate(lambda x, s: x.sum(), strict=True)(leaf(3), {1})


def test_no_array_at_all() -> None:
    with pytest.raises(errors.LeafTypeError, match="without any array"):
        differentiate(lambda n: n)(3)


def test_two_libraries() -> None:
    x, y = leaf(3), leaf(3).detach().numpy()
    assert differentiate(lambda x, y: [y, x], strict=True)(x, y)[0] is y
    with pytest.raises(errors.DataDependentError, match="an array meets a tensor"):
        differentiate(lambda x, y: x * y, strict=True)(x, y)


def test_aux_of_any_structure() -> None:
    def fn(x: Tensor) -> Any:
        return (x * x).sum(), {"exp": x.exp(), "n": 3}

    (value, aux), slope = value_and_grad(fn, has_aux=True)(leaf(3).detach())
    close(value, (leaf(3) ** 2).sum().detach())
    close(aux["exp"], leaf(3).exp().detach())
    assert aux["n"] == 3
    close(slope, 2 * leaf(3).detach())


class _Parameters(UserDict[str, Any]):
    pass


class _ByAttribute(dict[str, Any]):
    def __getattr__(self, name: str) -> Any:
        return self[name]


W = np.array([0.5, -1.0, 2.0])
_COUNTS: Any = Counter()
_COUNTS.update({"w": 1.5, "b": 2.0})
CONTAINERS: dict[str, Any] = {
    "UserDict": _Parameters(w=W, b=2.0),
    "ChainMap": ChainMap({"w": W}, {"b": 2.0}),
    "Counter": _COUNTS,
    "defaultdict": defaultdict(float, w=W, b=2.0),
    "a dict with attributes": _ByAttribute(w=W, b=2.0),
    "MappingProxyType": MappingProxyType({"w": W, "b": 2.0}),
    "SimpleNamespace": SimpleNamespace(w=W, b=2.0),
    "UserList": UserList([W, 2.0]),
    "deque": deque([W, 2.0], maxlen=4),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_containers_of_the_standard_library_are_arguments(name: str) -> None:
    given = CONTAINERS[name]

    def parts(p: Any) -> tuple[Any, Any]:
        if isinstance(p, SimpleNamespace):
            return p.w, p.b
        return (p["w"], p["b"]) if hasattr(p, "keys") else (p[0], p[1])

    def loss(p: Any) -> Any:
        w, b = parts(p)
        return np.sum(np.asarray(w) ** 2) * b

    compiled = value_and_grad(loss)
    for _ in range(3):
        value, slope = compiled(given)
        np.testing.assert_allclose(value, loss(given))
        w, b = parts(slope)
        assert type(slope) is type(given)
        np.testing.assert_allclose(w, 4.0 * np.asarray(parts(given)[0]))
        np.testing.assert_allclose(b, np.sum(np.asarray(parts(given)[0]) ** 2))
    assert compiled.cache_info().misses == 1


def test_a_namespace_with_one_attribute_more_is_another_structure() -> None:
    compiled = value_and_grad(lambda p: sum(np.sum(v) for v in vars(p).values()))
    for p in (SimpleNamespace(w=W), SimpleNamespace(w=W, b=W), SimpleNamespace(w=W)):
        for _ in range(2):
            value, slope = compiled(p)
            assert value == np.sum(W) * len(vars(p)) and vars(slope).keys() == vars(p).keys()


def _shared_list(x: Any) -> Any:
    made = [x * 2]
    return SimpleNamespace(a=made, b=(made, {"c": made}))


def _shared_empty(x: Any) -> Any:
    made: list[Any] = []
    return SimpleNamespace(a=made, b=(made, {"c": made}), x=x * 2)


def _shared_object(x: Any) -> Any:
    made = SimpleNamespace(inner=SimpleNamespace(x=x * 2))
    return SimpleNamespace(a=made, b=(made, {"c": made}), inner=made.inner)


def _shared_function(x: Any) -> Any:
    y = x * 2

    def made() -> Any:
        return y

    return SimpleNamespace(a=made, b=(made, {"c": made}))


@pytest.mark.parametrize("fn", [_shared_list, _shared_empty, _shared_object, _shared_function])
@pytest.mark.parametrize("of", [torch.ones, np.ones])
def test_what_is_in_a_result_twice_is_one_object(fn: Any, of: Any) -> None:
    compiled, before = differentiate(fn), None
    for _ in range(3):
        found = compiled(of(3))
        assert found.a is found.b[0] and found.a is found.b[1]["c"] and found.a is not before
        before = found.a
    if fn is _shared_object:
        assert found.inner is found.a.inner
    info = compiled.cache_info()
    assert info.misses == 1 and info.eager_runs == 0


def test_a_result_that_leads_to_itself_runs_eagerly() -> None:
    def fn(x: Tensor) -> Any:
        made = SimpleNamespace(x=x * 2)
        made.again = made
        return made

    compiled = differentiate(fn)
    with pytest.warns(errors.EagerWarning, match="leads to itself"):
        found = compiled(torch.ones(3))
    assert found.again is found


def test_each_place_of_one_object_has_a_cotangent() -> None:
    def fn(x: Tensor) -> Any:
        made = [x * 2]
        return {"a": made, "b": (made, x.sin())}

    x = torch.ones(3)
    found, pullback = gradof.vjp(fn, x)
    assert found["a"] is found["b"][0]
    one = torch.ones(3)
    (g,) = pullback({"a": [one], "b": ([one * 10], one * 0)})
    assert g.tolist() == [22.0] * 3
    with pytest.raises(errors.CotangentError, match=r"1 leaves .* than the result's 3"):
        pullback({"a": [one]})
