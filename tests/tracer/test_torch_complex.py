"""Complex numbers and Fourier transforms in torch: values, first and second gradients as eager's.

The gradients of complex results are asked with random complex cotangents, and `check` asserts that
the compiled graphs ran and none of eager's backward nodes did.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.runtime.compare import check

Tensor = torch.Tensor


def numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.complex128) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=dtype).requires_grad_()


UNARY: list[Callable[[Any], Any]] = [
    torch.exp, torch.log, torch.sin, torch.cos, torch.tan, torch.sinh, torch.cosh, torch.tanh,
    torch.asin, torch.acos, torch.atan, torch.asinh, torch.acosh, torch.atanh, torch.sqrt,
    torch.rsqrt, torch.reciprocal, torch.square, torch.neg, torch.abs, torch.angle, torch.sgn,
    torch.real, torch.imag, torch.conj, torch.view_as_real, torch.log2, torch.log10, torch.log1p,
    torch.expm1, torch.exp2, torch.sum, torch.mean, torch.prod,
    torch.conj_physical, torch.adjoint, torch.clone, torch.sigmoid, torch.diagonal, torch.trace,
]  # fmt: skip


@pytest.mark.parametrize("fn", UNARY, ids=lambda f: f.__name__)
def test_functions_of_one_complex_tensor(fn: Callable[[Any], Any]) -> None:
    check(fn, numbers(3, 2), order=2)
    check(fn, numbers(3, 2, dtype=torch.complex64), order=1)


@pytest.mark.parametrize("fn", UNARY[:22], ids=lambda f: f.__name__)
def test_real_numbers_through_complex_intermediates(fn: Callable[[Any], Any]) -> None:
    weight = numbers(3, seed=5).detach()
    check(lambda x: fn(x * weight + 0.5j).real, numbers(2, 3, dtype=torch.float64), order=2)


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y * (2 - 1j), "alpha": lambda x, y: torch.sub(x, y, alpha=2),
    "mul": lambda x, y: x * y, "div": lambda x, y: x / y, "pow": lambda x, y: x**y,
    "square": lambda x, y: x**2 * y**-3, "power": lambda x, y: x ** (0.5 + 1j) + 2.0**y,
    "imaginary": lambda x, y: 1j * x + (2j - y) / (1 + 3j) + (1 - 2j) / y,
    "where": lambda x, y: torch.where(x.real > 0, x, y),
    "conj": lambda x, y: x.conj() * y.conj().resolve_conj(),
    "shared": lambda x, y: (x * x.conj()).real * y.angle() + (x * x * y).abs(),
    "cat": lambda x, y: torch.cat([x, y * x], 0).cumsum(0).flip(0),
    "scatter": lambda x, y: x.index_select(0, torch.tensor([1, 0, 1])) * y.narrow(0, 0, 1),
    "einsum": lambda x, y: torch.einsum("ij,kj->ik", x, y.conj()),
    "mm": lambda x, y: x @ y.mH, "vdot": lambda x, y: torch.vdot(x[0], y[1]),
    "bmm": lambda x, y: torch.bmm(x[None].expand(2, -1, -1), y.mT[None].expand(2, -1, -1)),
    "neg": lambda x, y: x.conj().imag * y.real, "inplace": lambda x, y: x.clone().mul_(y).add_(x),
    "parts": lambda x, y: torch.complex(x.real, y.imag) * torch.polar(x.abs(), y.imag),
    "views": lambda x, y: torch.view_as_complex(torch.view_as_real(x) * 2) + y,
    "addmm": lambda x, y: torch.addmm(x[:, :1], x, y.mT, beta=2j, alpha=0.5),
}  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_complex_tensors(name: str) -> None:
    check(BINARY[name], numbers(2, 3), numbers(2, 3, seed=1), order=2)


@pytest.mark.parametrize("name", ["add", "mul", "div", "pow", "imaginary"])
def test_broadcasting_mixed_kinds_and_layouts(name: str) -> None:
    fn = BINARY[name]
    real = (numbers(3, dtype=torch.float64).detach().abs() + 0.5).requires_grad_()
    check(fn, numbers(2, 3), real, order=2)
    check(fn, real, numbers(4, 2, 3).detach()[::2].mT.mT.requires_grad_(), order=2)
    check(fn, numbers(), numbers(1, seed=3), order=2)
    check(fn, numbers(0, 3), numbers(3, seed=3), order=2)


FOURIER: dict[str, Callable[[Any], Any]] = {
    "fft": torch.fft.fft, "ifft": lambda x: torch.fft.ifft(x, n=5, dim=0, norm="ortho"),
    "fft2": lambda x: torch.fft.fft2(x, norm="forward"), "ifft2": torch.fft.ifft2,
    "fftn": lambda x: torch.fft.fftn(x, s=(2, 3), dim=(0, 1)), "ifftn": torch.fft.ifftn,
    "fftshift": lambda x: torch.fft.fftshift(torch.fft.fft(x)), "hfft": torch.fft.hfft,
    "irfft": torch.fft.irfft, "irfft odd": lambda x: torch.fft.irfft(x, n=5, norm="forward"),
    "irfft one": lambda x: torch.fft.irfft(x, n=1), "irfft two": lambda x: torch.fft.irfft(x, n=2),
    "irfft2": torch.fft.irfft2, "irfftn": lambda x: torch.fft.irfftn(x, norm="ortho"),
    "hfft2": torch.fft.hfft2, "convolution": lambda x: torch.fft.ifft(torch.fft.fft(x) ** 2),
}  # fmt: skip
OF_REAL: dict[str, Callable[[Any], Any]] = {
    "rfft": torch.fft.rfft, "rfft odd": lambda x: torch.fft.rfft(x, n=5, norm="ortho"),
    "rfft2": torch.fft.rfft2, "rfftn": lambda x: torch.fft.rfftn(x, dim=(1, 0), norm="forward"),
    "fft": torch.fft.fft, "ihfft": torch.fft.ihfft, "ihfft2": torch.fft.ihfft2,
    "spectrum": lambda x: torch.fft.rfft(x).abs() ** 2,
    "round trip": lambda x: torch.fft.irfft(torch.fft.rfft(x) * x.sum()),
    "stft": lambda x: torch.stft(
        x, 4, 2, window=torch.arange(1.0, 5.0).to(x), return_complex=True),
    "istft": lambda x: torch.istft(
        torch.stft(x, 4, 2, window=torch.ones(4).to(x), return_complex=True) * x.sum(), 4, 2,
        window=torch.ones(4).to(x)),
}  # fmt: skip


@pytest.mark.parametrize("name", FOURIER)
def test_fourier_transforms(name: str) -> None:
    check(lambda x: FOURIER[name](x * x), numbers(3, 4), order=2)
    check(FOURIER[name], numbers(3, 4, dtype=torch.complex64), order=1)


@pytest.mark.parametrize("name", OF_REAL)
def test_fourier_transforms_of_real_numbers(name: str) -> None:
    check(lambda x: OF_REAL[name](x * x), numbers(3, 8, dtype=torch.float64), order=2)
    check(OF_REAL[name], numbers(3, 8, dtype=torch.float32), order=1)


def test_lazily_conjugated_and_negated_arguments() -> None:
    x = numbers(2, 3).detach().conj().requires_grad_()
    assert x.is_conj()
    check(lambda x: x * x, x, order=2)
    y = numbers(2, 3).detach().conj().imag.requires_grad_()
    assert y.is_neg()
    check(lambda y: y * y, y, order=2)


@pytest.mark.parametrize("fn", [torch.abs, torch.sgn, torch.angle], ids=lambda f: f.__name__)
def test_gradients_at_the_origin_are_eagers(fn: Callable[[Any], Any]) -> None:
    check(fn, torch.zeros(3, dtype=torch.complex128, requires_grad=True))
