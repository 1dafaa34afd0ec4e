"""Traces of torch code compute what eager computes, forward and reverse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from gradof import differentiate
from tests.tracer.eager import check

torch.manual_seed(0)
X = torch.randn(4, 3)
IMAGE = torch.randn(2, 4, 8, 8)
INTS = torch.arange(12).reshape(4, 3)
KERNEL = torch.randn(4, 4, 3, 2)
ROWS = torch.tensor([0, 2, 1, 1])
GRID = torch.tensor([[0, 2, 1]])
BATCH = torch.randn(2, 3, 4)
NORMAL: Any = torch.distributions.Normal
HALF = torch.ones(3, dtype=torch.float64)

Case = Callable[[Any], Any]


def cases(**functions: Case) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("fn", list(functions.values()), ids=list(functions))


def leaf() -> torch.Tensor:
    return X.clone().requires_grad_()


@cases(
    arithmetic=lambda x: (x + 2) * x - x / 3 - 1 / (x + 5) + 2 ** x + abs(x) ** 0.5 - (-x) ** 3,
    alpha=lambda x: torch.add(x, x, alpha=2) - torch.rsub(x, 1),
    broadcast=lambda x: x * x[0] + x[:, :1],
    modulo=lambda x: (x % 2, x % -0.7, torch.fmod(x, 0.7)),
    rounded=lambda x: [torch.div(x, 0.3, rounding_mode=mode) for mode in ("floor", "trunc")],
    compare=lambda x: (x > x[0], x >= 2, (x > 0) & (x < 1), ~(x > 0), x == x, x.isnan()),
    where=lambda x: torch.where(x > 0, x, 0.0) + x.masked_fill(x > 1, -1.0),
    clamp=lambda x: x.clamp(-0.5, 0.5) + x.clamp(min=x.flip(0)) + torch.maximum(x, -x),
    transcendental=lambda x: x.exp() + x.sin().log1p() + torch.atan2(x, x + 9) + x.abs().rsqrt(),
    special=lambda x: torch.special.ndtr(x) + torch.erf(x) + torch.special.expit(x),
    normal_cdf=lambda x: NORMAL(0.0, 1.0).cdf(x),
    fused=lambda x: torch.addcmul(x, x, x, value=2) + torch.lerp(x, x * 2, 0.7) + x.frac(),
    xlogy=lambda x: torch.xlogy(x, x.abs()) + torch.logaddexp(x, 2 * x) + torch.sinc(x),
)
def test_elementwise(fn: Case) -> None:
    check(fn, leaf())


@cases(
    int_plus=lambda x: INTS + 1,
    int_times_float=lambda x: INTS * 1.5,
    int_div=lambda x: (INTS / 2, INTS // 2, INTS % 5, INTS / INTS),
    float_and_int=lambda x: x * INTS + (INTS > 2.5) + (INTS == x),
    weak_f64=lambda x: x * torch.tensor(2.0, dtype=torch.float64),
    strong_f64=lambda x: x * HALF,
    bool_times=lambda x: ((x > 0) * x, (x > 0) * 2, (x > 0) + (x < 0)),
    functions_of_ints=lambda x: (torch.sqrt(INTS), torch.exp(INTS), INTS**2, 2.0**INTS),
    bits=lambda x: (INTS & 3, INTS | 1, INTS ^ 1, ~INTS),
    casts=lambda x: (x.double(), x.long(), x.half().float(), x.bool(), x.type_as(INTS)),
    mixed_where=lambda x: torch.where(x > 0, x, INTS),
    mixed_cat=lambda x: torch.cat([x, HALF[None]]),
    sums=lambda x: (INTS.sum(), (x > 0).sum(0), INTS.cumsum(0), x.sum(dtype=torch.float64)),
)
def test_dtypes(fn: Case) -> None:
    check(fn, leaf())


@cases(
    sums=lambda x: (x.sum(), x.sum(0), x.sum((0, 1), keepdim=True), x.mean(), x.mean(-1, True)),
    spread=lambda x: (x.var(), x.std(0), torch.var(x, 1, unbiased=False), *torch.var_mean(x, 1)),
    extrema=lambda x: (x.amax(1), x.amin((0, 1)), x.max(), x.max(1).values, x.min(0)[0]),
    places=lambda x: (x.argmax(), x.argmax(1), x.argmin(0, True), x.max(1).indices),
    products=lambda x: (x.prod(), x.prod(0), x.cumsum(0)),
    norms=lambda x: (x.norm(), x.norm(p=1, dim=1), x.norm(p=3), x.norm(p=float("inf"))),
    softmaxes=lambda x: (x.softmax(1), x.log_softmax(-1), x.logsumexp(1), x.logsumexp((0, 1))),
    truth=lambda x: ((x > 0).any(), (x > 0).all(1), x.count_nonzero()),
    cosine=lambda x: F.cosine_similarity(x, x.flip(0)),
    others=lambda x: (x.trace(), torch.aminmax(x), x.diff(), torch.dist(x, 2 * x)),
)
def test_reductions(fn: Case) -> None:
    check(fn, leaf())


@cases(
    reshapes=lambda x: (x.view(2, 6), x.flatten(), x.T.reshape(-1), x[None].squeeze(0), x.mT),
    joins=lambda x: (torch.stack([x, x], -1), torch.cat([x, 2 * x], 1), torch.vstack([x, x])),
    splits=lambda x: (x.split(3), x.chunk(2, 1), x.unbind(1), torch.tensor_split(x, 3)),
    slices=lambda x: (x[::2, 1:], x[-1], x[..., None, 0], x.narrow(0, 1, 2), x[-2:]),
    repeats=lambda x: (x.repeat(2, 1, 2), x.expand(2, 4, 3), x.repeat_interleave(2, 0)),
    rolls=lambda x: (x.roll(1, 0), x.roll((1, -1), (0, 1)), x.roll(2), x.flip(0, 1), x.rot90()),
    pads=lambda x: (F.pad(x, (1, 2)), F.pad(x, (-1, 2, 1, 0), value=3.0)),
    diagonals=lambda x: (x.diagonal(), x.diagonal(1), x.tril(), x.triu(1), torch.diag(x[0])),
    windows=lambda x: (x.unfold(0, 2, 1), IMAGE.diagonal(-1, 1, 3)),
    picks=lambda x: (x.index_select(0, ROWS), x.gather(0, GRID), x.take(torch.tensor([[-1, 2]]))),
    fancy=lambda x: (x[ROWS], x[:, [0, 2]], x[ROWS, ROWS[:, None] % 2], x[[-1, 0]]),
    fancy_inside=lambda x: (IMAGE[:, ROWS, :, [[1], [2]]], IMAGE[:, ROWS[:2], ROWS[:2]]),
    scatters=lambda x: (x.scatter(0, GRID, 3.0), x.scatter_add(0, GRID, x[:1])),
    index_writes=lambda x: (x.index_add(0, ROWS, x, alpha=2), x.index_fill(0, ROWS, 0.0)),
    tables=lambda x: (torch.meshgrid(x[0], x[:, 0], indexing="ij"), torch.outer(x[0], x[1])),
    one_hot=lambda x: x * F.one_hot(ROWS, 3),
)
def test_shapes_and_indexing(fn: Case) -> None:
    check(fn, leaf())


@cases(
    products=lambda x: (x @ x.T, x @ x[0], x[0] @ x.T, x[0] @ x[1], torch.outer(x[0], x[0])),
    batched=lambda x: (BATCH @ BATCH.mT * x.sum(), torch.matmul(IMAGE, IMAGE[0, 0]) * x.sum()),
    fused=lambda x: (torch.addmm(x @ x.T, x, x.T, beta=0.5, alpha=2), F.linear(x, x, x[:, 0])),
    fused_batch=lambda x: torch.baddbmm(x[None] @ x.T[None], x[None], x.T[None], alpha=2),
    einsum=lambda x: (torch.einsum("ij,kj->ik", x, x), torch.einsum("bij,ki->bkj", BATCH, x)),
    chains=lambda x: (torch.linalg.multi_dot([x.T, x, x.T]), torch.kron(x, x), torch.inner(x, x)),
)
def test_matrix_products(fn: Case) -> None:
    check(fn, leaf())


@cases(
    factories=lambda x: (torch.zeros(3), torch.ones_like(x), torch.full((2,), 1.5), x.new_zeros(2)),
    ranges=lambda x: (torch.arange(3.0), torch.arange(1, 10, 2), torch.linspace(0, 1, 3)),
    tables=lambda x: (torch.eye(2), torch.tril_indices(2, 2), torch.hann_window(4)),
    literals=lambda x: x * torch.tensor([1.0, 2.0, 3.0]) + torch.tensor(2),
    old_literals=lambda x: x * torch.Tensor([1, 2, 3]),
    numbers=lambda x: x * torch.tensor(3.0).item(),
)
def test_tensors_made_inside(fn: Case) -> None:
    check(fn, leaf())


def overwrite(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    y[torch.tensor([0, 1])] = 0.0
    y[:, 1] = 2
    y[1:] += 1
    y[..., 0:2] *= 3
    y[y > 0] = -1.0
    y[2] = x[0]
    y.clamp_(-3, 3)
    return y


def aliases(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x.clone()
    z = y.view(-1)
    z[0] = 100.0
    z.mul_(2)
    w = y.t()
    w[0].add_(1)
    fresh = torch.empty(4, 3)
    fresh.copy_(x).sub_(1).div_(2)
    return y, z, w, fresh


def accumulate(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros(3)
    for i in range(4):
        y[i % 3] += x[i].sum()
    y.index_put_((ROWS,), x[:, 0], accumulate=True)
    return y


@cases(overwrite=overwrite, aliases=aliases, accumulate=accumulate)
def test_mutation_and_views(fn: Case) -> None:
    check(fn, leaf())


def under_no_grad(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        y = x * 2
    return y * x.detach() + x * x.data


@cases(
    no_grad=under_no_grad,
    detach=lambda x: (x * 2).detach() * x,
    constant_gradient=lambda x: torch.autograd.grad((x**3).sum(), x)[0] * x,
    live_gradient=lambda x: torch.autograd.grad(torch.tanh(x).sum(), x, create_graph=True)[0],
)
def test_gradients_are_cut_where_eager_cuts_them(fn: Case) -> None:
    check(fn, leaf())


@cases(
    **{
        f.__name__: f
        for f in (
            F.gelu, F.silu, F.elu, F.leaky_relu, F.softplus, F.selu, F.celu, F.mish, F.hardtanh,
            F.hardswish, F.hardsigmoid, F.relu6, F.logsigmoid, F.tanhshrink, F.softsign,
            F.softshrink, F.hardshrink, F.relu,
        )
    },
    gelu_tanh=lambda x: F.gelu(x, approximate="tanh"),
    threshold=lambda x: F.threshold(x, 0.1, 0.2),
    prelu=lambda x: F.prelu(x, torch.tensor([0.3])),
    glu=lambda x: F.glu(x[:2].t()),
)  # fmt: skip
def test_activations(fn: Case) -> None:
    check(fn, leaf())


@cases(
    cross_entropy=lambda x: F.cross_entropy(x, ROWS),
    smoothed=lambda x: F.cross_entropy(x, ROWS, label_smoothing=0.1),
    weighted=lambda x: F.cross_entropy(x, ROWS, weight=torch.tensor([1.0, 2.0, 3.0])),
    ignored=lambda x: F.cross_entropy(x, torch.tensor([0, -100, 1, 2])),
    soft=lambda x: F.cross_entropy(x, x.softmax(1)),
    unreduced=lambda x: F.cross_entropy(x, ROWS, reduction="none"),
    nll=lambda x: F.nll_loss(x, ROWS),
    mse=lambda x: F.mse_loss(x, 2 * x) + F.mse_loss(x, 3 * x, reduction="sum"),
    l1=lambda x: F.l1_loss(x, 2 * x) + F.smooth_l1_loss(x, 2 * x, beta=0.3),
    huber=lambda x: F.huber_loss(x, 2 * x, delta=0.5),
    bce=lambda x: F.binary_cross_entropy(x.sigmoid(), (2 * x).sigmoid()),
    bce_logits=lambda x: F.binary_cross_entropy_with_logits(x, (2 * x).sigmoid()),
    bce_weighted=lambda x: F.binary_cross_entropy_with_logits(
        x, x.sigmoid(), pos_weight=torch.tensor(2.0), weight=torch.tensor(3.0)
    ),
    kl=lambda x: F.kl_div(x, x.softmax(-1), reduction="batchmean"),
    triplet=lambda x: F.triplet_margin_loss(x, 2 * x, 3 * x),
    poisson=lambda x: F.poisson_nll_loss(x, x.exp()),
)
def test_losses(fn: Case) -> None:
    check(fn, leaf())


@cases(
    max_pool=lambda x: F.max_pool2d(x, 3, stride=2, padding=1),
    max_pool_1d=lambda x: F.max_pool1d(x[0], 2),
    avg_pool=lambda x: F.avg_pool2d(x, 3, stride=2, padding=1, count_include_pad=False),
    adaptive=lambda x: F.adaptive_avg_pool2d(x, 3),
    conv=lambda x: F.conv2d(x, KERNEL, torch.ones(4), padding=(1, 0), stride=(2, 1)),
    grouped=lambda x: F.conv2d(x, torch.ones(4, 1, 3, 3), groups=4, dilation=2),
    transposed=lambda x: F.conv_transpose2d(x, torch.ones(4, 2, 3, 3), stride=2),
    conv1d=lambda x: F.conv1d(x[:, :, 0], torch.ones(2, 4, 3), padding="same"),
    upsampled=lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    reflected=lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
    group_norm=lambda x: F.group_norm(x, 2, torch.arange(4.0), torch.arange(4.0)),
    instance_norm=lambda x: F.instance_norm(x),
    layer_norm=lambda x: F.layer_norm(x, (8, 8)),
    rms_norm=lambda x: F.rms_norm(x, (8,)),
    batch_norm=lambda x: F.batch_norm(x, None, None, training=True),
)
def test_images(fn: Case) -> None:
    check(fn, IMAGE.clone().requires_grad_(), rtol=1e-4, atol=1e-5)


def filled(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y[0].zero_()
    z = x * 3
    z.fill_(2.0)
    return y * z


def inner_leaf(x: torch.Tensor) -> torch.Tensor:
    y = x.detach().requires_grad_()
    (grad,) = torch.autograd.grad((torch.sin(y) * y).sum(), y)
    return x * grad


def inner_leaf_assigned(x: torch.Tensor) -> torch.Tensor:
    y = (x * 2).detach()
    y.requires_grad = True
    return torch.autograd.grad((y**3).sum(), y)[0] * x


@cases(filled=filled, inner_leaf=inner_leaf, assigned=inner_leaf_assigned)
def test_values_without_gradient_are_no_error(fn: Case) -> None:
    check(fn, leaf())


@pytest.mark.parametrize("fn", [torch.unique, torch.unique_consecutive])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
@pytest.mark.parametrize("shape", [(7,), (3, 4), (0,), ()])
def test_unique_of_integers(fn: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    both = {"return_inverse": True, "return_counts": True}
    compiled = differentiate(lambda x: fn(x, **both), strict=True)
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        x = torch.randint(0, 4, shape, generator=generator).to(dtype)
        for mine, eagers in zip(compiled(x), fn(x, **both), strict=True):
            assert mine.dtype == eagers.dtype and torch.equal(mine, eagers)


@pytest.mark.parametrize("fn", [
    lambda x: x.t().as_strided((3, 2), (1, 2)),
    lambda x: x.reshape(2, 2, 3).permute(1, 0, 2).as_strided((2, 3), (2, 1), 1),
    lambda x: (x * 2).transpose(0, 1).as_strided((4,), (2,)),
    lambda x: x[1:].as_strided((2, 2), (1, 1)),
    lambda x: (x * 1)[1:].as_strided((2, 2), (1, 1), 4),
])  # fmt: skip
def test_as_strided_of_views_that_fill_their_memory(fn: Any) -> None:
    check(fn, torch.randn(4, 3))


@pytest.mark.parametrize("make", [torch.linspace, torch.logspace])
def test_spaces_have_no_gradient_of_their_ends(make: Any) -> None:
    """As in eager, where the ends are tensors."""
    x = torch.tensor(0.5, requires_grad=True)

    def fn(a: torch.Tensor) -> Any:
        return make(a, end=a + 1, steps=5) * a, make(a, 1, 3)

    compiled = differentiate(fn, strict=True)
    (mine, none), (eager, _) = compiled(x), fn(x)
    assert torch.equal(mine, eager) and not none.requires_grad
    assert torch.equal(*(torch.autograd.grad(y.sum(), x)[0] for y in (mine, eager)))


@pytest.mark.parametrize("expanded", [
    ([1, 3], [0], [1, 2], [2, 3]), ([0], [1], [2], [0]), ([], [], [], [1]), ([0], [1], [2], []),
    ([0, 3], [1], [1, 2], [2]),
])  # fmt: skip
def test_products_of_three(expanded: Any) -> None:
    """What two of them alone have and is summed is a matrix product, as in `nn.Bilinear`."""
    rank = 4 if max(map(len, expanded[:3])) > 1 else 3
    sizes = [3, 2, 4, 5][:rank]
    given = [
        torch.randn([n for dim, n in enumerate(sizes) if dim not in dims], dtype=torch.float64)
        for dims in expanded[:3]
    ]
    check(lambda a, b, c: torch.ops.aten._trilinear.default(a, b, c, *expanded), *given)


def test_an_assertion_of_a_tensor_is_made_at_each_call() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        torch._assert_async((x > 0).all(), "not positive")
        return x.log().sum()

    compiled = differentiate(fn)
    for value in (1.0, 2.0, 3.0):
        x = torch.full((3,), value, requires_grad=True)
        (found,) = torch.autograd.grad(compiled(x), x)
        torch.testing.assert_close(found, torch.full((3,), 1 / value))
    info = compiled.cache_info()
    assert (info.misses, info.eager_runs) == (1, 0)
    with pytest.raises(RuntimeError, match="not positive"):
        compiled(torch.zeros(3))
