"""What later random programs found: changed views, second slopes, layouts, and what is empty."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import gradof
from gradof import differentiate, grad, hvp
from gradof.errors import EagerWarning
from gradof.testing.fuzz import Setting, confirm
from tests.testing.test_fuzz_found import right

Tensor = torch.Tensor

CHANGED_VIEWS: dict[str, Callable[[Tensor], Any]] = {
    "flattened": lambda x: _changed(x.reshape(()).expand(1, 1), lambda v: v[0].zero_()),
    "alias": lambda x: _changed(x.expand(1), lambda v: v.mul_(0.1)),
    "new dims": lambda x: _changed(x.broadcast_to(1, 1, 1), lambda v: v[0, 0].fill_(0.1)),
    "like another": lambda x: _changed(x.expand_as(torch.ones(1, 1)), lambda v: v.mul_(0)),
}  # fmt: skip


def _changed(view: Tensor, change: Callable[[Tensor], object]) -> Tensor:
    flat = view.flatten()
    change(view)
    return flat


@pytest.mark.parametrize("value", [1e9, math.inf])
@pytest.mark.parametrize("name", CHANGED_VIEWS)
def test_a_view_that_repeats_nothing_is_changed_exactly(name: str, value: float) -> None:
    right(lambda x, fn=CHANGED_VIEWS[name]: fn(x * 1), [torch.tensor([value])])


def test_a_part_of_what_is_expanded_is_not_changed_within_a_trace() -> None:
    def fn(x: Tensor) -> Tensor:
        view = (x * 1).expand(3)
        view[:1].view(-1).copy_(torch.tensor([0.1]))
        return view * 2

    with pytest.warns(EagerWarning, match="expand is changed in place"):
        out = differentiate(fn)(torch.tensor([1e9], requires_grad=True))
    assert torch.equal(out, torch.full((3,), 0.2))


STEPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "fmod": torch.fmod, "trunc": lambda x, y: torch.div(x, y, rounding_mode="trunc") + x * y,
    "remainder": torch.remainder,
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", STEPS)
def test_steps_have_a_second_gradient_of_zero_where_the_quotient_is_steep(
    name: str, dtype: torch.dtype
) -> None:
    small = 1e-25 if dtype == torch.bfloat16 else 4e-4 if dtype == torch.float16 else 1e-30
    right(STEPS[name], [torch.tensor([-1.6, 0.85]).to(dtype),
                        torch.tensor([small, -4 * small]).to(dtype)])  # fmt: skip


TRANSPOSED: dict[str, Callable[[Tensor], Tensor]] = {
    "product by place": lambda x: x.scatter_reduce(
        1, torch.zeros(2, 4, 3, dtype=torch.int64), x, "prod"),
    "nearest": lambda x: torch.nn.functional.interpolate(x, scale_factor=2),
    "linear": lambda x: torch.nn.functional.interpolate(x, scale_factor=2, mode="linear"),
    "pooled": lambda x: torch.nn.functional.adaptive_avg_pool1d(x, 3),
}  # fmt: skip


@pytest.mark.parametrize("name", TRANSPOSED)
def test_programs_in_place_of_ops_give_rows_where_the_ops_do(name: str) -> None:
    x = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(2)).mT.requires_grad_()
    have, want = differentiate(TRANSPOSED[name])(x), TRANSPOSED[name](x)
    assert have.stride() == want.stride()
    torch.testing.assert_close(have, want)


def test_the_log_of_the_normal_distribution_far_out_has_a_second_derivative() -> None:
    for dtype, rough in ((torch.float32, 2e-5), (torch.float64, 1e-10)):
        x = torch.tensor([-3.0, -11.0, -13.0, -40.0, -99.0, -101.0, -1e5, -1e20], dtype=dtype)
        x.requires_grad_()
        (slope,) = torch.autograd.grad(
            differentiate(torch.special.log_ndtr)(x).sum(), x, create_graph=True
        )
        (bend,) = torch.autograd.grad(slope.sum(), x)
        t = x.detach().double()
        near = 1 / torch.special.erfcx(-t / math.sqrt(2)) * math.sqrt(2 / math.pi)
        exact = torch.where(t > -50, -near * (near + t), -1 + 1 / t**2 - 6 / t**4)
        assert float((bend.double() - exact).abs().max()) < rough, (dtype, bend, exact)


def test_zero_to_a_power_is_differentiated_twice_in_the_power() -> None:
    import numpy as np

    for fn in (lambda y: np.sum(np.power(0.0, y)), lambda y: np.sum(np.zeros(2) ** y)):
        second = grad(lambda y, fn=fn: np.sum(grad(fn)(y)))(np.array([0.7, 2.0]))
        np.testing.assert_array_equal(second, [0.0, 0.0])


@pytest.mark.parametrize("order", ["C", "F"])
def test_ravel_of_what_has_gaps_is_a_copy(order: Any) -> None:
    import numpy as np

    x = np.arange(4.0).reshape(2, 2)[:, :1]

    def fn(x: Any) -> Any:
        flat = np.ravel(x, order)
        flat.fill(7.0)
        return np.sum(flat * x[:, 0])

    np.testing.assert_array_equal(grad(fn)(x), [[7.0], [7.0]])
    np.testing.assert_array_equal(x, [[0.0], [2.0]])


def test_a_transposed_convolution_of_no_batch_and_no_length() -> None:
    right(
        lambda x, w: torch.nn.functional.conv_transpose1d(x, w),
        [torch.ones(0, 2, 0), torch.ones(2, 3, 3)],
    )


def test_another_layout_of_an_array_that_is_reshaped_and_written_to() -> None:
    import numpy as np

    def fn(x: Any) -> Any:
        flat = x.reshape(-1, order="F")
        flat[0] = 7.0
        return np.sum(flat * 2)

    compiled = differentiate(fn)
    for order in ("C", "F", "C"):
        x = np.array([[1.0, 2.0], [3.0, 4.0]], order=order)
        plain = x.copy(order="K")
        assert compiled(x) == fn(plain)
        np.testing.assert_array_equal(x, plain)


@pytest.mark.filterwarnings("ignore::gradof.errors.OpaqueOpWarning")
def test_an_op_without_a_gradient_for_what_requires_none() -> None:
    def inputs() -> tuple[Tensor, ...]:
        return torch.tensor([0.5, 1.5]), torch.tensor([0.3, 2.0], requires_grad=True)

    verdict = confirm(lambda a, x: torch.special.gammainc(a * 2, x), inputs, Setting())
    assert verdict.passed and verdict.orders >= 1, verdict


def test_a_distribution_is_flat_outside_of_its_support() -> None:
    import numpy as np

    special = pytest.importorskip("scipy.special")

    def fn(x: Any, shape: Any) -> Any:
        return np.sum(special.tklmbda(x, shape))

    x, shape = np.array([-1.2, 1.2, 0.1]), np.array([1.44, 1.44, 1.44])
    for gradient in grad(fn, argnums=(0, 1))(x, shape):
        assert np.array_equal(gradient[:2], [0.0, 0.0]) and gradient[2] != 0.0


def test_a_mask_of_dropped_numbers_that_are_laid_out_otherwise() -> None:
    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        kept = torch.nn.functional.dropout(x, 0.5)
        return kept, kept[kept <= -0.2]

    x = torch.randn(2, 3, 2).permute(2, 1, 0).requires_grad_()
    for seed in range(6):
        compiled = differentiate(fn)
        torch.manual_seed(seed)
        want = fn(x)
        for _ in range(2):
            torch.manual_seed(seed)
            for a, b in zip(compiled(x), want, strict=True):
                assert torch.equal(a, b)
        assert compiled.cache_info().misses == 1


def test_the_logit_is_differentiated_twice_within_a_function() -> None:
    import numpy as np

    special = pytest.importorskip("scipy.special")
    x = np.array([0.3, 0.9])
    (second,) = hvp(lambda x: np.sum(special.logit(x) ** 2), (x,), (np.ones(2),))
    slope, bend = 1 / (x * (1 - x)), (2 * x - 1) / (x * (1 - x)) ** 2
    np.testing.assert_allclose(second, 2 * slope**2 + 2 * special.logit(x) * bend)


def test_the_elliptic_integral_has_a_slope_at_no_modulus() -> None:
    import numpy as np

    special = pytest.importorskip("scipy.special")
    slopes = grad(lambda m: np.sum(special.ellipkinc(0.5, m)))(np.array([0.0, 1e-5]))
    np.testing.assert_allclose(slopes[0], slopes[1], rtol=1e-4)


def test_an_empty_slice_of_one_column_stays_empty() -> None:
    def fn(x: Tensor) -> tuple[Tensor, ...]:
        cropped = torch.nn.functional.pad(x, (-1, 1))
        return torch.relu(cropped), x.var((1, 0)), torch.nn.functional.hardshrink(cropped)

    right(fn, [torch.randn(40_000, 1)])


def test_maxima_of_no_windows() -> None:
    right(lambda x: torch.nn.functional.max_pool1d(x, 2, 1), [torch.ones(0, 2, 3)])


REFLECTED: dict[str, Callable[..., Tensor]] = {
    "product": lambda a, tau, x: torch.linalg.householder_product(a, tau) + x.sum() * 0,
    **{f"{left} {transpose}": lambda a, tau, x, left=left, transpose=transpose: torch.ormqr(
        a, tau, x, left=left, transpose=transpose)
       for left in (True, False) for transpose in (True, False)},
}  # fmt: skip


@pytest.mark.parametrize("name", REFLECTED)
def test_reflections_of_complex_numbers(name: str) -> None:
    generator = torch.Generator().manual_seed(4)
    a, tau, x = (torch.randn(*shape, dtype=torch.complex128, generator=generator)
                 for shape in ((3, 3), (3,), (3, 3)))  # fmt: skip
    compiled = differentiate(lambda a, tau, x: REFLECTED[name](a, tau, x).abs().sum(), strict=True)
    args = [t.requires_grad_() for t in (a, tau, x)]
    torch.testing.assert_close(compiled(*args), REFLECTED[name](*args).abs().sum())
    assert compiled.cache_info().forward_runs == 1


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize("how", ["amax", "amin"])
def test_an_extreme_among_scattered_nans_is_nan(how: str, include_self: bool) -> None:
    generator = torch.Generator().manual_seed(2)
    index = torch.randint(0, 5, (4, 7), generator=generator)
    x, source = (torch.randn(4, n, generator=generator) for n in (6, 7))
    x[0, 1], source[1, 2], source[3, 5] = math.nan, math.nan, -math.nan
    index[0] = torch.arange(7) % 5 + 1  # the first row's only nan is x's own

    def fn(x: Tensor, source: Tensor) -> Tensor:
        return x.scatter_reduce(1, index, source, how, include_self=include_self)

    args = [x.requires_grad_(), source.requires_grad_()]
    compiled = differentiate(fn, strict=True)
    found, wanted = compiled(*args), fn(*args)
    torch.testing.assert_close(found, wanted, equal_nan=True)
    cotangent = torch.randn(found.shape, generator=generator)
    for ours, eager in zip(torch.autograd.grad(found, args, cotangent),
                           torch.autograd.grad(wanted, args, cotangent), strict=True):  # fmt: skip
        torch.testing.assert_close(ours, eager, equal_nan=True)
    assert compiled.cache_info().backward_runs == 1


EMBEDDED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "rows": lambda i, v: torch.nn.functional.embedding(i, v, max_norm=1.0),
    "bag": lambda i, v: torch.nn.functional.embedding_bag(i, v, max_norm=1.0, mode="sum"),
    "weighted": lambda i, v: torch.nn.functional.embedding_bag(
        i, v, max_norm=0.7, norm_type=1.0, mode="sum", per_sample_weights=v[:2, :2].tanh()),
    "by hand": lambda i, v: torch.embedding_renorm_(v.detach(), i.view(-1), 1.0, 2.0) * v,
}  # fmt: skip


@pytest.mark.parametrize("name", EMBEDDED)
def test_rows_of_a_view_that_an_embedding_scales_keep_their_gradient(name: str) -> None:
    index = torch.tensor([[2, 3], [1, 1]])

    def fn(w: Tensor) -> Tensor:
        view = (w * 1).reshape(-1)[:25].reshape(5, 5)
        return EMBEDDED[name](index, view) * view[:2].sum()

    w = torch.randn(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    right(fn, [w])


def test_an_embedding_scales_its_own_weight() -> None:
    def train(fast: bool) -> Tensor:
        torch.manual_seed(0)
        module = torch.nn.Embedding(5, 3, max_norm=1.0)
        run = differentiate(module, strict=True) if fast else module
        for _ in range(3):
            module.zero_grad()
            run(torch.tensor([[1, 2], [4, 4]])).square().sum().backward()
            with torch.no_grad():
                assert module.weight.grad is not None
                module.weight.sub_(module.weight.grad, alpha=-0.3)
        return module.weight.detach()

    torch.testing.assert_close(train(True), train(False))


@pytest.mark.parametrize("steps", [10, 41])
def test_what_a_loop_has_forgotten_has_no_gradient(steps: int) -> None:
    def fn(a: Tensor, b: Tensor, total: Tensor, x: Tensor) -> Tensor:
        for i in range(steps):
            total = total * 0.9 + a
            a, b = torch.tanh(b) + x[i].sum(), torch.sin(x[i])
        return a * 2 + total.detach()

    generator = torch.Generator().manual_seed(0)
    args = [torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()
            for shape in ((3,), (3,), (3,), (steps, 3))]  # fmt: skip
    compiled = differentiate(fn, strict=True)
    ours = torch.autograd.grad(compiled(*args).sum(), args, allow_unused=True)
    eager = torch.autograd.grad(fn(*args).sum(), args, allow_unused=True)
    assert [g is None for g in ours] == [g is None for g in eager] == [True, True, True, False]
    torch.testing.assert_close(ours[3], eager[3])
    assert any(node.kind == "Loop" for node in compiled.trace(*args).walk())
    right(fn, args)


@pytest.mark.parametrize("weight", [0.3 + 0.2j, 0.9 - 0.2j])
def test_a_complex_weight_of_lerp(weight: complex) -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(3, dtype=torch.complex128, generator=generator) for _ in range(2))
    compiled = differentiate(lambda a, b: torch.lerp(a, b, weight), strict=True)
    args = [a.requires_grad_(), b.requires_grad_()]
    found, wanted = compiled(*args), torch.lerp(a, b, weight)
    torch.testing.assert_close(found, wanted)
    cotangent = torch.randn(3, dtype=torch.complex128, generator=generator)
    torch.testing.assert_close(
        torch.autograd.grad(found, args, cotangent), torch.autograd.grad(wanted, args, cotangent)
    )


def test_medians_over_expanded_dims() -> None:
    # torch's own, in eager, reads beside an expanded tensor
    x = torch.arange(1.0, 6.0, requires_grad=True)
    compiled = differentiate(lambda x: x.expand(4, 5).median(0).values, strict=True)
    found = compiled(x)
    assert torch.equal(found, torch.arange(1.0, 6.0))
    assert torch.equal(torch.autograd.grad(found.sum(), x)[0], torch.ones(5))


def test_rows_of_a_loop_that_are_joined_right_behind_it() -> None:
    def fn(c0: Tensor, c1: Tensor, c2: Tensor, r0: Tensor, r1: Tensor) -> tuple[Tensor, ...]:
        def step(carry: Any, row: Any) -> Any:
            c0, c1, c2 = carry
            c2, c0 = torch.tanh(torch.sign(c1) * row[0]), c2
            c0 = row[1] / (1.0 + row[1].abs())
            c1 = (c1 * c2) / (1.0 + (c1 * c2).abs())
            c2 = 0.5 * c2 + 0.3 * torch.tanh(row[0].var(-1, keepdim=True) + row[0])
            return (c0, c1, c2), c1

        (_, c1, _), ys = gradof.scan(step, (c0, c1, c2), (r0, r1), reverse=True)
        return c1, ys

    right(fn, [*(torch.randn(3, 4, dtype=torch.float64) for _ in range(3)),
               *(torch.randn(9, 3, 4, dtype=torch.float64) for _ in range(2))])  # fmt: skip


IN_ORDER: dict[str, Callable[[Any], Any]] = {
    "Fortran": np.asfortranarray, "C": np.ascontiguousarray,
    "asarray": lambda a: np.asarray(a, order="F"), "any": lambda a: np.asarray(a, order="A"),
    "transposed": lambda a: np.ascontiguousarray(a.T).T,
}  # fmt: skip


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("name", IN_ORDER)
def test_writes_reach_the_argument_where_numpy_makes_no_copy(name: str, order: Any) -> None:
    def program(x: Any) -> Any:
        part = IN_ORDER[name](x)
        part[1:, ::-1] = -1.5
        return (part * x).sum()

    compiled = differentiate(program)
    for _ in range(2):
        mine, plain = (np.arange(12.0).reshape(3, 4, order=order) for _ in range(2))
        assert compiled(mine) == program(plain)
        np.testing.assert_array_equal(mine, plain)
    assert compiled.cache_info().misses == 1
    other = np.arange(12.0).reshape(3, 4, order="F" if order == "C" else "C")
    plain = other.copy(order="K")
    assert compiled(other) == program(plain)
    np.testing.assert_array_equal(other, plain)


def test_inner_products_are_as_exact_as_eagers() -> None:
    x = torch.randn(100_000, generator=torch.Generator().manual_seed(0))
    compiled = differentiate(lambda x: torch.dot(x, x))
    exact = torch.dot(x.double(), x.double())
    assert abs(compiled(x) - exact) < 1e-6 * exact  # torch.mm of a row and a column: 2e-5
    assert compiled.cache_info().forward_runs == 1
