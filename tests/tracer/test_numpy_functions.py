"""Every adaptor of a numpy function, in the ways it is called: value, dtype, gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gradof import differentiate
from gradof.testing import numpy_table
from gradof.tracer.numpy import functions as numpy_functions
from gradof.tracer.numpy import tracer as numpy_tracer
from tests.tracer.numpy_eager import check

Function = Callable[..., Any]
assert numpy_tracer.ADAPTORS


def randn(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape)


def _filled(x: Any, value: float) -> Any:
    x[...] = value  # what was in its memory may be a NaN
    return x


def spd(n: int, seed: int = 0) -> Any:
    a = randn(n, n, seed=seed)
    return a @ a.T + n * np.eye(n)


V, W, M, N = randn(4), randn(4, seed=1), randn(3, 4, seed=2), randn(3, 4, seed=3)
T = randn(2, 3, 4, seed=4)
POSITIVE = np.abs(M) + 0.5
DISTINCT = np.random.default_rng(6).permutation(12).reshape(3, 4) + 0.25
HOLED = np.where(np.arange(12).reshape(3, 4) % 5 == 0, np.nan, M)
MASK = M > 0
INTS = np.arange(12).reshape(3, 4) % 5

# name of the case: function of its arrays, arrays. The key before the colon is the numpy function.
CASES: dict[str, tuple[Function, tuple[Any, ...]]] = {
    "roots": (lambda x: np.abs(np.roots(x)), (np.array([1.0, -3.5, 2.0, 0.4]),)),
    "roots: zeros at the ends": (
        lambda x: np.roots(np.concatenate([np.zeros(1), x, np.zeros(2)])),
        (np.array([1.0, 3.0, 2.0]),),
    ),
    # --- sums and products ---
    "sum": (lambda x: np.sum(x), (M,)),
    "sum: axis": (lambda x: np.sum(x, axis=-1, keepdims=True), (M,)),
    "sum: axes": (lambda x: np.sum(x, axis=(0, 2)), (T,)),
    "sum: where": (lambda x: np.sum(x, 0, where=x > 0), (M,)),
    "sum: initial": (lambda x: np.sum(x, 0, initial=2.0), (M,)),
    "sum: list": (lambda x: np.sum([x[0], x[1]]), (V,)),
    "dot: list": (lambda x: np.dot([x[0], x[1]], [2.0, x[2]]), (V,)),
    "take: table": (lambda x, i: np.take(np.arange(5.0) ** 2, i) * x, (M, INTS)),
    "prod": (lambda x: np.prod(x, axis=1), (M,)),
    "prod: where": (lambda x: np.prod(x, axis=1, where=MASK), (M,)),
    "mean": (lambda x: np.mean(x, 1), (M,)),
    "mean: where": (lambda x: np.mean(x, 1, where=MASK), (M,)),
    "average": (lambda x: np.average(x, axis=0), (M,)),
    "average: weights": (lambda x, w: np.average(x, 1, weights=w), (M, V**2)),
    "average: returned": (lambda x, w: np.average(x, weights=w, returned=True), (V, W**2)),
    "var": (lambda x: np.var(x, axis=0, ddof=1), (M,)),
    "var: where": (lambda x: np.var(x, axis=0, where=np.array([[True], [False], [True]])), (M,)),
    "std": (lambda x: np.std(x, axis=(0, 1), keepdims=True), (M,)),
    "cov": (lambda x: np.cov(x), (M,)),
    "cov: y": (lambda x, y: np.cov(x, y, bias=True), (V, W)),
    "cov: complex": (lambda x, y: np.abs(np.cov(x + 1j * y)), (M, N)),
    "cov: complex weights": (lambda x, y: np.cov(x + 1j * y, aweights=[1, 2, 1, 3]).real, (M, N)),
    "corrcoef": (lambda x: np.corrcoef(x), (M,)),
    # --- extremes ---
    "max": (lambda x: np.max(x, axis=0), (M,)),
    "max: initial": (lambda x: np.max(x, initial=0.5), (M,)),
    "max: where": (lambda x: np.max(x, 0, where=MASK, initial=-9.0), (M,)),
    "min": (lambda x: np.min(x), (M,)),
    "ptp": (lambda x: np.ptp(x, axis=1), (M,)),
    "nanmax": (lambda x: np.nanmax(x, 1), (HOLED,)),
    "nanmin": (lambda x: np.nanmin(x, 0, keepdims=True), (HOLED,)),
    "nansum": (lambda x: np.nansum(x, 1), (HOLED,)),
    "nanprod": (lambda x: np.nanprod(x, 1), (HOLED,)),
    "nanmean": (lambda x: np.nanmean(x, 1), (HOLED,)),
    "nanvar": (lambda x: np.nanvar(x, 1), (HOLED,)),
    "nanstd": (lambda x: np.nanstd(x, 1, ddof=1), (HOLED,)),
    "nancumsum": (lambda x: np.nancumsum(x, 1), (HOLED,)),
    "nancumprod": (lambda x: np.nancumprod(x), (HOLED,)),
    # --- scans and order ---
    "cumsum": (lambda x: np.cumsum(x), (M,)),
    "cumsum: axis": (lambda x: np.cumsum(x, 1), (M,)),
    "cumprod": (lambda x: np.cumprod(x, axis=0), (M,)),
    "cumulative_sum": (lambda x: np.cumulative_sum(x), (V,)),
    "cumulative_prod": (lambda x: np.cumulative_prod(x, axis=1), (M,)),
    "sort": (lambda x: np.sort(x, axis=0), (M,)),
    "sort: flat": (lambda x: np.sort(x, axis=None), (M,)),
    "median": (lambda x: np.median(x), (M,)),
    "median: axis": (lambda x: np.median(x, axis=1, keepdims=True), (M,)),
    "percentile": (lambda x: np.percentile(x, 30, axis=0), (M,)),
    "quantile": (lambda x: np.quantile(x, [0.1, 0.9]), (M,)),
    "quantile: axis": (lambda x: np.quantile(x, [0.25, 1.0], axis=1), (M,)),
    # --- selection ---
    "where": (lambda x, y: np.where(x > y, x, y * 2), (M, N)),
    "where: scalars": (lambda x: np.where(x > 0, 1.5, 2) * x, (M,)),
    "clip": (lambda x: np.clip(x, -0.5, 0.5), (M,)),
    "clip: one": (lambda x: np.clip(x, None, 0.5), (M,)),
    "clip: low": (lambda x: x.clip(0.1), (M,)), "clip: high": (lambda x: x.clip(max=0.1), (M,)),
    "clip: names": (lambda x: np.clip(x, min=-0.1, max=0.2), (M,)),
    "nan_to_num": (lambda x: np.nan_to_num(x, nan=1.0), (HOLED,)),
    "select": (lambda x: np.select([x > 1, x > 0], [x**2, x], -1.0), (M,)),
    "piecewise": (lambda x: np.piecewise(x, [x < 0, x >= 0], [lambda z: z**2, 3.0]), (M,)),
    "choose": (lambda x: np.choose(np.array([0, 1, 1, 0]), [x, x**2]), (V,)),
    "take": (lambda x: np.take(x, [[0, 2], [1, -1]], axis=1), (M,)),
    "take: flat": (lambda x: np.take(x, np.array([5, 5, 0])), (M,)),
    "take: wrap": (lambda x: np.take(x, np.array([5, -9]), axis=1, mode="wrap"), (M,)),
    "take_along_axis": (lambda x: np.take_along_axis(x, np.argsort(x, 1), 1), (M,)),
    "real": (lambda x: np.real(x) * 2, (M,)),
    "real_if_close": (lambda x: np.real_if_close(x) * 2, (M,)),
    "sinc": (lambda x: np.sinc(x), (M,)),
    "interp": (lambda x: np.interp(x, np.array([-1.0, 0.0, 1.0]), np.array([0.0, 2.0, 1.0])), (M,)),
    "interp: all": (lambda x, xp, fp: np.interp(x, xp, fp, left=0.0),
                    (M, np.array([-1.0, 0.1, 1.3]), randn(3, seed=9))),
    # --- like others ---
    "zeros_like": (lambda x: np.zeros_like(x) + x, (M,)),
    "ones_like": (lambda x: np.ones_like(x, shape=(4,)) * x, (M,)),
    "empty_like": (lambda x: _filled(np.empty_like(x), 2.0) * x, (M,)),
    "full_like": (lambda x: np.full_like(x, x[0, 0]), (M,)),
    "full_like: order": (
        lambda x: np.full_like(x, x[0, 0], None, "F", True, (2, 3)) + np.full((2, 3), x[0, 0]), (M,)

    ),
    "full_like: scalar": (lambda x: np.full_like(x, 3) * x, (M,)),
    "copy": (lambda x: np.copy(x), (M,)),
    "linspace": (lambda x: np.linspace(x[0], x[1], 5), (V,)),
    "linspace: arrays": (lambda x, y: np.linspace(x, y, 4, endpoint=False), (V, W)),
    # --- views ---
    "reshape": (lambda x: np.reshape(x, (2, -1)) * 2, (M,)),
    "reshape: F": (lambda x: np.reshape(x, (2, 6), order="F") * 2, (M,)),
    "ravel": (lambda x: np.ravel(x) ** 2, (M,)),
    "ravel: F": (lambda x: np.ravel(x, "F") * np.arange(12.0), (M,)),
    "squeeze": (lambda x: np.squeeze(x[None, :, None], axis=0), (M,)),
    "expand_dims": (lambda x: np.expand_dims(x, (0, 2)) * 2, (M,)),
    "atleast_1d": (lambda x: np.atleast_1d(x[0, 0]), (M,)),
    "atleast_2d": (lambda x, y: np.atleast_2d(x, y), (V, M)),
    "atleast_3d": (lambda x: np.atleast_3d(x) * 2, (M,)),
    "transpose": (lambda x: np.transpose(x, (2, 0, 1)) * 2, (T,)),
    "matrix_transpose": (lambda x: np.matrix_transpose(x) * 2, (T,)),
    "linalg.matrix_transpose": (lambda x: np.linalg.matrix_transpose(x) * 2, (T,)),
    "swapaxes": (lambda x: np.swapaxes(x, 0, -1) * 2, (T,)),
    "moveaxis": (lambda x: np.moveaxis(x, [0, 1], [-1, 0]) * 2, (T,)),
    "rollaxis": (lambda x: np.rollaxis(x, 2) * 2, (T,)),
    "rollaxis: to": (lambda x: np.rollaxis(x, 0, 2) * 2, (T,)),
    "flip": (lambda x: np.flip(x, (0, 2)) * np.arange(4.0), (T,)),
    "fliplr": (lambda x: np.fliplr(x) * np.arange(4.0), (M,)),
    "flipud": (lambda x: np.flipud(x) * np.arange(4.0), (M,)),
    "rot90": (lambda x: np.rot90(x, 3) * 2, (M,)),
    "broadcast_to": (lambda x: np.broadcast_to(x, (3, 4)) * M, (V,)),
    "broadcast_arrays": (lambda x, y: np.broadcast_arrays(x, y[:, None]), (V, W)),
    "diagonal: of matrices": (lambda x: np.linalg.diagonal(x, offset=1) * 2, (T,)),
    "diagonal": (lambda x: np.diagonal(x, 1, 2, 1) * 2, (T,)),
    "linalg.diagonal": (lambda x: np.linalg.diagonal(x, offset=1) * 2, (M,)),
    "trace": (lambda x: np.trace(x, offset=-1), (M,)),
    "linalg.trace": (lambda x: np.linalg.trace(x), (T,)),
    # --- joining, splitting ---
    "concatenate": (lambda x, y: np.concatenate([x, y, [[1.0, 2.0, 3.0, 4.0]]]), (M, N)),
    "concatenate: flat": (lambda x, y: np.concatenate((x, y), axis=None), (M, V)),
    "stack": (lambda x, y: np.stack([x, y], axis=-1), (M, N)),
    "stack: numbers": (lambda x: np.stack([x[0], 2.0, x[1] * x[2]]), (V,)),
    "unstack": (lambda x: np.unstack(x, axis=1), (M,)),
    "vstack": (lambda x, y: np.vstack([x, y]), (M, V)),
    "hstack": (lambda x, y: np.hstack([x, y]), (M, N)),
    "hstack: numbers": (lambda x: np.hstack([x[0], x, 3.0]), (V,)),
    "dstack": (lambda x, y: np.dstack([x, y]), (M, N)),
    "column_stack": (lambda x, y: np.column_stack([x, y]), (V, W)),
    "block": (lambda x: np.block([[x, np.zeros((3, 2))], [np.ones((1, 4)), x[:1, :2]]]), (M,)),
    "append": (lambda x, y: np.append(x, y), (M, V)),
    "append: axis": (lambda x: np.append(x, x[:1], axis=0), (M,)),
    "split": (lambda x: np.split(x, 2, axis=1), (M,)),
    "split: at": (lambda x: np.split(x, [1, 3], axis=1), (M,)),
    "vsplit": (lambda x: np.vsplit(x, 3), (M,)),
    "hsplit": (lambda x: np.hsplit(x, 2), (M,)),
    "dsplit": (lambda x: np.dsplit(x, 2), (T,)),
    "array_split": (lambda x: np.array_split(x, 3), (V,)),
    "delete": (lambda x: np.delete(x, 1, axis=1), (M,)),
    "insert: one of a list": (lambda x, y: np.insert(x, [1], y[:2], axis=0), (M, N)),
    "insert: flat": (lambda x, v: np.insert(x, [3], v), (M, V)),
    "insert": (lambda x: np.insert(x, 1, x[0], axis=0), (M,)),
    # --- repeating, shifting, padding ---
    "tile": (lambda x: np.tile(x, (2, 1, 2)), (M,)),
    "repeat": (lambda x: np.repeat(x, [1, 0, 2], axis=0), (M,)),
    "repeat: flat": (lambda x: np.repeat(x, 2), (M,)),
    "resize": (lambda x: np.resize(x, (2, 3)), (V,)),
    "roll": (lambda x: np.roll(x, 3), (M,)),
    "roll: axes": (lambda x: np.roll(x, (1, -2), axis=(0, 1)), (M,)),
    "pad": (lambda x: np.pad(x, 1), (M,)),
    "pad: values": (lambda x: np.pad(x, ((1, 0), (0, 2)), constant_values=((5, 0), (0, 7))), (M,)),
    "pad: edge": (lambda x: np.pad(x, 2, mode="edge"), (M,)),
    "pad: reflect": (lambda x: np.pad(x, ((0, 0), (1, 2)), mode="reflect"), (M,)),
    "pad: wrap": (lambda x: np.pad(x, (1, 2), mode="wrap"), (V,)),
    "diff": (lambda x: np.diff(x, 2), (M,)),
    "gradient: complex": (lambda x, y: np.abs(np.gradient(x + 1j * y, axis=1)), (M, N)),
    "geomspace: signs": (lambda x: np.geomspace(x, 2 * x, 4, axis=1), (M,)),
    "geomspace: one": (lambda x: np.geomspace(x, 2 * x, 1), (M,)),
    "ravel: K": (lambda x: np.ravel(x.T, "K") * np.arange(12.0), (M,)),
    "ravel: A": (lambda x: np.ravel(x.T[1:], "A") * np.arange(9.0), (M,)),
    "diff: none": (lambda x: np.diff(x, 0, prepend=1.0) * 2, (M,)),
    "diff: axis": (lambda x: np.diff(x, axis=0, prepend=0.0), (M,)),
    "ediff1d": (lambda x: np.ediff1d(x, to_begin=x[0]), (V,)),
    "tril: vector": (lambda x: np.tril(x) + np.triu(x, 1), (V,)),
    "tril": (lambda x: np.tril(x, -1), (M,)),
    "triu": (lambda x: np.triu(x, 1), (M,)),
    "diag": (lambda x: np.diag(x, 1), (V,)),
    "diag: matrix": (lambda x: np.diag(x, -1), (M,)),
    "diagflat": (lambda x: np.diagflat(x), (M[:2, :2],)),
    "meshgrid": (lambda x, y: np.meshgrid(x, y), (V, W[:3])),
    "meshgrid: ij": (lambda x, y: np.meshgrid(x, y, indexing="ij", sparse=True), (V, W[:3])),
    # --- products ---
    "matmul": (lambda x, y: np.matmul(x, y), (M, N.T)),
    "linalg.matmul": (lambda x, y: np.linalg.matmul(x, y), (T, V)),
    "dot": (lambda x, y: np.dot(x, y), (M, V)),
    "dot: vectors": (lambda x, y: np.dot(x, y), (V, W)),
    "dot: tensors": (lambda x, y: np.dot(x, y), (T, randn(4, 2))),
    "dot: number": (lambda x: np.dot(x, 2.0), (M,)),
    "vdot": (lambda x, y: np.vdot(x, y), (M, N)),
    "linalg.vecdot": (lambda x, y: np.linalg.vecdot(x, y), (M, N)),
    "inner": (lambda x, y: np.inner(x, y), (M, V)),
    "outer": (lambda x, y: np.outer(x, y), (M, V)),
    "linalg.outer": (lambda x, y: np.linalg.outer(x, y), (V, W)),
    "kron": (lambda x, y: np.kron(x, y), (M, V)),
    "cross": (lambda x, y: np.cross(x, y), (randn(5, 3), randn(5, 3, seed=1))),
    "linalg.cross": (lambda x, y: np.linalg.cross(x, y), (randn(3), randn(3, seed=1))),
    "tensordot": (lambda x, y: np.tensordot(x, y, axes=([1, 2], [0, 1])), (T, M)),
    "tensordot: int": (lambda x, y: np.tensordot(x, y, 1), (M, V)),
    "linalg.tensordot": (lambda x, y: np.linalg.tensordot(x, y), (T, M)),
    "linalg.multi_dot": (lambda x, y, z: np.linalg.multi_dot([x, y, z]), (M, N.T, M)),
    "linalg.matrix_power": (lambda x: np.linalg.matrix_power(x, 5), (spd(3) / 3,)),
    "linalg.matrix_power: inverse": (lambda x: np.linalg.matrix_power(x, -2), (spd(3),)),
    "einsum": (lambda x, y: np.einsum("ij,kj->ik", x, y), (M, N)),
    "einsum: three": (lambda x, y, z: np.einsum("bij,ij,j->b", x, y, z), (T, M, V)),
    "einsum: trace": (lambda x: np.einsum("ii", x), (M[:, :3],)),
    "einsum: diagonal": (lambda x: np.einsum("ii->i", x), (M[:, :3],)),
    "einsum: dots": (lambda x, y: np.einsum("...ij,...j->...i", x, y), (T, V)),
    "einsum: transposed": (lambda x: np.einsum("ijk->kij", x), (T,)),
    "einsum: outer": (lambda x, y: np.einsum("i,j", x, y), (V, W)),
    "einsum: batch": (lambda x, y: np.einsum("bij,bjk->bki", x, y), (T, T.transpose(0, 2, 1))),
    # --- norms, solving ---
    "linalg.norm": (lambda x: np.linalg.norm(x), (M,)),
    "linalg.norm: axis": (lambda x: np.linalg.norm(x, axis=1), (M,)),
    "linalg.norm: inf": (lambda x: np.linalg.norm(x, np.inf), (M,)),
    "linalg.norm: -1": (lambda x: np.linalg.norm(x, -1, axis=(0, 1), keepdims=True), (M,)),
    "linalg.norm: fro": (lambda x: np.linalg.norm(x, "fro"), (M,)),
    "linalg.norm: 3": (lambda x: np.linalg.norm(x, 3, axis=0), (M,)),
    "linalg.norm: 1": (lambda x: np.linalg.norm(x, 1), (V,)),
    "linalg.vector_norm": (lambda x: np.linalg.vector_norm(x, axis=1, ord=np.inf), (M,)),
    "linalg.matrix_norm": (lambda x: np.linalg.matrix_norm(x, ord=1), (T,)),
    "linalg.inv": (lambda x: np.linalg.inv(x), (np.stack([spd(3), spd(3, 1)]),)),
    "linalg.solve": (lambda a, b: np.linalg.solve(a, b), (spd(3), randn(3, 2))),
    "linalg.solve: vector": (lambda a, b: np.linalg.solve(a, b), (spd(4), V)),
    "linalg.solve: stack": (lambda a, b: np.linalg.solve(a, b),
                            (np.stack([spd(3), spd(3, 1)]), randn(3, 2))),
    "linalg.det": (lambda x: np.linalg.det(x), (np.stack([spd(3), spd(3, 1)]),)),
    "linalg.slogdet": (lambda x: np.linalg.slogdet(x)[1], (spd(3),)),
    "linalg.slogdet: both": (lambda x: tuple(np.linalg.slogdet(x)), (-spd(3),)),
    "linalg.cholesky": (lambda x: np.linalg.cholesky((x + x.T) / 2), (spd(4),)),
    "linalg.cholesky: upper": (lambda x: np.linalg.cholesky((x + x.T) / 2, upper=True), (spd(3),)),
    "linalg.eigh": (lambda x: np.linalg.eigh((x + x.T) / 2)[0], (spd(4),)),
    "linalg.eigh: vectors": (lambda x: np.abs(np.linalg.eigh((x + x.T) / 2)[1]), (spd(3),)),
    "linalg.eigvalsh": (lambda x: np.linalg.eigvalsh((x + x.T) / 2, "U"), (spd(3),)),
}

# results that are not floats, or do not depend smoothly on the operand: values only
PLAIN: dict[str, tuple[Function, tuple[Any, ...]]] = {
    "any": (lambda x: np.any(x > 1, axis=0), (M,)),
    "any: where": (lambda x: np.any(x > 1, axis=0, where=MASK), (M,)),
    "all": (lambda x: np.all(x > -1, axis=(0, 1), keepdims=True), (M,)),
    "all: where": (lambda x: np.all(x > -1, 1, where=MASK), (M,)),
    "count_nonzero": (lambda x: np.count_nonzero(x > 0, axis=1), (M,)),
    "argmax": (lambda x: np.argmax(x), (DISTINCT,)),
    "argmax: axis": (lambda x: np.argmax(x, axis=1, keepdims=True), (DISTINCT,)),
    "argmin": (lambda x: np.argmin(x, keepdims=True), (DISTINCT,)),
    "nanargmax": (lambda x: np.nanargmax(x, 1), (HOLED,)),
    "nanargmin": (lambda x: np.nanargmin(x), (HOLED,)),
    "argsort": (lambda x: np.argsort(x, axis=0), (DISTINCT,)),
    "searchsorted": (lambda x, v: np.searchsorted(x, v, side="right"), (np.sort(V), W)),
    "digitize": (lambda x: np.digitize(x, np.array([-1.0, 0.0, 0.5])), (M,)),
    "round": (lambda x: np.round(x, 1), (M,)),
    "round: int": (lambda x: np.round(x), (M,)),
    "round: tens": (lambda x: np.round(x, -1), (M * 50,)),
    "fix": (lambda x: np.fix(x), (M * 3,)),
    "imag": (lambda x: np.imag(x), (M,)),
    "isclose": (lambda x, y: np.isclose(x, y, atol=0.5), (M, N)),
    "isposinf": (lambda x: np.isposinf(x), (HOLED,)),
    "isneginf": (lambda x: np.isneginf(-x), (HOLED,)),
    "sum: ints": (lambda x: np.sum(x, 0), (INTS,)),
    "sum: f32": (lambda x: np.sum(x, 1), (M.astype("f4"),)),
    "sum: dtype": (lambda x: np.sum(x, dtype=np.float32), (M,)),
    "sum: bools": (lambda x: np.sum(x, 0), (MASK,)),
    "mean: ints": (lambda x: np.mean(x), (INTS,)),
    "mean: half": (lambda x: np.mean(x, 0), (M.astype(np.float16),)),
    "prod: small ints": (lambda x: np.prod(x, 0), (INTS.astype(np.int8),)),
    "cumsum: bools": (lambda x: np.cumsum(x), (MASK,)),
    "var: ints": (lambda x: np.var(x), (INTS,)),
    "median: ints": (lambda x: np.median(x, 0), (INTS,)),
    "median: nan": (lambda x: np.median(x, 0), (HOLED,)),
    "isin": (lambda x: np.isin(x, [1, 3], invert=True), (INTS,)),
    "ravel_multi_index": (lambda i: np.ravel_multi_index((i % 3, i % 4), (3, 4)), (INTS,)),
    "max: ints": (lambda x: np.max(x, 0), (INTS,)),
    "sort: ints": (lambda x: np.sort(x), (INTS,)),
    "diff: bools": (lambda x: np.diff(x), (MASK,)),
    "matmul: ints": (lambda x: x @ x.T, (INTS,)),
    "zeros_like: ints": (lambda x: np.zeros_like(x) + x, (INTS,)),
    "full_like: ints": (lambda x: np.full_like(x, 2.7), (INTS,)),
    "nan_to_num: ints": (lambda x: np.nan_to_num(x), (INTS,)),
    "linalg.norm: ints": (lambda x: np.linalg.norm(x), (INTS,)),
    "linalg.matrix_power: zero": (lambda x: np.linalg.matrix_power(x, 0), (spd(3),)),
    "count: f32": (lambda x: np.mean(x), (M.astype("f4"),)),
}

# np.allclose and np.array_equal give Python booleans, which a trace refuses (test_numpy_errors);
# functions that change their first argument are in test_numpy_mutation.
ELSEWHERE = {"allclose", "array_equal", "amax", "amin", "around"} | {  # and in runtime/test_paths:
    "argwhere", "compress", "extract", "flatnonzero", "nonzero", "unique",
    "linalg.eig", "linalg.eigvals",  # in runtime/test_autograd_names
} | {  # in test_numpy_as_it_is
    "histogram", "histogram2d", "histogram_bin_edges", "histogramdd", "intersect1d", "setdiff1d",
    "setxor1d", "unique_all", "unique_counts", "unique_inverse",
} | {  # in test_numpy_polynomials
    "polyval2d", "polygrid2d",
} | {  # in test_numpy_layouts
    "may_share_memory", "shares_memory",
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_value_and_gradient(name: str) -> None:
    fn, arrays = CASES[name]
    check(fn, *arrays)


@pytest.mark.filterwarnings("ignore:numpy.fix is deprecated")  # numpy 2.5
@pytest.mark.parametrize("name", PLAIN)
def test_value(name: str) -> None:
    fn, arrays = PLAIN[name]
    check(fn, *arrays, rtol=1e-6, gradient=False)


@pytest.mark.filterwarnings("ignore:.*egrees of freedom", "ignore:.*encountered in")
@pytest.mark.parametrize("fn", [
    lambda x: np.var(x, 0, ddof=4), lambda x: np.std(x, 0, ddof=3), lambda x: np.cov(x[:, :1]),
    lambda x: np.var(x, 0, ddof=3, where=MASK), lambda x: np.cov(x[:, :2], ddof=3),
])  # fmt: skip
def test_without_freedom_a_variance_is_numpys(fn: Function) -> None:
    np.testing.assert_array_equal(differentiate(fn)(M), fn(M))


# tested in test_numpy_complex.py
FOURIER = {
    "fft", "ifft", "fft2", "ifft2", "fftn", "ifftn", "rfft", "irfft", "rfft2", "irfft2", "rfftn",
    "irfftn", "hfft", "ihfft", "fftshift", "ifftshift",
}  # fmt: skip


def test_every_adaptor_is_tested() -> None:
    tested = {name.partition(":")[0] for name in (*CASES, *PLAIN)} | ELSEWHERE | FOURIER
    tables = {case.name.removeprefix("numpy.") for case in numpy_table.CASES}
    tested |= tables | {name.rpartition(".")[2] for name in tables}
    registered = (*numpy_functions.EXPRESSIONS, *numpy_functions.COMPOSED)
    names = {numpy_functions.name_of(f).removeprefix("numpy.") for f in registered}
    assert names <= tested, names - tested
