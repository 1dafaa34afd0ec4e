"""Random numbers of traced parameters: plain numpy's, and their gradients, from seeded generators.

A generator that the function seeds itself draws constants, another draws anew at every call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradof
from gradof.errors import UnsupportedOpError
from gradof.testing import check

P = np.array([0.4, 1.3, 0.7])
COV = np.array([[2.0, 0.3, 0.1], [0.3, 1.5, 0.2], [0.1, 0.2, 1.1]])

Draw = Callable[[Any, Any], Any]
# Of any generator: rng is a Generator or a RandomState.
DRAWS: dict[str, Draw] = {
    "normal": lambda rng, p: rng.normal(p, p**2),
    "lognormal": lambda rng, p: rng.lognormal(p[0], sigma=p[1], size=(2, 3)),
    "uniform": lambda rng, p: rng.uniform(-p, p),
    "exponential": lambda rng, p: rng.exponential(p, 3),
    "laplace": lambda rng, p: rng.laplace(p, 2.0),
    "logistic": lambda rng, p: rng.logistic(scale=p),
    "gumbel": lambda rng, p: rng.gumbel(p[0], p[1], size=4),
    "rayleigh": lambda rng, p: rng.rayleigh(p),
    "weibull": lambda rng, p: rng.weibull(p[1], 4),
    "pareto": lambda rng, p: rng.pareto(p),
    "power": lambda rng, p: rng.power(p),
    "gamma": lambda rng, p: rng.gamma(2.5, p),
    "a mean": lambda rng, p: rng.multivariate_normal(p, COV, size=(2, 2)),
    "a list for a mean": lambda rng, p: rng.multivariate_normal([p[0], p[1]], np.eye(2)),
    "a covariance": lambda rng, p: rng.multivariate_normal(p, COV + np.outer(p, p), 3),
    "choice": lambda rng, p: rng.choice(p, 5) * rng.choice(p),
    "choice by weights": lambda rng, p: rng.choice(p, 2, replace=False, p=[0.2, 0.5, 0.3]),
    "choice of as many": lambda rng, p: rng.choice(len(p), len(p)) * p,
    "permutation": lambda rng, p: rng.permutation(p) * p,
    "of names": lambda rng, p: rng.choice(a=p, size=4) * rng.normal(scale=p[0], loc=p[1]),
    "shuffle": lambda rng, p: _shuffled(rng, p * 1.0),
    "several": lambda rng, p: rng.normal(p) + rng.random() * rng.standard_normal(3),
}  # fmt: skip
OF_GENERATORS: dict[str, Draw] = {
    "cholesky": lambda rng, p: rng.multivariate_normal(
        p, COV + np.outer(p, p), method="cholesky"
    ),
    "eigh": lambda rng, p: rng.multivariate_normal(p, COV + np.outer(p, p), 2, method="eigh"),
    "shuffle of a list": lambda rng, p: np.stack(_shuffled(rng, [p[0], p[1] ** 2, p[2], 1.0])),
    "children": lambda rng, p: sum(child.normal(p) for child in rng.spawn(2)),
    "itself": lambda rng, p: np.random.default_rng(rng).normal(p) + rng.normal(p),
}
KINDS: dict[str, Callable[[Any], Any]] = {
    "Generator": lambda seed: np.random.default_rng(seed),
    "of bits": lambda seed: np.random.Generator(np.random.PCG64(seed)),
    "RandomState": lambda seed: np.random.RandomState(seed),
}
CASES = [(d, k) for d in DRAWS for k in KINDS] + [(d, "Generator") for d in OF_GENERATORS]


def _shuffled(rng: Any, x: Any) -> Any:
    rng.shuffle(x)
    return x


@pytest.mark.parametrize(("draw", "kind"), CASES)
def test_of_a_generator_that_the_function_seeds(draw: str, kind: str) -> None:
    drawn, make = (DRAWS | OF_GENERATORS)[draw], KINDS[kind]

    def fn(p: Any) -> Any:
        return drawn(make(3), p) ** 2

    assert check(fn, (P,), order=2).ok
    compiled = gradof.differentiate(fn)
    for _ in range(3):
        np.testing.assert_allclose(compiled(P), fn(P), rtol=1e-13)


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("kind", ["Generator", "RandomState"])
def test_of_a_generator_outside(draw: str, kind: str) -> None:
    rng, same = KINDS[kind](5), KINDS[kind](5)
    compiled = gradof.differentiate(lambda p: DRAWS[draw](rng, p))
    for _ in range(3):
        np.testing.assert_allclose(compiled(P), DRAWS[draw](same, P), rtol=1e-13)
    assert compiled.cache_info().misses == 1


@pytest.mark.parametrize(
    "draw",
    [
        lambda rng, p: rng.gamma(p, 2.0),
        lambda rng, p: p[rng.choice(3, p=p / np.sum(p))],
        lambda rng, p: rng.poisson(p) * p,
    ],
    ids=["a shape", "weights", "counts"],
)
def test_what_numbers_do_not_follow_is_refused(draw: Draw) -> None:
    with pytest.raises(UnsupportedOpError):
        gradof.grad(lambda p: np.sum(draw(np.random.default_rng(0), p)))(P)


def test_numpys_errors_are_numpys() -> None:
    for rng in (np.random.default_rng(0), None):

        def fn(p: Any, rng: Any = rng) -> Any:
            return np.sum((rng or np.random.default_rng(0)).gumbel(0.0, -p))

        with pytest.raises(ValueError, match="scale"):
            fn(P)
        with pytest.raises(ValueError, match="scale"):
            gradof.grad(fn)(P)


class _Kept:
    rng: Any = None


def test_a_generator_that_is_kept_is_numpys() -> None:
    kept = _Kept()

    def fn(p: Any) -> Any:
        kept.rng = np.random.default_rng(0)
        assert isinstance(kept.rng, np.random.Generator)
        assert isinstance(kept.rng, np.random.Generator | np.random.RandomState)
        assert isinstance(kept.rng, None | np.random.Generator)
        return p * kept.rng.random(3)

    compiled = gradof.differentiate(fn)
    for _ in range(2):
        np.testing.assert_allclose(compiled(P), P * np.random.default_rng(0).random(3))
        assert type(kept.rng) is np.random.Generator
        assert kept.rng.random() == np.random.default_rng(0).random(4)[3]
