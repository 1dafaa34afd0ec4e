"""Generated checks and calls: they notice every change that the full check notices."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

import gradof
from gradof import differentiate
from gradof.errors import CallError, InputError
from gradof.runtime import functional
from gradof.runtime.checks import lift_floats
from gradof.runtime.fastcall import fast_check
from gradof.runtime.lengths import MISS
from gradof.tracer.core.pytree import flatten


def _served(fn: Any, *args: Any) -> bool:
    """Whether a generated check serves a call like this."""
    bound = fn.bind(args, {})
    return any(f.check(args, {}) is not None for f in fn.cache.fast if f.entry is bound.entry)


X = torch.arange(6.0).reshape(3, 2) / 8  # sums of which are exact
CHANGES: dict[str, Callable[[], Any]] = {
    "shape": lambda: torch.rand(2, 3),
    "rank": lambda: torch.rand(6),
    "dtype": lambda: X.double(),
    "requires_grad": lambda: X.clone().requires_grad_(),
    "no leaf": lambda: X.clone().requires_grad_() * 1,
    "parameter": lambda: nn.Parameter(X.clone()),
    "a number": lambda: 2.0,
    "an array": lambda: X.numpy(),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_argument_is_another_trace(name: str) -> None:
    fn = differentiate(lambda x, y: x * 2 + y.sum())
    fn(X, X)
    assert _served(fn, X, X)
    other = CHANGES[name]()
    assert all(f.check((other, X), {}) is None for f in fn.cache.fast)
    if name not in ("a number", "an array"):
        torch.testing.assert_close(fn(other, X), other * 2 + X.sum())


def test_modes_are_part_of_the_check() -> None:
    fn = differentiate(lambda x: x * 2)
    leaf = X.clone().requires_grad_()
    assert fn(leaf).requires_grad
    with torch.no_grad():
        assert fn.cache.fast[0].check((leaf,), {}) is None
        assert not fn(leaf).requires_grad
    with torch.inference_mode():
        assert fn(X).is_inference()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert all(f.check((leaf,), {}) is None for f in fn.cache.fast)


def test_python_values_are_part_of_the_check() -> None:
    scale = 2.0
    fn = differentiate(lambda x, mode, flag: x * scale if flag else x + len(mode))
    x = torch.ones(2)
    for mode, flag, want in (("a", True, 2.0), ("bb", False, 3.0), ("a", True, 2.0), ("a", 1, 2.0)):
        assert fn(x, mode, flag)[0] == want
    scale = 5.0
    assert fn(x, "a", True)[0] == 5.0


def test_zeros_differ_by_sign_and_nan_is_itself() -> None:
    fn = differentiate(lambda x, s: x / (1.0 if str(s) == "0.0" else -1.0))
    x = np.ones(2)
    assert fn(x, 0.0)[0] == 1.0 and fn(x, -0.0)[0] == -1.0 and fn(x, 0.0)[0] == 1.0


def test_structures_and_keywords() -> None:
    fn = differentiate(lambda p, *, w: p["a"] * w[0] + p["b"][1])
    x, y = np.ones(2), np.full(2, 3.0)
    for _ in range(2):
        np.testing.assert_array_equal(fn({"a": x, "b": (x, y)}, w=[y]), [6.0, 6.0])
    assert fn.cache_info().misses == 1
    np.testing.assert_array_equal(fn({"b": (x, y), "a": x}, w=[y]), [6.0, 6.0])
    with pytest.raises(KeyError):
        fn({"a": x, "c": (x, y)}, w=[y])
    with pytest.raises(CallError):
        fn({"a": x, "b": (x, y)}, v=[y])


def test_replaced_parameters_and_rebound_arrays_are_read() -> None:
    model = nn.Linear(2, 1)
    fn = differentiate(model)
    x = torch.rand(4, 2)
    torch.testing.assert_close(fn(x), model(x))
    with torch.no_grad():
        model.weight.add_(1)
    torch.testing.assert_close(fn(x), nn.functional.linear(x, model.weight, model.bias))
    model.weight = nn.Parameter(torch.zeros(1, 2))
    torch.testing.assert_close(fn(x), model.bias.expand(4, 1))
    model.weight.requires_grad_(False)
    assert fn(x).requires_grad
    model.bias.requires_grad_(False)
    assert not fn(x).requires_grad

    table = np.ones(3)
    free = differentiate(lambda x: np.sum(x * table))
    assert free(np.ones(3)) == 3.0
    table = np.full(3, 2.0)
    assert free(np.ones(3)) == 6.0
    table = np.ones(1, np.float32)
    assert free(np.ones(3)) == 3.0


def test_value_and_grad_by_its_generated_call_is_the_general_one() -> None:
    def loss(p: Any, x: Any) -> Any:
        return np.sum(np.tanh(p["w"] * x) ** 2), {"n": x.shape[0], "mean": np.mean(x)}

    fn = gradof.value_and_grad(loss, has_aux=True)
    rng = np.random.default_rng(0)
    for _ in range(3):
        p, x = {"w": rng.random(4)}, rng.random(4)
        (value, aux), grad = fn(p, x)
        assert aux["n"] == 4 and aux["mean"] == np.mean(x) and type(value) is np.float64
        np.testing.assert_allclose(value, np.sum(np.tanh(p["w"] * x) ** 2))
        t = np.tanh(p["w"] * x)
        np.testing.assert_allclose(grad["w"], 2 * t * (1 - t * t) * x, rtol=1e-12)
    assert fn.base.cache_info() == (2, 1, 1, 0, 3, 0)
    assert fn({"w": np.ones(2)}, np.ones(2))[1]["w"].shape == (2,)


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclass(frozen=True)
class Layer:
    w: Any
    b: Any


STRUCTURES: dict[str, Callable[[Any, Any], Any]] = {
    "dict": lambda a, b: {"w": a, "b": b},
    "ordered": lambda a, b: OrderedDict(w=a, b=b),
    "list": lambda a, b: [a, b],
    "tuple": lambda a, b: (a, b),
    "named tuple": Pair,
    "dataclass": Layer,
    "nested": lambda a, b: {"x": [Pair(a, (b,))], 3: {"y": Layer(b, a)}},
}


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("name", STRUCTURES)
def test_structures_are_taken_apart_by_the_generated_call(name: str, library: str) -> None:
    make = STRUCTURES[name]
    numbers = np.random.default_rng(1).random((3, 2, 4))
    arrays = [(torch.from_numpy(a), torch.from_numpy(b)) if library == "torch" else (a, b)
              for a, b in numbers]  # fmt: skip

    def loss(p: Any) -> Any:
        leaves = flatten(p)[0]
        return sum((k + 2.0) * (leaf * leaf).sum() for k, leaf in enumerate(leaves))

    fn = gradof.value_and_grad(loss)
    fn(make(*arrays[0]))
    assert len(fn._quick) == 1
    for a, b in arrays:
        p = make(a, b)
        value, slopes = fn._quick[0]((p,), {})
        leaves, tree = flatten(p)
        assert flatten(slopes)[1] == tree
        np.testing.assert_allclose(float(value), float(loss(p)))
        for k, (slope, leaf) in enumerate(zip(flatten(slopes)[0], leaves, strict=True)):
            np.testing.assert_allclose(np.asarray(slope), np.asarray(2 * (k + 2.0) * leaf))
    a, b = arrays[0]
    for other in (make(a, b[:3]), make(a, 2.0), (make(a, b),), [a]):
        assert fn._quick[0]((other,), {}) is MISS
    assert fn._quick[0]((make(a, b), 1), {}) is MISS
    fn(make(a, b))
    assert fn.base.cache_info().misses == 1


def test_python_floats_in_a_structure_are_lifted() -> None:
    fn = gradof.value_and_grad(lambda p: p["a"] ** 2 * p["b"])
    p = {"a": 3.0, "b": np.float64(2.0)}
    for _ in range(3):
        value, slopes = fn(p)
        assert value == 18.0 and slopes == {"a": 12.0, "b": 9.0}
    assert p == {"a": 3.0, "b": 2.0} and type(p["a"]) is float


def test_the_arrays_of_a_call_are_not_kept_by_its_check() -> None:
    import gc
    import weakref

    fn = differentiate(lambda x: np.sum(x * 2))
    x = np.ones(1000)
    alive = weakref.ref(x)
    fn(x)
    fn(x)
    del x
    gc.collect()
    assert alive() is None


def test_prepared_calls() -> None:
    """Without the check: the same results, and parameters read anew."""
    model = nn.Linear(2, 1)
    x = torch.rand(4, 2, requires_grad=True)
    ready = differentiate(lambda x: model(x).square().sum()).prepare(x)
    for _ in range(2):
        want = model(x).square().sum()
        torch.testing.assert_close(ready(x), want)
        (mine,), (theirs,) = (torch.autograd.grad(v, x) for v in (ready(x), want))
        torch.testing.assert_close(mine, theirs)
        with torch.no_grad():
            model.weight.mul_(2)
    step = gradof.value_and_grad(lambda w, x: np.sum((w * x) ** 2))
    w, a = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    value, grad = step.prepare(w, a)(w, a)
    assert value == 73.0
    np.testing.assert_array_equal(grad, [18.0, 64.0])
    with pytest.raises(CallError, match="as it was prepared"):
        step.prepare(w, a)(w)


def test_what_cannot_be_prepared_says_so() -> None:
    with pytest.raises(InputError, match="cannot be prepared"):
        differentiate(lambda x: x * 2 if x.sum() > 0 else x).prepare(np.ones(2))
    with pytest.raises(InputError, match="cannot be prepared"):
        differentiate(lambda x: x.mul_(2)).prepare(torch.ones(2))


def test_the_generated_check_is_text_that_can_be_read() -> None:
    fn = differentiate(lambda x, n: x * n)
    x = np.ones(3)
    fn(x, 2)
    bound = fn.bind((x, 2), {})
    fast = fast_check(bound.entry, bound.call, fn.fn)
    assert fast is not None
    assert "type(a0) is ndarray" in fast.source and "a1 == 2" in fast.source


def test_every_form_of_one_function_has_its_generated_call() -> None:
    def fn(p: Any) -> Any:
        return np.sum(p * p)

    p = np.arange(3.0)
    both, alone, again = gradof.value_and_grad(fn), gradof.grad(fn), gradof.grad(fn)
    both(p)
    for each in (alone, again):
        np.testing.assert_array_equal(each(p), 2 * p)
        (quick,) = each._quick  # by the first or the second object of this form
        np.testing.assert_array_equal(quick((p,), {}), 2 * p)
    assert alone._quick == again._quick != both._quick
    np.testing.assert_array_equal(both._quick[0]((p,), {})[1], 2 * p)


def test_python_floats_are_lifted_once_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    lifted = [0]

    def counting(*args: Any) -> Any:
        lifted[0] += 1
        return lift_floats(*args)

    monkeypatch.setattr(functional, "lift_floats", counting)
    both = gradof.value_and_grad(lambda x: np.sin(x) * x)
    for _ in range(3):
        lifted[0] = 0
        both(0.7)
        assert lifted == [1]


def test_elements_that_are_baked_in_are_part_of_the_check() -> None:
    rows = np.arange(12.0).reshape(4, 3)

    def fn(p: Any) -> Any:
        return np.sum((rows - rows.mean(0)) @ p + p[0] ** 2)  # plain numpy tells not of what

    both, p = gradof.value_and_grad(fn), np.array([0.5, 1.0, 2.0])
    for _ in range(2):
        assert both(p)[0] == fn(p)
    assert any(quick((p,), {}) is not MISS for quick in both._quick)
    rows[1, 2] += 1e-9
    assert all(quick((p,), {}) is MISS for quick in both._quick)
    for change in (1.0, -1.0, -0.0, 0.0):
        rows[1, 2] = change
        for _ in range(2):
            np.testing.assert_array_equal(both(p)[0], fn(p))


def test_numbers_of_numpy_are_served_beside_arrays_without_dims() -> None:
    both = gradof.value_and_grad(lambda a, b: a * a * np.exp(b), (0, 1))
    a, b = 2.0, 0.5
    kinds: list[Callable[[float], Any]] = [np.float64, np.array]
    want = a * a * np.exp(b)
    for first in kinds:
        for second in kinds:
            args = first(a), second(b)
            both(*args)
            assert any(quick(args, {}) is not MISS for quick in both._quick)
            np.testing.assert_allclose(both(*args)[1], (2 * a * np.exp(b), want))
    assert all(quick((np.float32(a), np.float64(b)), {}) is MISS for quick in both._quick)
