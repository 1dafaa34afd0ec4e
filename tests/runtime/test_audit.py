"""`audit=`: calls of a program are held to eager while it runs, and nothing else of it changes."""

from __future__ import annotations

import random
import time
import warnings
from typing import Any

import numpy as np
import pytest
import torch

import gradof
from gradof.errors import AuditWarning, InputError
from gradof.ops.expr import Expr
from gradof.ops.registry import get_op


def loss(x: Any, w: Any) -> Any:
    h = x @ w
    return torch.tanh(h).square().mean()


def _arguments() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(5, 4, generator=generator)
    return x, torch.randn(4, 3, generator=generator).requires_grad_()


def test_the_first_op_that_differs_is_named_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(g: Expr, y: Expr) -> Expr:
        return g * (1.0 - y)

    monkeypatch.setitem(get_op("tanh").vjp, "x", wrong)
    step = gradof.differentiate(loss, audit=1.0)
    line = loss.__code__.co_firstlineno + 2
    with pytest.warns(AuditWarning, match=rf"(?s)tanh.*test_audit\.py:{line}"):
        step(*_arguments()).backward()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step(*_arguments())  # the same mistake is said once
    assert step.audit_info()[:4] == (2, 2, 0, 2)


def test_a_module_trains_as_without_and_is_right() -> None:
    ran = []
    for audit in (0.0, 1.0):
        torch.manual_seed(3)
        net = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.2),
            torch.nn.Linear(8, 1),
        )  # fmt: skip
        model = gradof.differentiate(net, audit=audit)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        data = torch.randn(16, 4)
        for _ in range(3):
            optimizer.zero_grad()
            model(data).square().mean().backward()
            optimizer.step()
        ran.append([t.clone() for t in net.state_dict().values()] + [torch.get_rng_state()])
        info = model.audit_info()
        assert (info is None) if not audit else info[:4] == (3, 3, 0, 0), info
    assert all(torch.equal(a, b) for a, b in zip(*ran, strict=True))


def test_it_costs_its_share_at_most() -> None:
    step = gradof.differentiate(loss, audit=0.05)
    arguments = _arguments()
    start = time.perf_counter()
    longest = 0.0
    for _ in range(400):
        before = step.audit_info().seconds
        step(*arguments).backward()
        longest = max(longest, step.audit_info().seconds - before)
    info = step.audit_info()
    assert 1 <= info.checked <= 20 and info.wrong == 0
    assert info.seconds <= 0.05 * (time.perf_counter() - start) + longest


def test_numpy_is_checked_through_its_gradient() -> None:
    compiled = gradof.differentiate(lambda x: np.sum(np.sin(x) ** 2), audit=1.0)
    x = np.array([0.3, -1.0])
    np.testing.assert_allclose(gradof.grad(compiled)(x), np.sin(2 * x))
    assert compiled.audit_info()[:4] == (1, 1, 0, 0)


class _Counter:
    calls = 0


def test_what_cannot_run_again_unseen_is_skipped_and_counted() -> None:
    counter = _Counter()

    def counting(x: Any) -> Any:
        counter.calls += 1
        return (x * x).sum()

    step = gradof.differentiate(counting, audit=1.0)
    x = torch.ones(3, requires_grad=True)
    for _ in range(2):
        step(x)
    assert counter.calls == 2
    info = step.audit_info()
    assert info.skipped == 2 and info.reason == "the function writes to Python state"
    seen: list[Any] = []
    x.register_hook(seen.append)  # type: ignore[no-untyped-call]  # torch's own
    plain = gradof.differentiate(lambda x: (x * x).sum(), audit=1.0)
    plain(x)
    with torch.no_grad():
        plain(x)
    assert not seen and plain.audit_info().skipped == 2


@pytest.mark.filterwarnings("ignore::gradof.errors.EagerWarning")
def test_what_runs_eagerly_is_skipped_and_runs() -> None:
    counts = iter(range(9))

    def taking(x: Any) -> Any:
        return (x * next(counts)).sum()

    step = gradof.differentiate(taking, audit=1.0)
    x = torch.ones(3, requires_grad=True)
    assert [step(x).item() for _ in range(3)] == [0.0, 3.0, 6.0]
    info = step.audit_info()
    assert info.skipped == 3 and "next() is called" in info.reason


def test_an_error_of_the_functions_own_comes_from_the_call() -> None:
    done: list[int] = []

    def failing(x: Any) -> Any:
        done.append(1)
        raise ValueError("asked for")

    step = gradof.differentiate(failing, audit=1.0)
    with pytest.raises(ValueError, match="asked for"):
        step(torch.ones(3, requires_grad=True))
    assert done == [1] and step.audit_info().skipped == 1


def test_draws_of_pythons_and_numpys_are_not_made_again() -> None:
    def noisy(x: Any) -> Any:
        return (x * (float(np.random.rand()) + random.random())).sum()

    function: Any
    found = []
    for function in (noisy, gradof.differentiate(noisy, audit=1.0)):
        np.random.seed(0)
        random.seed(0)
        found.append([function(torch.ones(3, requires_grad=True)).item() for _ in range(4)])
    np.testing.assert_allclose(found[1], found[0])
    assert "generators" in function.audit_info().reason


@pytest.mark.parametrize("share", [-0.1, 1.5, "all", None, True])
def test_a_share_is_a_number_from_0_to_1(share: Any) -> None:
    with pytest.raises(InputError, match="audit is"):
        gradof.differentiate(loss, audit=share)
