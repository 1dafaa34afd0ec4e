"""Second and third derivatives: df specialised, then differentiated again, against torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from gradof.autodiff.compose import pullback_graph, value_and_gradient_graph
from gradof.autodiff.differentiate import differentiate
from gradof.autodiff.gradient import Gradient
from gradof.autodiff.zeros import specialize_autograd_zero
from gradof.codegen.host.evaluate import interpret
from gradof.ir.core import Graph
from gradof.ir.parser import parse_graph
from gradof.ir.verify import verify
from tests.autodiff.run import Array, df_arguments, gradients, run_f

TorchFn = Callable[..., torch.Tensor]


def _mlp(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x @ w + b)


def _softmax(x: torch.Tensor) -> torch.Tensor:
    e = torch.exp(x - x.amax(1, keepdim=True).detach())
    return e / e.sum(1, keepdim=True)


def _shared(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    xy = x * y
    return torch.sin(xy) * torch.exp(xy) + xy


def _cut(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.sin(x * y) * (x * y).detach()


def _centred(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    d = x - x.mean(0, keepdim=True)
    return torch.sin(d).T * w.reshape(3, 1)


CASES: dict[str, tuple[str, TorchFn]] = {
    "mlp": ("""graph f(%x : f64[4,3], %w : f64[3,2], %b : f64[2]):
      %xw : f64[4,2] = mm(%x, %w)
      %z : f64[4,2] = add(%xw, %b)
      %h : f64[4,2] = tanh(%z)
      return (%h)""", _mlp),
    "softmax": ("""graph f(%x : f64[2,5]):
      %m : f64[2,1] = amax[dims=(1,), keepdims=True](%x)
      %c : f64[2,1] = detach(%m)
      %z : f64[2,5] = sub(%x, %c)
      %e : f64[2,5] = exp(%z)
      %s : f64[2,1] = sum[dims=(1,), keepdims=True](%e)
      %p : f64[2,5] = div(%e, %s)
      return (%p)""", _softmax),
    "shared": ("""graph f(%x : f64[3], %y : f64[3]):
      %xy : f64[3] = mul(%x, %y)
      %a : f64[3] = sin(%xy)
      %again : f64[3] = mul(%x, %y)
      %b : f64[3] = exp(%again)
      %ab : f64[3] = mul(%a, %b)
      %r : f64[3] = add(%ab, %xy)
      return (%r)""", _shared),
    "cut": ("""graph f(%x : f64[3], %y : f64[3]):
      %first : f64[3] = mul(%x, %y)
      %c : f64[3] = detach(%first)
      %again : f64[3] = mul(%x, %y)
      %s : f64[3] = sin(%again)
      %r : f64[3] = mul(%s, %c)
      return (%r)""", _cut),
    "broadcast": ("""graph f(%x : f64[4,3], %w : f64[3]):
      %m : f64[1,3] = mean[dims=(0,), keepdims=True](%x)
      %d : f64[4,3] = sub(%x, %m)
      %q : f64[4,3] = sin(%d)
      %t : f64[3,4] = permute[dims=(1, 0)](%q)
      %k : f64[3,1] = reshape[shape=(3, 1)](%w)
      %y : f64[3,4] = mul(%t, %k)
      return (%y)""", _centred),
}  # fmt: skip


def prepared(name: str) -> tuple[Graph, TorchFn, list[Array], np.random.Generator]:
    text, fn = CASES[name]
    graph = parse_graph(text)
    rng = np.random.default_rng(len(text))
    inputs = [rng.normal(size=v.type.shape) for v in graph.inputs]  # type: ignore[union-attr]
    return graph, fn, inputs, rng


def torch_leaves(arrays: Sequence[Array]) -> list[torch.Tensor]:
    return [torch.from_numpy(a).clone().requires_grad_() for a in arrays]


def torch_grad(out: torch.Tensor, leaves: Sequence[torch.Tensor], seed: Any) -> list[torch.Tensor]:
    """Gradients, differentiable again; zeros where the output does not depend on a leaf."""
    found = torch.autograd.grad(
        out, leaves, torch.as_tensor(seed), create_graph=True, allow_unused=True
    )
    return [torch.zeros_like(x) if g is None else g for g, x in zip(found, leaves, strict=True)]


def close(got: Any, want: torch.Tensor) -> None:
    np.testing.assert_allclose(got, want.detach().numpy(), rtol=1e-10, atol=1e-12)


def second_order(
    gradient: Gradient, inputs: Sequence[Array], seed: Array, outer: Sequence[Array]
) -> tuple[dict[int, Array], Array]:
    """Differentiate sum(outer * df(seed)) as the runtime does: through what df saved.

    Returns the gradients by f's input, and the one of the cotangent.
    """
    values = run_f(gradient, inputs)
    arguments = df_arguments(gradient, inputs, values, {0: seed})
    special = specialize_autograd_zero(gradient.df, [i == 0 for i in gradient.df_input_vjps])
    again = differentiate(special.graph)
    saved = [arguments[i] for i in special.inputs]
    position = {gradient.df_output_vjps[i]: k for k, i in enumerate(special.outputs)}
    seeds = {position[i]: outer[i] for i in position}
    assert set(seeds) <= set(again.df_input_vjps)
    by_position = gradients(again, saved, seeds)
    total: dict[int, Array] = {i: np.zeros_like(x) for i, x in enumerate(inputs)}
    temporaries: dict[int, Array] = {}
    at = len(gradient.df_input_vjps)
    captured = len(gradient.df_input_captured_inputs)
    cotangent: Array = np.zeros_like(seed)
    for k, grad in by_position.items():
        place = special.inputs[k]
        if place == 0:
            cotangent = grad
        elif place < at + captured:
            total[gradient.df_input_captured_inputs[place - at]] += grad
        else:
            temporaries[gradient.df_input_captured_outputs[place - at - captured]] = grad
    lost = [i for i in temporaries if i not in gradient.df_input_vjps]
    assert not lost, f"outputs {lost} of f were saved, but can take no gradient"
    for i, grad in gradients(gradient, inputs, temporaries).items() if temporaries else ():
        total[i] = total[i] + grad
    return total, cotangent


@pytest.mark.parametrize("name", CASES)
def test_second_order_through_what_is_saved(name: str) -> None:
    graph, fn, inputs, rng = prepared(name)
    gradient = differentiate(graph)
    leaves = torch_leaves(inputs)
    out = fn(*leaves)
    seed = rng.normal(size=tuple(out.shape))
    outer = [rng.normal(size=x.shape) for x in inputs]
    total, cotangent = second_order(gradient, inputs, seed, outer)
    seed_leaf = torch.from_numpy(seed).requires_grad_()
    firsts = torch_grad(out, leaves, seed_leaf)
    mixed = sum((g * torch.from_numpy(w)).sum() for g, w in zip(firsts, outer, strict=True))
    assert isinstance(mixed, torch.Tensor)
    want = torch_grad(mixed, [*leaves, seed_leaf], 1.0)
    for i in range(len(inputs)):
        close(total[i], want[i])
    close(cotangent, want[-1])
    assert any(np.abs(total[i]).max() > 1e-3 for i in total)  # something was there to compare


@pytest.mark.parametrize("name", CASES)
def test_three_orders_of_pullbacks(name: str) -> None:
    """f's pullback is a graph of primitives again: take the pullback of input 0 three times."""
    graph, fn, inputs, rng = prepared(name)
    leaves = torch_leaves(inputs)
    out = fn(*leaves)
    arguments = list(inputs)
    for order in range(3):
        seed = rng.normal(size=tuple(out.shape))
        graph = pullback_graph(graph, [0], [0])
        verify(graph)
        assert parse_graph(str(graph)) == graph
        arguments.append(seed)
        (got,) = interpret(graph, arguments)
        (out,) = torch_grad(out, leaves[:1], seed)
        close(got, out)
        assert np.abs(got).max() > 1e-6, f"order {order + 1} is zero"


def test_three_orders_of_a_scalar_function() -> None:
    graph = parse_graph("""graph f(%x : f64[]):
      %s : f64[] = sin(%x)
      %e : f64[] = exp(%s)
      return (%e)""")
    x = np.array(0.7)
    s, c, e = np.sin(x), np.cos(x), np.exp(np.sin(x))
    want = [e, e * c, e * (c * c - s), e * (c**3 - 3 * s * c - c)]
    np.testing.assert_allclose(interpret(graph, [x])[0], want[0], rtol=1e-14)
    for order in (1, 2, 3):
        # The gradient is the last output; differentiate that one next.
        graph = value_and_gradient_graph(graph, [0], output=len(graph.outputs) - 1)
        results = interpret(graph, [x])
        np.testing.assert_allclose(results, want[: order + 1], rtol=1e-12)


@pytest.mark.parametrize("name", ["mlp", "shared"])
def test_hessian_is_symmetric(name: str) -> None:
    graph, _, inputs, rng = prepared(name)
    twice = pullback_graph(pullback_graph(graph, [0], [0]), [0], [0])
    shape = interpret(graph, inputs)[0].shape
    seed, u, v = (rng.normal(size=s) for s in (shape, inputs[0].shape, inputs[0].shape))
    (hu,) = interpret(twice, [*inputs, seed, u])
    (hv,) = interpret(twice, [*inputs, seed, v])
    np.testing.assert_allclose((hu * v).sum(), (hv * u).sum(), rtol=1e-10)
