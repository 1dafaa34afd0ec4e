"""gradof.custom_vjp in both libraries: traced and plain, to second order, and its errors.

Every rule here differs from the true derivative, so one that was ignored would be seen.
"""

# mypy: disable-error-code="no-untyped-call, no-any-return, untyped-decorator"
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import gradof
from gradof import custom_vjp
from gradof.errors import CustomRuleError
from tests.runtime.compare import check, close

Tensor = torch.Tensor


def leaf(*shape: int, seed: int = 0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64, generator=g).requires_grad_()


def rule_in(m: Any) -> Any:
    """sin(x) * w, with gradients of its own, in a library."""

    @custom_vjp
    def f(x: Any, w: Any) -> Any:
        return m.sin(x) * w

    def fwd(x: Any, w: Any) -> Any:
        s = m.sin(x)
        return s * w, (s, w, x)

    def bwd(residuals: Any, g: Any) -> Any:
        s, w, x = residuals
        return g * s * w * 3, g * x * 2

    f.defvjp(fwd, bwd)
    return lambda x, w: m.sum(f(x * x, w) * x)


def test_custom_vjp_in_torch_to_second_order() -> None:
    check(rule_in(torch), leaf(4), leaf(4, seed=1), order=2)


def test_custom_vjp_in_numpy_is_that_of_torch() -> None:
    x, w = leaf(4), leaf(4, seed=1)
    want = torch.autograd.grad(rule_in(torch)(x, w), (x, w))
    arrays = x.detach().numpy(), w.detach().numpy()
    for a, b in zip(gradof.grad(rule_in(np), (0, 1))(*arrays), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    assert np.isclose(rule_in(np)(*arrays), rule_in(torch)(x, w).item())


def test_custom_vjp_in_numpy_to_second_order() -> None:
    fn = rule_in(np)
    x, w = leaf(4).detach().numpy(), leaf(4, seed=1).detach().numpy()
    weights = np.array([0.3, -1.0, 2.0, 0.7])

    def first(x: Any, w: Any) -> Any:  # by hand, as the rules say; the value by its true formula
        s = np.sin(x * x)
        return s * w + x * s * w * 3 * 2 * x

    got = gradof.grad(lambda x: np.sum(gradof.grad(fn)(x, w) * weights))(x)
    step = 1e-6
    want = [
        np.sum((first(x + step * e, w) - first(x - step * e, w)) * weights) / (2 * step)
        for e in np.eye(4)
    ]
    # the value within the gradient follows the rule too: s * w has the gradient 3 * s * w
    s = np.sin(x * x)
    want = np.array(want) + weights * 2 * x * w * (3 * s - np.cos(x * x))
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_static_arguments_and_pytrees() -> None:
    @gradof.custom_vjp(nondiff_argnums=(0,))
    def f(k: float, p: Any) -> Any:
        return {"y": p["a"] * k, "n": p["b"][0]}

    f.defvjp(
        lambda k, p: (f.fn(k, p), p),
        lambda k, p, g: ({"a": g["y"] * k * p["b"][0], "b": [None if k > 9 else g["n"] * 4]},),
    )

    def total(a: Any, b: Any) -> Any:
        out = f(2.5, {"a": a, "b": [b]})
        return (out["y"] * out["n"]).sum()

    check(total, leaf(3), leaf(3, seed=1), order=2)
    a, b = leaf(3).detach().numpy(), leaf(3, seed=1).detach().numpy()
    got = gradof.grad(total, (0, 1))(a, b)
    np.testing.assert_allclose(got[0], b * 2.5 * b)
    np.testing.assert_allclose(got[1], a * 2.5 * 4)


def test_custom_vjp_outside_of_a_trace() -> None:
    x, w = leaf(4), leaf(4, seed=1)
    got = torch.autograd.grad(rule_in(torch)(x, w), (x, w))
    close(got[1], 2 * x**3)
    assert rule_in(torch)(x.detach(), w.detach()).grad_fn is None


@pytest.mark.parametrize(
    ("bwd", "message"),
    [
        (lambda r, g: g, "not a tuple of 2"),
        (lambda r, g: (g,), "returns 1, not"),
        (lambda r, g: (g, g[:1]), "a gradient of shape"),
        (lambda r, g: (g, (g, g)), "as gradient 1"),
    ],
)
@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_wrong_rules_of_custom_vjp(bwd: Any, message: str, library: str) -> None:
    f = custom_vjp(lambda x, y: x * y)
    f.defvjp(lambda x, y: (x * y, None), bwd)
    x = leaf(3) if library == "torch" else leaf(3).detach().numpy()
    with pytest.raises(CustomRuleError, match=message) as caught:
        gradof.grad(lambda x: f(x, x).sum())(x)
    assert "test_custom_vjp.py" in str(caught.value.loc)


def test_a_function_without_rule_and_a_fwd_without_residuals_are_refused() -> None:
    f = custom_vjp(lambda x: x)
    with pytest.raises(CustomRuleError, match="has no rule"):
        f(leaf(2))
    f.defvjp(lambda x: x, lambda r, g: (g,))
    with pytest.raises(CustomRuleError, match="pair"):
        f(leaf(2))
    with pytest.raises(CustomRuleError, match="as bwd"):
        f.defvjp(lambda x: x, None)
    with pytest.raises(gradof.errors.ArgnumsError):
        custom_vjp(lambda x: x, nondiff_argnums=1)
    with pytest.raises(gradof.errors.CallError):
        f(leaf(2), leaf(2))


@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_arrays_in_the_closure_of_a_rule_are_read_again_and_a_new_rule_is_noticed(
    library: str,
) -> None:
    scale: Any = np.array([2.0, 3.0]) if library == "numpy" else torch.tensor([2.0, 3.0])
    f = custom_vjp(lambda x: x * 1)
    f.defvjp(lambda x: (x * 1, x), lambda x, g: (g * scale * x,))
    gradient = gradof.grad(lambda x: f(x).sum())
    x = scale * 0 + 5.0
    for factor in (1.0, 2.0, 4.0):
        assert np.allclose(gradient(x), [10 * factor, 15 * factor])
        scale *= 2
    f.defvjp(lambda x: (x * 1, None), lambda _, g: (g * 100,))
    assert np.allclose(gradient(x), [100, 100])


@pytest.mark.parametrize("library", ["torch", "numpy", "plain torch"])
def test_a_fwd_may_call_its_function(library: str) -> None:
    """The rule, which is not the function's own gradient, holds at the second order, too."""
    m: Any = np if library == "numpy" else torch

    @gradof.custom_vjp
    def f(x: Any) -> Any:
        return x**3

    def fwd(x: Any) -> Any:
        y = f(x)
        return y, (x, y)

    def bwd(residuals: Any, g: Any) -> Any:
        x, y = residuals
        return (g * (2 * x * x + y),)

    f.defvjp(fwd, bwd)

    def loss(x: Any) -> Any:
        return m.sum(f(x) * f(x))

    x = leaf(4)
    v = x.detach()
    slope = 2 * v**2 + v**3
    first = 2 * v**3 * slope
    second = 2 * slope * slope + 2 * v**3 * (4 * v + slope)  # y's own gradient is the rule's
    if library == "numpy":
        array = v.numpy()
        got = gradof.grad(loss)(array)
        again = gradof.grad(lambda x: np.sum(gradof.grad(loss)(x)))(array)
    else:
        fn = gradof.differentiate(loss) if library == "torch" else loss
        (g,) = torch.autograd.grad(fn(x), x, create_graph=True)
        got, again = g.detach().numpy(), torch.autograd.grad(g.sum(), x)[0].numpy()
    np.testing.assert_allclose(got, first.numpy(), rtol=1e-12)
    np.testing.assert_allclose(again, second.numpy(), rtol=1e-12)


@gradof.custom_vjp
def _same(x: Any) -> Any:
    return x


_same.defvjp(lambda x: (x, None), lambda _, g: (2 * g,))


@pytest.mark.parametrize(("fn", "wanted"), [
    (lambda x: (_same(x) * x).sum(), 3.0), (lambda x: _same(2 * x).sum(), 4.0),
    (lambda x: _same(_same(x)).sum(), 4.0), (lambda x: _same(x.view(-1)).view(3, 1).sum(), 2.0),
])  # fmt: skip
def test_a_rule_of_the_identity(fn: Any, wanted: float) -> None:
    compiled = gradof.differentiate(fn, strict=True)
    ones = torch.ones(3, dtype=torch.float64)
    assert gradof.grad(compiled)(ones).tolist() == [wanted] * 3
    x = ones.clone().requires_grad_()
    compiled(x).backward()
    assert x.grad is not None and x.grad.tolist() == [wanted] * 3
    assert compiled.cache_info().backward_runs == 2 and compiled.cache_info().eager_runs == 0
