"""What random programs found since: where memory begins, long sums, numbers that saturate."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from gradof import differentiate
from gradof.errors import EagerWarning, OpaqueOpWarning
from gradof.testing import check
from gradof.testing.fuzz import Setting
from gradof.testing.fuzz.torch_judge import judge
from tests.testing.test_fuzz_found import right

Tensor = torch.Tensor
LIBRARY = torch.linalg


def _at(offset: int) -> Tensor:
    return torch.arange(20.0).as_strided((4,), (1,), offset).detach().requires_grad_()


@pytest.mark.filterwarnings("ignore::gradof.errors.EagerWarning")
@pytest.mark.parametrize("read", [torch.as_strided, torch.as_strided_copy])
def test_memory_is_read_from_where_the_call_says(read: Callable[..., Tensor]) -> None:
    """Which is another element of an argument that begins elsewhere in its memory."""

    def fn(x: Tensor) -> Tensor:
        return read(x, (2,), (1,), 2) * 2

    compiled = differentiate(fn)
    for x in (_at(0), _at(2), _at(0), _at(1)):
        assert compiled(x).tolist() == fn(x).tolist() == [4.0, 6.0]
        (mine,), (eagers,) = (torch.autograd.grad(f(x).sum(), x) for f in (compiled, fn))
        assert mine.tolist() == eagers.tolist()


def test_reflections_of_nothing_have_no_gradient() -> None:
    def gradients(fn: Any) -> list[tuple[int, ...] | None]:
        args = [torch.zeros(s, requires_grad=True) for s in ((2, 3, 0), (2, 0), (2, 3, 4))]
        found = torch.autograd.grad(fn(*args).sum(), args, allow_unused=True)
        return [None if g is None else tuple(g.shape) for g in found]

    assert gradients(differentiate(torch.ormqr)) == gradients(torch.ormqr)


def _written(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 1.5
    turned = y.mT
    turned[0].zero_()
    return y, turned


SHARED: dict[str, Callable[[Tensor], Any]] = {
    "solved": lambda x: (s := LIBRARY.solve(x @ x.mT + torch.eye(3), x), s.mT),
    "reflections": lambda x: LIBRARY.householder_product(x.mT, x[:, 0]).mT,
    "written": _written, "rolled": lambda x: x.mT.contiguous().mT.roll(0, -1).chunk(3),
    "rows of a stack": lambda x: (s := torch.stack([x, x], -1), (s[1], s.mT))[1],
    "grown": lambda x: F.interpolate(x[None], scale_factor=2)[0].chunk(3),
}  # fmt: skip


@pytest.mark.parametrize("name", SHARED)
def test_results_that_share_memory_lie_as_in_eager(name: str) -> None:
    fn = SHARED[name]
    x = torch.randn(3, 5, generator=torch.Generator().manual_seed(1)).requires_grad_()

    def strides(found: Any) -> list[tuple[int, ...]]:
        return [t.stride() for t in (found if isinstance(found, tuple | list) else (found,))]

    compiled = differentiate(fn)
    assert strides(compiled(x)) == strides(fn(x))
    assert compiled.cache_info().forward_runs and not compiled.cache_info().eager_runs


LONG: dict[str, tuple[Callable[[Tensor], Tensor], tuple[int, ...], tuple[int, ...]]] = {
    "mean beside a dim of one": (lambda x: x.mean((2, 0)), (7856, 2, 1), (0, 1, 1)),
    "complex mean": (lambda x: x.to(torch.complex64).mean(0), (7516, 2), (0, 1)),
    "sum of columns": (lambda x: x.sum(1), (3, 20000), (1, 0)),
    "dot": (lambda x: torch.dot(x, x), (39360,), (0,)),
    "narrow product": (lambda x: x.mT @ (x * 1.1), (40000, 2), (0, 1)),
    "narrow product of few": (lambda x: (x * 1.5).mT @ (x * 1.1), (3000, 2), (0, 1)),
    "running sum": (lambda x: (x * 1.5).cumsum(-1) + x, (3024,), (0,)),
    "running product": (lambda x: (x + 0.25).cumprod(0), (9000,), (0,)),
}  # fmt: skip


@pytest.mark.parametrize("name", LONG)
def test_long_sums_of_equal_numbers_keep_their_digits(name: str) -> None:
    """One running sum in float32 is off by 1e-4 after ten thousand additions of one number."""
    fn, shape, strides = LONG[name]
    x = torch.tensor([0.7391, 0.2459, 0.9123]).as_strided(shape, strides)
    exact = fn(x.double()) if name != "complex mean" else fn(x).real.double().round(decimals=6)
    found = differentiate(fn)(x)
    found = found.real if found.is_complex() else found
    assert bool(((found.double() - exact).abs() <= 1e-5 * exact.abs() + 1e-6).all())


def test_tiles_add_a_long_column_in_blocks() -> None:
    def inputs() -> tuple[Any, ...]:
        x = torch.full((1, 2), 0.3938).expand(20808, 2).clone().requires_grad_()
        return x, torch.ones(1, 2, requires_grad=True)

    assert judge(_squares, inputs, Setting(backend="tiles"), 5).wrong == []


def _squares(x: Tensor, w: Tensor) -> Tensor:
    return ((x * w) ** 2).sum()


@pytest.mark.parametrize("how", ["amax", "amin"])
def test_masks_that_tiles_write_in_columns(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """numpy's `isnan(x, out=mask)` is wrong for a mask in columns."""
    monkeypatch.setenv("GRADOF_BACKEND", "tiles")
    generator = torch.Generator().manual_seed(0)
    x, source = (torch.randn(257, 182, generator=generator) for _ in range(2))
    index = torch.randint(0, 257, (257, 182), generator=generator)

    def fn(x: Tensor, source: Tensor) -> Tensor:
        return x.scatter_reduce(0, index, source, how)

    compiled = differentiate(fn)
    for _ in range(3):
        assert torch.equal(compiled(x, source), fn(x, source))


def test_views_that_were_moved_with_another_are_left_alone() -> None:
    def fn(x: Tensor, v: Tensor) -> Tensor:
        found: Tensor = torch.inner((x * x).reshape(-1)[:1].reshape(()), v[:25].reshape((5, 5)))
        return found

    def inputs() -> tuple[Any, ...]:
        generator = torch.Generator().manual_seed(0)
        found = (torch.rand(52085, generator=generator).half() for _ in range(2))
        return tuple(t.requires_grad_() for t in found)

    assert judge(fn, inputs, Setting(), 5).wrong == []


def test_more_ties_than_half_precision_counts() -> None:
    x = torch.full((1, 1), -1.453, dtype=torch.float16).expand(97643, 1)
    right(lambda x: x.amax((0, 1)), [x.clone()])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("gap", [8.4, 20.6, -8.4, 35.2])
def test_slopes_of_logaddexp_where_it_saturates(gap: float, dtype: torch.dtype) -> None:
    """p (1 - p), where 1 - p is not what is left of 1."""
    a = torch.tensor(gap, dtype=dtype, requires_grad=True)
    b = torch.tensor(0.0, dtype=dtype, requires_grad=True)
    for fn, base in ((torch.logaddexp, 1.0), (torch.logaddexp2, math.log(2))):
        first = torch.autograd.grad(differentiate(fn)(a, b), (a, b), create_graph=True)
        p = 1 / (1 + math.exp(-abs(gap) * base))
        q = math.exp(-abs(gap) * base) * p
        for g in first:
            (second,) = torch.autograd.grad(g, a, retain_graph=True)
            assert abs(second.item()) == pytest.approx(p * q * base, rel=1e-5)


def test_values_and_slopes_at_the_edges_of_activations() -> None:
    x = torch.tensor([-math.inf, -5.0, -3.0, -0.0, 0.0, 3.0])
    mine, eagers = differentiate(F.hardswish)(x), F.hardswish(x)
    assert torch.equal(mine.isnan(), eagers.isnan())
    assert torch.equal(mine[1:].signbit(), eagers[1:].signbit())
    x = torch.tensor([-0.44, 0.08, -0.0, 2.0])
    assert torch.equal(differentiate(F.softshrink)(x).signbit(), F.softshrink(x).signbit())
    for name in ("elu", "celu", "selu"):
        right(lambda x: getattr(F, name)(x % 1.94), [torch.tensor([0.0, 1.0, 1.94, -0.3])])  # noqa: B023


@pytest.mark.parametrize("mode", ["linear", "bilinear", "trilinear"])
@pytest.mark.parametrize("size", [3, 5, 8])
def test_interpolation_beside_infinity(mode: str, size: int) -> None:
    dims = 1 + ("linear", "bilinear", "trilinear").index(mode)
    x = torch.randn((1, 1) + (5,) * dims, generator=torch.Generator().manual_seed(2))
    x.view(-1)[2], x.view(-1)[-1] = math.inf, -math.inf
    for aligned in (False, True):
        def fn(x: Tensor, aligned: bool = aligned) -> Tensor:
            return F.interpolate(x, size=size, mode=mode, align_corners=aligned)

        mine, eagers = differentiate(fn)(x), fn(x)
        assert torch.allclose(mine, eagers, equal_nan=True, rtol=1e-5, atol=1e-6)


SINGULAR: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "triangular": lambda a, b: LIBRARY.solve_triangular(a, b, upper=True),
    "from the right": lambda a, b: LIBRARY.solve_triangular(a, b, upper=True, left=False),
    "cholesky": lambda a, b: torch.cholesky_solve(b, a.triu(), upper=True),
    "lu": lambda a, b: LIBRARY.lu_solve(a, torch.tensor([1, 2], dtype=torch.int32), b),
    "no columns": lambda a, b: LIBRARY.solve_triangular(a, b[:, :0], upper=True),
}  # fmt: skip


@pytest.mark.parametrize("name", SINGULAR)
def test_triangles_are_solved_whether_they_are_singular_or_not(name: str) -> None:
    a, b = torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.ones(2, 2)
    mine, eagers = differentiate(SINGULAR[name])(a, b), SINGULAR[name](a, b)
    assert torch.equal(mine.nan_to_num(7), eagers.nan_to_num(7))
    regular = torch.tensor([[1.0, 2.0], [0.3, 1.5]], dtype=torch.float64)
    check(SINGULAR[name], (regular.requires_grad_(), torch.randn(2, 2, dtype=torch.float64)))


def test_integers_between_ends_that_are_cut() -> None:
    end = torch.tensor(-3)
    for steps in (50, 7, 2, 1):
        def fn(x: Tensor, steps: int = steps) -> Tensor:
            return torch.linspace(4.3, x, steps, dtype=torch.int64)

        assert torch.equal(differentiate(fn)(end), fn(end))


def test_factors_of_tall_matrices_of_less_than_full_rank() -> None:
    """LAPACK leaves what is below a zero pivot as it is."""
    x = torch.ones(5, 3, dtype=torch.float64) * torch.tensor([1.0, 2.0, 3.0])
    mine, eagers = (fn(x)[0] for fn in (differentiate(LIBRARY.lu_factor_ex), LIBRARY.lu_factor_ex))
    assert torch.equal(mine, eagers) and bool(eagers.isfinite().all())


def test_products_that_are_linear_have_a_second_derivative_of_noise_in_eager() -> None:
    index = torch.arange(40) % 7
    source = torch.rand(40, generator=torch.Generator().manual_seed(3)) + 0.5

    def inputs() -> tuple[Any, ...]:
        x = torch.rand(40, generator=torch.Generator().manual_seed(4)) + 0.5
        return (x.requires_grad_(),)

    def program(x: Tensor) -> Tensor:
        return x.scatter_reduce(0, index, source, "prod", include_self=True)

    assert judge(program, inputs, Setting(), 5).wrong == []


@pytest.mark.parametrize("rows", [3, 30])
def test_distances_of_many_rows_have_no_gradient_where_they_vanish(rows: int) -> None:
    torch.manual_seed(0)
    a = torch.randint(-3, 4, (rows, 4)).double().requires_grad_()  # exact, so that none is noise
    b = torch.cat([a.detach()[:2], torch.randint(-3, 4, (31, 4)).double()]).requires_grad_()
    fast = differentiate(lambda a, b: torch.cdist(a, b), strict=True)
    cotangent = torch.randn(rows, 33, dtype=torch.float64)
    found = []
    for run in (torch.cdist, fast):
        distances = run(a, b)
        grads = torch.autograd.grad(distances, [a, b], cotangent, create_graph=True)
        squares = grads[0].square().sum() + grads[1].square().sum()
        second = torch.autograd.grad(squares, [a, b])
        found.append([distances, *grads, *second])
    assert (found[0][0] == 0).sum() > 1
    for eagers, ours in zip(*found, strict=True):
        assert torch.allclose(eagers, ours, rtol=1e-10, atol=1e-12)


def test_gated_units_of_huge_values_have_no_gradient_where_the_gate_is_flat() -> None:
    x = torch.tensor([[3e38, -3e38, 1.0, 200.0, 200.0, -200.0]], requires_grad=True)
    cotangent = torch.full((1, 3), 2.5)
    mine, eagers = (
        torch.autograd.grad(f(x), x, cotangent)[0]
        for f in (differentiate(F.glu, strict=True), F.glu)
    )
    assert eagers[0, 3:].tolist() == [0.0, 0.0, 0.0] and torch.equal(mine, eagers)


def test_the_second_derivative_of_the_huber_loss_at_its_corner_is_that_of_the_line() -> None:
    x = torch.tensor([1.0, -1.0, 0.5, 2.0], requires_grad=True)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return F.huber_loss(x, torch.zeros(4), reduction="sum")

    for f in (loss, differentiate(loss, strict=True)):
        slope, = torch.autograd.grad(f(x), x, create_graph=True)
        assert slope.tolist() == [1.0, -1.0, 0.5, 1.0]
        assert torch.autograd.grad(slope.sum(), x)[0].tolist() == [0.0, 0.0, 1.0, 0.0]


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_margins_that_are_just_kept_have_no_slope(p: int, reduction: str) -> None:
    nan = math.nan
    rows = [[1.0, 0, 0], [0.0, 1, 1], [2.0, 2, 2], [1.0, 2, nan], [1.0, math.inf, 0]]
    labels, weight = torch.tensor([0, 1, 2, 0, 0]), torch.tensor([0.5, 1.0, 2.0])
    x = torch.tensor(rows, requires_grad=True)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return F.multi_margin_loss(x, labels, p=p, weight=weight, reduction=reduction)

    found = []
    for f in (loss, differentiate(loss, strict=True)):
        value = f(x)
        found.append((value, torch.autograd.grad(value.sum(), x)[0]))
    for eagers, ours in zip(*found, strict=True):
        assert torch.allclose(eagers, ours, equal_nan=True)
    assert found[1][1][0].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("reduce", ["amax", "amin"])
def test_the_largest_of_ties_is_itself(reduce: str) -> None:
    torch.manual_seed(0)
    index = torch.randint(0, 100, (100, 2))
    x = torch.full((100, 2), 0.3509746979061131, dtype=torch.float64, requires_grad=True)

    def fn(x: torch.Tensor) -> Any:
        best = x.scatter_reduce(0, index, x, reduce)
        return best, best.amin(0)

    (have, least), (want, eagers) = differentiate(fn, strict=True)(x), fn(x)
    assert torch.equal(have, want) and torch.equal(least, eagers)
    cotangent = torch.tensor([1.0, -2.0], dtype=torch.float64)
    grads = [torch.autograd.grad(y, x, cotangent)[0] for y in (least, eagers)]
    assert torch.allclose(grads[0], grads[1], rtol=1e-10)


@pytest.mark.parametrize("cut", [torch.Tensor.detach, lambda t: t.data])
def test_windows_with_gaps_that_are_changed_without_a_history(
    cut: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    """What no window covers was zero after it: torch's functionalization puts them back so."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        whole = x.flatten()
        cut(x.unfold(-1, 1, 2)).view(-1).add_(1)
        return whole

    x, y = torch.tensor([0.25, 0.5, 2.0]), torch.tensor([0.25, 0.5, 2.0])
    with pytest.warns(EagerWarning, match="windows leave gaps"):
        assert torch.equal(differentiate(fn)(x.requires_grad_()), fn(y.requires_grad_()))
    assert torch.equal(x, y)


@pytest.mark.parametrize("alpha", [True, False, 0, 1])
def test_a_sum_of_booleans_with_a_factor(alpha: Any) -> None:
    """`torch.add(a, b, alpha=False)` is `a`; the factor was taken to be True."""
    a, b = torch.tensor([True, True, False, False]), torch.tensor([True, False, True, False])

    def fn(a: torch.Tensor, b: torch.Tensor) -> Any:
        return torch.add(a, b, alpha=alpha), torch.add(a, True, alpha=alpha)

    for have, want in zip(differentiate(fn, strict=True)(a, b), fn(a, b), strict=True):
        assert torch.equal(have, want)


def test_residuals_of_lstsq_that_are_left_empty_have_no_gradient() -> None:
    """They had zeros, where torch's rule has None."""
    a, b = torch.randn(3, 2, 3, requires_grad=True), torch.randn(3, 2, 1, requires_grad=True)

    def fn(a: torch.Tensor, b: torch.Tensor, x: torch.Tensor) -> Any:
        return torch.linalg.lstsq(a, b, driver="gelsy").residuals.sum() * x

    x = torch.tensor(2.0, requires_grad=True)
    with pytest.warns(OpaqueOpWarning):
        value = differentiate(fn)(a, b, x)
    for y in (value, fn(a, b, x)):
        found: tuple[Any, ...] = torch.autograd.grad(y, (a, b, x), allow_unused=True)
        assert found[0] is None and found[1] is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_equal_powers_of_two_add_up_to_the_next(dtype: torch.dtype) -> None:
    """Exactly: what is 0 is counted as such."""
    x = torch.arange(-40, 40).to(dtype) / 4
    assert torch.equal(differentiate(torch.logaddexp2)(x, x), x + 1)
