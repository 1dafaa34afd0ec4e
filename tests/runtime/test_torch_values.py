"""Gradients through torch's autograd equal eager's, whatever the inputs and outputs look like."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from gradof import differentiate
from tests.runtime.compare import check, close, grad_nodes


def leaf(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()


def test_shared_subexpressions() -> None:
    def fn(x: Tensor) -> Tensor:
        h = torch.tanh(x)
        return (h * h + torch.exp(h) * h).sum() + (h - x).pow(2).mean()

    check(fn, leaf(4, 3), order=2)


def test_broadcast_at_an_intermediate() -> None:
    def fn(x: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return torch.sin(x * b.exp() + c.tanh().unsqueeze(-1)) * c.sum()

    check(fn, leaf(2, 4, 3), leaf(3), leaf(4), order=2)


def test_unused_input_has_no_gradient() -> None:
    compiled = check(lambda x, unused: x.sin().sum(), leaf(3), leaf(2))
    assert compiled.gradient(leaf(3), leaf(2)).df_output_vjps == [0]


def test_unused_computation() -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        _ = y.exp()
        return x.sin()

    check(fn, leaf(3), leaf(3))


@pytest.mark.parametrize("skip", [(), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2)])
def test_several_outputs_some_not_in_the_loss(skip: tuple[int, ...]) -> None:
    def fn(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        h = torch.tanh(x * 2)
        return h * y, h.sum(), y.exp()

    check(fn, leaf(3), leaf(3), order=2, skip=skip)


def test_undefined_cotangents_are_not_computed() -> None:
    compiled = differentiate(lambda x, y: (x.sin(), (y.exp() * y).sum()))
    x, y = leaf(3), leaf(3)
    first, _ = compiled(x, y)
    first.sum().backward()
    assert y.grad is None
    close(x.grad, x.detach().cos())
    plans = compiled.bind((x, y), {}).entry.plan.gradients[True, True].dfs
    (special,) = plans.values()
    kinds = {n.kind for n in special.plan.prepared.nodes()}
    assert kinds == {"mul", "cos"}, kinds
    assert special.outputs == (0,)


def test_repeated_input() -> None:
    x = leaf(3)
    check(lambda a, b: (a * b.sin()).sum(), x, x, order=2)


def test_repeated_output() -> None:
    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        y = x.exp()
        return y, y

    check(fn, leaf(3), order=2)
    first, second = differentiate(fn)(leaf(3))
    assert first is second


def test_output_that_is_an_input() -> None:
    x, y = leaf(3), leaf(3, seed=1)
    compiled = check(lambda a, b: (a, a * b), x, y, skip=(0,), own=False)
    assert compiled(x, y)[0] is x


def test_output_that_is_a_view_of_an_input() -> None:
    x = leaf(2, 3)
    out = differentiate(lambda a: (a.t(), a.sum()))(x)[0]
    with torch.no_grad():
        out.zero_()
    assert (x == 0).all()  # the same memory, as in eager
    check(lambda a: (a.t(), a.sum()), leaf(2, 3))


def test_integer_output_beside_a_float_one() -> None:
    def fn(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return x.argmax(1), x.exp().sum(1), x > 0

    index, total, mask = differentiate(fn)(leaf(4, 3))
    assert index.dtype == torch.int64
    assert mask.dtype == torch.bool
    assert [t.requires_grad for t in (index, total, mask)] == [False, True, False]
    check(fn, leaf(4, 3))


def test_integer_input() -> None:
    check(lambda x, n: x * n, leaf(3), torch.tensor([1, 2, 3]))


def test_constant_output() -> None:
    out = differentiate(lambda x: {"loss": x.sum(), "n": 3, "none": None})(leaf(2))
    assert out["n"] == 3
    assert out["none"] is None


@pytest.mark.parametrize("shape", [(0,), (3, 0), (), (1,), (1, 1)])
def test_empty_and_scalar_shapes(shape: tuple[int, ...]) -> None:
    check(lambda x: torch.tanh(x * 2 + 1), leaf(*shape), order=2)
    check(lambda x: (x * x).sum(), leaf(*shape), order=2)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_dtypes(dtype: torch.dtype) -> None:
    def fn(x: Tensor, w: Tensor) -> Tensor:
        return torch.tanh(x @ w) * 0.5 + 1

    check(fn, leaf(4, 3, dtype=dtype), leaf(3, 2, dtype=dtype))


def test_mixed_dtypes_are_promoted() -> None:
    check(lambda a, b: a * b + 1, leaf(3, dtype=torch.float32), leaf(3))


def layouts() -> dict[str, Tensor]:
    base = torch.randn(6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    return {
        "transposed": base.t()[:, :4].contiguous().t(),
        "strided": base[::2, ::2].repeat(2, 2)[::2],
        "sliced": base[1:5],
        "expanded": base[0].expand(5, 4),
        "expanded scalar": base[0, 0].expand(3, 4),
        "overlapping": base.flatten().as_strided((5, 4), (2, 1)),
    }


@pytest.mark.parametrize("name", list(layouts()))
def test_memory_layouts(name: str) -> None:
    x = layouts()[name].requires_grad_()
    w = leaf(4, 2)
    check(lambda a, b: torch.tanh(a @ b) + a.sum(1, keepdim=True), x, w, order=2)
    check(lambda a: a.exp() * a, x, order=2)


def test_expanded_non_leaf() -> None:
    x = leaf(4)

    def run(fn: Any) -> Any:
        return torch.autograd.grad(fn(x.expand(3, 4)).sum(), x)[0]

    def body(a: Tensor) -> Tensor:
        return a.sin() * a

    close(run(differentiate(body)), run(body))


def test_third_order() -> None:
    check(lambda x, y: (x.sin() * y.exp() * x).sum(), leaf(3), leaf(3, seed=1), order=3)


def test_fourth_order_of_a_polynomial() -> None:
    compiled = differentiate(lambda x: x**5)
    x = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    values = [compiled(x)]
    for _ in range(4):
        values.append(torch.autograd.grad(values[-1], x, create_graph=True)[0])
    assert [v.item() for v in values] == pytest.approx([32, 80, 160, 240, 240], rel=1e-12)


def test_second_derivative_of_a_layer() -> None:
    def fn(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return torch.nn.functional.softplus(x @ w + b).square().mean()

    check(fn, leaf(4, 3), leaf(3, 2), leaf(2), order=2)


def test_gradient_penalty() -> None:
    def score(x: Tensor, w: Tensor) -> Tensor:
        return torch.tanh(x @ w).sum(1)

    def penalty(fn: Any, x: Tensor, w: Tensor) -> Tensor:
        (gx,) = torch.autograd.grad(fn(x, w).sum(), x, create_graph=True)
        return ((gx.norm(dim=1) - 1) ** 2).mean()  # type: ignore[no-any-return]

    x, w = leaf(4, 3), leaf(3, 2)
    (want,) = torch.autograd.grad(penalty(score, x, w), w)
    (got,) = torch.autograd.grad(penalty(differentiate(score), x, w), w)
    close(got, want)


def test_one_node_stands_for_the_whole_function() -> None:
    compiled = differentiate(lambda x: torch.tanh(x @ x).exp().sum())
    names = list(grad_nodes(compiled(leaf(3, 3))))
    assert sorted(n.rpartition("::")[2] for n in names) == ["AccumulateGrad", "_CompiledBackward"]


def test_a_compiled_function_within_a_compiled_function() -> None:
    inner = differentiate(lambda x: x.sin() * x)
    compiled = check(lambda x: inner(x).exp().sum(), leaf(3), order=2)
    assert "sin" in {n.kind for n in compiled.trace(leaf(3)).nodes()}
