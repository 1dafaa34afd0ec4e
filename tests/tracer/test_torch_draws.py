"""Numbers that `random` and `numpy.random` draw in a torch function: eager's, at every call."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable
from random import choice, randrange
from random import random as drawn_number
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import gradof
from gradof.errors import EagerWarning

Tensor = torch.Tensor
LAYERS = torch.nn.ModuleList([torch.nn.Linear(4, 4, dtype=torch.float64) for _ in range(3)])
LAYER = LAYERS[0]
KEPT: list[float] = []


def _mixup(x: Tensor) -> Any:
    share = np.random.beta(0.4, 0.4)
    order = torch.randperm(x.shape[0])
    mixed = LAYER(share * x + (1 - share) * x[order]).log_softmax(1)
    return -(share * mixed[:, 0] + (1 - share) * mixed[order, 1]).mean()


def _layers(x: Tensor) -> Any:
    for layer in LAYERS:
        if random.random() < 0.3:
            continue
        x = x + layer(x).tanh()
    return x.sum()


def _teacher(x: Tensor) -> Any:
    state, total = torch.zeros(4, dtype=x.dtype), x.sin().sum()
    for row in x[:2]:
        given = row if random.random() < 0.5 else state.detach()
        state = torch.tanh(LAYER(given) + state)
        total = total + state.sum()
    return total


def _crop(x: Tensor) -> Any:
    start = random.randint(0, 2)
    return LAYER(x)[start : start + 3].sin().sum() * np.random.rand()


def _kept(x: Tensor) -> Any:
    drawn = random.gauss(0.0, 1.0)
    KEPT.append(drawn)
    return LAYER(x).sin().sum() * drawn


def _shuffled(x: Tensor) -> Any:
    order = list(range(6))
    random.shuffle(order)
    return (LAYER(x)[order] * torch.arange(6.0, dtype=x.dtype)[:, None]).sin().sum()


def _augmented(x: Tensor) -> Any:
    return choice([torch.sin, torch.cos, torch.tanh])(LAYER(x)).sum()


def _picked(x: Tensor) -> Any:
    some = random.sample(range(6), 3)
    more = random.choices([0.5, 1.0, 2.0], weights=[1, 2, 3], k=2)
    return (LAYER(x)[some].sin() * more[0]).sum() + more[1] * choice((1, 3))


FUNCTIONS: dict[str, Callable[[Tensor], Any]] = {
    "mixup": _mixup, "layers": _layers, "teacher": _teacher, "crop": _crop,
    "scale": lambda x: LAYER(x).sin().sum() * random.uniform(0.5, 2.0) + random.gauss(0.0, 1.0),
    "whole": lambda x: LAYER(x)[np.random.randint(5)].sin().sum() * random.randrange(1, 4),
    "of another": lambda x: LAYER(x).sin().sum() * np.random.uniform(0.0, random.random()),
    "beside torch's": lambda x: (LAYER(x).sin() * torch.rand(4)).sum() * np.random.normal(1.0, 0.1),
    "imported": lambda x: LAYER(x).sin().sum() * drawn_number() + randrange(4),
    "shuffled": _shuffled, "augmented": _augmented, "picked": _picked,
    "one of one": lambda x: random.choice([LAYER])(x).sin().sum() * choice([2.0]),
    "unused": lambda x: (random.random(), LAYER(x).sin().sum())[1],
}  # fmt: skip


def _seed() -> None:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)


def _states() -> tuple[Any, ...]:
    words: Any = np.random.get_state(legacy=True)
    return random.getstate(), words[1].tolist(), words[2:], torch.get_rng_state().tolist()


def _runs(fn: Callable[[Tensor], Any], calls: int) -> tuple[list[Tensor], list[Any]]:
    """Values, gradients and second gradients, and where the generators are after each call."""
    _seed()
    found, states = [], []
    for i in range(calls):
        x = (torch.arange(24.0, dtype=torch.float64).reshape(6, 4) / 10 + i).requires_grad_()
        value = fn(x)
        (first,) = torch.autograd.grad(value, x, create_graph=True)
        found += [value, first, *torch.autograd.grad((first * first).sum(), x)]
        states.append(_states())
    return found, states


def _runs_eagerly(fn: Callable[[Tensor], Any], why: str) -> None:
    """With one warning that says why, as eager would: its results, and its generators' states."""
    compiled = gradof.differentiate(fn)
    want, states = _runs(fn, 3)
    with pytest.warns(EagerWarning, match=why):
        have, moved = _runs(compiled, 3)
    for h, w in zip(have, want, strict=True):
        torch.testing.assert_close(h, w)
    assert moved == states and compiled.cache_info().eager_runs == 3


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numbers_are_drawn_as_in_eager(name: str) -> None:
    compiled = gradof.differentiate(FUNCTIONS[name], strict=True)
    want, states = _runs(FUNCTIONS[name], 8)
    have, moved = _runs(compiled, 8)
    for h, w in zip(have, want, strict=True):
        torch.testing.assert_close(h, w)
    assert moved == states
    assert compiled.cache_info().eager_runs == 0


def test_what_is_stored_is_what_was_drawn() -> None:
    KEPT.clear()
    want, _ = _runs(_kept, 4)
    eager = KEPT.copy()
    KEPT.clear()
    compiled = gradof.differentiate(_kept)
    have, _ = _runs(compiled, 4)
    assert eager == KEPT and len(KEPT) == 4
    for h, w in zip(have, want, strict=True):
        torch.testing.assert_close(h, w)


def test_a_trace_moves_nothing_and_puts_the_functions_back() -> None:
    functions = random.random, np.random.beta, drawn_number, choice
    _seed()
    before = _states()
    gradof.differentiate(_layers).trace(torch.ones(2, 4, dtype=torch.float64))
    gradof.differentiate(_mixup).trace(torch.ones(2, 4, dtype=torch.float64))
    gradof.differentiate(_picked).trace(torch.ones(6, 4, dtype=torch.float64))
    assert _states() == before
    assert (random.random, np.random.beta, drawn_number, choice) == functions


def test_an_imported_name_that_the_function_binds_anew_stays_so() -> None:
    names: dict[str, Any] = {"other": lambda: 2.0}
    exec("from random import random as drawn", names)
    exec("def fn(x):\n    global drawn\n    drawn = other\n    return (x * drawn()).sum()", names)
    module = ModuleType("gradof_binds_anew")
    vars(module).update(names)
    sys.modules[module.__name__] = module
    fn = FunctionType(names["fn"].__code__, vars(module))
    try:
        assert gradof.differentiate(fn)(torch.ones(3, requires_grad=True)).item() == 6.0
        assert vars(module)["drawn"] is names["other"]
    finally:
        del sys.modules[module.__name__]


def test_many_orders_of_what_is_no_number_run_eagerly() -> None:
    def fn(x: Tensor) -> Any:
        layers = list(LAYERS)
        random.shuffle(layers)
        return sum(i * layer(x).sin().sum() for i, layer in enumerate(layers))

    _runs_eagerly(fn, "drawn from Python's global state")


def test_what_is_picked_by_name_or_of_no_sequence_is_as_in_eager() -> None:
    def by_name(x: Tensor) -> Any:
        return LAYER(x).sin().sum() * random.choices(population=[1.0, 2.0], k=1)[0]

    _runs_eagerly(by_name, "drawn from Python's global state")
    numbers: Any = {1.0, 2.0}
    with pytest.raises(TypeError, match="Population must be a sequence"):
        gradof.differentiate(lambda x: x.sum() * random.sample(numbers, 1)[0])(torch.ones(2))


def test_an_empty_sequence_is_pythons_error() -> None:
    with pytest.raises(IndexError, match="empty sequence"):
        gradof.differentiate(lambda x: x.sum() * random.choice([]))(torch.ones(2))


def _again(x: Tensor) -> Any:
    state = random.getstate()
    first = random.random()
    random.setstate(state)
    return (x.sin() * first * random.random()).sum()


def _seeded(x: Tensor) -> Any:
    np.random.seed(3)
    return (x.sin() * np.random.rand()).sum()


@pytest.mark.parametrize("fn", [_again, _seeded])
def test_states_that_are_read_or_set_run_eagerly(fn: Callable[[Tensor], Any]) -> None:
    _runs_eagerly(fn, "of a random generator is called")


def test_other_threads_draw_while_one_traces() -> None:
    random.seed(1)
    want = [random.random() for _ in range(3)]
    random.seed(1)
    drawn: list[float] = []

    def fn(x: Tensor) -> Any:
        other = threading.Thread(target=lambda: drawn.extend(random.random() for _ in range(3)))
        other.start()
        other.join()
        return (x * 2).sum()

    with pytest.warns(EagerWarning):  # the generator has moved while the function was traced
        gradof.differentiate(fn)(torch.ones(3, requires_grad=True))
    assert drawn[-3:] == want


def test_inner_results_are_of_the_same_numbers() -> None:
    def fn(x: Tensor) -> tuple[Tensor, Any]:
        hidden = (x * random.random()).sin()
        return hidden, (hidden * hidden).sum() * np.random.rand()

    grads = []
    for f in (fn, gradof.differentiate(fn, strict=True)):
        _seed()
        x = torch.ones(3, dtype=torch.float64, requires_grad=True)
        hidden, value = f(x)
        grads.append((*torch.autograd.grad(value, hidden, retain_graph=True),
                      *torch.autograd.grad(value, x), torch.tensor(random.random())))  # fmt: skip
    for have, want in zip(*grads, strict=True):
        torch.testing.assert_close(have, want)
