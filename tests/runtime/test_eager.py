"""What cannot be traced runs under torch's own autograd: once told, with everything as in eager.

Kinds of tensors that no trace holds are in test_eager_kinds.py.
"""

from __future__ import annotations

import itertools
import random
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import gradof
from gradof import differentiate, limits, tuning
from gradof.errors import EagerWarning, RetraceWarning, TraceError


@contextmanager
def told() -> Iterator[list[warnings.WarningMessage]]:
    """The warnings given inside."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield seen


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], None]:
    """Sets one of `gradof.limits` for the test."""
    return lambda name, count: monkeypatch.setattr(limits, name, count)


def _x(n: int = 3) -> torch.Tensor:
    return torch.arange(1.0, n + 1.0, dtype=torch.float64, requires_grad=True)


def _shout(x: torch.Tensor) -> torch.Tensor:
    print("called")
    return (x**3).sum()


def test_one_warning_and_eagers_value_and_gradient(capsys: pytest.CaptureFixture[str]) -> None:
    fn, x = differentiate(_shout), _x()
    with told() as seen:
        for _ in range(3):
            value = fn(x)
            (grad,) = torch.autograd.grad(value, x, create_graph=True)
            assert value.item() == 36.0 and grad.tolist() == [3.0, 12.0, 27.0]
            assert torch.autograd.grad(grad.sum(), x)[0].tolist() == [6.0, 12.0, 18.0]
    assert [w.category for w in seen] == [EagerWarning]
    text = str(seen[0].message)
    assert "_shout is not compiled" in text and "print is called" in text
    assert "test_eager.py" in text and "hint:" in text and "strict=True" in text
    info = fn.cache_info()
    assert (info.misses, info.eager_runs, info.forward_runs) == (1, 3, 0)
    assert capsys.readouterr().out.splitlines() == ["called"] * 3, "once at each call"


def test_strict_raises_at_every_call(capsys: pytest.CaptureFixture[str]) -> None:
    fn = differentiate(_shout, strict=True)
    for _ in range(3):
        with pytest.raises(TraceError, match="print is called"):
            fn(_x())
    assert fn.cache_info().eager_runs == 0 and capsys.readouterr().out == ""


def test_state_is_put_back_before_the_function_runs() -> None:
    log: list[float] = []
    state = {"calls": 0}

    @differentiate
    def fn(x: torch.Tensor) -> torch.Tensor:
        state["calls"] += 1
        log.append((x**2).sum().item())
        print(end="")
        return (x * state["calls"]).sum()

    with pytest.warns(EagerWarning, match="print"):
        assert fn(_x()).item() == 6.0
    assert (state["calls"], log) == (1, [14.0])
    for n in range(2, 6):  # some of these are tried again, as the state is another one
        assert fn(_x()).item() == 6.0 * n
        assert (state["calls"], log) == (n, [14.0] * n)
    assert fn.cache_info().eager_runs == 5 and fn.cache_info().misses <= 3


def test_an_iterator_is_advanced_once_at_each_call() -> None:
    numbers = itertools.count(1)
    fn = differentiate(lambda x: (x * next(numbers)).sum())
    with told() as seen:
        for n in range(1, 5):
            x = _x()
            fn(x).backward()
            assert x.grad is not None and x.grad.tolist() == [float(n)] * 3
    assert next(numbers) == 5 and [w.category for w in seen] == [EagerWarning]


def test_errors_of_the_function_are_its_own() -> None:
    @differentiate
    def fn(x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] > 2:
            raise KeyError("three")
        return x.sum()

    for _ in range(2):
        with pytest.raises(KeyError, match="three"):
            fn(_x())
    assert fn(_x(2)).item() == 3.0


class _Talks(nn.Module):
    """Prints in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 1).double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            print(end="")
        loss: torch.Tensor = self.layer(x).sum()
        return loss


def test_it_is_traced_when_the_state_that_failed_is_another() -> None:
    model = _Talks()
    fast: Any = differentiate(model)
    with pytest.warns(EagerWarning, match="print"):
        fast(_x())
    fast(_x())
    assert fast.cache_info().misses == 1 and fast.cache_info().eager_runs == 2
    model.eval()
    x = _x()
    fast(x).backward()
    info = fast.cache_info()
    assert (info.misses, info.eager_runs, info.backward_runs) == (2, 2, 1)
    torch.testing.assert_close(x.grad, model.layer.weight[0])


def test_a_call_that_fails_again_is_found_by_a_generated_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[Any] = []
    as_it_is = gradof.runtime.lending.inspect_call  # type: ignore[attr-defined]

    def look(*given: Any) -> Any:
        looked.append(given)
        return as_it_is(*given)

    monkeypatch.setattr("gradof.runtime.lending.inspect_call", look)
    switch = {"talks": True}

    def fn(x: torch.Tensor, power: int) -> torch.Tensor:
        if switch["talks"]:
            print(end="")
        return (x**power).sum()

    fast = differentiate(fn)
    with pytest.warns(EagerWarning, match="print"):
        fast(_x(), 2)
    for _ in range(20):
        fast(_x(), 2)
    assert len(looked) < 8 and fast.cache_info().eager_runs == 21
    x = _x()
    fast(x, 3).backward()  # other arguments are looked at
    torch.testing.assert_close(x.grad, 3 * x.detach() ** 2)
    switch["talks"] = False
    for _ in range(2 * tuning.TRIAL_AGAIN):
        fast(_x(), 2)
    assert fast.cache_info().hits > 0, "state was looked at again"


@pytest.mark.parametrize("text", ["print(y.item())", "print(f'{step} {y.item():.3f}')"])
def test_what_is_printed_now_and_then_runs_eagerly_then(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["def fn(x):", "    global step", "    step += 1", "    y = (x**2).sum()",
             "    if step % 5 == 0:", f"        {text}", "    return y"]  # fmt: skip
    space: dict[str, Any] = {"step": 0}
    exec("\n".join(lines), space)
    fast = differentiate(space["fn"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EagerWarning)
        for _ in range(60):
            fast(_x()).backward()
    assert len(capsys.readouterr().out.splitlines()) == 12
    assert fast.cache_info().eager_runs == 12


def test_grad_and_value_and_grad(capsys: pytest.CaptureFixture[str]) -> None:
    grad = gradof.grad(_shout)
    both = gradof.value_and_grad(differentiate(_shout))  # else they are of one function
    for fn in (grad, both):
        with told() as seen:
            for _ in range(3):
                found = fn(_x().detach())
        assert [w.category for w in seen] == [EagerWarning]
        info = fn.cache_info()
        assert (info.misses, info.eager_runs) == (1, 3), "one trace is tried"
        assert not (found if fn is grad else found[1]).requires_grad
    assert found[0].item() == 36.0 and found[1].tolist() == [3.0, 12.0, 27.0]
    assert capsys.readouterr().out.splitlines() == ["called"] * 6
    with pytest.raises(TraceError, match="print is called"):
        gradof.grad(differentiate(_shout, strict=True))(_x().detach())


def test_new_shapes_run_eagerly_until_they_come_back(limit: Callable[[str, int], None]) -> None:
    limit("shapes", 2)
    fn = differentiate(lambda x: (x**2).sum())
    counts = []
    with told() as seen:
        for n in (1, 2, 3, 4, 3, 3, 1):
            x = _x(n)
            fn(x).backward()
            torch.testing.assert_close(x.grad, 2 * x.detach())
            counts.append((fn.cache_info().misses, fn.cache_info().eager_runs))
    assert counts == [(1, 0), (2, 0), (2, 1), (2, 2), (3, 2), (3, 2), (3, 2)]
    assert [w.category for w in seen] == [RetraceWarning]
    assert "limits.shapes" in str(seen[0].message)
    strict = differentiate(lambda x: (x**2).sum(), strict=True)
    for n in range(1, 6):
        strict(_x(n))
    assert strict.cache_info().misses == 5, "with strict=True every shape is traced"


def test_shapes_with_long_traces_wait_sooner(monkeypatch: Any) -> None:
    monkeypatch.setattr(gradof.limits, "shape_seconds", 0.0)
    fn = differentiate(lambda x: (x**2).sum())
    counts = []
    with told() as seen:
        for n in (1, 2, 3, 4, 3, 3, 1):
            fn(_x(n)).backward()
            counts.append((fn.cache_info().misses, fn.cache_info().eager_runs))
    assert counts == [(1, 0), (2, 0), (2, 1), (2, 2), (3, 2), (3, 2), (3, 2)]
    assert [w.category for w in seen] == [RetraceWarning]
    assert "limits.shape_seconds" in str(seen[0].message)


def test_texts_run_eagerly_until_they_come_back(limit: Callable[[str, int], None]) -> None:
    limit("shapes", 3)
    weight = torch.arange(256.0, requires_grad=True)
    fn = differentiate(lambda text: weight[torch.tensor(list(text))].sum())
    draw = random.Random(0)
    texts: list[Any] = [bytes(draw.choices(range(256), k=draw.randint(1, 9))) for _ in range(20)]
    texts += [[1] * n for n in range(1, 9)]  # numbers in lists are another kind
    with told() as seen:
        for text in texts:
            assert fn(text).item() == sum(text)
    assert [w.category for w in seen] == [RetraceWarning]
    assert (fn.cache_info().misses, fn.cache_info().eager_runs) == (6, 22)


def test_paths_of_one_shape_are_no_shapes(limit: Callable[[str, int], None]) -> None:
    limit("shapes", 2)
    fn = differentiate(lambda x: x.sum() * int(x[0]))
    for n in range(5):
        assert fn(torch.full((2,), float(n))).item() == 2.0 * n * n
    assert fn.cache_info().misses == 5 and fn.cache_info().eager_runs == 0


def test_signatures_are_evicted(limit: Callable[[str, int], None]) -> None:
    limit("signatures", 12)
    limit("shapes", 1000)
    limit("shape_seconds", 1000)
    fn = differentiate(lambda x: (x**2).sum())
    for n in range(1, 41):
        fn(_x(n)).backward()
    before = fn.cache_info()
    assert (before.misses, before.entries) == (40, 12)
    fn(_x(40)).backward()
    assert fn.cache_info().misses == 40, "the one that was used last is there"
    x = _x(1)
    fn(x).backward()
    assert x.grad is not None and x.grad.tolist() == [2.0]
    after = fn.cache_info()
    assert (after.misses, after.entries, after.backward_runs) == (41, 12, 42)


def test_the_third_trace_for_one_place_is_told(limit: Callable[[str, int], None]) -> None:
    limit("state_traces", 4)
    limit("shapes", 2)
    mode = {"name": "a"}
    fn = differentiate(lambda x: (x * len(mode["name"])).sum())
    with told() as seen:
        for n in range(1, 8):
            mode["name"] = "a" * n
            assert fn(_x()).item() == 6.0 * n
            assert (len(seen) == 0) == (n < 3)
    assert [w.category for w in seen] == [RetraceWarning, EagerWarning]
    text = str(seen[0].message)
    assert "3 times" in text and "mode.name was 'aa' and is 'aaa'" in text
    assert "limits.state_traces" in str(seen[1].message)
    assert fn.cache_info().eager_runs == 3, "after so many it runs eagerly"


def test_a_defect_of_our_own_is_told_from_what_cannot_be_traced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from gradof.tracer.torch.recorder import Recorder

    def broken(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.no_such_thing

    ours = FunctionType(broken.__code__, {"__name__": "gradof.tracer.broken"})
    monkeypatch.setattr(Recorder, "record", ours)
    with pytest.warns(EagerWarning, match="a defect of gradof's, at gradof.tracer.broken:"):
        value = gradof.differentiate(lambda x: x.sin().sum())(torch.ones(3))
    torch.testing.assert_close(value, torch.ones(3).sin().sum())


def test_a_retrace_warning_that_is_an_error_reaches_the_user(
    limit: Callable[[str, int], None],
) -> None:
    limit("shapes", 1)
    fn = gradof.differentiate(lambda x: x.sin().sum())
    fn(torch.ones(3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RetraceWarning, match="1 shapes"):
            fn(torch.ones(4))


def test_warnings_are_at_the_users_line(limit: Callable[[str, int], None]) -> None:
    limit("shapes", 1)
    fn = gradof.differentiate(lambda x: x.sin().sum())
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for n in (3, 4):
            fn(torch.ones(n))
        gradof.differentiate(lambda x: x * len(np.asarray(x)))(torch.ones(3))
    assert [w.category for w in seen] == [RetraceWarning, EagerWarning]
    assert {w.filename for w in seen} == {__file__}


def test_a_weak_reference_with_a_callback_is_made_as_in_eager() -> None:
    kept = SimpleNamespace(value=None, seen=None)

    def fn(x: torch.Tensor) -> Any:
        kept.value = x * 2
        kept.seen = weakref.ref(kept.value, lambda _: None)
        return kept.value.sum()

    compiled = differentiate(fn)
    with told() as seen:
        for _ in range(3):
            compiled(_x())
            assert kept.seen() is kept.value and kept.seen.__callback__ is not None
    assert [w.category for w in seen] == [EagerWarning]


def test_a_call_that_the_program_itself_refuses_says_nothing_of_the_next() -> None:
    def huber(x: torch.Tensor) -> torch.Tensor:
        assert bool(torch.all(x >= 0)), "input has to be non-negative"
        return torch.where(x < 1, x, 2 * x.sqrt() - 1)

    compiled = gradof.differentiate(huber)
    good, bad = torch.rand(4, requires_grad=True), torch.tensor([-1.0, 2.0, 3.0, 4.0])
    for x in (bad, good, bad, good, bad, bad, bad, good):
        if x is bad:
            with pytest.raises(AssertionError, match="non-negative"):
                compiled(x)
        else:
            torch.testing.assert_close(compiled(x), huber(x))
    info = compiled.cache_info()
    assert info.entries == 1 and info.forward_runs == 3 and info.misses <= 5


def test_what_is_known_to_fail_is_told_with_its_own_line() -> None:
    def positive(x: torch.Tensor) -> torch.Tensor:
        assert bool(torch.all(x >= 0)), "input has to be non-negative"
        return x.sqrt()

    compiled = gradof.differentiate(positive)
    for _ in range(4):
        with pytest.raises(AssertionError):
            compiled(torch.tensor([-1.0, 2.0]))
    with pytest.warns(EagerWarning, match="AssertionError: input has to be") as caught:
        compiled(torch.tensor([1.0, 2.0]))
    text = str(caught[0].message)
    assert "defect" not in text and f"test_eager.py:{positive.__code__.co_firstlineno + 1}" in text
