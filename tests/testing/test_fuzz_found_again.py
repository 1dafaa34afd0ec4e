"""What random programs found after that: second slopes at 0, layouts, what is empty, angles."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from gradof import differentiate, grad, hvp, value_and_grad
from gradof.errors import InputError, OpaqueOpWarning
from gradof.testing import check
from gradof.testing.fuzz import generate
from gradof.testing.fuzz.jax_subject import translated
from gradof.testing.fuzz.judges import judge_of
from tests.testing.test_fuzz_found import right

Tensor = torch.Tensor

LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "smooth l1": F.smooth_l1_loss, "huber": F.huber_loss,
    "narrow": lambda x, y: F.smooth_l1_loss(x, y, beta=0.3, reduction="sum"),
}  # fmt: skip


@pytest.mark.parametrize("name", LOSSES)
def test_losses_are_round_where_nothing_is_off(name: str) -> None:
    x = torch.tensor([0.3, -2.0, 0.0, 1.0], dtype=torch.float64)
    right(LOSSES[name], [x, torch.tensor([0.3, 0.5, 0.0, -1.0], dtype=torch.float64)])


@pytest.mark.parametrize("strides", [(2, 1), (1, 1), (0, 1), (1, 0)])
def test_products_with_rows_that_overlap(strides: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(0)
    left = torch.randn(1, 5370, generator=generator)
    memory = torch.randn(2 * 5370 + 4, generator=generator)

    def fn(x: Tensor, m: Tensor) -> Tensor:
        return x @ m.as_strided((5370, 4), strides)

    have, want = differentiate(fn)(left, memory), fn(left.double(), memory.double())
    assert torch.allclose(have.double(), want, rtol=0, atol=1e-4 * float(want.abs().max()))
    right(lambda x, m: x @ m, [left, memory.as_strided((5370, 4), strides)])


def test_reflections_leave_columns_alone_that_they_do_not_reach() -> None:
    a = torch.randn(5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    a[4, 2] = -math.inf
    tau = torch.tensor([0.3, -0.2, 0.9, 0.4, 0.1], dtype=torch.float64)
    have = differentiate(torch.linalg.householder_product)(a, tau)
    want = torch.linalg.householder_product(a, tau)
    assert torch.allclose(have[:, :2], want[:, :2]) and bool(want[:, :2].isfinite().all())


def test_a_convolution_of_nothing_is_differentiated_twice() -> None:
    x = torch.zeros(0, 1, 0, dtype=torch.float64)
    w = torch.tensor([[[0.7]]], dtype=torch.float64)
    right(lambda x, w: F.conv1d(x, w, padding=1), [x, w])


def _softmax(x: Tensor) -> Tensor:
    return x.softmax(0)


def test_a_long_softmax_is_nearer_to_the_answer_than_eagers() -> None:
    x = torch.randint(0, 2, (114_536,), generator=torch.Generator().manual_seed(0)).double()
    x.requires_grad_()
    wide = np.exp(x.detach().numpy().astype(np.longdouble))
    exact = wide / wide.sum()

    def off(y: Tensor) -> float:
        return float(np.abs(y.detach().numpy() - exact).max())

    assert off(differentiate(_softmax)(x)) <= max(off(_softmax(x)), 1e-19)
    right(_softmax, [x.detach()])


def test_the_mean_of_two_zeros() -> None:
    special = pytest.importorskip("scipy.special")
    zeros = np.array([0.0, -0.0])
    assert (differentiate(lambda a, b: special.agm(a, b))(zeros, zeros) == 0).all()
    slopes = grad(lambda x: np.sum(special.agm(x, x)))(np.array([0.0, -0.0, 1.0]))
    assert np.allclose(slopes, 1.0)


def test_the_angle_of_the_origin_is_flat_to_second_order() -> None:
    def fn(x: Any, y: Any) -> Any:
        return np.sum(np.arctan2(x - x, y))

    x, y = np.array([-2.7, 1.0]), np.array([0.0, 2.0])
    for line in hvp(fn, (x, y), (np.ones(2), np.ones(2))):
        assert np.isfinite(line).all()


ANGLES = np.array([0.0, 30.0, 45.0, 60.0, 89.7, 90.0, 135.0, 180.0, 180.2, 270.1, 359.9, 720.25,
                   -60.0, -180.2, 36_000_000.7])  # fmt: skip


@pytest.mark.parametrize("name", ["sindg", "cosdg", "tandg", "cotdg"])
def test_degrees_are_exact_after_whole_turns(name: str) -> None:
    function = getattr(pytest.importorskip("scipy.special"), name)
    with np.errstate(divide="ignore"):
        have, want = differentiate(lambda x: function(x))(ANGLES), function(ANGLES)
        finite = np.isfinite(want)
        assert np.allclose(have[finite], want[finite], rtol=1e-12, atol=1e-15)
    inner = np.array([30.0, 60.0, 100.0, 170.0, 200.0, -50.0, 1000.3])
    check(lambda x: function(x), (inner,), order=2)


def test_elements_of_other_sizes_are_moved_by_their_own() -> None:
    check(lambda x: np.sum(np.tanh(x) * x[0]), (np.array([-0.3, 0.7, 3e38]),))


def test_rules_of_complex_results_are_held_to_differences() -> None:
    report = check(lambda x: np.abs(np.fft.fft(x)), (np.array([0.3, -1.0, 2.0]),), per_op=True)
    fourier = [row for row in report.ops if row.op.startswith("fft")]
    assert fourier and not report.culprits


def test_who_is_judged_has_a_library() -> None:
    with pytest.raises(InputError, match="jax runs numpy programs"):
        judge_of("torch", "jax")
    program = generate("numpy", 3, "small")
    assert "import jax.numpy as np" in translated(program.text())


def test_jax_is_judged_as_we_are() -> None:
    pytest.importorskip("jax")
    from gradof.testing.fuzz import search

    found = search("numpy", programs=6, seed=40_000, size="small", subject="jax")
    assert found.counts["second"] >= 1 and not found.wrong, found.summary()


SCALARS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.sum(), "item": lambda x: x[0], "product": lambda x: x @ x,
    "elementwise": lambda x: np.exp(x.sum()), "list": lambda x: np.sum([x[0], x[1]]),
    "array": lambda x: np.array(x.sum()),  # of which a view is one
}  # fmt: skip


@pytest.mark.parametrize("index", [None, ..., (None, None)], ids=["none", "ellipsis", "nones"])
@pytest.mark.parametrize("name", SCALARS)
def test_an_index_of_a_scalar_is_a_copy(name: str, index: Any) -> None:
    def program(x: Any) -> Any:
        scalar = SCALARS[name](x)
        part = scalar[index]
        part *= 2.0
        return scalar + 0.1 * part.sum()

    x = np.array([0.1, 0.2, 0.3])
    value, slope = value_and_grad(program)(x)
    assert value == pytest.approx(program(x))
    steps = 1e-6 * np.eye(3)
    expected = [(program(x + d) - program(x - d)) / 2e-6 for d in steps]
    np.testing.assert_allclose(slope, expected, rtol=1e-6)


NANS: dict[str, Callable[[Tensor], Tensor]] = {
    "max": lambda x: x.max(), "min": lambda x: x.min(),
    "norm": lambda x: torch.linalg.vector_norm(x, torch.inf),
    "least": lambda x: torch.linalg.vector_norm(x, -torch.inf),
}  # fmt: skip


@pytest.mark.parametrize("values", [[math.nan], [math.nan, 1.0, math.nan], [[2.0, math.nan]]])
@pytest.mark.parametrize("name", NANS)
def test_extremes_of_nans(name: str, values: Any) -> None:
    right(NANS[name], [torch.tensor(values, dtype=torch.float64)])


def test_results_that_are_counts_where_another_is_computed_from_them() -> None:
    def fn(x: Tensor) -> tuple[Tensor, Tensor]:
        count = torch.linalg.vector_norm(x, 0, 0, keepdim=True)
        return count.unsqueeze(-1), torch.acos(torch.sigmoid(count) * 1.8 - 0.9)

    right(fn, [torch.tensor([1.0, 0.0], dtype=torch.float64)])


@pytest.mark.parametrize("p", [0.0, 2.0, math.inf])
def test_distances_from_what_is_infinite(p: float) -> None:
    x = torch.tensor([[0.0, 1.0], [math.inf, 2.0], [3.0, -math.inf]], dtype=torch.float64)
    y = torch.tensor([[0.5, 1.0], [2.0, 2.5]], dtype=torch.float64)
    compiled = differentiate(lambda x, y: torch.cdist(x, y, p))
    assert torch.equal(compiled(x, y), torch.cdist(x, y, p))
    assert torch.equal(differentiate(lambda x: torch.pdist(x, p))(x), torch.pdist(x, p))
    assert compiled.cache_info().forward_runs == 1


def test_a_check_of_products_of_stacks_by_op() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5))
    report = check(lambda x: np.sum((x @ np.swapaxes(x, -1, -2)) ** 2), (x,), per_op=True)
    assert any(row.op == "bmm" for row in report.ops)


def test_means_of_numbers_far_apart() -> None:
    from scipy import special

    a = np.array([0.5, 3e38, 1e308, 2.0, -1.0, 0.0, -1.0, math.inf, 0.0, 2.0])
    b = np.array([3e38, 1e-20, 1e308, 2.0, -4.0, 1.0, -math.inf, math.inf, math.inf, -1.0])
    np.testing.assert_allclose(differentiate(special.agm)(a, b), special.agm(a, b), rtol=1e-14)


def test_powers_of_nothing() -> None:
    from scipy import special

    x, power = np.array([-0.0, 0.0, 0.0, 0.0, 2.0]), np.array([-0.0, 0.0, 1.0, -1.0, 0.0])
    with np.errstate(divide="ignore"):
        np.testing.assert_array_equal(
            differentiate(special.boxcox)(x, power), special.boxcox(x, power)
        )


def test_tails_of_tukeys_distribution_in_half_the_digits() -> None:
    from scipy import special

    x = np.array([3.0, -2.5, 0.4, 1.5, 6.0, -0.9])
    shape = np.array([0.1, -0.7, 1e-3, -3e-4, -1.5, 0.9])
    slopes = grad(lambda x, s: np.sum(special.tklmbda(x, s)), (0, 1))
    for exact, found in zip(
        slopes(x, shape), slopes(x.astype(np.float32), shape.astype(np.float32)), strict=True
    ):
        np.testing.assert_allclose(found, exact, rtol=3e-5, atol=1e-9)
    away = [0, 1, 4, 5]  # beside shape 0 scipy has another distribution
    step = (special.tklmbda(x, shape + 1e-5) - special.tklmbda(x, shape - 1e-5)) / 2e-5
    np.testing.assert_allclose(slopes(x, shape)[1][away], step[away], rtol=1e-5)


FLAT: dict[str, Callable[[Tensor], Tensor]] = {
    "hardsigmoid": lambda x: F.hardsigmoid(x), "angle": lambda x: x.angle(),
}  # fmt: skip


@pytest.mark.parametrize("name", FLAT)
def test_slopes_at_nan(name: str) -> None:
    x = torch.tensor([math.nan, 0.3, -4.0], dtype=torch.float64, requires_grad=True)
    found = torch.autograd.grad(differentiate(FLAT[name])(x).sum(), x)[0]
    assert torch.allclose(found, torch.autograd.grad(FLAT[name](x).sum(), x)[0], rtol=1e-15)


def test_sinc_near_0() -> None:
    x = np.array([0.0, 1e-9, -1e-5, 0.03, 0.3, -0.4, 2.2])
    z = np.pi * np.where(x == 0, 1.0, x)
    near = abs(x) < 1e-3
    first = np.where(near, -(np.pi**2) * x / 3, np.pi * (np.cos(z) - np.sin(z) / z) / z)
    second = -np.sin(z) / z - 2 * np.cos(z) / z**2 + 2 * np.sin(z) / z**3
    second = np.pi**2 * np.where(near, -1 / 3, second)
    slope = grad(lambda x: np.sum(np.sinc(x)))
    np.testing.assert_allclose(slope(x), first, rtol=1e-9)
    np.testing.assert_allclose(grad(lambda x: np.sum(slope(x)))(x), second, rtol=1e-6)

    tensor = torch.from_numpy(x).requires_grad_()
    found = torch.autograd.grad(differentiate(torch.sinc)(tensor).sum(), tensor, create_graph=True)
    np.testing.assert_allclose(found[0].detach(), first, rtol=1e-9)
    (found_second,) = torch.autograd.grad(found[0].sum(), tensor)
    np.testing.assert_allclose(found_second, second, rtol=1e-6)


def test_sums_of_long_columns_in_a_native_function() -> None:
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(2, 40, 2, generator=generator) for _ in range(2))
    x = torch.randint(-2, 3, (2, 1638, 2), generator=generator).float()

    def fn(q: Tensor, k: Tensor, x: Tensor) -> Any:
        return F.scaled_dot_product_attention(q, k, k), x.var((0, 1), correction=0)

    compiled = differentiate(fn, strict=True)
    exact = x.double().var((0, 1), correction=0)
    for _ in range(2):
        assert (compiled(q, k, x)[1] - exact).abs().max() < 2e-6 * exact.max()
    assert "the whole graph" in str(compiled.explain(q, k, x))


@pytest.mark.parametrize("call", [
    lambda b, at: torch.scatter_add(b, 0, at, ~b),
    lambda b, at: torch.index_add(b, 0, at[0, :3], b[:3]),
    lambda b, at: torch.index_put(b, (at[0],), b[0], accumulate=True),
])  # fmt: skip
def test_booleans_that_are_added_by_an_index_beside_native_code(call: Any) -> None:
    def program(x: torch.Tensor, b: torch.Tensor, at: torch.Tensor) -> Any:
        return (x * x.abs() + x.sin() + 0.5).cos().tanh().exp(), call(b, at)

    x = torch.randn(4, 4, dtype=torch.float64, requires_grad=True)
    b, at = torch.randn(4, 4) > 0, torch.randint(0, 4, (4, 4))
    ours, eager = differentiate(program)(x, b, at), program(x, b, at)
    assert torch.equal(ours[1], eager[1])
    torch.testing.assert_close(ours[0], eager[0])


def _filled_beside_a_view(x: Tensor) -> Any:
    made = x.new_ones((2, 2, 2))
    view = made[1::2]
    made.copy_(torch.tensor([[0.1, 0.2]]))
    return made, view


def _filled_through_a_view(x: Tensor) -> Any:
    made = torch.asinh(x.detach())
    view = made[..., None]
    view[:] = 0.0
    return made, view


def _parts_of_what_is_filled(x: Tensor) -> Any:
    made = torch.zeros(4, 2)
    made.copy_(x * 2)
    return made[0], made[1:], made[2:]


@pytest.mark.parametrize("program", [
    _filled_beside_a_view, _filled_through_a_view, _parts_of_what_is_filled,
])  # fmt: skip
def test_results_that_were_filled_have_memory_for_each_element(program: Any) -> None:
    x = torch.randn(1, 2, requires_grad=True)
    with torch.no_grad():
        ours, eager = differentiate(program)(x), program(x)
    assert [y.stride() for y in ours] == [y.stride() for y in eager]
    assert len({y.untyped_storage().data_ptr() for y in ours}) == 1
    ours[0][..., 0] += 1.0  # torch refuses it where elements share memory
    eager[0][..., 0] += 1.0
    assert all(map(torch.equal, ours, eager))


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_a_number_is_put_into_complex_halves() -> None:
    def program(x: Tensor, y: Tensor, at: Tensor) -> Tensor:
        made = torch.complex(x, y)
        made[at] = 0
        return made

    x, y = torch.randn(7, 1).half(), torch.randn(7, 1).half()
    at = torch.tensor([5, 0, 1])
    with pytest.warns(OpaqueOpWarning, match="aten.complex has no rule"):
        ours = differentiate(program)(x, y, at)
    assert ours.dtype == torch.complex32
    assert torch.equal(torch.view_as_real(ours), torch.view_as_real(program(x, y, at)))


def test_a_kernel_with_many_sums_over_rows() -> None:
    """A label of its code had the name of its fifth sum's variable."""

    def program(x: Tensor) -> Any:
        norm, y = torch.linalg.vector_norm(x, 3, (0,), keepdim=True), x
        for row in x.unbind(0)[:4]:
            y = y * 1.24 + row.sum()
        return norm, torch.square(y)

    right(program, [torch.randn(713, 3, 2, 8)])


def test_select_has_the_dtype_of_all_its_choices() -> None:
    """A number beside a float32 array was rounded to float32, in a result of float64."""

    def program(x: Any, y: Any) -> Any:
        return np.select([x > 0.5, x > 0], [x * 2, y], -1.68)

    x, y = np.linspace(-1.0, 2.0, 8), np.linspace(0.0, 1.0, 8, dtype=np.float32)
    np.testing.assert_array_equal(differentiate(program)(x, y), program(x, y))
    check(program, (x, y), order=2)
