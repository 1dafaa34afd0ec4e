"""What random programs found: each class with the program that showed it, and others like it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from gradof import differentiate, grad
from gradof.testing.fuzz import Setting, confirm
from gradof.testing.literals import numpy_twins
from gradof.tracer.torch.narrow import in_range

Tensor = torch.Tensor
SMALL = [torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(1))]


def right(fn: Callable[..., Any], tensors: Sequence[Tensor], **options: Any) -> None:
    """Values, gradients and second gradients, strides and None are eager's, and ours ran."""

    def inputs() -> tuple[Tensor, ...]:
        return tuple(t.clone().requires_grad_(t.is_floating_point()) for t in tensors)

    verdict = confirm(fn, inputs, Setting(**options))
    assert verdict.passed, verdict


def _nearest(x: Tensor) -> Tensor:
    return torch.nn.functional.interpolate(x, scale_factor=2)


def _reflected(x: Tensor) -> Tensor:
    return torch.nn.functional.pad(x, (1, 1), "reflect")


def _columns(x: Tensor) -> Tensor:
    return x[:, torch.tensor([0, 1, 1])]


def _contiguous(x: Tensor) -> Tensor:
    return x.transpose(0, 1).exp().contiguous()


def _joined(x: Tensor) -> Tensor:
    return torch.cat([x.mT, x.mT], 1)


def _normalised(x: Tensor) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(x, dim=0, keepdim=True)
    return x / (norm + 0.1)


def _repeated(x: Tensor) -> Tensor:
    return x.permute(0, 2, 1).repeat(1, 1, 1)


@pytest.mark.parametrize(
    "fn", [_nearest, _reflected, _columns, _contiguous, _joined, _normalised, _repeated]
)
def test_results_in_rows_as_in_eager(fn: Callable[..., Any]) -> None:
    right(fn, SMALL)


@pytest.mark.parametrize("fn", [_reflected, _columns, _contiguous, _joined, _normalised])
def test_results_of_a_transposed_argument(fn: Callable[..., Any]) -> None:
    x = SMALL[0].clone().transpose(0, 1).requires_grad_()
    assert differentiate(fn)(x).is_contiguous() == fn(x).is_contiguous()


def _chunks_of_a_flip(x: Tensor) -> tuple[Tensor, ...]:
    return x.flip(-1).chunk(2, 0)


def test_views_of_a_flip_are_views_of_a_copy() -> None:
    right(_chunks_of_a_flip, SMALL)


@pytest.mark.parametrize("reduce", ["sum", "mean", "prod", "amax", "amin"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
@pytest.mark.parametrize("include_self", [True, False])
def test_reductions_of_integers_stay_integers(
    reduce: str, dtype: torch.dtype, include_self: bool
) -> None:
    index, source = torch.tensor([0, 0, 2]), torch.tensor([5, 7, 1]).to(dtype)

    def fn(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        return x.scatter_reduce(0, index, source, reduce, include_self=include_self), w * 2

    right(fn, [torch.tensor([1, 2, 3]).to(dtype), torch.ones(3)])


NARROW: dict[str, Callable[[Tensor], Tensor]] = {
    "add": lambda x: x + -1, "mul": lambda x: x * -1, "beyond": lambda x: x + 300,
    "huge": lambda x: x + 10**10, "compared": lambda x: x > -1, "and": lambda x: x & -1,
    "clamped": lambda x: x.clamp(-1, 2), "filled": lambda x: torch.full_like(x, -1),
    "masked": lambda x: x.masked_fill(x > 0, -1), "where": lambda x: torch.where(x > 0, x, -1),
    "divided": lambda x: x // -2, "in place": lambda x: x.clone().add_(-1),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
@pytest.mark.parametrize("name", NARROW)
def test_numbers_beside_narrow_integers_wrap_around(name: str, dtype: torch.dtype) -> None:
    fn, x = NARROW[name], torch.tensor([0, 1, 3]).to(dtype)
    try:
        want = fn(x)
    except RuntimeError:
        pytest.skip("torch refuses a number beyond the range here")
    compiled = differentiate(lambda x, w: (fn(x), w * 2), strict=True)
    have = compiled(x, torch.ones(1, requires_grad=True))
    assert have[0].dtype == want.dtype and torch.equal(have[0], want)


def test_dims_do_not_wrap_around() -> None:
    x = torch.zeros(1, 1, dtype=torch.uint8)
    args, _ = in_range(torch.ops.aten.unsqueeze.default, (x, -1), {})
    assert args[1] == -1


NOT_DIFFERENTIABLE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "bessel": lambda x, y: torch.special.bessel_j1(x) + y,
    "chebyshev": lambda x, y: torch.special.chebyshev_polynomial_u(x, x) + y,
    "histogram": lambda x, y: torch.histc(x, bins=3, min=0, max=2) + y,
}


@pytest.mark.filterwarnings("ignore::gradof.errors.OpaqueOpWarning")
@pytest.mark.parametrize("name", NOT_DIFFERENTIABLE)
def test_where_torch_has_no_gradient_it_is_none(name: str) -> None:
    tensors = [torch.rand(3, requires_grad=True) for _ in range(2)]
    out = differentiate(NOT_DIFFERENTIABLE[name])(*tensors)
    grads = torch.autograd.grad(out.sum(), tensors, allow_unused=True)
    assert grads[0] is None and grads[1] is not None


def test_division_with_rounding_has_a_gradient_of_zero() -> None:
    x, y = (torch.rand(3, requires_grad=True) for _ in range(2))
    out = differentiate(lambda x, y: torch.div(x, y, rounding_mode="floor"))(x, y)
    assert out.requires_grad
    assert not any(g.any() for g in torch.autograd.grad(out.sum(), [x, y]))


SUMS: dict[str, Callable[[Tensor], Tensor]] = {
    "everything": lambda x: (x * 1.1).exp().sum(), "rows": lambda x: (x * 1.1).exp().sum(0),
    "loss": lambda x: torch.logsumexp(x, 1).mean(),
}  # fmt: skip


@pytest.mark.parametrize("backend", ["auto", "tiles", "numpy"])
@pytest.mark.parametrize("name", SUMS)
def test_long_sums_of_like_numbers_keep_their_digits(
    name: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADOF_BACKEND", backend)
    x = torch.tensor([[0.3, -1.2]]).expand(300_000, 2).clone()
    exact = SUMS[name](x.double())
    have = differentiate(SUMS[name])(x.requires_grad_()).detach().double()
    assert float(((have - exact) / exact).abs().max()) < 64 * torch.finfo(torch.float32).eps


@pytest.mark.parametrize("rows", [1, 255, 256, 257, 1000, 40_000])
def test_sums_over_rows_at_the_ends_of_blocks(rows: int) -> None:
    columns = max(2, math.ceil(40_000 / rows)) + 1
    x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows))
    want = (x.double() * 1.5).tanh().sum(0)
    have = differentiate(lambda x: (x * 1.5).tanh().sum(0))(x.requires_grad_())
    torch.testing.assert_close(have.detach().double(), want, rtol=1e-4, atol=1e-4)
    infinite = x.detach().clone()
    infinite[rows // 2, 1] = math.inf
    assert differentiate(lambda x: (x * 1.5).exp().sum(0))(infinite.requires_grad_())[1] == math.inf


@pytest.mark.filterwarnings("ignore::gradof.errors.OpaqueOpWarning")
def test_groups_of_which_a_later_check_needs_another() -> None:
    generator = torch.Generator().manual_seed(5)
    memory = torch.randn(31 * 404, generator=generator).bfloat16()
    x = memory.as_strided((31, 202, 1), (404, 1, 1)).requires_grad_()
    index = torch.randint(0, 202, x.shape, generator=generator)

    def fn(x: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        places = torch.searchsorted(torch.linspace(-1, 1, 5, dtype=x.dtype), x.contiguous())
        return places, x.scatter_reduce(1, index.abs(), x, "amax")

    for have, want in zip(differentiate(fn)(x, index), fn(x, index), strict=True):
        assert torch.equal(have, want)


def test_a_long_convolution_takes_no_square_of_memory() -> None:
    import numpy as np

    x, w = np.random.default_rng(3).standard_normal(30_000), np.array([1.0, -2.0, 3.0])
    gradient = grad(lambda x: np.sum(np.convolve(x, w) ** 2))(x)  # 7 gigabytes, before
    np.testing.assert_allclose(gradient, 2 * np.correlate(np.convolve(x, w), w), rtol=1e-10)


def test_copies_keep_their_layout() -> None:
    import numpy as np

    base = np.arange(24.0)
    views = [base[::2], base[::-1].reshape(4, 6).T, base[3:9]]
    copies = numpy_twins(views)
    for view, copy in zip(views, copies, strict=True):
        assert view.strides == copy.strides and np.array_equal(view, copy)
    copies[0][0] = 100.0
    assert copies[1][5, 3] == 100.0 and base[0] == 0.0
