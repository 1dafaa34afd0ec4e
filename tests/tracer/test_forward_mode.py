"""torch.func's forward mode inside traced functions: values, gradients and errors are eager's.

Where torch's own formulas are wrong, as for norms in a later gradient, differences judge.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, linearize, vmap
from torch.utils._pytree import tree_flatten

import gradof
from gradof.errors import EagerWarning, UnsupportedOpError

pytestmark = pytest.mark.filterwarnings(  # eager's own, of its forward mode
    "ignore:.*torch.jit:DeprecationWarning", "ignore:Attempted to insert a get_attr:UserWarning",
    "ignore:Casting complex values:UserWarning",
)
Tensor = torch.Tensor
torch.manual_seed(0)  # the same weights, whichever tests there are
W = torch.randn(5, 5, dtype=torch.float64)
NET = torch.nn.Sequential(
    torch.nn.Linear(5, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1)
).double()  # fmt: skip


def _wave(v: Tensor) -> Tensor:
    return v.sin() * v.sum()


def _total(v: Tensor) -> Tensor:
    return _wave(v).sum()


CASES: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "jvp": lambda x, y: jvp(_wave, (x,), (y,)),
    "jvp of a gradient": lambda x, y: jvp(grad(_total), (x,), (y,)),
    "of two": lambda x, y: jvp(lambda a, b: a * b.exp(), (x, y), (y, x)),
    "of a dict": lambda x, y: jvp(lambda d: {"r": d["a"] ** 2}, ({"a": x},), ({"a": y},)),
    "aux": lambda x, y: jvp(lambda v: (v * 2, v.sum()), (x,), (y,), has_aux=True),
    "strict": lambda x, y: jvp(lambda v: v**3, (x,), (y,), strict=True),
    "whole numbers beside": lambda x, y: jvp(lambda v: (v**2, v.argmax()), (x,), (y,)),
    "whole numbers alone": lambda x, y: jvp(lambda v: v.argmax(), (x,), (y,)),
    "a constant": lambda x, y: jvp(lambda v: v.detach() * 2, (x,), (y,))[1] + x,
    "not used": lambda x, y: jvp(lambda v: y * 2, (x,), (y,)),
    "another dtype": lambda x, y: jvp(lambda v: v.float() ** 2, (x,), (y,)),
    "complex": lambda x, y: jvp(lambda v: torch.complex(v, v * 2) ** 2, (x,), (y,)),
    "in place": lambda x, y: jvp(lambda v: v.clone().mul_(v).add_(v), (x,), (y,)),
    "convolution": lambda x, y: jvp(
        lambda v: F.conv1d(v.reshape(1, 1, 5), y.reshape(1, 1, 5)[..., :3]) ** 2, (x,), (y,)
    ),
    "jacfwd": lambda x, y: jacfwd(_wave)(x),
    "of which": lambda x, y: jacfwd(lambda a, b: (a * b.sum()).cumsum(0), argnums=(0, 1))(x, y),
    "jacfwd, aux": lambda x, y: jacfwd(lambda a: (a**2, a.sum()), has_aux=True)(x),
    "jacfwd of jacfwd": lambda x, y: jacfwd(jacfwd(lambda v: v.sin().prod()))(x),
    "jacrev of jacfwd": lambda x, y: jacrev(jacfwd(lambda v: v.sin().prod()))(x),
    "in chunks": lambda x, y: jacrev(_wave, chunk_size=2)(x),
    "several in chunks": lambda x, y: jacrev(
        lambda v: (v[:3] * v[1:4], v.sum(), v.float()), chunk_size=3
    )(x),
    "of several": lambda x, y: jacfwd(
        lambda d, v: d["a"] * v.sum() + d["b"], argnums=(0, 1)
    )({"a": x, "b": y[0]}, y),
    "hessian": lambda x, y: hessian(_total)(x),
    "of one number": lambda x, y: hessian(torch.sin)(x[0]),
    "of nothing": lambda x, y: (jacfwd(torch.sin)(x[:0]), jacrev(torch.sin)(x[:0])),
    "a Laplacian": lambda x, y: vmap(
        lambda r: hessian(lambda v: NET(v).squeeze())(r).trace()
    )(torch.stack([x, y])),
    "of parameters": lambda x, y: vmap(jacfwd(
        lambda v: functional_call(NET, dict(NET.named_parameters()), (v,))
    ))(torch.stack([x, y])),
    "a divergence": lambda x, y: vmap(
        lambda r, e: (jvp(lambda v: torch.tanh(v @ W), (r,), (e,))[1] * e).sum()
    )(torch.stack([x, y]), torch.stack([y, x])),
    "second derivatives of kinks": lambda x, y: hessian(lambda v: v.abs().log1p().sum())(x),
    "of eigenvalues": lambda x, y: jacfwd(
        lambda v: torch.linalg.eigvalsh(torch.outer(v, v) + torch.diag(y))
    )(x),
    "cumulated logarithms": lambda x, y: (
        jacfwd(lambda v: v.logcumsumexp(0))(x), jvp(lambda v: torch.logcumsumexp(v, 0), (x,), (y,)),
    ),
    "a softplus of rows": lambda x, y: vmap(jacfwd(lambda v: F.softplus(v @ W)))(
        torch.stack([x, y])
    ),
}  # fmt: skip


def _inputs(seed: int) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    x, y = torch.randn(2, 5, dtype=torch.float64)
    return x.requires_grad_(), y.requires_grad_()


def _gradients(found: Any, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    leaves = [y for y in tree_flatten(found)[0] if y.requires_grad]
    total = sum((y * torch.arange(1, y.numel() + 1).reshape(y.shape)).sum().real for y in leaves)
    made = torch.autograd.grad(total, inputs, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for x, g in zip(inputs, made, strict=True)]


@pytest.mark.parametrize("gradients", [True, False], ids=["", "no grad"])
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_eagers(name: str, gradients: bool) -> None:
    fn = CASES[name]
    compiled = gradof.differentiate(fn, strict=True)
    for seed in range(2):
        inputs = _inputs(seed)
        with torch.set_grad_enabled(gradients):
            expected, found = fn(*inputs), compiled(*inputs)
        torch.testing.assert_close(found, expected)
        if gradients and any(y.requires_grad for y in tree_flatten(expected)[0]):
            made = _gradients(found, inputs)
            torch.testing.assert_close(made, _gradients(expected, inputs))
    assert compiled.cache_info().misses == 1


def _layer_norm(x: Tensor, _: Tensor) -> Any:
    return jacfwd(lambda v: F.layer_norm(v @ W, (5,)) ** 3)(x)


def _batch_norm(x: Tensor, y: Tensor) -> Any:
    rows = torch.stack([x, y, x * y])
    return jacfwd(lambda v: F.batch_norm(v, None, None, training=True)[0] ** 3)(rows)


def _solutions(x: Tensor, y: Tensor) -> Any:
    def solution(v: Tensor) -> Any:
        return torch.linalg.solve(torch.outer(v, v.sin()) + 3 * torch.eye(5), v)

    return vmap(jacfwd(solution))(torch.stack([x, y]))


@pytest.mark.parametrize("fn", [_layer_norm, _batch_norm, _solutions])
def test_gradients_are_those_of_differences(fn: Callable[..., Any]) -> None:
    # torch 2.13 takes the mean for a constant in the gradient of forward mode, and mixes up the
    # matrices of linalg.solve under vmap of jvp
    compiled = gradof.differentiate(fn, strict=True)
    x, y = _inputs(0)
    way, step = torch.linspace(-1, 1, 5, dtype=torch.float64), 1e-6
    share = torch.randn(compiled(x, y).shape, dtype=torch.float64)

    def value(at: Tensor) -> Any:
        return (compiled(at, y) * share).sum()

    (found,) = torch.autograd.grad(value(x), x)
    ahead, behind = value(x.detach() + step * way), value(x.detach() - step * way)
    torch.testing.assert_close(found @ way, (ahead - behind) / (2 * step), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, y: jvp(lambda v: (v * 2, x), (x,), (y,), strict=True),
        lambda x, y: jvp(lambda v: 3.0, (x,), (y,)),
        lambda x, y: jvp(lambda v: v * 2, (x,), (y[0],)),
        lambda x, y: jvp(lambda v: v * 2, (x,), (y, y)),
        lambda x, y: jvp(lambda v: v * 2, x, y),
        lambda x, y: jvp(lambda v: (), (x,), (y,)),
        lambda x, y: jvp(lambda v: v * 2, (x,), (y,), has_aux=True),
        lambda x, y: jvp(lambda v: v * 2, (x,), (y.long(),)),
        lambda x, y: jacfwd(lambda v: v * 2.0)(x.long()),
    ],
    ids=["strict", "a number", "a size", "a structure", "no tuple", "nothing", "aux", "whole",
         "of whole"],
)
def test_errors_are_eagers(fn: Callable[..., Any]) -> None:
    inputs = _inputs(0)
    with pytest.raises((RuntimeError, ValueError)) as expected:
        fn(*inputs)
    with pytest.raises(Exception, match=re.escape(str(expected.value)[:70])) as found:
        gradof.differentiate(fn, strict=True)(*inputs)
    assert isinstance(found.value, type(expected.value) | gradof.errors.GradofError)


def test_what_is_torchs_own_is_refused() -> None:
    def dual(x: Tensor, y: Tensor) -> Any:
        duals: Any = torch.autograd.forward_ad
        with duals.dual_level():
            return duals.unpack_dual(duals.make_dual(x, y).sin())[1].sum()

    def linear(x: Tensor, y: Tensor) -> Any:
        return linearize(torch.sin, x)[1](y).sum()

    def mixed(x: Tensor, y: Tensor) -> Any:
        return jvp(torch.sin, (x,), (torch.complex(x, y),))[1].abs().sum()

    for fn, what in ((dual, "forward_ad"), (linear, "linearize"), (mixed, "a tangent of")):
        with pytest.raises(UnsupportedOpError, match=rf"{what}(.|\n)*test_forward_mode.py"):
            gradof.differentiate(fn, strict=True)(*_inputs(0))
        with pytest.warns(EagerWarning, match=what):
            found = gradof.differentiate(fn)(*_inputs(0))
        torch.testing.assert_close(found, fn(*_inputs(0)))
    x, y = _inputs(0)
    torch.testing.assert_close(jvp(_wave, (x,), (y,))[1], CASES["jvp"](x, y)[1])  # torch's is back
