"""The harness for torch functions of complex numbers: arguments, results and both gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import gradof
from gradof.errors import GradientMismatchError
from gradof.ops.expr import F
from gradof.testing import check
from tests.testing.test_harness import planted

Tensor = torch.Tensor


def _z(dtype: torch.dtype = torch.complex128) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(3, 4, generator=generator, dtype=dtype)


RIGHT: dict[str, Callable[..., Any]] = {
    "to a real number": lambda z: torch.linalg.norm(z),
    "to complex ones": lambda z: torch.exp(z) * z.conj(),
    "by a spectrum": lambda z: torch.fft.fft(z).abs(),
    "of real parts": lambda z: torch.complex(z.real, z.imag.sin()),
    "dims": lambda z: torch.linalg.vector_norm(z, 3, dim=1, keepdim=True),
    "one element": lambda z: torch.linalg.vector_norm(z[:1], dim=0),
    "most": lambda z: torch.linalg.vector_norm(z, float("inf")),
    "a wider norm": lambda z: torch.linalg.vector_norm(z, dtype=torch.complex128),
    "a matrix norm": lambda z: torch.linalg.matrix_norm(z, 1),
    "a distance": lambda z: torch.dist(z, z * 2j),
    "variance": lambda z: torch.var(z, 0, correction=0),
    "deviation and mean": lambda z: torch.std_mean(z, 1),
}


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("name", RIGHT)
def test_right(name: str, dtype: torch.dtype, order: int) -> None:
    fn = RIGHT[name]
    report = check(gradof.differentiate(fn, strict=True), (_z(dtype),), order=order)
    assert report.ok
    assert {row.what.split()[0] for row in report.rows} >= {"output", "gradient"}


def test_of_real_arguments() -> None:
    def wave(x: Tensor, y: Tensor) -> Tensor:
        return torch.polar(x.exp(), y)

    x, y = torch.randn(2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert check(wave, (x, y), order=2).ok


@pytest.mark.parametrize("fn", [lambda z: torch.exp(z), lambda z: torch.exp(z).imag])
def test_a_wrong_rule_is_found(fn: Callable[..., Any]) -> None:
    with planted("exp", vjp={"x": lambda g, y: g * F.conj(y)}):
        with pytest.raises(GradientMismatchError, match="exp"):
            check(fn, (_z(),))


def test_a_wrong_value_is_found() -> None:
    with planted("exp", numpy="np.exp(np.conj({x}))"):
        with pytest.raises(GradientMismatchError, match="output"):
            check(lambda z: torch.exp(z), (_z(),))


@pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0:UserWarning")  # eager's own
@pytest.mark.parametrize("name", ["to a real number", "variance", "deviation and mean"])
@pytest.mark.parametrize("kind", ["zeros", "equal", "one"])
def test_where_nothing_is_spread(name: str, kind: str) -> None:
    z = {"zeros": 0 * _z(), "equal": 0 * _z() + (1 + 2j), "one": _z()[:1, :1]}[kind]
    results = []
    for fn in (RIGHT[name], gradof.differentiate(RIGHT[name], strict=True)):
        at = z.clone().requires_grad_()
        made = fn(at)
        parts = [made] if isinstance(made, Tensor) else list(made)
        total = sum((2j * p).real.sum() + p.real.sum() for p in parts)
        results.append([*parts, *torch.autograd.grad(total, at)])  # type: ignore[arg-type]
    torch.testing.assert_close(results[1], results[0], equal_nan=True)
