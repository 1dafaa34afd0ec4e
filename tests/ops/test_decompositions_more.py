"""Factorisations of torch in programs: batched, wide, tall, empty and strided, to second order.

Every case is compared with eager in values, gradients and second gradients, for random cotangents,
in both precisions. `strict` refuses what would be left to torch, and the gradients are asserted to
come from our own graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

import gradof
from gradof.runtime.function import Differentiated

LA = torch.linalg
# f32 loses digits to the condition of the samples, squared by a second derivative
CLOSE = {torch.float32: 2e-3, torch.float64: 1e-10}
Case = tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]


def definite(x: Tensor) -> Tensor:
    """A positive definite matrix made of any."""
    return x @ x.mT + x.shape[-2] * torch.eye(x.shape[-2], dtype=x.dtype)


def regular(x: Tensor) -> Tensor:
    """A matrix whose leading minors are all far from zero."""
    return x + 4 * torch.eye(*x.shape[-2:], dtype=x.dtype)


def reflectors(x: Tensor) -> tuple[Tensor, Tensor]:
    """Householder vectors and their scales, as geqrf would give them."""
    lower = x.tril(-1)
    return lower, 2 / (1 + (lower * lower).sum(-2))


def svd_parts(x: Tensor, full: bool = False) -> list[Tensor]:
    """What of a decomposition does not depend on the signs of its vectors."""
    u, s, vh = LA.svd(x, full_matrices=full)
    k = s.shape[-1]
    u, vh = u[..., :k], vh[..., :k, :]
    return [u**2, s, vh**2, (u * s.sin()[..., None, :]) @ vh]


def lu_parts(x: Tensor) -> list[Tensor]:
    _, lower, upper = LA.lu(x)
    return [lower, upper.sin()]


def unpacked(x: Tensor) -> list[Tensor]:
    _, lower, upper = torch.lu_unpack(*LA.lu_factor(x))
    return [lower.cos(), upper]


def lu_solve(x: Tensor, b: Tensor, left: bool, adjoint: bool) -> Tensor:
    y: Tensor = LA.lu_solve(*LA.lu_factor(regular(x)), b, left=left, adjoint=adjoint)
    return y


def strided(x: Tensor) -> Tensor:
    """Every other row and column, backwards in memory order: nothing is contiguous."""
    return x.mT[..., ::2, ::2]


CASES: dict[str, Case] = {
    "svd_tall": (svd_parts, ((2, 5, 3),)),
    "svd_wide": (svd_parts, ((3, 5),)),
    "svd_full": (lambda x: svd_parts(x, True), ((5, 3),)),
    "svd_strided": (lambda x: svd_parts(strided(x)), ((5, 8),)),
    "svd_shared": (lambda x: [*svd_parts(x), LA.svdvals(x.sin())], ((3, 4),)),
    "svd_no_rows": (lambda x: LA.svd(x, full_matrices=False), ((2, 0, 3),)),
    "svdvals": (LA.svdvals, ((2, 3, 4),)),
    "qr_tall": (LA.qr, ((2, 5, 3),)),
    "qr_wide": (LA.qr, ((3, 5),)),
    "qr_complete": (lambda x: LA.qr(x, "complete"), ((3, 5),)),
    "qr_strided": (lambda x: LA.qr(strided(x)), ((5, 8),)),
    "qr_no_columns": (LA.qr, ((3, 0),)),
    "lu_square": (lu_parts, ((2, 3, 3),)),
    "lu_tall": (lu_parts, ((5, 3),)),
    "lu_wide": (lu_parts, ((2, 3, 5),)),
    "lu_unpack": (unpacked, ((2, 4, 3),)),
    "lu_solve": (lambda x, b: lu_solve(x, b, True, False), ((2, 3, 3), (3, 2))),
    "lu_solve_adjoint": (lambda x, b: lu_solve(x, b, True, True), ((3, 3), (2, 3, 2))),
    "lu_solve_right": (lambda x, b: lu_solve(x, b, False, False), ((3, 3), (2, 3))),
    "lu_solve_right_adjoint": (lambda x, b: lu_solve(x, b, False, True), ((2, 3, 3), (2, 2, 3))),
    "triangular": (
        lambda a, b: LA.solve_triangular(regular(a), b, upper=True), ((2, 3, 3), (3, 2))),
    "triangular_unit_right": (
        lambda a, b: LA.solve_triangular(a, b, upper=False, left=False, unitriangular=True),
        ((3, 3), (2, 2, 3))),
    "cholesky_upper": (lambda x: LA.cholesky(definite(x), upper=True), ((2, 3, 4),)),
    "cholesky_solve": (
        lambda x, b: torch.cholesky_solve(b, LA.cholesky(definite(x))), ((2, 3, 3), (2, 3, 1))),
    "cholesky_solve_upper": (
        lambda x, b: torch.cholesky_solve(b, regular(x).triu(), upper=True), ((3, 3), (3, 2))),
    "cholesky_inverse": (lambda x: torch.cholesky_inverse(regular(x).tril()), ((2, 3, 3),)),
    "cholesky_inverse_upper": (
        lambda x: torch.cholesky_inverse(regular(x).triu(), upper=True), ((3, 3),)),
    "eigvalsh_upper": (lambda x: LA.eigvalsh(x, UPLO="U"), ((2, 3, 3),)),
    "eigh_upper": (lambda x: LA.eigh(x + x.mT, UPLO="U")[1] ** 2, ((3, 3),)),
    "pinv_tall": (LA.pinv, ((2, 5, 3),)),
    "pinv_wide": (torch.pinverse, ((3, 5),)),
    "pinv_low_rank": (lambda x, y: LA.pinv(x @ y), ((4, 2), (2, 5))),
    "pinv_hermitian": (lambda x: LA.pinv(definite(x), hermitian=True), ((3, 3),)),
    "pinv_empty": (LA.pinv, ((2, 0, 3),)),
    "matrix_exp": (LA.matrix_exp, ((2, 3, 3),)),
    "matrix_exp_shared": (lambda x: LA.matrix_exp(x) @ x, ((3, 3),)),
    "matrix_exp_empty": (LA.matrix_exp, ((0, 3, 3),)),
    "householder": (lambda x: LA.householder_product(*reflectors(x)), ((2, 4, 3),)),
    "ormqr": (lambda x, y: torch.ormqr(*reflectors(x), y), ((4, 3), (4, 2))),
    "ormqr_right": (lambda x, y: torch.ormqr(*reflectors(x), y, left=False), ((4, 3), (2, 4))),
    "ormqr_turned": (lambda x, y: torch.ormqr(*reflectors(x), y, transpose=True), ((4, 3), (4, 2))),
    "renorm": (lambda x: torch.renorm(x, 2, 0, 1.5), ((3, 4),)),
    "nuclear": (lambda x: LA.matrix_norm(x, "nuc"), ((2, 4, 3),)),
    "cond": (LA.cond, ((2, 3, 3),)),
}  # fmt: skip

# Eager has no second derivative of distances; `test_second_derivative_of_distances` has ours.
FIRST_ONLY: dict[str, Case] = {
    "cdist": (torch.cdist, ((2, 3, 4), (5, 4))),
    "cdist_p3": (lambda a, b: torch.cdist(a, b, p=3.0), ((3, 4), (2, 4))),
    "pdist": (torch.pdist, ((4, 3),)),
    "cdist_inf": (lambda a, b: torch.cdist(a, b, p=float("inf")), ((3, 4), (2, 4))),
}


def leaves(shapes: Sequence[tuple[int, ...]], dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(5)
    numbers = [torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes]
    return [x.to(dtype).requires_grad_() for x in numbers]


def results(run: Callable[..., Any]) -> Callable[..., list[Tensor]]:
    def flat(*args: Tensor) -> list[Tensor]:
        found = run(*args)
        return [found] if isinstance(found, Tensor) else list(found)

    return flat


def derivatives(run: Callable[..., Any], inputs: list[Tensor], order: int) -> list[list[Tensor]]:
    """Values, gradients, and gradients of those, each for random cotangents."""
    generator = torch.Generator().manual_seed(6)
    rows = [run(*inputs)]
    for level in range(order):
        live = [t for t in rows[-1] if t.requires_grad]
        assert live, "nothing to differentiate"
        seeds = [torch.randn(t.shape, dtype=t.dtype, generator=generator) for t in live]
        rows.append(list(torch.autograd.grad(live, inputs, seeds, create_graph=level + 1 < order)))
    return rows


def assert_native(compiled: Differentiated, order: int) -> None:
    """Every gradient was computed by a df of ours."""
    plans = compiled.plans()
    for _ in range(order):
        plans = [d.plan for p in plans for g in p.gradients.values() for d in g.dfs.values()]
        assert plans, "torch's own autograd computed the gradient"


def check(
    case: Case, dtype: torch.dtype, order: int, reference: Callable[..., Any] | None = None
) -> None:
    fn, shapes = case
    compiled = gradof.differentiate(results(fn), strict=True)
    assert isinstance(compiled, Differentiated)
    ours = derivatives(compiled, leaves(shapes, dtype), order)
    assert_native(compiled, order)
    wanted = derivatives(results(reference or fn), leaves(shapes, dtype), order)
    for mine, eager in zip(ours, wanted, strict=True):
        assert len(mine) == len(eager)
        for a, b in zip(mine, eager, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape
            size = max(1.0, b.abs().max().item()) if b.numel() else 1.0
            torch.testing.assert_close(a, b, rtol=0, atol=CLOSE[dtype] * size)


@pytest.mark.parametrize("dtype", CLOSE, ids=["f32", "f64"])
@pytest.mark.parametrize("name", CASES)
def test_second_order(name: str, dtype: torch.dtype) -> None:
    check(CASES[name], dtype, 2)


@pytest.mark.parametrize("dtype", CLOSE, ids=["f32", "f64"])
@pytest.mark.parametrize("name", FIRST_ONLY)
def test_first_order(name: str, dtype: torch.dtype) -> None:
    check(FIRST_ONLY[name], dtype, 1)


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, float("inf")])
def test_equal_points_have_eagers_gradient(p: float) -> None:
    points = torch.randn(3, 4, dtype=torch.float64)
    grads = []
    for run in (gradof.differentiate(lambda a, b: torch.cdist(a, b, p=p), strict=True),
                lambda a, b: torch.cdist(a, b, p=p)):  # fmt: skip
        a, b = points.clone().requires_grad_(), points.clone().requires_grad_()
        seed = torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        grads.append(torch.autograd.grad(run(a, b), (a, b), seed))
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("p", [1.5, 2.0, 3.0])
def test_second_derivative_of_distances(p: float) -> None:
    def from_gaps(a: Tensor, b: Tensor) -> Tensor:
        gaps: Tensor = (a.unsqueeze(-2) - b.unsqueeze(-3)).abs()
        return (gaps**p).sum(-1) ** (1 / p)

    case = (lambda a, b: torch.cdist(a, b, p=p), ((2, 3, 4), (5, 4)))
    check(case, torch.float64, 2, from_gaps)


FACTORS: dict[str, Callable[[Tensor], Tensor]] = {
    "inverse": torch.cholesky_inverse,
    "solve": lambda x: torch.cholesky_solve(torch.arange(6, dtype=x.dtype).view(3, 2), x),
}


@pytest.mark.parametrize("name", FACTORS)
def test_the_triangle_a_factor_is_not_read_from_has_no_gradient(name: str) -> None:
    """Eager gives it one, and a wrong one to the other triangle if it is not zero."""
    fn = FACTORS[name]
    (x,) = leaves([(3, 3)], torch.float64)
    x = regular(x.detach()).requires_grad_()
    y = gradof.differentiate(fn, strict=True)(x)
    seed = torch.randn(y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(2))
    (gradient,) = torch.autograd.grad(y, x, seed)
    wanted = torch.zeros(3, 3, dtype=torch.float64)
    for i, j in torch.cartesian_prod(torch.arange(3), torch.arange(3)):
        step = torch.zeros(3, 3, dtype=torch.float64)
        step[i, j] = 1e-6
        wanted[i, j] = ((fn(x.detach() + step) - fn(x.detach() - step)) * seed).sum() / 2e-6
    assert not wanted.triu(1).any() and wanted.tril().any()
    torch.testing.assert_close(gradient, wanted, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_lu_of_a_singular_matrix_is_lapacks(dtype: torch.dtype) -> None:
    for x in (torch.ones(3, 3), torch.zeros(2, 4, 4), torch.tensor([[0.0, 1.0], [0.0, 2.0]])):
        have = gradof.differentiate(torch.linalg.lu)(x.to(dtype))
        want = torch.linalg.lu(x.to(dtype))
        for mine, theirs in zip(have, want, strict=True):
            torch.testing.assert_close(mine, theirs)


def test_the_hessian_of_a_weight_norm_is_right_where_eagers_is_not() -> None:
    v = torch.tensor([1.0, 0.0, -2.0], dtype=torch.float64)
    g = torch.ones(1, 1, dtype=torch.float64)
    fast = gradof.differentiate(lambda v: torch._weight_norm(v[None], g, 0)[0, 0] ** 2, strict=True)
    hessian: Any = torch.autograd.functional.hessian
    assert torch.allclose(hessian(fast, v), hessian(lambda v: (v / v.norm())[0] ** 2, v))


@pytest.mark.parametrize("upper", [False, True])
def test_the_inverse_of_a_complex_factor(upper: bool) -> None:
    """The factor's other half is not read; eager gives it a gradient all the same."""
    torch.manual_seed(0)
    a = torch.randn(4, 4, dtype=torch.complex128)
    factor = torch.linalg.cholesky(a @ a.mH + 4.0 * torch.eye(4))
    factor = factor.mH.clone() if upper else factor
    half = torch.triu if upper else torch.tril

    def fn(x: torch.Tensor) -> torch.Tensor:
        return torch.cholesky_inverse(x, upper=upper)

    x, weights = factor.requires_grad_(), torch.randn(4, 4, dtype=torch.complex128)
    found = gradof.differentiate(fn, strict=True)(x)
    torch.testing.assert_close(found, fn(x), rtol=1e-12, atol=1e-14)
    want = torch.autograd.grad(fn(x), x, weights)[0]
    grad = torch.autograd.grad(found, x, weights)[0]
    torch.testing.assert_close(grad, half(want), rtol=1e-10, atol=1e-12)
