"""One seed gives the numbers of eager: dropout in any memory layout, and every other draw."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from gradof import differentiate
from gradof.errors import TraceError, UnsupportedOpError
from tests.tracer.eager import check, trace

NORMAL: Any = torch.distributions.Normal
GAMMA: Any = torch.distributions.Gamma
BETA: Any = torch.distributions.Beta
DIRICHLET: Any = torch.distributions.Dirichlet
STUDENT: Any = torch.distributions.StudentT


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: F.dropout(x, 0.3),
        lambda x: F.dropout(x.t(), 0.3),
        lambda x: F.dropout(x.reshape(2, 10, 6).permute(2, 0, 1), 0.3),
        lambda x: F.dropout(x[:, :1].expand(20, 6), 0.3),
        lambda x: F.dropout(x, 0.3) * F.dropout(x, 0.3),
        lambda x: F.dropout(x, 0.3, training=False),
        lambda x: F.dropout1d(x, 0.3),
        lambda x: F.alpha_dropout(x, 0.3),
        lambda x: x + torch.rand(6) + torch.rand_like(x.t()).t() + torch.randn(20, 6),
        lambda x: x + torch.randn_like(x.t()).t() + torch.empty_like(x.t()).normal_(1.0, 2.0).t(),
        lambda x: x.reshape(2, 10, 6).mT + torch.randn_like(x.reshape(2, 10, 6).mT),
        lambda x: torch.dropout(input=x, p=0.3, train=True) + torch.rand_like(input=x),
        lambda x: x * torch.randint(0, 5, (6,)) + torch.randint(3, (20, 6)),
        lambda x: x[torch.randperm(20)],
        lambda x: x * torch.bernoulli(torch.full((20, 6), 0.3)),
        lambda x: x * torch.bernoulli(x.detach().t(), 0.3).t(),
        lambda x: x * x.t().clone().bernoulli_(0.3).t(),
        lambda x: x * torch.empty(20, 6).uniform_(-1, 2) + torch.empty(6).normal_(1, 2),
        lambda x: x * torch.empty(20, 6).exponential_(2.0) + torch.normal(0.0, 2.0, (6,)),
        lambda x: NORMAL(x, x.exp(), validate_args=False).rsample(),
        lambda x: F.gumbel_softmax(x, tau=0.7),
        lambda x: x.sum() * torch.multinomial(torch.ones(5), 3),
        lambda x: x * torch.poisson(x.exp()) + torch.poisson(x.exp().t(), None).t(),
        lambda x: x * torch.binomial(torch.full((20, 6), 9.0), x.detach().sigmoid()),
        lambda x: GAMMA(x.exp(), x.t().exp().t(), validate_args=False).rsample((2,)),
        lambda x: torch._standard_gamma(x.t().exp()).t() + torch._standard_gamma(x[:, :1].exp()),
        lambda x: BETA(x.exp(), 2.0, validate_args=False).rsample().log(),
        lambda x: DIRICHLET(x.exp(), validate_args=False).rsample().square(),
        lambda x: STUDENT(x.exp(), x, validate_args=False).rsample(),
    ],
)
def test_draws_are_those_of_eager(fn: Callable[..., Any]) -> None:
    check(fn, torch.randn(20, 6, requires_grad=True))


def test_transformer_layer_with_dropout() -> None:
    torch.manual_seed(0)
    for batch_first in (True, False):
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=batch_first)
        check(lambda x: layer(x), torch.randn(3, 5, 8), rtol=1e-4, atol=1e-5)  # noqa: B023


def test_recurrent_layer_with_dropout() -> None:
    layer = nn.LSTM(3, 5, num_layers=2, dropout=0.3)
    check(lambda x: layer(x)[0], torch.randn(4, 2, 3))


def test_attention_with_dropout() -> None:
    layer = nn.MultiheadAttention(8, 2, dropout=0.3)
    check(lambda x: layer(x, x, x)[0], torch.randn(5, 2, 8), rtol=1e-4, atol=1e-5)


def test_draws_of_a_gamma_distribution_have_no_second_derivative() -> None:
    """Eager's autograd does not know it either: an error, where 0 would be wrong."""
    x = torch.linspace(0.5, 2.0, 4).requires_grad_()
    for fn in (torch._standard_gamma, differentiate(torch._standard_gamma)):
        (first,) = torch.autograd.grad(fn(x).sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match="_standard_gamma_grad"):
            torch.autograd.grad(first.sum(), x)


def test_unused_draws_stay() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        torch.rand(3)
        return x * torch.rand(3)

    check(fn, torch.ones(3, requires_grad=True))
    assert str(trace(fn, torch.ones(3)).graph).count("uniform[") == 2


def test_tracing_leaves_the_generator_alone() -> None:
    state = torch.get_rng_state()
    trace(lambda x: F.dropout(x, 0.5), torch.ones(4))
    assert torch.equal(torch.get_rng_state(), state)


GENERATED: dict[str, Callable[..., torch.Tensor]] = {
    "rand": lambda x, g: x * torch.rand(3, generator=g),
    "randn": lambda x, g: x * torch.randn(3, generator=g) + torch.randn(3),
    "twice": lambda x, g: x * torch.rand(3, generator=g) + torch.rand(3, generator=g),
    "bernoulli": lambda x, g: torch.bernoulli(x.sigmoid(), generator=g) * x,
    "normal": lambda x, g: torch.normal(x, 0.5, generator=g) + x,
    "in place": lambda x, g: x * torch.empty(3).uniform_(0, 2, generator=g),
    "randint": lambda x, g: x * torch.randint(0, 5, (3,), generator=g),
    "randperm": lambda x, g: x[torch.randperm(3, generator=g)],
    "multinomial": lambda x, g: x[torch.multinomial(x.exp(), 2, generator=g)],
}


@pytest.mark.parametrize("name", GENERATED)
@pytest.mark.parametrize("free", [False, True], ids=["argument", "closure"])
def test_a_generator_of_the_callers_own(name: str, free: bool) -> None:
    """It gives eager's numbers, moves on as in eager, and the global one does not."""
    fn = GENERATED[name]
    runs = []
    for compiled in (True, False):
        generator = torch.Generator().manual_seed(7)
        torch.manual_seed(1)
        inner = (lambda x, g=generator: fn(x, g)) if free else fn
        run = differentiate(inner) if compiled else inner
        args = () if free else (generator,)
        for _ in range(3):
            x = torch.linspace(0.1, 1.0, 3).requires_grad_()
            y = run(x, *args)
            (grad,) = torch.autograd.grad(y.sum(), x)
            runs.append((y.detach(), grad, generator.get_state(), torch.get_rng_state()))
    for mine, theirs in zip(runs[:3], runs[3:], strict=True):
        for got, want in zip(mine, theirs, strict=True):
            torch.testing.assert_close(got, want)


def test_tracing_leaves_a_generator_alone() -> None:
    generator = torch.Generator().manual_seed(3)
    state = generator.get_state()
    trace(lambda x: x + torch.rand(3, generator=generator), torch.ones(3))
    assert torch.equal(generator.get_state(), state)


def _seeded(x: torch.Tensor, g: torch.Generator) -> torch.Tensor:
    g.manual_seed(4)
    return x * torch.rand(3, generator=g)


def _seeded_between(x: torch.Tensor, g: torch.Generator) -> torch.Tensor:
    first = torch.rand(3, generator=g)
    g.manual_seed(1)
    g.manual_seed(2)
    return x * first * torch.rand(3, generator=g) + torch.normal(0.0, 1.0, (3,), generator=g)


def _seeded_last(x: torch.Tensor, g: torch.Generator) -> torch.Tensor:
    y = x * torch.rand(3, generator=g)
    g.manual_seed(9)
    return y


def _seeded_each(x: torch.Tensor, g: torch.Generator) -> torch.Tensor:
    for seed in range(3):
        g.manual_seed(seed)
        x = x * torch.rand(3, generator=g)
    return x


def _made(x: torch.Tensor, g: torch.Generator) -> torch.Tensor:
    a, b = torch.Generator().manual_seed(3), torch.Generator().manual_seed(3)
    x = x * torch.rand(3, generator=a) - x**2 * torch.rand(3, generator=b)
    return x + torch.randn(3, generator=b) + torch.rand(3)


def _kept(x: torch.Tensor, g: torch.Generator, kept: Any) -> torch.Tensor:
    if not kept:
        kept.append(torch.Generator().manual_seed(2))
    return x * torch.rand(3, generator=kept[0])


def _at_times(x: torch.Tensor, g: torch.Generator, kept: Any) -> torch.Tensor:
    kept.append(0)
    if len(kept) % 2:
        g.manual_seed(3)
    return x * torch.rand(3, generator=g)


SEEDING = [_seeded, _seeded_between, _seeded_last, _seeded_each, _made, _kept, _at_times]


@pytest.mark.parametrize("fn", SEEDING)
def test_generators_that_are_seeded_inside(fn: Any) -> None:
    """Each call seeds them, and leaves them, as in eager."""
    runs = []
    for compiled in (True, False):
        kept: list[Any] = []
        generator = torch.Generator().manual_seed(7)
        torch.manual_seed(1)
        more = (kept,) if fn in (_kept, _at_times) else ()
        inner = lambda x, g=generator, m=more: fn(x, g, *m)  # noqa: E731
        run = differentiate(inner, strict=True) if compiled else inner
        for _ in range(4):
            x = torch.linspace(0.1, 1.0, 3).requires_grad_()
            y = run(x)
            (grad,) = torch.autograd.grad(y.sum(), x)
            runs.append((y.detach(), grad, generator.get_state(), torch.get_rng_state()))
            torch.rand(2, generator=generator)
    for mine, theirs in zip(runs[:4], runs[4:], strict=True):
        for got, want in zip(mine, theirs, strict=True):
            torch.testing.assert_close(got, want)


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda g: g.set_state(g.get_state()), "get_state is called"),
        (lambda g: g.seed(), "seed is called"),
        (lambda g: torch.Generator(), "that the function makes"),
        (lambda g: g.clone_state(), "clone_state is called"),
    ],
    ids=["set_state", "seed", "made", "clone_state"],
)
def test_what_a_generator_is_asked_is_refused(ask: Any, said: str) -> None:
    """What it says at one call would be what it says at all."""
    generator = torch.Generator().manual_seed(5)
    state = generator.get_state()

    def fn(x: torch.Tensor) -> torch.Tensor:
        found = ask(generator)
        mine = found if isinstance(found, torch.Generator) else generator
        return x + torch.rand(3, generator=mine)

    with pytest.raises(TraceError, match=said):
        trace(fn, torch.ones(3))
    assert torch.equal(generator.get_state(), state)


def test_a_draw_that_torch_cannot_follow_with_a_generator_is_refused() -> None:
    generator = torch.Generator()
    with pytest.raises(UnsupportedOpError, match="exponential_ with a generator of its own"):
        trace(lambda x: x * torch.empty(3).exponential_(generator=generator), torch.ones(3))


DRAWN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "cauchy_": lambda x: x * torch.empty_like(x).cauchy_(),
    "geometric_": lambda x: x * torch.empty_like(x).geometric_(0.3),
    "log_normal_": lambda x: x * torch.empty_like(x).log_normal_(),
    "exponential_": lambda x: x * torch.empty_like(x).exponential_(2.0),
    "normal of tensors": lambda x: x * torch.normal(x.detach(), x.detach().abs()),
    "normal of a mean": lambda x: x * torch.normal(x.detach(), 2.0),
    "normal of a deviation": lambda x: x * torch.normal(2.0, x.detach().abs()),
    "uniform_": lambda x: x * torch.empty_like(x).uniform_(1.0, 2.0),
    "bernoulli": lambda x: x * torch.bernoulli(x.detach().sigmoid()),
    "bernoulli_": lambda x: x * torch.empty_like(x).bernoulli_(0.3),
    "alpha_dropout": lambda x: F.alpha_dropout(x, 0.4),
    "feature_dropout": lambda x: F.dropout1d(x.reshape(1, 4, -1), 0.4),
    "rrelu": lambda x: F.rrelu(x, training=True),
    "gumbel_softmax": lambda x: F.gumbel_softmax(x, tau=0.5),
    "gamma": lambda x: torch.distributions.Gamma(x.exp(), 1.0).rsample(),
    "poisson": lambda x: x * torch.poisson(x.detach().exp()),
}


@pytest.mark.parametrize("size", [4, 40], ids=["few", "many"])  # kernels change at 16
@pytest.mark.parametrize("name", DRAWN)
@pytest.mark.filterwarnings("ignore::gradof.errors.EagerWarning")
def test_draws_are_eagers(name: str, size: int) -> None:
    """The same numbers from the same seed, and the generator is left where eager leaves it."""
    runs = []
    for fn in (DRAWN[name], differentiate(DRAWN[name])):
        torch.manual_seed(3)
        x = torch.linspace(-1.0, 1.0, size, requires_grad=True)
        found = []
        for _ in range(3):
            y = fn(x)
            found += [y.detach(), *torch.autograd.grad(y.sum(), x)]
        runs.append([*found, torch.get_rng_state()])
    for got, want in zip(*runs, strict=True):
        torch.testing.assert_close(got, want)
