"""`numpy.linalg`, under the name that code for autograd imports."""

from typing import Any as _Any

import numpy as _np
import numpy.linalg as _module

globals().update({n: v for n, v in vars(_module).items() if not n.startswith("__")})


def T(x: _Any) -> _Any:
    """The matrices of the last two dims, transposed."""
    return _np.swapaxes(x, -1, -2)


def _dot(a: _Any, b: _Any) -> _Any:
    """Products of matrices, as autograd's own tests call them."""
    return _np.matmul(a, b)


def _hermitian(a: _Any, UPLO: str) -> _Any:
    """The matrix that a triangle stands for; its gradient is that triangle's."""
    lower = a if UPLO in ("L", "l") else _np.swapaxes(_np.conj(a), -1, -2)
    strict = _np.tril(lower, -1)
    return _np.tril(lower) + _np.swapaxes(_np.conj(strict), -1, -2)


def eigh(a: _Any, UPLO: str = "L") -> _Any:
    """`np.linalg.eigh`, whose gradient is that of the triangle it reads."""
    return _module.eigh(_hermitian(a, UPLO))


def eigvalsh(a: _Any, UPLO: str = "L") -> _Any:
    """`np.linalg.eigvalsh`, whose gradient is that of the triangle it reads."""
    return _module.eigvalsh(_hermitian(a, UPLO))
