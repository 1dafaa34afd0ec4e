"""The scipy table: every case right to second order, and how scipy's functions are caught."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import scipy.fft
import scipy.integrate
import scipy.interpolate
import scipy.linalg
import scipy.ndimage
import scipy.optimize
import scipy.optimize.elementwise
import scipy.signal
import scipy.sparse.linalg
import scipy.spatial.distance
import scipy.stats
from scipy.linalg import solve_triangular

from gradof import differentiate, errors, grad, value_and_grad
from gradof.runtime.function import Differentiated
from gradof.testing.numpy_coverage import try_case
from gradof.testing.scipy_table import CASES
from gradof.tracer.scipy.adaptors import ADAPTORS as MODULES
from gradof.tracer.scipy.calls import ADAPTORS, function_at

STEP = 97  # of the sample that is always tried


@pytest.mark.filterwarnings("ignore:The shape parameter of the erlang")  # of differences
@pytest.mark.filterwarnings("ignore:logm result may be inaccurate")  # in single precision
@pytest.mark.filterwarnings("ignore:Beginning in SciPy 1.19")  # hankel of a matrix
@pytest.mark.parametrize(
    "at",
    [pytest.param(i, marks=() if i % STEP == 0 else pytest.mark.long) for i in range(len(CASES))],
    ids=lambda i: CASES[i].name,
)
def test_case(at: int) -> None:
    row = try_case(CASES[at])
    assert row.ok, f"{row.source}: {row.reason}"


# Where scipy before 1.17 has a method that its base class has since, and where one scipy, or numpy,
# or the other has what it has copied.
OF_OTHER_SCIPY = {
    "scipy.sparse._compressed._cs_matrix.multiply",
    "scipy._lib.array_api_extra._lib._funcs.apply_where",
    "scipy._external.array_api_extra._lib._funcs.apply_where",
    # which numpy says how to call
    "numpy.polynomial.polynomial.polyval2d", "numpy.polynomial.polynomial.polygrid2d",
}


def test_every_function_with_an_adaptor_is_there_and_in_the_table() -> None:
    assert MODULES
    missing = {a.path for a in ADAPTORS.values() if function_at(a.path) is None}
    assert missing <= OF_OTHER_SCIPY, missing
    named = {c.name for c in CASES}
    inner = (
        "scipy.special.", "scipy._lib.", "scipy._external.",
        "scipy.stats._distn_infrastructure.", "scipy.sparse:",
        "scipy.sparse.linalg.splu", "scipy.sparse.linalg.spilu",  # rows of their `solve`
        "scipy.sparse.linalg.LinearOperator.", "numpy.polynomial.",
    )
    rest = [
        n for n in ADAPTORS
        if n not in named and not n.startswith(inner) and not n.endswith((".__init__", ".__call__"))
        and "_frozen." not in n and "._from_raw" not in n
    ]
    assert not rest, rest


def test_the_table_has_350_functions() -> None:
    assert len({c.name for c in CASES}) >= 350


A = np.array([[2.0, 0.0], [1.0, 3.0]])
B = np.array([1.0, 2.0])
TABLE = {"tri": scipy.linalg.solve_triangular}


def _by_name(a: Any) -> Any:
    return np.sum(solve_triangular(a, B, lower=True) ** 2)


def _by_module(a: Any) -> Any:
    return np.sum(scipy.linalg.solve_triangular(a, B, lower=True) ** 2)


def _by_table(a: Any) -> Any:
    return np.sum(TABLE["tri"](a, B, lower=True) ** 2)


def _by_default(a: Any, solve: Any = solve_triangular) -> Any:
    return np.sum(solve(a, B, lower=True) ** 2)


def _by_getattr(a: Any) -> Any:
    return np.sum(getattr(scipy.linalg, "solve_" + "triangular")(a, B, lower=True) ** 2)


def _by_partial(a: Any) -> Any:
    return np.sum(functools.partial(solve_triangular, lower=True)(a, B) ** 2)


def _by_import(a: Any) -> Any:
    from scipy import linalg

    return np.sum(linalg.solve_triangular(a, B, lower=True) ** 2)


@pytest.mark.parametrize(
    "fn", [_by_name, _by_module, _by_table, _by_default, _by_getattr, _by_partial, _by_import]
)
def test_a_function_is_caught_however_it_is_reached(fn: Any) -> None:
    value, slope = value_and_grad(fn)(A)
    y = np.linalg.solve(A, B)
    want = -np.outer(np.linalg.solve(A.T, 2 * y), y)
    np.testing.assert_allclose(value, np.sum(y**2), rtol=1e-14)
    np.testing.assert_allclose(slope, np.tril(want), rtol=1e-14, atol=1e-15)


def test_scipy_is_left_as_it_was() -> None:
    before = scipy.linalg.solve_triangular.__code__

    def fn(a: Any) -> Any:
        return np.sum(scipy.linalg.solve_triangular(a, B, lower=True))

    graph = Differentiated(fn).trace(A)
    assert "solve_triangular" in {node.kind for node in graph.walk()}
    grad(fn)(A)
    assert scipy.linalg.solve_triangular.__code__ is before
    with pytest.raises(ZeroDivisionError):
        grad(lambda a: np.sum(a) / (1 // 0))(A)
    assert scipy.linalg.solve_triangular.__code__ is before


def test_what_has_no_derivative_is_refused_with_its_name_and_the_users_line() -> None:
    def fn(x: Any) -> Any:
        return np.sum(scipy.ndimage.distance_transform_edt(x))

    with pytest.raises(errors.UnsupportedOpError, match="distance_transform_edt") as e:
        grad(fn)(A)
    assert "test_scipy_coverage.py" in str(e.value)

    def full(x: Any) -> Any:
        return np.sum(scipy.linalg.qr(x)[0])

    with pytest.raises(errors.UnsupportedOpError, match=r"scipy\.linalg\.qr") as e:
        grad(full)(np.ones((3, 2)))
    assert "test_scipy_coverage.py" in str(e.value)


def test_scipys_own_errors_are_the_users() -> None:
    def fn(a: Any) -> Any:
        return np.sum(scipy.linalg.solve_triangular(a, B[:1]))

    with pytest.raises(errors.ShapeError, match="shapes of a"):
        grad(fn)(A)


def test_a_distributions_domain_is_kept() -> None:
    def fn(x: Any, a: Any) -> Any:
        return scipy.stats.gamma.logpdf(x, a)

    x = np.array([-1.0, 0.5, np.nan])
    value, slope = value_and_grad(lambda x: np.sum(np.where(x > 0, fn(x, 2.0), 0.0)))(x)
    np.testing.assert_allclose(value, scipy.stats.gamma.logpdf(0.5, 2.0), rtol=1e-14)
    np.testing.assert_allclose(slope, [0.0, 1.0, 0.0], rtol=1e-14)
    with np.errstate(invalid="ignore"):
        bad = value_and_grad(lambda a: np.sum(fn(np.array([1.0]), a)))(np.float64(-1.0))[0]
    assert np.isnan(bad)


def test_the_elements_of_a_constant_matrix_are_read_again() -> None:
    matrix = scipy.sparse.csr_array(A)
    fn = value_and_grad(lambda x: np.sum((matrix @ x) ** 2))
    assert fn(B)[0] == np.sum((matrix @ B) ** 2)
    matrix.data[0] = 10.0
    assert fn(B)[0] == np.sum((matrix @ B) ** 2)


def test_a_system_is_factored_once_for_value_and_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    from gradof.ops import sparse

    rows, columns = np.array([0, 0, 1, 2, 2]), np.array([0, 2, 1, 0, 2])

    def fn(x: Any) -> Any:
        matrix = scipy.sparse.csc_array((x, (rows, columns)), shape=(3, 3))
        return np.sum(scipy.sparse.linalg.spsolve(matrix, np.ones(3)) ** 2)

    compiled = value_and_grad(fn)
    compiled(np.array([4.0, 1.0, 3.0, 1.0, 5.0]))
    monkeypatch.setattr(sparse, "_FACTORS", [])
    made: list[Any] = []
    splu = scipy.sparse.linalg.splu

    def counted(matrix: Any) -> Any:
        made.append(matrix)
        return splu(matrix)

    monkeypatch.setattr(scipy.sparse.linalg, "splu", counted)
    x = np.array([4.5, 1.0, 3.0, 1.0, 5.0])
    value, slope = compiled(x)
    assert len(made) == 1
    step = 1e-6 * np.array([1.0, -2.0, 0.5, 1.0, 3.0])
    np.testing.assert_allclose(fn(x + step) - fn(x - step), 2 * slope @ step, rtol=1e-6)
    assert value == pytest.approx(fn(x), rel=1e-14)


def test_a_root_is_found_again_for_other_values() -> None:
    from scipy.optimize import brentq

    def fn(a: Any) -> Any:
        return brentq(lambda t: t**3 - a * t - 1.0, 0.5, 9.0, xtol=1e-14)

    compiled = value_and_grad(fn)
    for a in (2.0, 5.0):
        value, slope = compiled(np.float64(a))
        root = fn(a)
        assert value == pytest.approx(root, rel=1e-13)
        assert slope == pytest.approx(root / (3 * root**2 - a), rel=1e-12)


def test_a_minimum_without_a_given_gradient() -> None:
    def fn(a: Any) -> Any:
        cost = lambda v: np.sum((v - a) ** 2) + 0.1 * np.sum(v**4)  # noqa: E731
        return np.sum(scipy.optimize.minimize(cost, np.zeros(2), tol=1e-12).x)

    a = np.array([0.3, -0.7])
    value, slope = value_and_grad(fn)(a)
    x = scipy.optimize.minimize(lambda v: np.sum((v - a) ** 2) + 0.1 * np.sum(v**4), a).x
    np.testing.assert_allclose(value, np.sum(x), atol=1e-5)
    np.testing.assert_allclose(slope, 2.0 / (2.0 + 1.2 * x**2), rtol=1e-5)


def test_the_variance_of_complex_numbers_is_of_their_sizes() -> None:
    z = np.array([1.0 + 2.0j, -0.5j, 0.3, 2.0 - 1.0j])
    for of in (scipy.ndimage.variance, scipy.ndimage.standard_deviation):
        got = differentiate(lambda z, of=of: of(z))(z)
        np.testing.assert_allclose(got, of(z), rtol=1e-12)


def test_results_keep_what_they_have_beside_their_fields() -> None:
    x, y = np.array([1.0, 2.5, 3.0, 4.0]), np.array([1.0, 2.0, 4.0, 3.5])
    for of in (scipy.stats.linregress, scipy.stats.pearsonr, scipy.stats.ttest_ind):
        got, want = differentiate(lambda x, y, of=of: of(x, y))(x, y), of(x, y)
        assert type(got) is type(want) and vars(got).keys() == vars(want).keys()
        np.testing.assert_allclose(got, want, rtol=1e-12)
    found = differentiate(lambda x, y: scipy.stats.linregress(x, y))(x, y)
    assert found.intercept_stderr == pytest.approx(scipy.stats.linregress(x, y).intercept_stderr)
    found = differentiate(lambda x, y: scipy.stats.pearsonr(x, y))(x, y)
    want_range = scipy.stats.pearsonr(x, y).confidence_interval()
    np.testing.assert_allclose(found.confidence_interval(), want_range, rtol=1e-12)
    slope = grad(lambda x: scipy.stats.linregress(x, y).intercept_stderr)(x)
    up, down = (scipy.stats.linregress(x + h * y, y).intercept_stderr for h in (1e-6, -1e-6))
    assert np.sum(slope * y) == pytest.approx((up - down) / 2e-6, rel=1e-6)


@pytest.mark.filterwarnings("ignore:logm result may be inaccurate:RuntimeWarning")  # scipy's
@pytest.mark.parametrize("name", ["logm", "sqrtm"])
def test_a_jordan_block_whose_function_is_complex_is_refused(name: str) -> None:
    function = getattr(scipy.linalg, name)
    compiled = differentiate(lambda a: function(a))
    block = np.array([[-1.0, 1.0], [0.0, -1.0]])
    with pytest.raises(errors.UnsupportedOpError, match="basis of eigenvectors"):
        compiled(block)
    for a in (-block, block + np.diag([0.5, 0.0])):
        np.testing.assert_allclose(compiled(a), function(a), rtol=1e-9, atol=1e-12)
    single = -np.array([[2.0, 1.0], [1.0, 3.0]], dtype=np.float32)  # it has one, to seven digits
    np.testing.assert_allclose(compiled(single), function(single), rtol=1e-5, atol=1e-6)


def test_a_row_with_a_missing_value_is_nan_where_scipys_own_code_would_raise() -> None:
    x, y = np.random.default_rng(0).standard_normal((2, 6, 3))
    x[0, 1] = np.nan
    want = scipy.stats.mannwhitneyu(x, y)
    have = differentiate(lambda x, y: scipy.stats.mannwhitneyu(x, y))(x, y)
    np.testing.assert_allclose(have, want, rtol=1e-13)
    assert np.isnan(have.pvalue).tolist() == [False, True, False]


def test_missing_values_are_left_out_by_the_user() -> None:
    holes = np.array([[1.0, 2.0, 4.0], [np.nan, 3.0, 5.0], [2.0, 2.5, 7.0]])
    compiled = differentiate(lambda x: scipy.stats.trim_mean(x, 0.1, axis=1))
    for x in (holes, np.nan_to_num(holes), holes):  # with missing values, and without any
        np.testing.assert_array_equal(compiled(x), scipy.stats.trim_mean(x, 0.1, axis=1))
    for policy, error in (("omit", errors.UnsupportedOpError), ("raise", ValueError)):
        some = differentiate(lambda x, p=policy: scipy.stats.skew(x, nan_policy=p, axis=None))
        some(np.nan_to_num(holes))
        with pytest.raises(error, match="nan"):
            some(holes)
