"""torch.func inside traced functions: vmap, grad, vjp, jacrev; see `test_forward_mode`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.func import functional_call, grad, grad_and_value, jacrev, vjp, vmap

import gradof
from gradof.errors import UnsupportedOpError

FREE = torch.linspace(-1, 1, 12).reshape(4, 3)
torch.manual_seed(0)  # the same weights, whichever tests there are
MODULE = torch.nn.Linear(3, 3).double()


class Cube(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x**3

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        x: torch.Tensor = ctx.saved_tensors[0]
        return g * 3 * x**2


def _cube(y: torch.Tensor) -> torch.Tensor:
    return (y**3).sum()


def _tanh(w: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda r: torch.tanh(r @ w)


@torch.no_grad()
def _no_grad(r: torch.Tensor) -> torch.Tensor:
    return r * r


def _written(r: torch.Tensor) -> torch.Tensor:
    r.detach().mul_(2)
    return r * r


CASES: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "rows": lambda x, w: vmap(lambda r: _tanh(w)(r).sum())(x).sum(),
    "no grad": lambda x, w: vmap(lambda r: _no_grad(r @ w) * r)(x).sum() + w.sum(),
    "nested": lambda x, w: vmap(vmap(lambda a: a.sin() * w.sum()))(x).sum(),
    "where": lambda x, w: (vmap(lambda r: torch.where(r > 0, r, r * w[0]))(x) * x).sum(),
    "indices": lambda x, w: vmap(lambda r, i: (r * w[i])[1:])(x, torch.tensor([0, 1, 2, 0])).sum(),
    "free": lambda x, w: vmap(lambda r, f: (r * f) @ w)(x, FREE).sum(),
    "free inside": lambda x, w: vmap(lambda r: (r * FREE[0]) @ w)(x).sum(),
    "in place": lambda x, w: vmap(lambda r: (r @ w).clone().mul_(2).add_(r).sum())(x).sum(),
    "random": lambda x, w: vmap(lambda r: (r * torch.rand(3)) @ w, randomness="different")(x).sum(),
    "random as a row": lambda x, w: vmap(
        lambda r: r * torch.rand_like(r) @ w, randomness="different"
    )(x).sum(),
    "dropout": lambda x, w: vmap(
        lambda r: torch.nn.functional.dropout(r @ w, 0.3), randomness="different"
    )(x).sum(),
    "vjp of nothing": lambda x, w: vjp(lambda y: w * 2, x)[1](w)[0].sum() + w.sum(),
    "a leaf beside a constant": lambda x, w: grad(
        lambda y: (y.detach() @ grad(lambda z: _cube(z))(w) * y).sum()
    )(x).sum(),
    "of logarithms": lambda x, w: jacrev(jacrev(lambda v: v.abs().log1p().sum()))(w[0]).sum(),
    "of waves": lambda x, w: grad(lambda v: torch.exp(1j * v).sum().abs())(w).sum(),
    "detached": lambda x, w: vmap(lambda r: (r @ w).detach() * (r @ w))(x).sum(),
    "chunks": lambda x, w: vmap(lambda r: _tanh(w)(r).sum(), chunk_size=2)(x).sum(),
    "out dims": lambda x, w: (vmap(_tanh(w), out_dims=1)(x) @ x).sum(),
    "sorted": lambda x, w: vmap(lambda r: torch.sort(r @ w)[0] * torch.arange(3.0))(x).sum(),
    "scattered": lambda x, w: vmap(
        lambda r: r.new_zeros(3).index_add(0, torch.tensor([0, 0, 1]), r @ w) ** 2
    )(x).sum(),
    "mask": lambda x, w: (vmap(vmap(lambda q, k: (q >= k) & (k >= 0), in_dims=(None, 0)),
                               in_dims=(0, None))(torch.arange(4), torch.arange(3)) * x @ w).sum(),
    "ensemble": lambda x, w: vmap(
        lambda p: functional_call(MODULE, {"weight": p}, (x,)).tanh().sum()
    )(torch.stack([w, w * 2])).sum(),
    "grad": lambda x, w: grad(lambda y: _cube(y @ w))(x).sum(),
    "grad with a free tensor": lambda x, w: grad(lambda y: _cube((y * FREE) @ w))(x).sum(),
    "second": lambda x, w: grad(lambda y: grad(lambda z: ((z @ w) ** 4).sum())(y).sum())(x).sum(),
    "of a parameter": lambda x, w: grad(lambda v: _cube(x @ v))(w).pow(2).sum(),
    "of a module": lambda x, w: sum(
        g.pow(2).sum() for g in grad(
            lambda p: functional_call(MODULE, p, (x @ w,)).tanh().sum()
        )(dict(MODULE.named_parameters())).values()
    ),
    "per sample": lambda x, w: vmap(grad(lambda r: _tanh(w)(r).sum()))(x).pow(2).sum(),
    "and value": lambda x, w: grad_and_value(lambda v: _cube(x @ v))(w)[1] + w.sum(),
    "jacrev": lambda x, w: jacrev(_tanh(w))(x[0]).pow(2).sum(),
    "hessian": lambda x, w: jacrev(jacrev(lambda r: _tanh(w)(r).pow(2).sum()))(x[0]).pow(2).sum(),
    "vjp": lambda x, w: vjp(_tanh(w), x)[1](torch.ones_like(x))[0].pow(2).sum(),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_eagers(name: str) -> None:
    fn = CASES[name]
    compiled = gradof.differentiate(fn)
    w = torch.linspace(-1, 1.5, 9, dtype=torch.float64).reshape(3, 3).requires_grad_()
    generator = torch.Generator().manual_seed(0)
    for call in range(3):
        x = torch.randn(4, 3, dtype=torch.float64, generator=generator)
        torch.manual_seed(call)
        expected = fn(x, w)
        (expected_grad,) = torch.autograd.grad(expected, w)
        torch.manual_seed(call)
        value = compiled(x, w)
        (found,) = torch.autograd.grad(value, w)
        torch.testing.assert_close(value, expected)
        torch.testing.assert_close(found, expected_grad)
    info = compiled.cache_info()
    assert info.misses == 1 and info.backward_runs == 3


NUMBERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "less": lambda r: r[0] - 1,
    "less than": lambda r: 1.5 - r[0],
    "by": lambda r: r[0] / 2 + 1 / r[1],
    "a norm": lambda r: (r.norm() - 1) ** 2,
    "complex": lambda r: (r[0] * (2 + 1j)).abs(),
    "a bool": lambda r: r[0] * True,
    "alpha": lambda r: torch.add(r[0], 1, alpha=2),
    "floor": lambda r: torch.floor_divide(r[0].detach(), 2) + r[1],
    "of whole numbers": lambda r: (r > 0).sum() - 1 + r[0],
}


TRANSFORMS: list[Any] = [vmap, lambda fn: vmap(grad(fn)), lambda fn: vmap(jacrev(fn))]


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_beside_one_number_of_each_row(name: str, transform: Any) -> None:
    fn = transform(NUMBERS[name])
    compiled = gradof.differentiate(fn, strict=True)
    for seed in range(2):
        x = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed)).requires_grad_()
        torch.testing.assert_close(compiled(x), fn(x))
    assert compiled.cache_info().misses == 1


@pytest.mark.parametrize("name", ["second", "jacrev", "hessian", "per sample", "vjp of nothing"])
def test_gradients_are_off_outside(name: str) -> None:
    fn = CASES[name]
    x, w = torch.randn(4, 3).double(), torch.linspace(-1, 1.5, 9).double().reshape(3, 3)
    compiled = gradof.differentiate(fn, strict=True)
    for weight in (w, w.clone().requires_grad_()):
        with torch.no_grad():
            torch.testing.assert_close(compiled(x, weight), fn(x, weight))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # torch's own, on import
@pytest.mark.parametrize(
    "fn",
    [
        lambda x, w: vmap(lambda r: _written(r @ w))(x).sum(),
        lambda x, w: vmap(lambda r: Cube.apply(r @ w).sum())(x).sum(),  # type: ignore[no-untyped-call]
        lambda x, w: grad(lambda y: Cube.apply(y @ w).sum())(x).sum(),  # type: ignore[no-untyped-call]
    ],
    ids=["behind autograd's back", "a batched Function", "a Function in grad"],
)
def test_what_cannot_be_followed_is_refused(fn: Callable[..., Any]) -> None:
    with pytest.raises(UnsupportedOpError):
        gradof.differentiate(fn, strict=True)(FREE, torch.ones(3, 3, requires_grad=True))


def test_few_numbers_are_read_by_tolist() -> None:
    @gradof.differentiate
    def split(x: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
        rows = sizes.tolist()
        first, second = torch.split(x, [rows[0][0], rows[0][1]])
        return first.sum() + (second**2).sum()

    x = torch.arange(5.0, requires_grad=True)
    for at in (2, 3, 2):
        value = split(x, torch.tensor([[at, 5 - at]]))
        (found,) = torch.autograd.grad(value, x)
        assert found.tolist() == [1.0] * at + [2.0 * i for i in range(at, 5)]
    assert split.cache_info().misses == 2
