"""A compiled function is a citizen of torch's autograd: modes, hooks, optimisers, its errors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from gradof import differentiate
from tests.runtime.compare import close
from tests.runtime.test_torch_values import leaf


def product(x: Tensor, w: Tensor) -> Tensor:
    return torch.tanh(x @ w).sum()


@pytest.mark.parametrize("wanted", [(True, False), (False, True), (True, True)])
def test_only_wanted_gradients_are_computed(wanted: tuple[bool, bool]) -> None:
    compiled = differentiate(lambda x, w: torch.tanh(x @ w))
    leaves = leaf(4, 3), leaf(3, 2)
    args = tuple(t.detach().requires_grad_(w) for t, w in zip(leaves, wanted, strict=True))
    compiled(*args).sum().backward()
    torch.tanh(args[0] @ args[1]).sum().backward()  # type: ignore[no-untyped-call]
    for arg, flag in zip(args, wanted, strict=True):
        assert (arg.grad is not None) == flag
    plan = compiled.bind(args, {}).entry.plan.gradients[wanted]
    assert len(plan.gradient.df_input_captured_inputs) == sum(wanted)
    ((_, special),) = plan.dfs.items()
    assert [n.kind for n in special.plan.prepared.nodes()].count("mm") == sum(wanted)
    assert compiled.cache_info().backward_runs == 1


def test_inputs_without_requires_grad_are_not_differentiated() -> None:
    compiled = differentiate(product)
    x, w = leaf(4, 3).detach(), leaf(3, 2)
    compiled(x, w).backward()
    assert compiled.gradient(x, w).df_output_vjps == [1]
    assert x.grad is None
    assert w.grad is not None


def test_no_gradient_wanted_at_all() -> None:
    compiled = differentiate(product)
    out = compiled(leaf(4, 3).detach(), leaf(3, 2).detach())
    assert not out.requires_grad
    assert not compiled.bind((leaf(4, 3).detach(), leaf(3, 2).detach()), {}).entry.plan.gradients


def test_second_backward_is_torchs_own_error() -> None:
    out = differentiate(product)(leaf(4, 3), leaf(3, 2))
    out.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        out.backward()


def test_retain_graph_accumulates() -> None:
    x, w = leaf(4, 3), leaf(3, 2)
    out = differentiate(product)(x, w)
    out.backward(retain_graph=True)
    once = w.grad.clone()  # type: ignore[union-attr]
    out.backward()
    close(w.grad, 2 * once)


@pytest.mark.parametrize("which", [0, 1])
def test_changing_a_saved_input_is_torchs_own_error(which: int) -> None:
    args = leaf(4, 3), leaf(3, 2)
    out = differentiate(product)(*args)
    with torch.no_grad():
        args[which].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()


def test_changing_a_saved_output_is_torchs_own_error() -> None:
    out = differentiate(lambda x: x.exp())(leaf(3))
    with torch.no_grad():
        out.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_changing_what_was_not_saved_is_fine() -> None:
    x = leaf(3)
    out = differentiate(lambda a: a.exp())(x)  # saves its output, not its input
    with torch.no_grad():
        x.zero_()
    out.sum().backward()
    close(x.grad, out.detach())


def test_hooks_on_inputs_and_outputs() -> None:
    seen: list[str] = []
    x = leaf(3)
    x.register_hook(lambda g: seen.append("input"))  # type: ignore[no-untyped-call]
    out = differentiate(lambda a: (a * a).sum())(x)
    out.register_hook(lambda g: seen.append("output"))
    out.backward()
    assert seen == ["output", "input"]
    doubled = leaf(3)
    doubled.register_hook(lambda g: 2 * g)  # type: ignore[no-untyped-call]
    differentiate(lambda a: (a * a).sum())(doubled).backward()
    close(doubled.grad, 4 * doubled.detach())


def test_optimiser_steps_as_in_eager() -> None:
    def train(fn: Any) -> Tensor:
        w = leaf(3, 2)
        optimiser = torch.optim.Adam([w], lr=0.1)
        for _ in range(5):
            optimiser.zero_grad()
            fn(leaf(4, 3).detach(), w).backward()
            optimiser.step()
        return w.detach()

    compiled = differentiate(product)
    close(train(compiled), train(product))
    assert compiled.cache_info()[:2] == (4, 1)
    assert compiled.cache_info().backward_runs == 5


def test_no_grad() -> None:
    compiled = differentiate(product)
    x, w = leaf(4, 3), leaf(3, 2)
    with torch.no_grad():
        out = compiled(x, w)
    assert not out.requires_grad
    close(out, product(x, w).detach())
    assert compiled(x, w).requires_grad


def test_inference_mode() -> None:
    compiled = differentiate(product)
    x, w = leaf(4, 3), leaf(3, 2)
    with torch.inference_mode():
        out = compiled(x, w)
        assert out.is_inference()
        assert compiled(x * 1, w).is_inference()
    close(out.clone(), product(x, w).detach())
    assert compiled(x, w).requires_grad


def test_inference_mode_that_turns_gradients_on() -> None:
    """Nothing is recorded there, so that tensors made in it can be used."""
    compiled = differentiate(lambda x, t: (x * t.sin()).exp())
    with torch.inference_mode(), torch.enable_grad():
        x, t = torch.randn(3, requires_grad=True), torch.randn(3)
        result = compiled(x, t)
    close(result.clone(), (x * t.sin()).exp().clone())
    assert not result.requires_grad and result.is_inference()


def test_no_grad_inside_the_function() -> None:
    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            scale = x.abs().max()
        return (x / scale).sum(), scale

    x = leaf(3)
    got, scale = differentiate(fn)(x)
    want, _ = fn(x)
    assert not scale.requires_grad
    close(torch.autograd.grad(got, x)[0], torch.autograd.grad(want, x)[0])


def test_detach_inside_the_function() -> None:
    x = leaf(3)

    def fn(a: Tensor) -> Tensor:
        return (a.detach() * a).sum()

    (got,) = torch.autograd.grad(differentiate(fn)(x), x)
    close(got, x.detach())


def test_mixed_with_eager_on_both_sides() -> None:
    def body(a: Tensor) -> Tensor:
        return a.sin() * a

    def whole(fn: Any, x: Tensor) -> Tensor:
        out: Tensor = fn(x.exp()).cos().sum()
        return out

    x = leaf(3)
    (want,) = torch.autograd.grad(whole(body, x), x)
    (got,) = torch.autograd.grad(whole(differentiate(body), x), x)
    close(got, want)


def test_gradcheck_and_gradgradcheck() -> None:
    compiled = differentiate(lambda x, w: torch.tanh(x @ w) * x.sum())
    inputs = leaf(2, 3), leaf(3, 2)
    assert torch.autograd.gradcheck(compiled, inputs)
    assert torch.autograd.gradgradcheck(compiled, inputs)


def test_write_back_to_an_argument() -> None:
    def fn(x: Tensor, counts: Tensor) -> Tensor:
        counts.add_(x.detach().abs())
        return (x * counts).sum()

    x, ours, theirs = leaf(3), torch.zeros(3).double(), torch.zeros(3).double()
    compiled = differentiate(fn)
    for _ in range(3):
        (got,) = torch.autograd.grad(compiled(x, ours), x)
        (want,) = torch.autograd.grad(fn(x, theirs), x)
        close(got, want)
        close(ours, theirs)
    assert not ours.requires_grad
    assert compiled.cache_info()[:2] == (2, 1)


def test_write_back_to_a_non_leaf() -> None:
    def fn(x: Tensor) -> Tensor:
        x.mul_(2)
        return x.sin().sum()

    def whole(body: Any) -> tuple[Tensor, Tensor]:
        base = leaf(3)
        x = base * 1
        (body(x) + x.square().sum()).backward()
        assert base.grad is not None
        return x.detach(), base.grad

    for got, want in zip(whole(differentiate(fn)), whole(fn), strict=True):
        close(got, want)


def test_write_back_that_gains_a_history() -> None:
    def fn(x: Tensor, out: Tensor) -> None:
        out.copy_(x.sin())

    def whole(body: Any) -> tuple[Tensor, Tensor | None]:
        x, out = leaf(3), torch.zeros(3, dtype=torch.float64)
        body(x, out)
        assert out.requires_grad
        out.sum().backward()  # type: ignore[no-untyped-call]
        return out.detach(), x.grad

    for got, want in zip(whole(differentiate(fn)), whole(fn), strict=True):
        close(got, want)


def test_products_with_a_hessian_of_gradients_that_are_constant() -> None:
    """That of a bias of a sum: as in eager, whose convolutions and norms give all of theirs."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(2, 3, 3), torch.nn.GroupNorm(1, 3), torch.nn.Flatten(),
        torch.nn.LayerNorm(48),
    ).double()  # fmt: skip
    x, params = torch.randn(4, 2, 6, 6, dtype=torch.float64), list(net.parameters())

    def products(loss: Any) -> list[torch.Tensor | None]:
        gradients = torch.autograd.grad(loss(x), params, create_graph=True)
        assert all(g.requires_grad for g in gradients)
        ones = [torch.ones_like(g) for g in gradients]
        return list(torch.autograd.grad(gradients, params, ones, allow_unused=True))

    scale = torch.randn(4, 48, dtype=torch.float64)
    compiled = differentiate(lambda x: (net(x) * scale).sum())
    for _ in range(3):
        theirs = products(lambda x: (net(x) * scale).sum())
        for have, want in zip(products(compiled), theirs, strict=True):
            assert (have is None) == (want is None)
            if have is not None:
                torch.testing.assert_close(have, want, rtol=1e-9, atol=1e-9)
    assert theirs[-1] is None and theirs[-2] is not None
