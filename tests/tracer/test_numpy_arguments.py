"""Arguments and operands that tables of functions leave out: what numpy gives, to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gradof import differentiate, grad
from gradof.errors import UnsupportedOpError

X = np.array([0.5, -1.25, 2.0, 2.0, -0.75, 3.5])
Y = np.array([0.25, -1.5, 2.0, 1.0, 0.0, 4.0])
GAPS = np.array([1.0, np.nan, -2.0, np.inf, 0.5, np.nan])
Z = np.array([1 + 2j, 3 - 1j, 3 + 0.5j, -2j])
PLANE = np.array([[1.0, 2.5, -3.0, 0.25], [0.5, np.nan, 2.0, 1.0], [4.0, 3.0, np.inf, -1.0]])
COUNTS = np.array([3, 0, 2, 2])
PREDICATES = (
    np.equal, np.not_equal, np.greater, np.greater_equal, np.less, np.less_equal, np.logical_and,
    np.logical_or, np.logical_xor,
)  # fmt: skip
QUESTIONS = (np.isnan, np.isfinite, np.isinf, np.signbit, np.logical_not)

CALLS: tuple[tuple[Callable[..., Any], tuple[Any, ...]], ...] = (
    *((lambda a, b, f=f: f(a, b, dtype=bool), (X, Y)) for f in PREDICATES),
    *((lambda a, f=f: f(a, dtype=bool), (GAPS,)) for f in QUESTIONS),
    (lambda a: np.greater(a, 0.3, dtype="?"), (X,)),
    (lambda a, b: np.array_equal(a, b, equal_nan=True), (GAPS, GAPS.copy())),
    (lambda a, b: np.array_equal(a, b, equal_nan=True), (GAPS, X)),
    (lambda a, b: np.array_equiv(a, np.stack([b, b])), (X, X.copy())),
    (lambda a: np.array_equiv(a, a[:4]), (X,)),
    *((lambda a, f=f: f(a), (Z,)) for f in (np.max, np.min)),
    (lambda a: np.max(a.reshape(2, 2), axis=1, keepdims=True), (Z,)),
    *((lambda a, f=f: f(a > 0), (X,)) for f in (np.abs, np.floor, np.ceil, np.trunc)),
    (lambda a, b: np.isclose(a > 0, b > 0), (X, Y)),
    (lambda a, b: np.allclose(a, b), (np.array([1, 5], "u1"), np.array([2, 3], "u1"))),
    (lambda a, w: np.bincount(a > 0, weights=w), (X, Y)),
    (lambda a: np.bincount(a > 9), (X,)),
    (lambda a, b: np.choose(a > 0, [a, b]), (X, Y)),
    (lambda a: np.take(a, a > 0), (X,)),
    (lambda a: np.take(a, (4, 2)), (X,)),
    (lambda a: np.digitize(a, np.array([3.0, 2.0, 0.0])), (X,)),
    (lambda a: np.digitize(a, np.array([3.0, 2.0, 0.0]), right=True), (GAPS,)),
    (lambda a, b: np.searchsorted(a, b, sorter=np.argsort(a)), (Y, X)),
    *((lambda a, b, s=s: np.searchsorted(np.sort(a), b, side=s), (GAPS, GAPS))
      for s in ("left", "right")),
    (lambda a: np.linspace(a[1], a[2], 7, dtype=int), (X,)),
    (lambda a: np.linspace(a[1], a[2], 7, dtype="f4"), (X,)),
    (lambda a: np.array(a, dtype="f4", order="F").flags.f_contiguous, (PLANE,)),
    (lambda a: np.ascontiguousarray(a[0], dtype="f4"), (X,)),
    (lambda a: np.copysign(a, -1.0), (np.array([-128, 5], "i1"),)),
    *((lambda a, f=f: f(a), (a,)) for f in (np.polyder, np.polyint)
      for a in (X > 0, COUNTS, X.astype("f4"))),
    *((lambda a, order=order: np.gradient(a, 0.3, 0.2, edge_order=order), (PLANE,))
      for order in (1, 2)),
    (lambda a: np.gradient(a, np.array([0.0, 0.5, 2.0]), axis=0), (PLANE,)),
    (lambda a: np.linalg.matrix_rank(a), (X,)),
    *((f, (COUNTS,)) for f in (
        lambda n: n**0, lambda n: n**3, lambda n: n**20, lambda n: 2**n, lambda n: (-1) ** n,
        lambda n: n**n, lambda n: n[0] ** n[2], lambda n: n.astype("i1") ** 3,
        lambda n: (n > 2) ** 2, lambda n: (n > 2) ** n, lambda n: np.reciprocal(n + 1),
        lambda n: np.gcd(n, 6), lambda n: np.lcm(n + 1, n + 2), lambda n: (n > 2) << n,
        lambda n: n.astype("u2") ** np.int64(2), lambda n: 0.5 * n**3 + 2.0**n,
    )),
    *((lambda a, f=f, kw=kw: f(a, **kw), (np.zeros((0, 3)),)) for f in (np.median, np.nanmedian)
      for kw in ({}, {"axis": 0}, {"axis": 1}, {"axis": 0, "keepdims": True})),
)  # fmt: skip


@pytest.mark.filterwarnings("ignore:invalid value", "ignore:Mean of empty slice")
@pytest.mark.parametrize("at", range(len(CALLS)))
def test_a_call_gives_what_numpys_gives(at: int) -> None:
    function, operands = CALLS[at]
    want, have = function(*operands), differentiate(function)(*operands)
    for w, h in zip(*((v if isinstance(v, tuple) else (v,)) for v in (want, have)), strict=True):
        assert type(w) is type(h) and np.asarray(w).dtype == np.asarray(h).dtype
        np.testing.assert_array_equal(w, h)


def test_whole_numbers_of_a_power_are_read_at_each_call() -> None:
    def series(x: Any, n: Any) -> Any:
        return np.sum(x ** (n % 3) * (-1) ** n * 2 ** np.argsort(x))

    compiled, gradient = differentiate(series), grad(series)
    for n in (COUNTS, COUNTS + 1, COUNTS[::-1].copy()):
        np.testing.assert_allclose(compiled(Y[:4], n), series(Y[:4], n), rtol=1e-14)
        slopes = [(series(Y[:4] + e, n) - series(Y[:4] - e, n)) / 2e-6 for e in 1e-6 * np.eye(4)]
        np.testing.assert_allclose(gradient(Y[:4], n), slopes, rtol=1e-7, atol=1e-8)
    assert compiled.cache_info().misses == 1
    with pytest.raises(ValueError, match="negative integer powers"):
        differentiate(lambda n: n ** (n - 3))(COUNTS)


def test_a_median_of_complex_numbers_is_refused_and_not_of_their_real_parts() -> None:
    with pytest.raises(UnsupportedOpError, match="complex"):
        differentiate(lambda z: np.median(z))(Z)


def put_nowhere(x: Any) -> Any:
    y = x * 1
    np.put(y, [], [])
    return y


@pytest.mark.parametrize("fn", [
    lambda x: np.delete(x[:1], 0), lambda x: np.delete(np.outer(x, x)[:1], 0, 0),
    lambda x: np.repeat(x, 0), lambda x: np.repeat(x, [0, 0, 0]), lambda x: np.take(x, []),
    lambda x: np.insert(x[:0], [], []), lambda x: np.add.reduceat(x, np.array([], int)),
    put_nowhere,
])  # fmt: skip
def test_lists_of_no_places(fn: Any) -> None:
    x = np.arange(3.0)
    have, want = differentiate(fn)(x), fn(x)
    assert have.dtype == want.dtype and have.shape == want.shape and have.tolist() == want.tolist()
