"""Gradients taken inside the differentiated function, in both libraries."""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import numpy as np
import pytest
import torch

import gradof
from gradof import differentiate, grad, hessian, hvp, jacobian, value_and_grad, vjp
from gradof.errors import ArgnumsError, DtypeError, OutputError

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
W, X, V = RNG.standard_normal((3, 3)), RNG.standard_normal(3), RNG.standard_normal(3)


def energy(w: Any, x: Any) -> Any:
    y = w @ x
    return (y * y * y).sum() + (y * x).sum() ** 2


def forces(w: Any, x: Any) -> Any:
    force = grad(lambda q: energy(w, q))(x)
    return ((force - 0.5) ** 2).sum()


def both(w: Any, x: Any) -> Any:
    value, (dw, dx) = value_and_grad(energy, argnums=(0, 1))(w, x)
    return value * (dw**2).sum() + (dx * x).sum()


def with_aux(w: Any, x: Any) -> Any:
    g, aux = grad(lambda q: (energy(w, q), q * 2), has_aux=True)(x)
    return (g * aux).sum()


def pulled(w: Any, x: Any) -> Any:
    y, pullback = vjp(lambda q: w @ (q * q), x)
    (g,) = pullback(y * 2)
    return (g**2).sum()


def curved(w: Any, x: Any) -> Any:
    (h,) = hvp(lambda q: energy(w, q), (x,), (w[0] * x,))
    return (h * x).sum()


def matrices(w: Any, x: Any) -> Any:
    j = jacobian(lambda q: (w @ q) ** 2)(x)
    h = hessian(lambda q: energy(w, q))(x)
    return (j * h).sum()


def thrice(w: Any, x: Any) -> Any:
    return grad(lambda q: (grad(lambda p: energy(w, p))(q) ** 2).sum())(x).sum()


def branching(w: Any, x: Any) -> Any:
    g = grad(lambda q: energy(w, q) if q.sum() > 0 else (q * q).sum() * w.sum())(x)
    return (g * g).sum() if g[0] > 0 else g.sum()


def unrelated(w: Any, x: Any) -> Any:
    return (grad(lambda q: (w * w).sum() * 1.0 + 0 * q[0])(x) ** 2).sum() + (w * x).sum()


def shared(w: Any, x: Any) -> Any:
    y = w @ x
    g = grad(lambda q: (q * y).sum() ** 2)(x)  # y is no function of q
    return (g * y).sum()


PROGRAMS = [forces, both, with_aux, pulled, curved, matrices, thrice, branching, unrelated, shared]


def numpy_reference(fn: Callable[..., Any], w: Array, x: Array) -> Any:
    """The value with the inner gradients taken by gradof at plain arrays."""
    return fn(w, x)


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_numpy(fn: Callable[..., Any]) -> None:
    compiled = value_and_grad(fn, argnums=(0, 1))
    for sign in (1.0, -1.0, 1.0):
        w, x = W * 0.5, X * sign
        value, (dw, dx) = compiled(w, x)
        assert np.isclose(value, numpy_reference(fn, w, x), rtol=1e-12)
        ways = RNG.standard_normal((3, 3)), RNG.standard_normal(3)
        slope = (fn(w + 1e-6 * ways[0], x + 1e-6 * ways[1])
                 - fn(w - 1e-6 * ways[0], x - 1e-6 * ways[1])) / 2e-6  # fmt: skip
        assert np.isclose((dw * ways[0]).sum() + (dx * ways[1]).sum(), slope, rtol=2e-6, atol=1e-7)
    info = compiled.base.cache_info()
    assert info.entries == info.misses <= 2 and info.forward_runs + info.backward_runs >= 3


@pytest.mark.parametrize("requires", [True, False])
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_torch(fn: Callable[..., Any], requires: bool) -> None:
    compiled = differentiate(fn)
    for sign in (1.0, -1.0, 1.0):
        runs = []
        for run in (compiled, fn):
            w = torch.tensor(W * 0.5, requires_grad=True)
            x = torch.tensor(X * sign, requires_grad=requires)
            wanted = [w, x] if requires else [w]
            if run is fn:  # the eager meaning of the same program
                value = eager(fn, w, x)
            else:
                value = run(w, x)
            grads = torch.autograd.grad(value, wanted, create_graph=True, allow_unused=True)
            live = [g for g in grads if g is not None and g.requires_grad]
            total = torch.stack([(g * g).sum() for g in live]).sum() if live else None
            again = () if total is None else torch.autograd.grad(total, wanted, allow_unused=True)
            runs.append([value, *grads, *again])
        for mine, theirs in zip_longest(*runs):  # with nothing left, there is no second
            mine, theirs = (torch.zeros(()) if t is None else t for t in (mine, theirs))
            torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-10, check_dtype=False)
    assert compiled.cache_info().forward_runs == 3


def eager(fn: Callable[..., Any], w: torch.Tensor, x: torch.Tensor) -> Any:
    """The program with every inner derivative taken by torch.autograd."""
    from gradof.runtime.thread import calling_plain

    with calling_plain():
        return fn(w, x)


def test_the_value_agrees_between_the_libraries() -> None:
    for fn in PROGRAMS:
        w, x = torch.tensor(W, requires_grad=True), torch.tensor(X)
        assert np.isclose(float(eager(fn, w, x).detach()), value_and_grad(fn)(W, X)[0], rtol=1e-12)


def test_a_gradient_of_floats_and_trees() -> None:
    def outer(p: Any) -> Any:
        g = grad(lambda d: (d["a"] ** 2 * d["b"]).sum())({"a": p, "b": 3.0 * p})
        return (g["a"] * g["b"]).sum() + grad(lambda t: (t * p).sum() * t)(2.0)

    def by_hand(p: Array) -> Any:
        return (2 * p * 3 * p * p**2).sum() + 4 * p.sum()

    value, g = value_and_grad(outer)(X)
    assert np.isclose(value, by_hand(X))
    np.testing.assert_allclose(g, 24 * X**3 + 4)


def test_bad_uses_name_the_line() -> None:
    with pytest.raises(OutputError, match=r"not a floating-point scalar(.|\n)*test_nested.py"):
        grad(lambda x: grad(lambda q: q * q)(x).sum())(X)
    with pytest.raises(DtypeError, match="integers have no"):
        grad(lambda x: grad(lambda q, n: (q * n).sum(), argnums=1)(x, np.arange(3)).sum())(X)
    with pytest.raises(ArgnumsError, match="names argument 1"):
        grad(lambda x: grad(lambda q: (q * q).sum(), argnums=1)(x).sum())(X)


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_transforms_of_transforms(library: str) -> None:
    """Each once took the attributes of the one it wrapped, and with them its function."""
    x: Any = np.linspace(0.3, 1.1, 4)
    x = x if library == "numpy" else torch.from_numpy(x)  # requires no grad, as torch has it

    def f(v: Any) -> Any:
        return (v**4).sum() * v[0]

    hessian = gradof.hessian(f)(x)
    near(gradof.jacobian(gradof.grad(f))(x), hessian)
    near(gradof.jacobian(gradof.jacobian(f))(x), hessian)
    _, pullback = gradof.vjp(gradof.grad(f), x)
    near(pullback(x)[0], hessian @ x)
    value, slope = gradof.value_and_grad(lambda v: (gradof.grad(f)(v) * x).sum())(x)
    near(value, (gradof.grad(f)(x) * x).sum())
    near(slope, hessian @ x)


def test_derivatives_of_a_number_to_fourth_order() -> None:
    def quartic(t: Any) -> Any:
        return t**4

    first = gradof.grad(quartic)
    second = gradof.grad(first)
    third = gradof.grad(second)
    fourth = gradof.grad(third)
    assert [d(2.0) for d in (first, second, third, fourth)] == [32.0, 48.0, 48.0, 24.0]
    assert gradof.value_and_grad(second)(2.0) == (48.0, 48.0)


def near(have: Any, want: Any) -> None:
    np.testing.assert_allclose(np.asarray(have), np.asarray(want), rtol=1e-10, atol=1e-12)
