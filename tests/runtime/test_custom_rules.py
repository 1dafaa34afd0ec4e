"""Rules of the user's own in compiled torch code: they are followed, to second order.

Every rule here differs from the true derivative, so one that was ignored would be seen.
"""

# mypy: disable-error-code="no-untyped-call, no-any-return, untyped-decorator"
from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.autograd.function import once_differentiable

import gradof
from gradof import differentiate
from gradof.errors import CustomRuleError, DataDependentError
from tests.runtime.compare import check, close

Tensor = torch.Tensor


def leaf(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(shape, dtype=dtype, generator=g).requires_grad_()


class Tripled(torch.autograd.Function):
    """Reads input and output; three times what it should be."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float) -> Tensor:
        y = x.exp() * scale
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, y = ctx.saved_tensors
        return g * 3 * torch.sin(x) * y, None


class Rounded(torch.autograd.Function):
    """Straight through."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g


class Reversed(torch.autograd.Function):
    """Gradient reversal, in the style with setup_context."""

    @staticmethod
    def forward(x: Tensor, strength: float) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.strength = inputs[1]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return -ctx.strength * g, None


class Stopped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> None:
        return None


class Pair(torch.autograd.Function):
    """Several results, one of them without gradient, and needs_input_grad."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Any:
        top = x.argmax(-1)
        mask = (x > 0).to(x.dtype)
        ctx.save_for_backward(x, w)
        ctx.mark_non_differentiable(top, mask)
        return x * w, top, mask, x + w

    @staticmethod
    def backward(ctx: Any, g: Tensor, g_top: Tensor, g_mask: Tensor, g_sum: Tensor) -> Any:
        x, w = ctx.saved_tensors
        dx = g * w * 5 + g_sum if ctx.needs_input_grad[0] else None
        dw = (g * x).sin() - g_sum if ctx.needs_input_grad[1] else None
        return dx, dw


class Relu(torch.autograd.Function):
    """The example of torch's tutorial, with an assignment to a mask of the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        grad = g.clone()
        grad[x < 0] = 0
        return 2 * grad


class FromInside(torch.autograd.Function):
    """Saves what has no history: in eager a constant to the second derivative."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.slope = x.cos()
        return x.sin()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * ctx.slope * 7


def wide(x: Tensor) -> Tensor:
    return Tripled.apply(x * x, 0.5)


FUNCTIONS = {
    "tripled": lambda x: (wide(x) * x).sum(),
    "twice": lambda x: (wide(x) * wide(x.sin())).sum(),
    "shared": lambda x: (lambda h: (wide(h) + Tripled.apply(h, 2.0) * h).sum())(x.tanh()),
    "inside each other": lambda x: Tripled.apply(Rounded.apply(Tripled.apply(x, 1.0)) * x, 0.1),
    "straight through": lambda x: (Rounded.apply(x * 3) ** 2 * x).sum(),
    "reversal": lambda x: (Reversed.apply(x.sin(), 0.3) * x).sum(),
    "relu": lambda x: (Relu.apply(x.sin()) * x).sum(),
    "from inside": lambda x: FromInside.apply(x * x) * x,
    "pair": lambda x: (lambda r: (r[0] * r[2] + r[3].sin()).sum())(Pair.apply(x, x[..., :1] * x)),
    "result used in place": lambda x: Rounded.apply(x * 3).mul_(x).sum(),
    "a view of the result": lambda x: (wide(x)[..., ::2] * 3).sum() + x.sum(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_functions_of_torch_are_honoured(name: str, dtype: torch.dtype) -> None:
    check(FUNCTIONS[name], leaf(3, 4, dtype=dtype), order=2)


@pytest.mark.parametrize("shape", [(0,), (), (3, 0, 2)])
def test_shapes_without_elements_or_dims(shape: tuple[int, ...]) -> None:
    check(FUNCTIONS["tripled"], leaf(*shape), order=2)


def test_an_operand_that_is_no_contiguous_one() -> None:
    check(FUNCTIONS["tripled"], leaf(4, 6)[::2].t().detach().requires_grad_(), order=2)


def test_a_rule_without_gradient_gives_none_as_in_eager() -> None:
    x, y = leaf(3), leaf(3, seed=1)
    got = torch.autograd.grad(
        differentiate(lambda x, y: Stopped.apply(x) * y)(x, y), (x, y), torch.ones(3).double(),
        allow_unused=True,
    )  # fmt: skip
    close(got[0], None)
    close(got[1], 2 * x)


def test_gradients_of_arguments_that_do_not_require_grad() -> None:
    x = leaf(5)
    (want,) = torch.autograd.grad(FUNCTIONS["tripled"](x), x)
    close(gradof.grad(FUNCTIONS["tripled"])(x.detach()), want)
    (want_pair,) = torch.autograd.grad(FUNCTIONS["pair"](x), x)
    close(gradof.grad(FUNCTIONS["pair"])(x.detach()), want_pair)


def test_a_gradient_taken_inside_follows_the_rule() -> None:
    def penalty(x: Tensor) -> Tensor:
        (g,) = torch.autograd.grad(FUNCTIONS["tripled"](x), x, create_graph=True)
        return (g * g).sum()

    check(penalty, leaf(4), order=2)


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 4, dtype=torch.float64)
        self.apply_rule = Tripled.apply

    def forward(self, x: Tensor) -> Tensor:
        return Reversed.apply(self.apply_rule(self.inner(x), 0.3), 2.0)


def test_inside_modules() -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(Block(), torch.nn.Tanh(), Block())
    x = leaf(2, 4)
    parameters = list(module.parameters())
    want = torch.autograd.grad(module(x).cos().sum(), [x, *parameters])
    got = torch.autograd.grad(differentiate(module)(x).cos().sum(), [x, *parameters])
    for a, b in zip(got, want, strict=True):
        close(a, b)


def test_calls_with_other_values_share_the_trace() -> None:
    compiled = differentiate(FUNCTIONS["tripled"])
    for seed in range(3):
        x = leaf(4, seed=seed)
        (want,) = torch.autograd.grad(FUNCTIONS["tripled"](x), x)
        close(torch.autograd.grad(compiled(x), x)[0], want)
    assert compiled.cache_info().misses == 1


def test_the_rule_goes_where_no_gradient_is_wanted() -> None:
    compiled = differentiate(FUNCTIONS["tripled"])
    x = leaf(4).detach()
    close(compiled(x), FUNCTIONS["tripled"](x))
    assert all("sin" not in plan.executable.source for plan in compiled.plans())


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * ctx.saved_tensors[0] * 9


def test_once_differentiable_is_an_error_at_the_second_order() -> None:
    x = leaf(3)

    def fn(x: Tensor) -> Tensor:
        return (Once.apply(x.sin()) ** 2).sum()

    compiled = differentiate(fn)
    (want,) = torch.autograd.grad(fn(x), x)
    close(torch.autograd.grad(compiled(x), x)[0], want)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        torch.autograd.grad(fn(x), x, create_graph=True)[0].sum().backward()
    (g,) = torch.autograd.grad(compiled(x), x, create_graph=True)
    close(g, want)
    with pytest.raises(CustomRuleError, match="once_differentiable"):
        g.sum().backward()


def _wrong(returned: Any) -> Any:
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
            return x * y

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            return returned(g)

    return lambda x, y: Wrong.apply(x, y).sum()


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda g: g, "1 gradients for 2 arguments"),
        (lambda g: (g, g, g), "3 gradients for 2 arguments"),
        (lambda g: (g[:2], g), r"gradient of f64\[2\] for argument 0"),
        (lambda g: (3.0, g), "a float for argument 0"),
    ],
)
def test_wrong_gradients_are_named_with_their_line(returned: Any, message: str) -> None:
    with pytest.raises(CustomRuleError, match=message) as caught:
        differentiate(_wrong(returned), strict=True)(leaf(3), leaf(3, seed=1))
    assert "test_custom_rules.py" in str(caught.value.loc)


def test_a_gradient_is_cast_and_summed_to_its_argument_as_in_eager() -> None:
    check(_wrong(lambda g: (g.expand(2, 3).cos(), g.float())), leaf(3), leaf(3, seed=1))


def test_a_branch_on_a_cotangent_is_refused_and_one_on_a_value_is_guarded() -> None:
    with pytest.raises(DataDependentError, match="cotangent"):
        differentiate(
            _wrong(lambda g: (g if g.sum() > 0 else -g, g)), strict=True
        )(leaf(3), leaf(3))

    class Branching(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x * 1

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return g * 2 if x.sum() > 0 else g * x * 5

    def fn(x: Tensor) -> Tensor:
        return (Branching.apply(x) * x).sum()

    compiled = differentiate(fn)
    for x in (leaf(3).detach().abs(), -leaf(3).detach().abs()):
        x.requires_grad_()
        close(torch.autograd.grad(compiled(x), x)[0], torch.autograd.grad(fn(x), x)[0])


@torch.library.custom_op("gradof_tests::halved", mutates_args=())
def halved(x: Tensor) -> Tensor:
    return x * 0.5


halved.register_autograd(
    lambda ctx, g: g * ctx.saved_tensors[0] * 11,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
)


@pytest.mark.filterwarnings("ignore::gradof.errors.OpaqueOpWarning")
def test_ops_of_torch_library_keep_their_registered_gradient() -> None:
    check(lambda x: (halved(x.sin()) * x).sum(), leaf(4), order=2)


class Dirty(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * 9


class Sparse(torch.autograd.Function):
    """Takes undefined cotangents as None."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Any:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x)
        return x * 1, x * 2

    @staticmethod
    def backward(ctx: Any, a: Tensor | None, b: Tensor | None) -> Any:
        (x,) = ctx.saved_tensors
        parts = [g * x * k for g, k in ((a, 5), (b, 7)) if g is not None]
        return sum(parts)


def test_a_function_that_changes_its_argument() -> None:
    def fn(x: Tensor) -> Tensor:
        h = x * x
        out = Dirty.apply(h)
        return (out * h).sum()

    check(fn, leaf(3), order=2)


@pytest.mark.parametrize("used", [(0,), (1,), (0, 1)])
def test_undefined_cotangents(used: tuple[int, ...]) -> None:
    def fn(x: Tensor) -> Tensor:
        results = Sparse.apply(x.sin())
        return torch.stack([results[i].sum() for i in used]).sin().sum()

    check(fn, leaf(3), order=2)


@pytest.mark.parametrize("budget", [0.0, 0.5])
@pytest.mark.parametrize("name", ["tripled", "shared", "pair", "from inside"])
def test_what_is_computed_again_keeps_its_rule(name: str, budget: float) -> None:
    fn = FUNCTIONS[name]
    compiled = differentiate(fn, memory_budget=budget)
    x = leaf(3, 4)
    firsts = [torch.autograd.grad(f(x).sum(), x, create_graph=True)[0] for f in (compiled, fn)]
    close(firsts[0], firsts[1])
    got, want = (torch.autograd.grad(g.sin().sum(), x)[0] for g in firsts)
    close(got, want)
