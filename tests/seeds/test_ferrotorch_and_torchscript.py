"""What ferrotorch's engine and TorchScript's autodiff got wrong: seeds, hooks, leaves, bounds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as nnf

import gradof
from gradof.errors import GradofError
from tests.seeds.compare import normal, positive, same, whole

Tensors = Tensor | tuple[Tensor, ...]
BOUNDS = torch.tensor([-1.0, -0.5, 0.0, 0.5, 1.0, 2.0], dtype=torch.float64)


# --- ferrotorch ----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_F1_an_error_in_one_backward_leaves_the_others_running() -> None:
    f = gradof.differentiate(lambda x: (x * x).exp())
    slopes: dict[int, Tensor] = {}

    def work(n: int) -> None:
        x = torch.full((3,), 0.1 * n, dtype=torch.float64, requires_grad=True)
        y = f(x)
        if n % 2:
            with pytest.raises(RuntimeError):
                torch.autograd.grad(y, x, torch.ones(4, dtype=x.dtype))
        else:
            (slopes[n],) = torch.autograd.grad(y, x, torch.ones_like(y))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert not any(thread.is_alive() for thread in threads)
    assert sorted(slopes) == [0, 2, 4, 6]


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_F2_the_seed_has_the_shape_of_a_root_of_one_element(shape: tuple[int, ...]) -> None:
    x = torch.ones(shape, dtype=torch.float64, requires_grad=True)
    gradof.differentiate(lambda x: x * 3)(x).backward()
    assert x.grad is not None and x.grad.shape == shape and x.grad.sum() == 3
    pullback: Any = gradof.vjp(lambda a: a * 3, np.ones(shape))[1]
    assert np.shape(pullback(np.ones(shape))[0]) == shape


def test_F3_a_hook_sees_the_total_once() -> None:
    x = normal(3).requires_grad_()
    y = x * 2
    seen: list[Tensor] = []
    y.register_hook(seen.append)  # type: ignore[no-untyped-call]
    gradof.differentiate(lambda y: (y.sin() + y * y + y.exp()).sum())(y).backward()
    assert len(seen) == 1
    torch.testing.assert_close(seen[0], (y.cos() + 2 * y + y.exp()).detach())


def test_F4_a_root_that_is_a_leaf_gets_its_gradient() -> None:
    x = torch.ones(1, dtype=torch.float64, requires_grad=True)
    gradof.differentiate(lambda x: x)(x).backward()
    assert x.grad is not None and x.grad.item() == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_F5_accumulation_keeps_the_dtype(dtype: torch.dtype) -> None:
    x = torch.tensor([0.5, 1.5], dtype=dtype, requires_grad=True)
    f = gradof.differentiate(lambda x: (x * x + x * 3 + x).sum())
    f(x).backward()
    f(x).backward()
    assert x.grad is not None and x.grad.dtype == dtype
    assert x.grad.tolist() == [10.0, 14.0]


def test_F6_a_second_backward_and_a_changed_capture_are_refused() -> None:
    f = gradof.differentiate(lambda x, w: (x * w).exp().sum())
    x, w = normal(3).requires_grad_(), normal(3)
    y = f(x, w)
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()
    y = f(x, w)
    w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_relu_backward_is_masked() -> None:
    same(lambda x: torch.relu(x) * x, normal(4, 3))
    x = torch.tensor([-1.0, 2.0], requires_grad=True)
    gradof.differentiate(lambda x: torch.relu(x).sum())(x).backward()
    assert x.grad is not None and x.grad.tolist() == [0.0, 1.0]


# --- TorchScript ---------------------------------------------------------------------------------


def test_T1_clamp_with_one_bound_or_none() -> None:
    same(lambda x: x.clamp(min=0.1) * x, normal(4, 3))
    same(lambda x: x.clamp(max=0.1) * x, normal(4, 3))
    with pytest.raises(RuntimeError, match="At least one of 'min' or 'max'"):
        gradof.differentiate(lambda x: x.clamp(None, None))(normal(3).requires_grad_())


def test_T2_clamp_at_its_bounds() -> None:
    same(lambda x: x.clamp(-0.5, 0.5), BOUNDS, order=1)
    same(lambda x: nnf.hardtanh(x, -0.5, 0.5), BOUNDS, order=1)
    same(nnf.relu6, BOUNDS * 3, order=1)


def test_T3_maximum_at_ties() -> None:
    same(torch.maximum, BOUNDS, BOUNDS.abs())
    same(torch.minimum, BOUNDS, BOUNDS.abs())
    same(lambda x, y: torch.max(x, y) * torch.min(x, y), BOUNDS, BOUNDS.abs())


def test_T4_threshold_at_the_threshold() -> None:
    same(lambda x: nnf.threshold(x, 0.5, 9.0), BOUNDS, order=1)
    x = torch.tensor([0.5], requires_grad=True)
    gradof.differentiate(lambda x: nnf.threshold(x, 0.5, 9.0))(x).backward()
    assert x.grad is not None and x.grad.item() == 0


def test_T5_chunks_that_nobody_uses() -> None:
    same(lambda x: x.chunk(3, 1)[1] ** 2, normal(4, 5))
    same(lambda x: x.split([1, 2, 1])[2] ** 2, normal(4, 5))
    x = normal(4, 3).requires_grad_()
    parts = gradof.differentiate(lambda x: (x * x).unbind(1))(x)
    (slope,) = torch.autograd.grad(parts[1].sum(), x)
    assert torch.equal(slope, 2 * x.detach() * torch.tensor([0.0, 1.0, 0.0]))


T6: dict[str, tuple[Callable[..., Tensors], tuple[Any, ...], int]] = {
    "pow with base zero": (torch.pow, (BOUNDS.clamp(min=0), BOUNDS + 2), 1),
    "clamp by tensors": (torch.clamp, (normal(4, 3), -positive(4, 3), positive(4, 3)), 1),
    "lerp weight": (torch.lerp, (normal(4, 3), positive(4, 3), normal(3)), 2),
    "mean over no dims": (lambda x: x.mean(dim=[]) ** 2, (normal(4, 3),), 2),
    "sum over no dims": (lambda x: x.sum(dim=[]) ** 2, (normal(4, 3),), 2),
    "dropout while evaluating": (lambda x: nnf.dropout(x, 0.5, False) * x, (normal(4, 3),), 2),
}


@pytest.mark.parametrize("name", T6)
def test_T6_gradients_torchscript_left_out(name: str) -> None:
    fn, args, order = T6[name]
    same(fn, *args, order=order)


def test_T7_several_differentiable_outputs_of_one_op() -> None:
    same(lambda x: torch.var_mean(x, 1), normal(4, 3))
    same(lambda x: x.unbind(1), normal(4, 3))
    same(lambda x: [(a * a) for a in torch.std_mean(x, 0)], normal(4, 3))
    same(lambda x: torch.linalg.slogdet(x @ x.mT + torch.eye(3, dtype=x.dtype))[1], normal(3, 3))


def test_T8_integers_are_passed_over_and_not_refused() -> None:
    same(lambda x, i: x * i + x[i[:2, 0]].sum(), normal(4, 3), whole(3, 4, 3))
    same(lambda x, n: x * n + n, normal(4, 3), 3)


REPORTED: dict[str, tuple[Callable[..., Tensors], tuple[Any, ...]]] = {
    "x - mean(x)": (lambda x: x - x.mean(1, keepdim=True), (normal(4, 3),)),
    "sum to size of a sum": (lambda x, b: (x + b) + (x * b), (normal(4, 3), normal(1, 3))),
    "view of an output": (lambda x: ((x * x).view(-1)[2:8], x * x), (normal(4, 3),)),
    "a tuple of one value twice": (lambda x: (x.exp(), x.exp()), (normal(4, 3),)),
    "layer norm, twice": (lambda x, w, b: nnf.layer_norm(x, (3,), w, b),
                          (normal(4, 3), normal(3), normal(3))),
    "cat of a list": (lambda x, y: torch.cat([x, y, x * y]) ** 2, (normal(4, 3), positive(4, 3))),
}  # fmt: skip


@pytest.mark.parametrize("name", REPORTED)
def test_gradients_reported_wrong(name: str) -> None:
    fn, args = REPORTED[name]
    same(fn, *args)


def test_no_gradient_is_computed_for_what_needs_none() -> None:
    f = gradof.differentiate(lambda x, w: torch.tanh(x @ w))
    x, w = normal(4, 3), normal(3, 2).requires_grad_()
    y = f(x, w)
    y.sum().backward()
    assert x.grad is None and w.grad is not None
    assert not f(x, w.detach()).requires_grad
    assert issubclass(GradofError, Exception)
