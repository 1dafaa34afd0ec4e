"""Factorisations that say in a number whether there was one (`cholesky_ex`, `inv_ex`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import gradof
from gradof.codegen.host.evaluate import interpret
from gradof.ir.parser import parse_graph

Tensor = torch.Tensor
MultivariateNormal: Any = torch.distributions.MultivariateNormal
DEFINITE = [[1.0, 2.0], [3.0, 17.0]]
SINGULAR = [[1.0, 2.0], [2.0, 4.0]]
NEGATIVE = [[-1.0, 0.0], [0.0, -4.0]]


def _retry(x: Tensor) -> Any:
    factor, info = torch.linalg.cholesky_ex(x)
    if torch.any(info):
        return torch.linalg.cholesky(x + 9.0 * torch.eye(2)).sum()
    return factor.sum()


FUNCTIONS: dict[str, Callable[[Tensor], Any]] = {
    "cholesky": lambda x: torch.linalg.cholesky_ex(x)[0].sin().sum(),
    "upper": lambda x: torch.linalg.cholesky_ex(x, upper=True)[0].sin().sum(),
    "batch": lambda x: torch.linalg.cholesky_ex(torch.stack([x, x + torch.eye(2)]))[0].sum(),
    "info": lambda x: torch.linalg.cholesky_ex(x).info * x.sum(),
    "inv": lambda x: torch.linalg.inv_ex(x)[0].sum(),
    "inv info": lambda x: torch.linalg.inv_ex(x).info * x.sum(),
    "checked": lambda x: torch.linalg.cholesky_ex(x, check_errors=True)[0].sum(),
    "cholesky raises": lambda x: torch.linalg.cholesky(x).sum(),
    "cholesky upper": lambda x: torch.linalg.cholesky(x, upper=True).sin().sum(),
    "inv raises": lambda x: torch.linalg.inv(x).sum(),
    "tried again": _retry,
}


def outcome(f: Callable[[Tensor], Any], matrix: list[list[float]]) -> list[Tensor] | str:
    x = torch.tensor(matrix, dtype=torch.float64, requires_grad=True)
    try:
        y = f(x)
        (first,) = torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)
        return [y, first, *torch.autograd.grad(first.sum(), x, allow_unused=True)]
    except RuntimeError as error:
        return type(error).__name__


def _finite(x: Tensor) -> Tensor:
    """What a failed factorisation has is nan or infinite by who divides first."""
    return torch.where(x.isfinite(), x, torch.nan)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_fails_is_as_in_eager(name: str) -> None:
    if "info" in name:
        f = lambda x: FUNCTIONS[name](x) + x.sum() ** 2  # noqa: E731
    else:
        f = FUNCTIONS[name]
    compiled = gradof.differentiate(f, strict=True)
    for matrix in (DEFINITE, SINGULAR, NEGATIVE, DEFINITE):
        want, have = outcome(f, matrix), outcome(compiled, matrix)
        if isinstance(want, str):
            assert have == want
        else:
            assert not isinstance(have, str)
            for w, h in zip(want, have, strict=True):
                torch.testing.assert_close(_finite(h), _finite(w), equal_nan=True)
    assert compiled.cache_info().eager_runs == 0


def test_a_normal_distribution_of_several_variables_is_compiled() -> None:
    def loss(mean: Tensor, half: Tensor, x: Tensor) -> Any:
        cov = half @ half.mT + torch.eye(3)
        return MultivariateNormal(mean, cov).log_prob(x).sum()

    compiled = gradof.differentiate(loss, strict=True)
    given = [torch.randn(s, requires_grad=True) for s in ((3,), (3, 3), (5, 3))]
    for _ in range(2):
        torch.testing.assert_close(compiled(*given), loss(*given))
        for have, want in zip(torch.autograd.grad(compiled(*given), given),
                              torch.autograd.grad(loss(*given), given), strict=True):  # fmt: skip
            torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-5)
    assert compiled.cache_info().misses == 1


@pytest.mark.parametrize("op", ["cholesky_ex", "inv_ex"])
def test_the_numpy_lowering_says_which_of_a_stack_failed(op: str) -> None:
    stack = np.array([DEFINITE, SINGULAR, [[2.0, 0.0], [0.0, 8.0]]])
    text = "graph f(%x : f64[3,2,2]): %y : f64[3,2,2], %i : i32[3] = {}[check_errors={}](%x) "
    text += "return (%y, %i)"
    tried, checked = (parse_graph(text.format(op, check)) for check in (False, True))
    mine, theirs = (interpret(tried, [stack], library=lib) for lib in ("numpy", "torch"))
    np.testing.assert_allclose(mine[0][[0, 2]], theirs[0][[0, 2]])
    np.testing.assert_array_equal(mine[1] != 0, [False, True, False])
    np.testing.assert_array_equal(theirs[1] != 0, [False, True, False])
    with pytest.raises(np.linalg.LinAlgError, match="no result for a matrix"):
        interpret(checked, [stack])
