"""Functions of numpy that read one triangle of a matrix: its values, and where the gradient is."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.stats

from gradof import differentiate, grad
from gradof.testing.numpy_check import check_numpy

RNG = np.random.default_rng(0)
HALF = RNG.standard_normal((3, 3))
WHOLE = HALF @ HALF.T + 4.0 * np.eye(3)
WEIGHTS = RNG.standard_normal((3, 3))
LOWER: dict[str, Callable[[Any], Any]] = {
    "eigvalsh": lambda a: np.linalg.eigvalsh(a) * WEIGHTS[0],
    "eigh": lambda a: np.linalg.eigh(a)[1] ** 2,
    "cholesky": lambda a: np.linalg.cholesky(a),
    "svd": lambda a: np.linalg.svd(a, hermitian=True)[1],
    "pinv": lambda a: np.linalg.pinv(a, hermitian=True),
    "scipy.cholesky": lambda a: scipy.linalg.cholesky(a, lower=True),
}
UPPER: dict[str, Callable[[Any], Any]] = {
    "eigh": lambda a: np.linalg.eigh(a, UPLO="U")[1] ** 2,
    "cholesky": lambda a: np.linalg.cholesky(a, upper=True),
    "cho_factor": lambda a: scipy.linalg.cho_solve(scipy.linalg.cho_factor(a), WEIGHTS),
}
READS = [*((f, np.tril) for f in LOWER.values()), *((f, np.triu) for f in UPPER.values())]


@pytest.mark.parametrize("at", range(len(READS)))
def test_a_matrix_filled_on_one_side(at: int) -> None:
    function, side = READS[at]
    result = check_numpy(function, (side(WHOLE),), order=2, seed=0)
    assert result.ok, result


@pytest.mark.parametrize("at", range(len(READS)))
def test_of_a_symmetric_matrix_both_sides_share(at: int) -> None:
    function, _ = READS[at]

    def loss(a: Any) -> Any:
        return np.sum(function(a) * WEIGHTS)

    slope, steps = grad(loss)(WHOLE), RNG.standard_normal((3, 3))
    np.testing.assert_allclose(slope, slope.T, rtol=1e-12)
    steps = steps + steps.T
    difference = (loss(WHOLE + 1e-6 * steps) - loss(WHOLE - 1e-6 * steps)) / 2e-6
    assert np.sum(slope * steps) == pytest.approx(difference, rel=1e-6)


def test_rank_of_one_side() -> None:
    below = np.tril(np.ones((3, 3)))
    assert np.linalg.matrix_rank(below, hermitian=True) == 1
    rank = differentiate(lambda a: np.linalg.matrix_rank(a, hermitian=True))
    assert rank(below) == 1


def test_a_quaternion_of_a_rotation() -> None:
    """As packages compute it: by the largest eigenvector of a matrix whose upper side is zero."""

    def quaternion(m: Any) -> Any:
        xx, yx, zx, xy, yy, zy, xz, yz, zz = m.flat
        k = np.array([
            [xx - yy - zz, 0, 0, 0],
            [yx + xy, yy - xx - zz, 0, 0],
            [zx + xz, zy + yz, zz - xx - yy, 0],
            [yz - zy, zx - xz, xy - yx, xx + yy + zz],
        ])  # fmt: skip
        vals, vecs = np.linalg.eigh(k / 3.0)
        q = vecs[[3, 0, 1, 2], np.argmax(vals)]
        return q * np.sign(q[0])

    turn = scipy.linalg.expm(np.array([[0, -0.3, 0.2], [0.3, 0, -0.5], [-0.2, 0.5, 0]]))
    measured = turn + 0.02 * HALF  # of a rotation alone three of the four eigenvalues are equal
    assert check_numpy(quaternion, (measured,), order=2, seed=0).ok


def test_the_conjugate_of_real_numbers_costs_nothing() -> None:
    found = differentiate(lambda x: np.conj(x) @ x)
    assert "conj" not in str(found.trace(np.arange(3.0)))


def test_what_lapacks_lookups_remember_is_no_state() -> None:
    x, y = RNG.standard_normal((2, 9)), RNG.standard_normal((2, 3))
    kde = differentiate(lambda x, y: scipy.stats.gaussian_kde(x, 0.7).evaluate(y))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for dtype in (np.float32, np.complex64, np.complex128):
            kde(x, y)
            scipy.linalg.get_lapack_funcs(("potrf", "gesv", "trtrs"), (np.ones((2, 2), dtype),))
    assert kde.cache_info().misses == 1
