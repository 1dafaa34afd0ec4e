"""Ops without a rule: torch's own autograd runs them inside our graph, to any order."""

from __future__ import annotations

import linecache
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from gradof import differentiate
from gradof.errors import OpaqueOpWarning, UnsupportedOpError
from gradof.ir.parser import parse_graph
from gradof.ir.verify import verify

Tensor = torch.Tensor


@torch.library.custom_op("gradof_tests::cubed", mutates_args=())
def cubed(x: Tensor, scale: float, others: list[Tensor]) -> tuple[Tensor, Tensor]:
    return x**3 * scale, others[0] * others[1]


@torch.library.custom_op("gradof_tests::cubed_slope", mutates_args=())
def cubed_slope(x: Tensor, g: Tensor, scale: float) -> Tensor:
    return 3 * scale * x**2 * g


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    x, ctx.scale, others = inputs
    ctx.save_for_backward(x, *others)


def _cubed_rule(ctx: Any, g: Any, h: Any) -> Any:
    x, a, b = ctx.saved_tensors
    return cubed_slope(x, g, ctx.scale), None, [h * b, h * a]


def _slope_rule(ctx: Any, k: Any) -> Any:
    x, g = ctx.saved_tensors
    return 6 * ctx.scale * x * g * k, 3 * ctx.scale * x**2 * k, None


def _save_slope(ctx: Any, inputs: Any, output: Any) -> None:
    x, g, ctx.scale = inputs
    ctx.save_for_backward(x, g)


cubed.register_autograd(_cubed_rule, setup_context=_save)
cubed_slope.register_autograd(_slope_rule, setup_context=_save_slope)


SEEDED = [torch.Tag.nondeterministic_seeded]


@torch.library.custom_op("gradof_tests::noisy", mutates_args=(), tags=SEEDED)
def noisy(x: Tensor) -> Tensor:
    return x + torch.rand_like(x)


def program(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    y, z = cubed(torch.sin(x), 0.7, [a, b * 2])
    return (y * z).sum() + y[0].exp() * (x * a).sum()  # type: ignore[no-any-return]


def only_one_result(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return cubed(x * a, 1.3, [a.detach(), b])[0].sum() * b.sum()  # type: ignore[no-any-return]


def constant_operands(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    y, z = cubed(x.detach(), 2.0, [a, b])
    return (y * z * x).sum()  # type: ignore[no-any-return]


PROGRAMS = [program, only_one_result, constant_operands]


def derivatives(fn: Callable[..., Tensor], leaves: list[Tensor]) -> list[Tensor]:
    found = [fn(*leaves)]
    value, generator = found[0], torch.Generator().manual_seed(1)
    for _ in range(3):
        grads = torch.autograd.grad(value, leaves, create_graph=True, allow_unused=True)
        pairs = zip(grads, leaves, strict=True)
        grads = tuple(torch.zeros_like(x) if g is None else g for g, x in pairs)
        found += grads
        weights = [torch.randn(g.shape, generator=generator, dtype=torch.float64) for g in grads]
        value = torch.stack([(g * w).sum() for g, w in zip(grads, weights, strict=True)]).sum()
    return found


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_three_derivatives(fn: Callable[..., Tensor]) -> None:
    generator = torch.Generator().manual_seed(0)
    runs = []
    compiled = differentiate(fn)
    for run in (compiled, fn):
        generator.manual_seed(0)
        leaves = [
            torch.randn(4, generator=generator, dtype=torch.float64).requires_grad_()
            for _ in range(3)
        ]
        if run is fn:
            runs.append(derivatives(run, leaves))
            continue
        with pytest.warns(OpaqueOpWarning, match=r"gradof_tests\.cubed has no rule"):
            runs.append(derivatives(run, leaves))
        assert any(n.kind == "Opaque" for n in compiled.trace(*leaves).walk())
        # 1 + 2 + 4: each derivative is a graph; and one by what the first f left without a history
        assert compiled.cache_info().backward_runs == 8
    for ours, theirs in zip(*runs, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_one_warning_for_each_op_at_the_users_line() -> None:
    def twice(x: Tensor) -> Tensor:
        y, z = cubed(x, 1.0, [x, x])[0], cubed(x, 2.0, [x, x])[1]  # here
        return torch.add(y, z)

    compiled = differentiate(twice)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compiled(torch.ones(3))
        compiled(torch.ones(3))
    (warning,) = caught
    assert issubclass(warning.category, OpaqueOpWarning) and "strict=True" in str(warning.message)
    assert warning.filename.endswith("test_opaque.py")
    assert linecache.getline(__file__, warning.lineno).rstrip().endswith("# here")


def test_strict_makes_it_an_error() -> None:
    compiled = differentiate(program, strict=True)
    with pytest.raises(UnsupportedOpError, match=r"gradof_tests\.cubed(.|\n)*test_opaque.py"):
        compiled(*(torch.ones(4) for _ in range(3)))


def test_random_draws_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedOpError, match=r"gradof_tests\.noisy(.|\n)*random numbers"):
        differentiate(lambda x: noisy(x).sum()).trace(torch.ones(3))


@pytest.mark.filterwarnings("ignore::gradof.errors.OpaqueOpWarning")
def test_text_round_trip_and_the_gradient_is_a_graph() -> None:
    x, a, b = (torch.rand(4).requires_grad_() for _ in range(3))
    compiled = differentiate(program)
    gradient = compiled.gradient(x, a, b)
    for graph in (compiled.trace(x, a, b), gradient.f, gradient.df):
        verify(graph)
        assert str(parse_graph(str(graph))) == str(graph)
    assert "vjps=((True, True),)" in str(gradient.df)
    assert "name='gradof_tests::cubed'" in str(gradient.f)


@torch.library.custom_op("gradof_tests::same", mutates_args=())
def same(x: Tensor) -> Tensor:
    return x.clone()


@pytest.mark.filterwarnings("ignore::gradof.errors.OpaqueOpWarning")
def test_an_error_of_the_op_is_torchs_own() -> None:
    x = torch.rand(3, requires_grad=True)
    errors = []
    for fn in (differentiate(lambda x: same(x) * x), lambda x: same(x) * x):
        with pytest.raises(RuntimeError) as caught:
            fn(x).sum().backward()
        errors.append(str(caught.value))
    assert errors[0] == errors[1] and "gradof_tests.same" in errors[0]


@pytest.mark.filterwarnings("ignore::gradof.errors.OpaqueOpWarning")
def test_an_op_without_gradient_has_none() -> None:
    def fn(x: Tensor) -> Tensor:
        return torch.mul(torch.special.bessel_j0(x), x)

    grads = []
    for run in (differentiate(fn), fn):
        x = torch.linspace(0.1, 2, 3, requires_grad=True)
        run(x).sum().backward()
        grads.append(x.grad)
    torch.testing.assert_close(*grads)


@pytest.mark.filterwarnings("ignore::gradof.errors.OpaqueOpWarning")
def test_results_are_the_callers_own_memory() -> None:
    compiled = differentiate(lambda x: same(x))
    x = torch.ones(3)
    y = compiled(x)
    y += 1
    assert x.tolist() == [1.0] * 3 and compiled(x).tolist() == [1.0] * 3


def test_explain_names_what_torch_runs_and_its_line() -> None:
    def fn(x: Tensor) -> Tensor:
        return torch.mode(x, 0).values.sum()

    with pytest.warns(OpaqueOpWarning):
        text = str(differentiate(fn).explain(torch.ones(3, 2, requires_grad=True)))
    assert "run by torch, under its own autograd: aten::mode at" in text
    assert "test_opaque.py" in text


def test_sparse_gradients_are_not_torchs_to_hand_over() -> None:
    """A backward of ours gives dense gradients; eager's of such an embedding is sparse."""
    layer = nn.Embedding(5, 3, sparse=True)
    fast: Any = differentiate(lambda i: layer(i).sum(), strict=True)
    with pytest.raises(UnsupportedOpError, match="sparse"):
        fast(torch.tensor([0, 2]))
    made: Any = differentiate(lambda x: x.to_sparse().coalesce().values() * 2, strict=True)
    with pytest.raises(UnsupportedOpError):
        made(torch.eye(3, requires_grad=True))
