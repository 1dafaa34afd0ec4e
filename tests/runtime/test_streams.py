"""A stream of arguments of many shapes: each is traced when eager has spent enough on it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch

from gradof import differentiate, limits, tuning
from gradof.errors import EagerWarning, RetraceWarning
from gradof.runtime import compiling, record, torch_clock


class Clock:
    """Seconds that pass when something is timed: a call of eager's takes one, and so do others."""

    def __init__(self) -> None:
        self.seconds = 0

    def __call__(self) -> float:
        self.seconds += 1
        return self.seconds


@pytest.fixture(autouse=True)
def _clocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("GRADOF_AUTOTUNE", "1")
    monkeypatch.setattr(limits, "shapes", 2)
    monkeypatch.setattr(limits, "shape_seconds", 1000.0)
    clock = Clock()
    for module, name in ((torch_clock, "now"), (record, "thread_time"), (compiling, "thread_time")):
        monkeypatch.setattr(module, name, clock)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RetraceWarning)
        yield


def _square(x: torch.Tensor) -> torch.Tensor:
    return (x**2).sum()


def _x(n: int) -> torch.Tensor:
    return torch.arange(float(n), requires_grad=True)


def _calls_until_traced(with_backward: bool) -> int:
    """How often a third shape ran eagerly before it was traced."""
    fn = differentiate(_square)
    for n in (2, 3):  # each is traced, derived, and compiled twice: some seconds
        fn(_x(n)).backward()
    before = fn.cache_info()
    assert (before.misses, before.eager_runs) == (2, 0)
    for _ in range(100):
        x = _x(4)
        y = fn(x)
        if with_backward:
            y.backward()
            assert x.grad is not None and x.grad.tolist() == [0.0, 2.0, 4.0, 6.0]
        if fn.cache_info().misses == 3:
            runs: int = fn.cache_info().eager_runs
            return runs
    raise AssertionError("it was never traced")


def test_a_shape_is_traced_when_eager_has_spent_so_much_on_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    costs = []
    for pays in (1, 3):
        monkeypatch.setattr(tuning, "SHAPE_PAYS", pays)
        costs.append(_calls_until_traced(with_backward=False))
    assert 1 < costs[0] < costs[1], "compiling counts, beside the trace of a second"
    assert 3 * costs[0] - 3 <= costs[1] <= 3 * costs[0]


def test_the_time_of_backwards_counts() -> None:
    calls = [_calls_until_traced(with_backward) for with_backward in (False, True)]
    assert calls[1] == (calls[0] + 1) // 2


def test_a_shape_that_is_rare_is_never_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    fn = differentiate(_square)
    for n in range(2, 60):
        fn(_x(n)).backward()
    info = fn.cache_info()
    assert (info.misses, info.eager_runs) == (2, 56)


def test_what_was_compiled_counts_for_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "shapes", 100)
    monkeypatch.setattr(limits, "shape_seconds", 4.5)
    fn = differentiate(_square)
    for n in range(2, 8):
        fn(_x(n)).backward()
    info = fn.cache_info()
    assert info.misses in (3, 4) and info.misses + info.eager_runs == 6


def test_traces_that_fail_count() -> None:
    """Each shape was traced in vain, where none of them can be compiled."""
    fn = differentiate(lambda x: (x * len(str(x.sum().detach().numpy()))).sum())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EagerWarning)
        for n in range(2, 12):
            fn(_x(n))
    info = fn.cache_info()
    assert (info.misses, info.eager_runs) == (2, 10)


def test_a_strict_function_traces_each(monkeypatch: pytest.MonkeyPatch) -> None:
    fn = differentiate(_square, strict=True)
    for n in range(2, 8):
        fn(_x(n)).backward()
    assert fn.cache_info().misses == 6


def _by_value(x: torch.Tensor) -> torch.Tensor:
    y = x * 2.0
    for _ in range(int(x.detach()[0])):
        y = y.sin()
    return y.sum()


def test_paths_by_what_python_reads_are_traced_when_that_pays() -> None:
    """Whose experts are chosen anew, and come again now and then, would be traced for ever."""
    fn = differentiate(_by_value)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for n in range(100):
            x = torch.full((3,), float((n * 7) % 40 if n % 2 else 1), requires_grad=True)
            y = fn(x)
            y.backward()
            again = x.detach().clone().requires_grad_()
            want = _by_value(again)
            want.backward()  # type: ignore[no-untyped-call]
            torch.testing.assert_close(y, want)
            torch.testing.assert_close(x.grad, again.grad)
    info = fn.cache_info()
    assert 4 <= info.misses <= 12 and info.misses + info.hits + info.eager_runs == 100
    assert info.hits >= 49 and info.eager_runs > 20  # that of the even calls is kept
    texts = [str(w.message) for w in told if w.category is RetraceWarning]
    assert len(texts) == 1 and "3 paths" in texts[0] and "test_streams.py" in texts[0]
    assert "limits.shapes" in texts[0]


def test_a_strict_function_traces_each_path() -> None:
    fn = differentiate(_by_value, strict=True)
    for n in range(20):
        fn(torch.full((3,), float(n if n % 2 else 0)))
    assert fn.cache_info().misses == 11 and fn.cache_info().eager_runs == 0
