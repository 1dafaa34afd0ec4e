"""What a function has done before it raises is done, whatever library and transform it is."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import gradof

TRANSFORMS: dict[str, Callable[..., Any]] = {
    "differentiate": gradof.differentiate,
    "strict": gradof.differentiate(strict=True),
    "grad": gradof.grad,
    "value_and_grad": gradof.value_and_grad,
    "jacobian": gradof.jacobian,
    "vjp": lambda fn: lambda *args: gradof.vjp(fn, *args),
    "jvp": lambda fn: lambda *args: gradof.jvp(fn, args, args),
}


class TooMany(Exception):
    """As scipy's evaluations end."""


def call(fn: Callable[..., Any], *args: Any) -> str:
    """The error's text, or that there was none."""
    try:
        fn(*args)
    except TooMany as error:
        return f"{type(error).__name__}: {error}"
    return "none"


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_counters_and_what_is_kept_at_each_call(name: str, library: str) -> None:
    one = np.array([1.0, 2.0]) if library == "numpy" else torch.tensor([1.0, 2.0])

    def made() -> tuple[Any, Callable[..., Any]]:
        state = SimpleNamespace(calls=0, last=None, log=[])

        def cost(x: Any) -> Any:
            state.calls += 1
            state.last = x * 3
            state.log.append(state.calls)
            if state.calls > 2:
                raise TooMany(state.calls)
            return (x * x).sum()

        return state, cost

    plain_state, plain = made()
    state, cost = made()
    compiled = TRANSFORMS[name](cost)
    for _ in range(4):
        assert call(compiled, one) == call(plain, one)
        assert (state.calls, state.log) == (plain_state.calls, plain_state.log)
        assert type(state.last) is type(plain_state.last)
        assert state.last.tolist() == plain_state.last.tolist()


def test_arguments_generators_and_plain_arrays() -> None:
    seen, table = list[int](), np.zeros(4)

    def cost(x: Any, rng: Any, log: Any) -> Any:
        log["n"] = log.get("n", 0) + 1
        table[len(seen)] += 1
        seen.append(1)
        x[0] = 5 * x[1]
        scale = rng.normal() + random.random()
        if scale < 1e9:
            raise TooMany("small")
        return np.sum(x * scale)

    x, log, rng = np.ones(3), dict[str, int](), np.random.default_rng(0)
    random.seed(0)
    assert call(gradof.grad(cost), x, rng, log) == "TooMany: small"
    assert (x.tolist(), log, seen, table.tolist()) == ([5, 1, 1], {"n": 1}, [1], [1, 0, 0, 0])
    after, python = np.random.default_rng(0), random.Random(0)
    after.normal(), python.random()
    assert rng.normal() == after.normal() and random.random() == python.random()


@pytest.mark.parametrize("wrap", [gradof.differentiate, gradof.grad])
def test_the_traceback_shows_the_error_once(wrap: Callable[..., Any]) -> None:
    state = SimpleNamespace(calls=0)

    def cost(x: Any) -> Any:
        state.calls += 1
        try:
            return {}[state.calls]
        except KeyError as error:
            raise TooMany("none") from error

    with pytest.raises(TooMany) as raised:
        wrap(cost)(np.ones(3))
    cause = raised.value.__cause__
    assert isinstance(cause, KeyError) and raised.value.__context__ is cause
    assert cause.__context__ is None


def test_what_is_printed_before_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    def cost(x: Any) -> Any:
        print("looked")
        raise TooMany(np.sum(x).shape)

    assert call(gradof.grad(cost), np.ones(3)) == "TooMany: ()"
    assert capsys.readouterr().out == "looked\n"


def test_what_is_refused_has_done_nothing() -> None:
    state = SimpleNamespace(calls=0)

    def cost(x: Any) -> Any:
        state.calls += 1
        return np.sum(x.tofile("nowhere"))

    for _ in range(2):
        with pytest.raises(gradof.errors.GradofError):
            gradof.grad(cost)(np.ones(3))
    assert state.calls == 0


def test_looking_at_a_function_does_nothing() -> None:
    state = SimpleNamespace(calls=0)

    def cost(x: Any) -> Any:
        state.calls += 1
        raise TooMany

    with pytest.raises(TooMany):
        gradof.differentiate(cost).explain(np.ones(3))
    assert state.calls == 0


def test_an_interrupt_leaves_nothing_of_the_trace() -> None:
    state = SimpleNamespace(last=0)

    def cost(x: Any) -> Any:
        state.last = x * 2
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gradof.grad(cost)(np.ones(3))
    assert state.last == 0


def test_it_runs_once_where_nothing_was_done() -> None:
    runs = iter(range(9))

    class Lazy:
        @property
        def limit(self) -> int:
            return next(runs)

    lazy = Lazy()

    def cost(x: Any) -> Any:
        raise TooMany(lazy.limit)

    assert call(gradof.grad(cost), np.ones(3)) == "TooMany: 0"
    assert next(runs) == 1


ERRORS: dict[str, Callable[[Any], Any]] = {
    "a singular matrix": lambda x: np.linalg.inv(x[:, None] * x),
    "a division by zero": lambda x: np.divide(1.0, x - x[0]),
    "a missing key": lambda x: dict[str, float]()["scale"] * x,
    "a list that ends": lambda x: [x][1],
    "Python's division": lambda x: x * (1 // (len(x) - 2)),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_of_values_that_a_library_or_python_raises(name: str) -> None:
    calls = [0, 0]

    def made(k: int) -> Callable[..., Any]:
        def cost(x: Any) -> Any:
            calls[k] += 1
            return np.sum(ERRORS[name](x))

        return cost

    plain, compiled, x = made(0), gradof.grad(made(1)), np.array([1.0, 2.0])
    with np.errstate(divide="raise"):
        for _ in range(2):
            for fn in (plain, compiled):
                with pytest.raises((ArithmeticError, LookupError, np.linalg.LinAlgError)):
                    fn(x)
    assert calls == [2, 2]
