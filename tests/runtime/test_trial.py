"""Whose code runs a call is decided by time; what comes of a call is the same either way.

Times are given here, not taken: `costs` says what a call of each side took.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from gradof import differentiate, tuning
from gradof.codegen.machine.engine import vector_bits
from gradof.codegen.machine.object_cache import object_cache
from gradof.runtime.torch_clock import when_backward_is_done
from gradof.runtime.trial import Trial

CALLS = 1 + tuning.TRIAL_WARM + 2 * tuning.TRIAL_TIMES + 2  # after which it is decided
Costs = Callable[[float, float], None]


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Costs:
    """`costs(ours, eager)`: trials are on, and a call of each side takes so many seconds."""
    monkeypatch.setenv("GRADOF_AUTOTUNE", "1")
    monkeypatch.setenv("GRADOF_CACHE_DIR", str(tmp_path / "kept"))
    object_cache.cache_clear()
    real = Trial._note

    def set_costs(ours: float, eager: float) -> None:
        def note(trial: Trial, timed: Any, more: float, gradients: bool) -> None:
            timed.seconds = {"eager": eager}.get(timed.side, ours)
            real(trial, timed, 0.0, gradients)

        monkeypatch.setattr(Trial, "_note", note)

    return set_costs


@pytest.fixture(autouse=True)
def caches_as_before() -> Any:
    yield
    object_cache.cache_clear()


def _loss(x: Any, w: Any) -> Any:
    return torch.tanh(x @ w).square().mean()


def _normed() -> Any:
    torch.manual_seed(1)
    layers = torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout()
    return torch.nn.Sequential(*layers).double()  # whose rounding nobody sees


def _arguments() -> tuple[Any, Any]:
    return torch.randn(5, 4), torch.randn(4, 3, requires_grad=True)


def _steps(fn: Any, n: int, *args: Any) -> None:
    for _ in range(n):
        fn(*args).backward()


@pytest.mark.parametrize(("ours", "eager", "winner"), [
    (2.0, 1.0, "eager"), (1.1, 1.0, "eager"), (1.005, 1.0, "ours"), (0.9, 1.0, "ours"),
    (0.1, 1.0, "ours"),
])  # fmt: skip
def test_the_faster_one_runs(costs: Costs, ours: float, eager: float, winner: str) -> None:
    costs(ours, eager)
    x, w = _arguments()
    fast = differentiate(_loss)
    _steps(fast, CALLS, x, w)
    before = fast.cache_info()
    w.grad = None
    _steps(fast, 5, x, w)
    after = fast.cache_info()
    eagers = 5 if winner == "eager" else 0
    assert after.eager_runs - before.eager_runs == eagers
    assert after.backward_runs - before.backward_runs == 5 - eagers
    (wanted,) = torch.autograd.grad(_loss(x, w), w)
    assert w.grad is not None
    torch.testing.assert_close(w.grad, 5 * wanted)
    told = fast.explain(x, w).runs
    assert told.startswith("torch's own code" if winner == "eager" else "compiled code: it took")


def test_what_is_clear_takes_two_turns_of_each(costs: Costs) -> None:
    costs(0.1, 1.0)
    fast = differentiate(_loss)
    _steps(fast, 1 + tuning.TRIAL_WARM + 4, *_arguments())
    assert fast.cache_info().eager_runs == 2
    assert "against 1e+03 ms" in fast.explain(*_arguments()).runs


def test_what_is_short_is_timed_as_often_as_can_be(costs: Costs) -> None:
    short = tuning.TRIAL_SHORT
    costs(0.2 * short, 0.9 * short)
    fast = differentiate(_loss)
    _steps(fast, 1 + tuning.TRIAL_WARM + 4, *_arguments())
    assert fast.explain(*_arguments()).runs == "compiled code and torch's own in turns"


def test_eager_is_faster_by_more_than_a_call_costs_us(costs: Costs) -> None:
    eager = 8 * tuning.TRIAL_STEP
    for more, runs in ((0.5, "compiled code"), (1.5, "torch's own code")):
        costs(eager + more * tuning.TRIAL_STEP, eager)
        fast = differentiate(lambda x, w: _loss(x, w) * more)  # noqa: B023
        _steps(fast, CALLS, *_arguments())
        assert fast.explain(*_arguments()).runs.startswith(runs)


@pytest.mark.parametrize("history", [True, False])
def test_what_stores_a_tensor_with_history_is_not_tried(costs: Costs, history: bool) -> None:
    costs(2.0, 1.0)

    class Layer(torch.nn.Linear):
        kept: Any = None

        def forward(self, x: Any) -> Any:
            self.kept, before = (self.weight.exp() ** 2).sum(), self.kept
            if not history:
                self.kept = self.kept.detach()
            return super().forward(x).sum() * (1 if before is None else 2)

    layer = Layer(4, 3)
    fast = differentiate(layer)
    for _ in range(CALLS):
        (fast(torch.randn(5, 4)) + layer.kept).backward()
    assert (fast.cache_info().eager_runs == 0) is history


def test_what_is_quick_is_not_tried(costs: Costs) -> None:
    costs(tuning.TRIAL_LEAST / 2, 0.0)
    fast, (x, w) = differentiate(_loss), _arguments()
    _steps(fast, CALLS, x, w)
    assert fast.cache_info().eager_runs == 0
    assert fast.explain(x, w).runs == "compiled code: 0.01 ms are too few to be compared"


def test_batch_norm_and_dropout_go_on_as_in_eager(costs: Costs) -> None:
    costs(2.0, 1.0)
    model, plain = _normed(), _normed()
    fast, x = differentiate(model), torch.randn(6, 4, dtype=torch.float64)
    for each in (fast, plain):
        torch.manual_seed(3)
        for _ in range(CALLS + 3):
            each(x).square().sum().backward()
    for mine, other in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad)
    for mine, other in zip(model.buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(mine, other)
    assert fast.cache_info().eager_runs > 3 and fast.cache_info().backward_runs > 3


def test_without_gradients_it_is_another_trial(costs: Costs) -> None:
    costs(2.0, 1.0)
    model = torch.nn.Linear(4, 3)
    fast, x = differentiate(model), torch.randn(2, 4)
    _steps(lambda given: fast(given).sum(), CALLS, x)
    costs(1.0, 2.0)
    model.eval()
    with torch.no_grad():
        for _ in range(CALLS):
            torch.testing.assert_close(fast(x), model(x))
        assert fast.explain(x).runs.startswith("compiled code: it took")
    model.train()
    assert fast.explain(x).runs.startswith("torch's own code")


@pytest.mark.parametrize("eager", [1.0, 4.0])
def test_who_has_won_is_called_without_the_trial(costs: Costs, eager: float) -> None:
    costs(2.0, eager)
    fast, (x, w) = differentiate(_loss), _arguments()
    _steps(fast, CALLS, x, w)
    (quick,) = fast.cache.quick
    as_it_is = "hand_on" if vector_bits() else "check"
    assert quick.__name__ == ("call" if eager > 2.0 else as_it_is)
    torch.testing.assert_close(fast(x, w), _loss(x, w))


@pytest.mark.parametrize("kind", ["tensors", "a number", "a list", "a keyword"])
def test_what_runs_as_it_is_is_of_its_signature_alone(costs: Costs, kind: str) -> None:
    costs(2.0, 1.0)
    model = _normed()

    class Scaled(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, x: Any, by: Any = 1) -> Any:
            return self.inner(x) * (by[0] if isinstance(by, list) else by)

    plain = Scaled()
    fast, one = differentiate(plain), torch.ones(4, dtype=torch.float64)
    by: Any = {"tensors": one, "a number": 2.0, "a list": [one], "a keyword": one}[kind]

    def call(fn: Any, x: Any) -> Any:
        torch.manual_seed(1)
        return fn(x, by=by) if kind == "a keyword" else fn(x, by)

    x = torch.randn(6, 4, dtype=torch.float64)
    _steps(lambda given: call(fast, given).sum(), CALLS, x)
    runs = fast.cache_info().eager_runs
    call(fast, x)
    assert fast.cache_info().eager_runs == runs + 1
    for given in (x[:5], x.clone().requires_grad_()):
        call(fast, given)
    with torch.no_grad():
        assert not call(fast, x).requires_grad
    plain.eval()
    torch.testing.assert_close(call(fast, x), call(plain, x))
    assert fast.cache_info().eager_runs == runs + 1


def test_python_state_counts_when_eager_runs_too(costs: Costs) -> None:
    costs(2.0, 1.0)
    factor = 2.0

    def scaled(x: Any) -> Any:
        return (x * x).sum() * factor

    fast, x = differentiate(scaled), torch.ones(3, requires_grad=True)
    _steps(fast, CALLS, x)
    factor = 5.0
    for _ in range(tuning.TRIAL_AGAIN + CALLS):
        assert fast(x).item() == 15.0
    assert fast.cache_info().misses == 2  # the other function was traced, and has its own trial


@pytest.mark.parametrize("why", ["strict", "memory_budget", "variable", "deterministic", "audit"])
def test_what_is_not_tried(costs: Costs, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    costs(2.0, 1.0)
    values: dict[str, Any] = {"strict": True, "memory_budget": 0.5, "audit": 1e-9}
    options = {why: values[why]} if why in values else {}
    if why == "variable":
        monkeypatch.setenv("GRADOF_AUTOTUNE", "0")
    torch.use_deterministic_algorithms(why == "deterministic")
    try:
        fast, (x, w) = differentiate(_loss, **options), _arguments()
        _steps(fast, CALLS, x, w)
    finally:
        torch.use_deterministic_algorithms(False)
    info = fast.cache_info()
    assert info.eager_runs == 0 and info.backward_runs >= CALLS
    assert fast.explain(x, w).runs == ""


def test_the_next_process_knows(costs: Costs) -> None:
    costs(2.0, 1.0)
    x, w = _arguments()
    _steps(differentiate(_loss), CALLS, x, w)
    again = differentiate(_loss)
    _steps(again, 3, x, w)
    assert again.cache_info().eager_runs == 2 and again.cache_info().backward_runs == 1


def test_a_call_that_is_computed_again_is_ours_both_times(costs: Costs) -> None:
    costs(2.0, 1.0)
    fast, (x, w) = differentiate(lambda x, w: torch.tanh(x @ w)), _arguments()
    (wanted,) = torch.autograd.grad(torch.tanh(x @ w).sum(), w)
    for _ in range(CALLS):
        w.grad = None
        checkpoint(fast, x, w, use_reentrant=False).sum().backward()
        assert w.grad is not None
        torch.testing.assert_close(w.grad, wanted)
    assert fast.cache_info().eager_runs == 0


def test_a_backward_is_timed_to_where_the_inputs_were_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[float] = []
    monkeypatch.setattr("gradof.runtime.torch_clock.now", time.perf_counter)  # which sleeps, too
    leaf: Any = torch.ones(3, requires_grad=True)
    given = leaf * 2
    leaf.register_hook(lambda g: time.sleep(0.2))  # not ours
    inside = given * 3
    inside.register_hook(lambda g: time.sleep(0.01))
    result: Any = {"y": (inside * 4, 7)}
    assert when_backward_is_done(result, [given], told.append)
    result["y"][0].sum().backward(retain_graph=True)
    result["y"][0].sum().backward()
    assert len(told) == 1 and 0.01 <= told[0] < 0.2
    assert not when_backward_is_done(torch.ones(3), [given], told.append)
