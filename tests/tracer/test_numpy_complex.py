"""Complex numbers and Fourier transforms in numpy, against finite differences.

A gradient is dL/dx + i dL/dy of a real loss, whose weights are random; of the second order it is
that of a random projection of the gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

from gradof import grad, vjp

Function = Callable[..., Any]
RNG = np.random.default_rng(3)
Z = RNG.normal(size=(3, 4)) + 1j * RNG.normal(size=(3, 4))
X = RNG.normal(size=(3, 4))
WAVES = np.exp(1j * np.arange(400.0))


def projected(y: Any) -> Any:
    """A real number that depends on every part of `y`."""
    flat = np.ravel(y)
    return np.sum(np.real(flat * WAVES[: flat.shape[0]]))


def differences(fn: Function, x: Any) -> Any:
    """dL/dx + i dL/dy by central differences."""
    result = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        for unit in (1.0, 1j) if np.iscomplexobj(x) else (1.0,):
            step = np.zeros_like(x)
            step[index] = 1e-6 * unit
            result[index] += unit * (fn(x + step) - fn(x - step)) / 2e-6
    return result


def check(fn: Function, x: Any) -> None:
    def loss(x: Any) -> Any:
        return projected(fn(x))

    def slope(x: Any) -> Any:
        return projected(grad(loss)(x))

    first = grad(loss)(x)
    assert (first.dtype, first.shape) == (x.dtype, x.shape)
    np.testing.assert_allclose(first, differences(loss, x), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(grad(slope)(x), differences(slope, x), rtol=1e-5, atol=1e-5)


COMPLEX: dict[str, Function] = {
    "mul": lambda z: z * z[0] * (1 - 2j), "div": lambda z: (1 + 1j) / z + z / z[:, :1],
    "abs": np.abs, "angle": np.angle, "parts": lambda z: z.real * z.imag + np.real(z),
    "conj": lambda z: z.conj() * z**2, "pow": lambda z: z**-3 + z**1.5, "exp": np.exp,
    "log": np.log, "sqrt": np.sqrt, "sin": np.sin, "tanh": np.tanh, "sign": np.sign,
    "matmul": lambda z: z @ z.conj().T, "vdot": lambda z: np.vdot(z[0], z[1]),
    "var": lambda z: np.var(z, axis=0), "norm": np.linalg.norm, "std": np.std,
    "einsum": lambda z: np.einsum("ij,ik->jk", z, z), "prod": lambda z: np.prod(z, axis=0),
    "cumsum": lambda z: np.cumsum(z * z, axis=1), "where": lambda z: np.where(X > 0, z, z * z),
    "cast": lambda z: (z.real.astype(complex) * z), "index": lambda z: z[[0, 2, 0], 1:] * z[0, 0],
    "fft": np.fft.fft, "fft n": lambda z: np.fft.fft(z * z, 6, 0, "ortho"), "ifft": np.fft.ifft,
    "ifft n": lambda z: np.fft.ifft(z * z, 2, norm="forward"), "fft2": np.fft.fft2,
    "ifft2": lambda z: np.fft.ifft2(z * z, norm="forward"), "fftn": np.fft.fftn,
    "fftn s": lambda z: np.fft.fftn(z * z, (2, 5), (1, 0), norm="forward"),
    "ifftn": lambda z: np.fft.ifftn(z * z, axes=(0,)), "irfft": np.fft.irfft,
    "irfft n": lambda z: np.fft.irfft(z * z, 5), "irfft cut": lambda z: np.fft.irfft(z * z, 2),
    "irfft2": lambda z: np.fft.irfft2(z * z, norm="ortho"), "irfftn": np.fft.irfftn,
    "hfft": lambda z: np.fft.hfft(z * z, 7, norm="forward"), "fftshift": np.fft.fftshift,
    "ifftshift": lambda z: np.fft.ifftshift(z * z, axes=0),
}  # fmt: skip
COMPLEX["maximum"] = lambda z: np.maximum(z * z[0], z.conj()) + np.minimum(z, 0.3)
COMPLEX["order"] = lambda z: np.where(z > z.conj(), z, z**2) * (z[0] <= z) + (z < 0.1) * z
COMPLEX["wofz"] = lambda z: scipy.special.wofz(z * 0.7) * z
COMPLEX["irfftn s"] = lambda z: np.fft.irfftn(z * z, (2, 3), (1, 0))
REAL: dict[str, Function] = {
    "rfft": np.fft.rfft, "rfft n": lambda x: np.fft.rfft(x * x, 5, 0, "ortho"),
    "rfft2": lambda x: np.fft.rfft2(x * x, norm="forward"), "rfftn": np.fft.rfftn,
    "rfftn s": lambda x: np.fft.rfftn(x * x, (2, 5), (1, 0)), "fft": np.fft.fft,
    "ihfft": lambda x: np.fft.ihfft(x * x, norm="ortho"), "spectrum": lambda x: abs(np.fft.rfft(x)),
    "phase": lambda x: np.exp(1j * x) * x, "mixed": lambda x: x * Z + (x + 2j) ** 2,
    "angle": lambda x: np.angle(x * Z, deg=True),
    "filter": lambda x: np.fft.irfft(np.fft.rfft(x) * np.sum(x), 4),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_arguments(name: str) -> None:
    check(COMPLEX[name], Z)


@pytest.mark.parametrize("name", REAL)
def test_real_arguments(name: str) -> None:
    check(REAL[name], X)


@pytest.mark.parametrize("name", ["mul", "exp", "matmul", "fft", "irfft", "hfft"])
def test_single_precision_values_are_numpys(name: str) -> None:
    z = Z.astype(np.complex64)
    value, pullback = vjp(COMPLEX[name], z)
    want = COMPLEX[name](z)
    assert value.dtype == want.dtype
    np.testing.assert_allclose(value, want, rtol=1e-5, atol=1e-5)
    (slope,) = pullback(np.ones_like(value))
    assert slope.dtype == np.complex64


def test_the_parts_of_an_array_can_be_written() -> None:
    def halved(z: Any) -> Any:
        y = z * 1.0
        y.real[...] = y.imag * 2.0
        return y * y

    check(halved, Z)


@pytest.mark.parametrize("fn", [np.round, np.nan_to_num])
def test_functions_of_both_parts(fn: Function) -> None:
    z = np.array([1.6 + 2.7j, complex(np.nan, 1.2), complex(0.3, np.inf)])
    value, pullback = vjp(fn, z)
    np.testing.assert_array_equal(value, fn(z))
    (slope,) = pullback(np.array([1 - 2j, 3 + 1j, 2 + 5j]))
    want = [0, 0, 0] if fn is np.round else [1 - 2j, 1j, 2]
    np.testing.assert_array_equal(slope, want)
