"""The numpy table: every case right to second order, and what its engine calls wrong."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import scipy.special

from gradof import vjp
from gradof.errors import UnsupportedOpError
from gradof.testing.numpy_coverage import (
    NumpyRow,
    differentiable_names,
    has_gradient,
    numpy_rows,
    try_case,
)  # fmt: skip
from gradof.testing.numpy_left_out import LEFT_OUT
from gradof.testing.numpy_samples import R, case, exactly
from gradof.testing.numpy_table import CASES


@pytest.mark.cases(24)
@pytest.mark.filterwarnings("ignore:numpy.fix is deprecated")  # numpy 2.5
@pytest.mark.parametrize("at", range(len(CASES)), ids=lambda i: CASES[i].name)
def test_case(at: int) -> None:
    row = try_case(CASES[at])
    assert row.ok, f"{row.source}: {row.reason}"


@pytest.mark.filterwarnings("ignore:numpy.fix is deprecated")  # numpy 2.5
@pytest.mark.long
def test_three_hundred_functions_have_a_gradient_that_is_not_zero() -> None:
    # That all cases are right, to second order, is said by `test_case`.
    found: set[str] = set()
    for each in CASES:
        own = each.name.startswith(("numpy.", "scipy.special."))
        if own and each.name not in found and has_gradient(each):
            found.add(each.name)
        if len(found) == 300:
            return
    pytest.fail(f"only {len(found)} of them")


# What HIPS autograd wraps, of numpy, numpy.linalg and scipy.special.
HIPS = {
    "numpy": """
        abs absolute add all amax amin angle any append arccos arccosh arcsin arcsinh arctan arctan2
        arctanh argmax argmin argpartition argsort around array_split astype atleast_1d atleast_2d
        atleast_3d average broadcast_to ceil clip concatenate conj conjugate cos cosh cross cumsum
        deg2rad degrees diag diagonal diff divide dot dsplit einsum exp exp2 expand_dims expm1 fabs
        fix fliplr flipud floor fmax fmin full gradient hsplit hypot inner isfinite isinf isnan kron
        linspace log log10 log1p log2 logaddexp logaddexp2 matmul max maximum mean min minimum mod
        moveaxis multiply nan_to_num negative outer pad partition power prod rad2deg radians ravel
        real real_if_close reciprocal remainder repeat reshape rint roll rollaxis rot90 round
        searchsorted select sign sin sinc sinh sort split sqrt square squeeze stack std subtract sum
        swapaxes tan tanh tensordot tile trace transpose tril triu true_divide trunc unwrap var
        vsplit where zeros_like ones_like""",
    "numpy.linalg": "cholesky det eigh inv norm pinv slogdet solve svd",
    "scipy.special": """
        beta betainc betaln digamma erf erfc erfcinv erfinv expit gamma gammainc gammaincc gammaln
        i0 i1 iv ive j0 j1 jn logit logsumexp multigammaln polygamma psi rgamma y0 y1 yn""",
}


def test_what_autograd_wraps_is_in_the_table() -> None:
    have = {c.name for c in CASES}
    want = {f"{module}.{name}" for module, names in HIPS.items() for name in names.split()}
    assert want <= have, sorted(want - have)


def test_a_wrong_rule_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from gradof.ops.registry import get_op

    monkeypatch.setitem(get_op("tanh").vjp, "x", lambda g, y: g * (1.01 - y * y))
    row = try_case(case("numpy.tanh", "np.tanh(x) + 0.0", R(4)))
    assert row.value and not row.first and "first: error" in row.reason


def test_a_wrong_second_derivative_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from gradof.ops.registry import get_op

    monkeypatch.setitem(get_op("cos").vjp, "x", lambda g, x: g * 1.0)
    row = try_case(case("numpy.sin", "np.sin(x) - 0.0", R(4)))
    assert row.value and row.first and not row.second and not row.ok


def test_what_is_unsupported_is_a_row_with_its_reason() -> None:
    seen: list[NumpyRow] = []
    lacking = case("scipy.special.kolmogorov", "special.kolmogorov(x)", R(3))
    (row,) = numpy_rows(seen.append, [lacking])
    assert seen == [row] and not row.ok and "UnsupportedOpError" in row.reason
    assert differentiable_names([row]) == []


def test_a_gradient_that_is_only_zero_is_said_to_be() -> None:
    floor = case("numpy.floor", "np.floor(x)", R(4))
    row = try_case(floor)
    assert row.ok and row.zero and differentiable_names([row]) == []
    assert not has_gradient(floor)


def test_samples_are_spread() -> None:
    for shape in ((3, 4), (5,), ()):
        values: Any = R(*shape)(np.random.default_rng(0))
        assert values.shape == shape and np.all(np.abs(values) > 1e-2)
        assert np.min(np.diff(np.sort(values.ravel())), initial=1.0) > 0.1
    assert exactly([1, 2])(np.random.default_rng(0)).dtype == np.int64


def test_the_table_never_loads_torch() -> None:
    code = (
        "import sys; from gradof.testing.numpy_coverage import numpy_rows; "
        "from gradof.testing.numpy_table import CASES; "
        "assert all(r.ok for r in numpy_rows(None, CASES[::40])); assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def _public(module: Any) -> set[str]:
    prefix = module.__name__
    return {
        f"{prefix}.{name}" for name in module.__all__
        if callable(getattr(module, name)) and not isinstance(getattr(module, name), type)
    }  # fmt: skip


def test_what_is_not_in_the_table_has_a_reason() -> None:
    table = {c.name for c in CASES}
    everything = set().union(*map(_public, (np, np.linalg, np.fft, scipy.special)))
    assert everything - table <= set(LEFT_OUT), sorted(everything - table - set(LEFT_OUT))
    assert not table & set(LEFT_OUT)
    assert set(LEFT_OUT) - everything <= {"numpy.row_stack"}  # gone with numpy 2.5


@pytest.mark.parametrize("name", ["elliprf", "zetac", "kolmogorov", "kolmogorov", "stdtridf"])
def test_a_ufunc_that_is_left_out_is_an_error_and_never_zero(name: str) -> None:
    ufunc = getattr(scipy.special, name)
    args = [np.full(2, 0.5) for _ in range(ufunc.nin)]
    with pytest.raises(UnsupportedOpError, match=name):
        vjp(lambda *xs: ufunc(*xs), *args)


def test_a_gradient_of_nan_is_not_right() -> None:
    row = try_case(case("where", "np.where(x > 5.0, np.sqrt(x - 5.0), x)", R(3)))
    assert row.value and not row.first and not row.second
