"""What is saved: the least cut, and what a memory budget makes of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from torch import nn

import gradof
from gradof import tuning
from gradof.autodiff.differentiate import differentiate
from gradof.autodiff.gradient import Gradient
from gradof.errors import InputError
from gradof.ir.parser import parse_graph
from gradof.ir.types import TensorType
from gradof.ir.verify import verify
from gradof.runtime.plan import GraphPlan, RunCounts
from tests.strategies import Case, graphs

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
BUDGETS = [None, 1.0, 0.7, 0.4, 0.1, 0.0]


def saved(gradient: Gradient) -> list[str]:
    """The kinds of the temporaries."""
    temporaries = gradient.f.outputs[gradient.f_real_outputs :]
    return [v.node.kind for v in temporaries if v.node is not None]


def saved_bytes(gradient: Gradient) -> int:
    temporaries = gradient.f.outputs[gradient.f_real_outputs :]
    return sum(v.type.nbytes for v in temporaries if isinstance(v.type, TensorType))


GELU = """graph gelu(%x : f32[256,256], %b : f32[256]):
  %h : float = Constant[value=0.5]()
  %z : f32[256,256] = add(%x, %b)
  %s : f32[256,256] = mul(%z, %h)
  %e : f32[256,256] = erf(%s)
  %y : f32[256,256] = mul(%z, %e)
  return (%y)"""


def test_what_a_loop_can_compute_again_is_not_saved() -> None:
    large = differentiate(parse_graph(GELU))
    assert saved(large) == []
    assert len(large.df_input_captured_inputs) == 2
    small = differentiate(parse_graph(GELU.replace("256", "4")))
    assert saved(small) == ["add", "mul", "erf"], "small arrays cost nothing but their bytes"


def test_a_product_is_saved_and_what_follows_from_it_is_not() -> None:
    gradient = differentiate(
        parse_graph("""graph f(%x : f32[256,256], %w : f32[256,256]):
      %z : f32[256,256] = mm(%x, %w)
      %t : f32[256,256] = tanh(%z)
      %e : f32[256,256] = exp(%t)
      %y : f32[256,256] = mul(%e, %t)
      return (%y)""")
    )
    assert saved(gradient) == ["tanh"], "one array, not three, and no tanh twice"


def test_what_is_in_memory_is_saved_not_what_a_loop_would_have_to_write() -> None:
    gradient = differentiate(
        parse_graph("""graph f(%x : f32[256,256], %w : f32[256,256]):
      %n : float = Constant[value=256.0]()
      %z : f32[256,256] = mm(%x, %w)
      %s : f32[256,1] = sum[dims=(1,), keepdims=True](%z)
      %m : f32[256,1] = div(%s, %n)
      %c : f32[256,256] = sub(%z, %m)
      %y : f32[256,256] = mul(%c, %c)
      return (%y)""")
    )
    assert saved(gradient) == ["mm", "div"], "of a product and its difference from the means"


def test_a_sum_that_a_product_lies_behind_is_saved_not_its_terms() -> None:
    """It is in memory until it is read again, and nothing is added up a second time."""
    gradient = differentiate(
        parse_graph("""graph f(%x : f32[256,256], %w : f32[256,256]):
      %a : f32[256,256] = mm(%x, %w)
      %r : f32[256,256] = add(%x, %a)
      %e : f32[256,256] = exp(%r)
      %b : f32[256,256] = mm(%e, %w)
      %s : f32[256,256] = add(%r, %b)
      %f : f32[256,256] = mul(%s, %s)
      %c : f32[256,256] = mm(%f, %w)
      %t : f32[256,256] = add(%s, %c)
      %y : f32[256,256] = mul(%t, %t)
      return (%y)""")
    )
    assert saved(gradient) == ["exp", "add", "mm"], "%e, %s and %c: after it comes no product"


NORM = """graph norm(%x : bf16[64,512], %w : bf16[512]):
  %n : float = Constant[value=512.0]()
  %v : f32[64,512] = cast[dtype=f32](%x)
  %q : f32[64,512] = mul(%v, %v)
  %s : f32[64,1] = sum[dims=(1,), keepdims=True](%q)
  %m : f32[64,1] = div(%s, %n)
  %r : f32[64,1] = rsqrt(%m)
  %h : f32[64,512] = mul(%v, %r)
  %u : f32[512] = cast[dtype=f32](%w)
  %z : f32[64,512] = mul(%h, %u)
  %y : bf16[64,512] = cast[dtype=bf16](%z)
  return (%y)"""


def test_where_kernels_fuse_small_arrays_no_cast_of_a_weight_is_saved() -> None:
    assert saved(differentiate(parse_graph(NORM))) == ["rsqrt", "cast"]
    gradient = differentiate(parse_graph(NORM), kernels=True)
    assert saved(gradient) == ["rsqrt"], "1/std of a row, which both gradients read; not its square"
    verify(gradient.df)


def test_long_chains_are_cut() -> None:
    lines = "\n".join(f"%v{k + 1} : f32[256,256] = sin(%v{k})" for k in range(12))
    gradient = differentiate(parse_graph(
        f"graph f(%v0 : f32[256,256]):\n{lines}\nreturn (%v12)"))  # fmt: skip
    assert 0 < len(saved(gradient)) <= 12 // tuning.CAPTURE_CALLS


@pytest.mark.parametrize("large", [2, 1 << 15])
@settings(max_examples=25, suppress_health_check=SLOW, deadline=None)
@given(case=graphs())
def test_bytes_never_grow_as_the_budget_falls_and_numbers_stay(large: int, case: Case) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "KERNEL_CELLS", large)
        before: list[Any] | None = None
        bytes_: list[int] = []
        rng = np.random.default_rng(3)
        seeds = [rng.standard_normal(v.type.shape) for v in case.graph.outputs]  # type: ignore[union-attr]
        for budget in BUDGETS:
            plan = GraphPlan(case.graph, "numpy", RunCounts(), memory_budget=budget)
            flags = (True,) * len(case.inputs)
            gradient = plan.gradient(flags)
            verify(gradient.gradient.f)
            verify(gradient.gradient.df)
            bytes_.append(saved_bytes(gradient.gradient))
            grads = run(gradient, case.inputs, seeds)
            if before is not None:
                for mine, other in zip(grads, before, strict=True):
                    np.testing.assert_allclose(mine, other, rtol=1e-12, atol=1e-12)
            before = grads
        assert bytes_[0] == bytes_[1]
        assert bytes_ == sorted(bytes_, reverse=True)


def run(plan: Any, inputs: list[Any], seeds: list[Any]) -> list[Any]:
    gradient = plan.gradient
    outputs = plan.f(*inputs)
    vjps = gradient.df_input_vjps
    defined = tuple(i < gradient.f_real_outputs for i in vjps)
    special = plan.df(defined, (True,) * len(gradient.df_output_vjps))
    arguments = [
        *(seeds[i] if i < gradient.f_real_outputs else None for i in vjps),
        *(inputs[i] for i in gradient.df_input_captured_inputs),
        *(outputs[i] for i in gradient.df_input_captured_outputs),
    ]
    return list(special.plan(*[arguments[i] for i in special.inputs]))


def deep(layers: int) -> nn.Sequential:
    torch.manual_seed(0)
    parts: list[nn.Module] = []
    for _ in range(layers):
        parts += [nn.Linear(32, 32), nn.Tanh(), nn.LayerNorm(32), nn.Dropout(0.2)]
    return nn.Sequential(*parts).double()


def squares(tensors: tuple[torch.Tensor, ...]) -> torch.Tensor:
    return torch.stack([t.square().sum() for t in tensors]).sum()


@pytest.mark.parametrize("blocks", [3, pytest.param(6, marks=pytest.mark.long)])
def test_a_deep_network_under_every_budget(blocks: int) -> None:
    net = deep(blocks)
    x = torch.randn(64, 32, dtype=torch.float64)
    gradients, kept = [], []
    for budget in BUDGETS:
        compiled = gradof.differentiate(net, memory_budget=budget)
        torch.manual_seed(7)
        value = compiled(x).square().mean()
        first = torch.autograd.grad(value, list(net.parameters()), create_graph=True)
        second = torch.autograd.grad(squares(first), list(net.parameters()))
        gradients.append([*first, *second])
        kept.append(saved_bytes(compiled.gradient(x)))
    torch.manual_seed(7)
    value = net(x).square().mean()
    first = torch.autograd.grad(value, list(net.parameters()), create_graph=True)
    second = torch.autograd.grad(squares(first), list(net.parameters()))
    for found in gradients:
        for mine, theirs in zip(found, [*first, *second], strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-11)
    assert kept == sorted(kept, reverse=True)
    masks = blocks * 64 * 32 * 8
    assert kept[-1] <= masks, "at 0, the masks of dropout alone, which cannot be drawn again"
    assert kept[0] > 3 * kept[-1]


@pytest.mark.parametrize("budget", [-0.1, 1.5, "all", True, float("nan")])
def test_a_budget_is_a_share(budget: Any) -> None:
    with pytest.raises(InputError, match="memory_budget is"):
        gradof.differentiate(lambda x: x, memory_budget=budget)
