"""The products of matrices in torch's own library, for machine code to call.

    found = torch_blas()
    found.gemm[F32]        # the address of `sgemm_`, with the conventions of Fortran
    found.batch[F32]       # that of `cblas_sgemm_batch`

They are MKL's, which torch's wheels for x86-64 have within them, and run on the threads that torch
has set. Integers are handed over by reference as 64 bits, of which a library of 32-bit ones reads
the lower half.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from gradof.codegen.machine.openmp import torch_symbol
from gradof.ir.attrs import to_numpy_dtype
from gradof.ir.types import F32, F64, DType

_LETTERS = {F32: "s", F64: "d"}
ROW_MAJOR, AS_IT_IS, TRANSPOSED = 101, 111, 112  # numbers of the C interface


class Blas(NamedTuple):
    """Addresses, by dtype."""

    gemm: Mapping[DType, int]
    batch: Mapping[DType, int]


@functools.cache
def torch_blas() -> Blas | None:
    """The library's functions; None where there are none, or they do not do what is expected."""
    import torch

    if not torch._C.has_mkl:
        return None
    gemm = {d: torch_symbol(f"{letter}gemm_") for d, letter in _LETTERS.items()}
    batch = {d: torch_symbol(f"cblas_{letter}gemm_batch") for d, letter in _LETTERS.items()}
    if not all((*gemm.values(), *batch.values())):
        return None
    found = Blas(gemm, batch)
    return found if all(_multiplies(found, dtype) for dtype in _LETTERS) else None


def _multiplies(found: Blas, dtype: DType) -> bool:
    """Whether both give the product of two small matrices, in memory by rows."""
    kind = to_numpy_dtype(dtype)
    a, b = np.arange(6, dtype=kind).reshape(2, 3), np.arange(12, dtype=kind).reshape(3, 4)
    one, zero = np.ones(1, kind), np.zeros(1, kind)
    sizes = [ctypes.c_int64(n) for n in (4, 2, 3, 4, 3, 4)]
    n, m, k, ldb, lda, ldc = map(ctypes.byref, sizes)
    made = np.zeros((2, 4), kind)
    plain = ctypes.c_char_p(b"N")
    ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 13)(found.gemm[dtype])(
        plain, plain, n, m, k, _at(one), _at(b), ldb, _at(a), lda, _at(zero), _at(made), ldc
    )
    if not np.array_equal(made, a @ b):
        return False
    made = np.zeros((2, 4), kind)
    tables = [np.array([_at(x)], np.int64) for x in (a, b, made)]
    as_it_is = np.array([AS_IT_IS], np.int32)
    pa, pb, pc = map(_at, tables)
    ctypes.CFUNCTYPE(
        None, ctypes.c_int, *[ctypes.c_void_p] * 13, ctypes.c_int64, ctypes.c_void_p
    )(found.batch[dtype])(
        ROW_MAJOR, _at(as_it_is), _at(as_it_is), m, n, k, _at(one), pa, lda, pb, ldb, _at(zero),
        pc, ldc, 1, ctypes.byref(ctypes.c_int64(1)),
    )  # fmt: skip
    return np.array_equal(made, a @ b)


def _at(array: Any) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
