"""grad, value_and_grad, vjp, hvp, jacobian, hessian of torch functions, against torch.func."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import gradof
from gradof import errors
from tests.runtime.compare import close
from tests.runtime.test_torch_values import leaf


def values(*shape: int, seed: int = 0) -> Tensor:
    return leaf(*shape, seed=seed).detach()


def loss(x: Tensor, w: Tensor) -> Tensor:
    return (torch.tanh(x @ w).sum(1) ** 2).mean()


ARGS = values(4, 3), values(3, 2)


def same(got: Any, want: Any) -> None:
    assert type(got) is type(want)
    if isinstance(want, (tuple, list)):
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            same(g, w)
    elif isinstance(want, dict):
        assert got.keys() == want.keys()
        for key in want:
            same(got[key], want[key])
    else:
        close(got, want)


@pytest.mark.parametrize("argnums", [0, 1, (0,), (0, 1), (1, 0)])
def test_grad_and_value_and_grad(argnums: Any) -> None:
    def fresh(x: Tensor, w: Tensor) -> Tensor:
        return loss(x, w)

    ours = gradof.value_and_grad(fresh, argnums)
    value, slopes = ours(*ARGS)
    slopes_there, value_there = torch.func.grad_and_value(loss, argnums)(*ARGS)
    close(value, value_there)
    same(slopes, slopes_there)
    same(gradof.grad(fresh, argnums)(*ARGS), slopes_there)
    info = ours.cache_info()  # of both: they are of one function
    assert (info.backward_runs, info.misses) == (2, 1)


def test_has_aux() -> None:
    def fn(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return loss(x, w), x @ w

    slopes, aux = gradof.grad(fn, has_aux=True)(*ARGS)
    same((slopes, aux), torch.func.grad(fn, has_aux=True)(*ARGS))


def test_vjp() -> None:
    def fn(x: Tensor, w: Tensor) -> dict[str, Tensor]:
        return {"a": x @ w, "b": x.sin()}

    out, pullback = gradof.vjp(fn, *ARGS)
    out_there, pullback_there = torch.func.vjp(fn, *ARGS)  # type: ignore[misc]
    same(out, out_there)
    cotangents = {"a": values(4, 2, seed=5), "b": values(4, 3, seed=6)}
    same(pullback(cotangents), tuple(pullback_there(cotangents)))
    same(pullback(cotangents), tuple(pullback_there(cotangents)))


@pytest.mark.parametrize("argnums", [0, (0, 1)])
def test_jacobian(argnums: Any) -> None:
    def fn(x: Tensor, w: Tensor) -> Tensor:
        return torch.tanh(x @ w) * x.sum()

    same(gradof.jacobian(fn, argnums)(*ARGS), torch.func.jacrev(fn, argnums)(*ARGS))


# torch.func.jvp scripts its decompositions when first used
by_torch_func = pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")


@by_torch_func
@pytest.mark.parametrize("argnums", [0, (0, 1)])
def test_hessian(argnums: Any) -> None:
    same(gradof.hessian(loss, argnums)(*ARGS), torch.func.hessian(loss, argnums)(*ARGS))


@by_torch_func
def test_hvp() -> None:
    tangents = values(4, 3, seed=3), values(3, 2, seed=4)
    got = gradof.hvp(loss, ARGS, tangents)
    want = torch.func.jvp(torch.func.grad(loss, (0, 1)), ARGS, tangents)[1]
    same(got, want)


def test_inside_no_grad() -> None:
    with torch.no_grad():
        got = gradof.grad(loss)(*ARGS)
    same(got, torch.func.grad(loss)(*ARGS))
    assert not got.requires_grad


def test_detach_and_no_grad_inside() -> None:
    def fn(x: Tensor) -> Tensor:
        with torch.no_grad():
            scale = x.exp()
        return (x * scale * x.detach()).sum()

    x = values(3)
    close(gradof.grad(fn)(x), x.exp() * x)


def test_gradients_are_differentiable_by_torch() -> None:
    x, w = leaf(4, 3), leaf(3, 2)
    (got,) = torch.autograd.grad(gradof.grad(loss)(x, w).square().sum(), w)
    (slope,) = torch.autograd.grad(loss(x, w), x, create_graph=True)
    (want,) = torch.autograd.grad(slope.square().sum(), w)
    close(got, want)


@pytest.mark.parametrize("argnums", [-1, (0, 0), 1.5, "x", (), True])
def test_wrong_argnums(argnums: Any) -> None:
    with pytest.raises(errors.ArgnumsError):
        gradof.grad(loss, argnums)


def test_argnums_out_of_range() -> None:
    with pytest.raises(errors.ArgnumsError, match="names argument 2, but there are 2"):
        gradof.grad(loss, 2)(*ARGS)


def test_outputs_that_have_no_gradient() -> None:
    x = values(3)
    with pytest.raises(errors.OutputError, match="not a scalar"):
        gradof.grad(lambda a: a * 2)(x)
    with pytest.raises(errors.OutputError, match="not floating point"):
        gradof.grad(lambda a: a.argmax())(x)
    with pytest.raises(errors.OutputError, match="does not depend"):
        gradof.grad(lambda a: 3.0)(x)
    with pytest.raises(errors.OutputError, match="2 leaves"):
        gradof.grad(lambda a: (a.sum(), a))(x)
    with pytest.raises(errors.DtypeError, match="integers"):
        gradof.grad(lambda a: a.sum() * 0.5)(torch.arange(3))


def test_wrong_cotangents() -> None:
    _, pullback = gradof.vjp(lambda x: x.sin(), values(3))
    for wrong in (values(4), values(3).float(), (values(3),), 1.0):
        with pytest.raises(errors.CotangentError):
            pullback(wrong)
    with pytest.raises(errors.CotangentError):
        gradof.hvp(loss, ARGS, (values(4, 3),))
