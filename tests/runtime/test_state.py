"""What a function reads besides its arguments is read again, and what it is can be copied."""

from __future__ import annotations

import copy
import functools
import gc
import pickle
import threading
import weakref
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from gradof import differentiate, grad, value_and_grad
from tests.runtime.compare import close
from tests.runtime.test_torch_values import leaf

SCALE = 2.0
WEIGHT = leaf(3)
TABLE = {"power": 2}


def helper(x: Tensor) -> Tensor:
    return x * SCALE


@differentiate
def at_module_level(x: Tensor) -> Tensor:
    """Its docstring."""
    return (helper(x) * WEIGHT).sum()


@grad
def slope(x: Tensor) -> Tensor:
    return (x**3).sum()


def plain(x: Tensor) -> Tensor:
    return (x * x).sum()


def test_float_global_of_a_called_function(monkeypatch: pytest.MonkeyPatch) -> None:
    x = leaf(3)
    close(at_module_level(x), 2 * (x * WEIGHT).sum())
    monkeypatch.setattr(f"{__name__}.SCALE", 5.0)
    close(at_module_level(x), 5 * (x * WEIGHT).sum())


def test_tensor_global_is_read_again_without_another_trace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = leaf(3)
    at_module_level(x)
    before = at_module_level.cache_info().misses
    other = leaf(3, seed=5)
    monkeypatch.setattr(f"{__name__}.WEIGHT", other)
    at_module_level(x).backward()
    close(x.grad, 2 * other.detach())
    close(other.grad, 2 * x.detach())
    assert at_module_level.cache_info().misses == before


def test_tensor_global_of_another_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    x = leaf(3)
    at_module_level(x)
    other = leaf(4, 3)
    monkeypatch.setattr(f"{__name__}.WEIGHT", other)
    close(at_module_level(x), 2 * (x * other).sum())


def test_dict_global(monkeypatch: pytest.MonkeyPatch) -> None:
    fn = differentiate(lambda x: (x ** TABLE["power"]).sum())
    x = leaf(3)
    close(fn(x), (x**2).sum())
    monkeypatch.setitem(TABLE, "power", 3)
    close(fn(x), (x**3).sum())


def test_replacing_a_called_function(monkeypatch: pytest.MonkeyPatch) -> None:
    x = leaf(3)
    fn = differentiate(lambda a: helper(a).sum())
    close(fn(x), 2 * x.sum())
    monkeypatch.setattr(f"{__name__}.helper", lambda a: a.exp())
    close(fn(x), x.exp().sum())


def test_rebinding_closure_variables() -> None:
    weight, power = leaf(3), 2

    @differentiate
    def fn(x: Tensor) -> Tensor:
        return (x**power * weight).sum()

    x = leaf(3)
    close(fn(x), (x**2 * weight).sum())
    power = 3
    close(fn(x), (x**3 * weight).sum())
    misses = fn.cache_info().misses
    weight = leaf(3, seed=9)
    close(fn(x), (x**3 * weight).sum())
    (got,) = torch.autograd.grad(fn(x), weight)
    close(got, x.detach() ** 3)
    assert fn.cache_info().misses == misses
    power = 2
    close(fn(x), (x**2 * weight).sum())
    assert fn.cache_info().misses == misses  # the first trace serves again


def test_a_tuple_that_is_a_default() -> None:
    first: Any = ((2.0,), [3.0])

    def fn(x: Tensor, *, given: Any = first) -> Any:
        return (x * given[0][0] + given[1][0]).sum()

    fast = differentiate(fn, strict=True)
    x = leaf(3)
    for _ in range(3):
        close(fast(x), fn(x))
    assert fast.cache_info().misses == 1
    first[1][0] = 4.0
    close(fast(x), fn(x))
    fn.__kwdefaults__ = {"given": ((5.0,), [1.0])}
    close(fast(x), fn(x))


def test_default_arguments_are_free_tensors() -> None:
    weight = leaf(3)

    def fn(x: Tensor, w: Tensor = weight, *, k: float = 2.0) -> Tensor:
        return (x * w * k).sum()

    x = leaf(3)
    compiled = differentiate(fn)
    (got,) = torch.autograd.grad(compiled(x), weight)
    close(got, 2 * x.detach())
    fn.__kwdefaults__ = {"k": 3.0}
    close(compiled(x), fn(x))


def test_partial() -> None:
    weight = leaf(3)
    compiled = differentiate(functools.partial(lambda w, x, k: (x * w * k).sum(), weight, k=2))
    x = leaf(3)
    (got,) = torch.autograd.grad(compiled(x), weight)
    close(got, 2 * x.detach())


def test_changed_in_place_between_calls() -> None:
    weight = leaf(3).detach()
    fn = differentiate(lambda x: (x * weight).sum())
    x = leaf(3)
    fn(x)
    weight.mul_(10)
    close(fn(x), (x * weight).sum())
    assert fn.cache_info()[:2] == (1, 1)


class Model:
    def __init__(self, scale: float) -> None:
        self.scale = scale
        self.weight = leaf(3)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model)  # all are equal, none is hashable

    __hash__ = None  # type: ignore[assignment]

    @differentiate
    def loss(self, x: Tensor) -> Tensor:
        return (x * self.weight * self.scale).sum()

    @differentiate
    def outer(self, x: Tensor) -> Tensor:
        return self.loss(x).exp()  # type: ignore[no-any-return]


def test_methods_read_their_own_instance() -> None:
    first, second = Model(2.0), Model(3.0)
    x = leaf(3)
    for model in (first, second, first):
        close(model.loss(x), (x * model.weight * model.scale).sum())
    assert first.loss.cache_info()[:2] == (1, 1)
    first.scale = 7.0
    first.weight = leaf(3, seed=4)
    (got,) = torch.autograd.grad(first.loss(x), first.weight)
    close(got, 7 * x.detach())
    close(Model.loss.fn(second, x), second.loss(x))
    close(first.outer(x), first.loss(x).exp())


def test_instances_are_not_kept_alive() -> None:
    model = Model(2.0)
    model.loss(leaf(3))
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_methods_of_a_slotted_class() -> None:
    class Slotted:
        __slots__ = ("weight",)

        def __init__(self) -> None:
            self.weight = leaf(3)

        @differentiate
        def loss(self, x: Tensor) -> Tensor:
            return (x * self.weight).sum()

    thing, x = Slotted(), leaf(3)
    close(thing.loss(x), (x * thing.weight).sum())
    close(thing.loss(x), (x * thing.weight).sum())
    assert thing.loss.cache_info()[:2] == (1, 1)


def test_class_attributes_and_shadowing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Config:
        scale = 2.0

        def apply(self, x: Tensor) -> Tensor:
            return x * self.scale

    config, x = Config(), leaf(3)
    fn = differentiate(lambda a: config.apply(a).sum() * Config.scale)
    close(fn(x), 4 * x.sum())
    monkeypatch.setattr(Config, "scale", 3.0)
    close(fn(x), 9 * x.sum())
    config.scale = 5.0
    close(fn(x), 15 * x.sum())
    close(fn(x), 15 * x.sum())
    assert fn.cache_info()[:2] == (1, 3)
    monkeypatch.setattr(Config, "apply", lambda self, a: a.exp())
    close(fn(x), x.exp().sum() * 3)


def test_items_of_containers() -> None:
    numbers, nested = [1.0, 2.0], {"a": [leaf(3)]}
    fn = differentiate(lambda x: (x * sum(numbers)).sum() + sum(t.sum() for t in nested["a"]))
    x = leaf(3)

    def want() -> Tensor:
        return (x * sum(numbers)).sum() + sum(t.sum() for t in nested["a"])

    close(fn(x), want())
    numbers[1] = 7.0
    close(fn(x), want())
    numbers.append(1.0)
    close(fn(x), want())
    nested["a"].append(leaf(2))
    close(fn(x), want())
    nested["a"][0] = leaf(5)
    close(fn(x), want())


def test_a_zero_changes_its_sign() -> None:
    zero = 0.0
    fn = differentiate(lambda x: x.abs() / zero)
    x = leaf(3)
    close(fn(x), x.abs() / zero)
    zero = -0.0
    close(fn(x), x.abs() / zero)


@dataclass(eq=True)
class Settings:
    scale: float


def test_attributes_of_a_global_object_are_read_again() -> None:
    settings = Settings(2.0)
    fn = differentiate(lambda x: (x * settings.scale).sum())
    x = leaf(3)
    close(fn(x), 2 * x.sum())
    settings.scale = 4.0
    close(fn(x), 4 * x.sum())


def test_cache_counts() -> None:
    fn = differentiate(plain)
    fn(leaf(3))
    fn(leaf(3))
    fn(leaf(4))
    fn(leaf(3).float())
    fn(leaf(3).detach())
    info = fn.cache_info()
    assert (info.hits, info.misses, info.entries) == (1, 4, 4)
    assert info.forward_runs == 5


def test_inspection() -> None:
    fn = differentiate(lambda x, w: torch.tanh(x @ w).sum())
    args = leaf(4, 3), leaf(3, 2)
    assert [n.kind for n in fn.trace(*args).nodes()] == ["mm", "tanh", "sum"]
    gradient = fn.gradient(*args)
    assert gradient.f_real_outputs == 1
    assert gradient.df_output_vjps == [0, 1]
    report = fn.explain(*args)
    assert "saved for the backward: 3 values" in str(report)
    assert {s.kind for s in report.saved} == {"an input", "a temporary"}
    assert report.saved_bytes == 4 * 2 * 8
    assert "test_state.py" in report.saved[-1].loc
    assert fn.cache_info()[:2] == (2, 1)
    assert fn.cache_info().forward_runs == 0


def test_inspection_gives_copies() -> None:
    fn = differentiate(plain)
    x = leaf(3)
    fn.trace(x).set_outputs([])
    close(fn(x), plain(x))


def test_a_function_keeps_its_name() -> None:
    assert at_module_level.__name__ == "at_module_level"
    assert at_module_level.__doc__ == "Its docstring."
    assert "at_module_level" in repr(at_module_level)
    assert differentiate(at_module_level) is at_module_level


def test_pickling_decorated_functions() -> None:
    assert pickle.loads(pickle.dumps(at_module_level)) is at_module_level
    assert copy.deepcopy(at_module_level) is at_module_level
    assert pickle.loads(pickle.dumps(slope)) is slope
    x = leaf(3)
    again = pickle.loads(pickle.dumps(differentiate(plain)))
    close(again(x), plain(x))
    assert again.cache_info().forward_runs == 1
    value, slope_ = pickle.loads(pickle.dumps(value_and_grad(plain)))(x.detach())
    close(value, plain(x).detach())
    close(slope_, 2 * x.detach())


def test_a_bound_method_can_be_copied() -> None:
    model = Model(2.0)
    x = leaf(3)
    model.loss(x)
    twin = copy.deepcopy(model)
    twin.scale = 3.0
    close(twin.loss(x), 1.5 * model.loss(x))


def test_eight_threads_and_eight_shapes() -> None:
    fn = differentiate(lambda x, w: torch.tanh(x @ w).sum())
    wrong: list[str] = []
    barrier = threading.Barrier(8)

    def work(n: int) -> None:
        barrier.wait()
        for step in range(20):
            rows = 1 + (n + step) % 8
            x, w = leaf(rows, 3, seed=n), leaf(3, 2, seed=step)
            got = torch.autograd.grad(fn(x, w), (x, w))
            want = torch.autograd.grad(torch.tanh(x @ w).sum(), (x, w))
            if not all(map(torch.allclose, got, want)):
                wrong.append(f"thread {n}, step {step}")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    info = fn.cache_info()
    assert (info.misses, info.entries) == (8, 8)
    assert info.forward_runs == info.backward_runs == info.hits + info.misses == 160


def test_two_functions_traced_by_two_threads() -> None:
    results: dict[int, Any] = {}

    def work(n: int) -> None:
        fn = differentiate(lambda x: (x**n).sum())
        x = leaf(3)
        results[n] = torch.autograd.grad(fn(x), x)[0]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2, 8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n in range(2, 8):
        close(results[n], n * leaf(3).detach() ** (n - 1))


def test_tracing_ends_when_it_fails() -> None:
    def fails(x: Tensor) -> Tensor:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        differentiate(fails)(leaf(3))
    good = differentiate(plain)
    good(leaf(3))
    assert good.cache_info().forward_runs == 1
