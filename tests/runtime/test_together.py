"""Value and gradients in one run of a torch caller's loss (Note [Together])."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import gradof
from gradof.runtime.function import Differentiated
from gradof.runtime.joint import ENOUGH, IDLE, TOO_MANY
from gradof.runtime.plan import GradientPlan

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def rms(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w).square().mean()


def picked(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    target = torch.arange(len(x)) % x.shape[1]
    return torch.nn.functional.cross_entropy(x * w, target)


def biased(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """Not lean: no gradient reads w."""
    return (x.tanh() * x.square().mean() + w).mean()


def noisy(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return (torch.nn.functional.dropout(x, 0.5) * w).sum()


LOSSES = pytest.mark.parametrize("loss", [rms, biased])


def arguments(rows: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(rows)
    return [
        torch.randn(rows, 32, generator=generator, dtype=dtype).requires_grad_(),
        torch.randn(32, generator=generator, dtype=dtype).requires_grad_(),
    ]


def the_plan(fn: Differentiated) -> GradientPlan:
    ((_, plan),) = fn.plans()[0].gradients.items()
    return plan


def warm(fn: Differentiated, given: list[torch.Tensor], scale: float = 1.0) -> None:
    """As many backwards as it takes to run both together from then on."""
    for _ in range(ENOUGH):
        (fn(*given) * scale).backward()
    begun = the_plan(fn).together.begun
    assert begun is not None and begun[0] == scale
    for t in given:
        t.grad = None


def gradients(fn: Callable[..., Any], given: list[torch.Tensor], scale: float = 1.0) -> list[Any]:
    value = fn(*given)
    return [value.detach(), *torch.autograd.grad(value * scale, given)]


@pytest.mark.parametrize("loss", [rms, picked, biased, noisy])
@pytest.mark.parametrize("rows", [4, 2048])
@pytest.mark.parametrize("scale", [1.0, 1024.0])
def test_the_same_bits_as_apart(loss: Loss, rows: int, scale: float) -> None:
    apart, together = gradof.differentiate(loss), gradof.differentiate(loss)
    given = arguments(rows)
    warm(together, given, scale)
    torch.manual_seed(3)
    found = gradients(together, given, scale)
    torch.manual_seed(3)
    expected = gradients(apart, given, scale)
    assert all(map(torch.equal, found, expected))
    assert the_plan(apart).together.begun is None  # the first of its backwards


def test_both_are_counted_and_nothing_runs_in_the_backward() -> None:
    fn, given = gradof.differentiate(rms), arguments(2048)
    warm(fn, given)
    value = fn(*given)
    executable = the_plan(fn).together.plan().executable
    before = fn.cache_info()
    (df,) = the_plan(fn).dfs.values()
    df.plan.executable.function = executable.function = None
    torch.autograd.backward(value)
    assert fn.cache_info().backward_runs == before.backward_runs + 1
    reference = arguments(2048)
    torch.autograd.backward(rms(*reference))
    for mine, eager in zip(given, reference, strict=True):
        torch.testing.assert_close(mine.grad, eager.grad)


@LOSSES
def test_another_cotangent_runs_df(loss: Loss) -> None:
    fn, given = gradof.differentiate(loss), arguments(8)
    warm(fn, given)
    reference = arguments(8)
    (3.0 * fn(*given)).backward()
    torch.autograd.backward(3.0 * loss(*reference))
    for mine, eager in zip(given, reference, strict=True):
        torch.testing.assert_close(mine.grad, eager.grad)
    assert the_plan(fn).together.begun is None


@LOSSES
def test_a_second_backward_of_one_graph_runs_df(loss: Loss) -> None:
    fn, given = gradof.differentiate(loss), arguments(8)
    warm(fn, given)
    value = fn(*given)
    first = torch.autograd.grad(value, given, retain_graph=True)
    first[0].zero_()  # the caller's own
    again = torch.autograd.grad(value, given)
    expected = torch.autograd.grad(loss(*given), given)
    for found, eager in zip(again, expected, strict=True):
        torch.testing.assert_close(found, eager)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(value, given)


@LOSSES
def test_second_derivatives_run_df(loss: Loss) -> None:
    fn, given = gradof.differentiate(loss), arguments(8, torch.float64)
    warm(fn, given)

    def twice(f: Callable[..., Any]) -> tuple[torch.Tensor, ...]:
        first = torch.autograd.grad(f(*given), given, create_graph=True)
        total = torch.stack([g.square().sum() for g in first]).sum()
        return torch.autograd.grad(total, given, materialize_grads=True)

    for found, eager in zip(twice(fn), twice(loss), strict=True):
        torch.testing.assert_close(found, eager)


def test_tensors_changed_meanwhile_are_an_error_as_in_eager() -> None:
    fn, given = gradof.differentiate(rms), arguments(8)
    warm(fn, given)
    value = fn(*given)
    with torch.no_grad():
        given[1].mul_(2.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        value.backward()


def test_an_input_that_no_gradient_reads_may_change() -> None:
    fn, given = gradof.differentiate(biased), arguments(8)
    warm(fn, given)
    values = fn(*given), biased(*given)
    with torch.no_grad():
        given[1].zero_()
    for found, eager in zip(*(torch.autograd.grad(2.0 * v, given) for v in values), strict=True):
        torch.testing.assert_close(found, eager)


def test_lean_plans_save_inputs_alone() -> None:
    for loss, lean in ((rms, True), (picked, True), (biased, False), (noisy, False)):
        fn, given = gradof.differentiate(loss), arguments(8)
        warm(fn, given)
        together = the_plan(fn).together
        assert together.is_lean is lean, loss
        outputs = 1 if lean else the_plan(fn).outputs
        assert len(together.plan().graph.outputs) == outputs + len(given)


def test_a_checkpoint_saves_as_much_when_it_runs_again() -> None:
    """The habit begins between the forward of a checkpointed part and its second run."""
    fn, given = gradof.differentiate(rms), arguments(8)

    def part(f: Loss, x: torch.Tensor) -> torch.Tensor:
        out = checkpoint(lambda t: t * f(t, given[1]), x, use_reentrant=False)
        assert isinstance(out, torch.Tensor)
        return out

    def loss(f: Loss) -> torch.Tensor:
        x = given[0]
        for _ in range(2 * ENOUGH):
            x = part(f, x) * 0.0 + given[0]
            x = x + f(given[0], given[1])
        return x.sum()

    for _ in range(2 * ENOUGH):
        found = torch.autograd.grad(fn(*given) + 1e-3 * loss(fn), given)
        expected = torch.autograd.grad(rms(*given) + 1e-3 * loss(rms), given)
        for mine, eager in zip(found, expected, strict=True):
            torch.testing.assert_close(mine, eager)
        for _ in range(ENOUGH):
            fn(*given).backward()


def test_who_wants_some_gradients_only_is_not_run_so() -> None:
    fn, given = gradof.differentiate(rms), arguments(2048)
    for _ in range(2 * ENOUGH):
        torch.autograd.grad(fn(*given), given[1:])
    assert the_plan(fn).together.begun is None


def test_a_value_without_a_backward_costs_no_result() -> None:
    fn, given = gradof.differentiate(rms), arguments(8)
    warm(fn, given)
    with torch.no_grad():
        quiet = fn(*given)
    torch.testing.assert_close(quiet, rms(*given).detach())
    torch.testing.assert_close(fn(*given).detach(), quiet)


@LOSSES
def test_values_whose_gradients_nobody_wants_end_the_habit(loss: Loss) -> None:
    fn, given = gradof.differentiate(loss), arguments(8)
    warm(fn, given)
    for _ in range(IDLE - 1):
        fn(*given)
    fn(*given).backward()
    assert the_plan(fn).together.begun is None
    warm(fn, given)
    for _ in range(2 * IDLE):
        fn(*given).backward()
    assert the_plan(fn).together.begun is not None


def test_after_too_many_misses_f_runs_alone_for_good() -> None:
    fn, given = gradof.differentiate(rms), arguments(8)
    for k in range(TOO_MANY):
        warm(fn, given)
        (float(k + 2) * fn(*given)).backward()
    for _ in range(2 * ENOUGH):
        fn(*given).backward()
    assert the_plan(fn).together.begun is None


def several(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.sum() * w.sum(), (x * w).sum()


def vector(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x * w


@pytest.mark.parametrize("fn", [several, vector])
def test_only_a_single_number_is_run_so(fn: Callable[..., Any]) -> None:
    compiled, given = gradof.differentiate(fn), arguments(8)
    for _ in range(2 * ENOUGH):
        out = compiled(*given)
        whole = out.sum() if isinstance(out, torch.Tensor) else sum(o for o in out)
        whole.backward()
    assert the_plan(compiled).together.begun is None


def test_explain_says_so() -> None:
    fn, given = gradof.differentiate(rms), arguments(8)
    assert "one run" not in str(fn.explain(*given))
    warm(fn, given)
    assert "value and gradients are one run" in str(fn.explain(*given))
