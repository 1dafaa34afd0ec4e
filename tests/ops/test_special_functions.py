"""scipy's special functions against mpmath, to second order, and what of them is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import special

from gradof import errors, hessian, vjp
from gradof.ops.registry import Refused, all_ops

# name: the operands, of which the last is differentiated, and mpmath's function of the last.
mp = mpmath.mp
Function = Callable[..., Any]
CASES: dict[str, tuple[tuple[float, ...], Function]] = {
    "gamma": ((1.7,), mpmath.gamma),
    "rgamma": ((-1.3,), mpmath.rgamma),
    "beta": ((0.8, 1.7), mpmath.beta),
    "betaln": ((0.8, 1.7), lambda a, b: mpmath.log(mpmath.beta(a, b))),
    "binom": ((4.5, 1.2), mpmath.binomial),
    "poch": ((1.5, 1.2), mpmath.rf),
    "erfcinv": ((0.7,), lambda x: mpmath.erfinv(1 - x)),
    "erfi": ((0.7,), mpmath.erfi),
    "dawsn": ((0.7,), lambda x: mpmath.sqrt(mpmath.pi) / 2 * mpmath.exp(-x * x) * mpmath.erfi(x)),
    "expi": ((0.7,), mpmath.ei),
    "exp1": ((0.7,), mpmath.e1),
    "expn": ((3, 0.7), mpmath.expint),
    "exprel": ((0.01,), lambda x: mpmath.expm1(x) / x),
    "spence": ((1.01,), lambda x: mpmath.polylog(2, 1 - x)),
    "ellipk": ((0.01,), mpmath.ellipk),
    "ellipe": ((0.01,), mpmath.ellipe),
    "ellipkm1": ((0.3,), lambda p: mpmath.ellipk(1 - p)),
    "ellipkinc": ((0.7, 0.4), mpmath.ellipf),
    "ellipeinc": ((0.7, 0.4), mpmath.ellipe),
    "gammainc": ((1.5, 0.7), lambda a, x: mpmath.gammainc(a, 0, x, regularized=True)),
    "gammaincc": ((1.5, 0.7), lambda a, x: mpmath.gammainc(a, x, regularized=True)),
    "betainc": ((1.5, 2.5, 0.3), lambda a, b, x: mpmath.betainc(a, b, 0, x, regularized=True)),
    "boxcox": ((1.7, 0.01), lambda x, p: (x**p - 1) / p),
    "inv_boxcox": ((1.2, 0.01), lambda y, p: (1 + y * p) ** (1 / p)),
    "agm": ((1.2, 0.7), mpmath.agm),
    "j0": ((1.3,), lambda x: mpmath.besselj(0, x)),
    "j1": ((1.3,), lambda x: mpmath.besselj(1, x)),
    "y0": ((1.3,), lambda x: mpmath.bessely(0, x)),
    "y1": ((1.3,), lambda x: mpmath.bessely(1, x)),
    "k0": ((1.3,), lambda x: mpmath.besselk(0, x)),
    "k1": ((1.3,), lambda x: mpmath.besselk(1, x)),
    "k0e": ((1.3,), lambda x: mpmath.besselk(0, x) * mpmath.exp(x)),
    "k1e": ((1.3,), lambda x: mpmath.besselk(1, x) * mpmath.exp(x)),
    "jv": ((1.5, 1.3), mpmath.besselj),
    "yv": ((1.5, 1.3), mpmath.bessely),
    "iv": ((1.5, 1.3), mpmath.besseli),
    "kv": ((1.5, 1.3), mpmath.besselk),
    "ive": ((1.5, 1.3), lambda v, x: mpmath.besseli(v, x) * mpmath.exp(-x)),
    "kve": ((1.5, 1.3), lambda v, x: mpmath.besselk(v, x) * mpmath.exp(x)),
    "struve": ((1.5, 1.3), mpmath.struveh),
    "modstruve": ((1.5, 1.3), mpmath.struvel),
    "ber": ((1.3,), lambda x: mpmath.ber(0, x)),
    "bei": ((1.3,), lambda x: mpmath.bei(0, x)),
    "ker": ((1.3,), lambda x: mpmath.ker(0, x)),
    "kei": ((1.3,), lambda x: mpmath.kei(0, x)),
    "hyp0f1": ((1.5, 0.7), mpmath.hyp0f1),
    "hyp1f1": ((0.7, 1.5, 0.7), mpmath.hyp1f1),
    "hyperu": ((0.7, 1.5, 0.7), mpmath.hyperu),
    "hyp2f1": ((0.7, 1.5, 2.2, 0.4), mpmath.hyp2f1),
    "eval_jacobi": ((3, 0.5, 1.5, 0.4), mpmath.jacobi),
    "eval_gegenbauer": ((3, 0.7, 0.4), mpmath.gegenbauer),
    "eval_legendre": ((3, 0.4), mpmath.legendre),
    "eval_chebyt": ((3, 0.4), mpmath.chebyt),
    "eval_chebyu": ((3, 0.4), mpmath.chebyu),
    "eval_genlaguerre": ((3, 0.5, 0.4), mpmath.laguerre),
    "eval_hermite": ((3, 0.4), mpmath.hermite),
}


@pytest.mark.parametrize("name", CASES)
def test_derivatives_are_mpmaths(name: str) -> None:
    (*fixed, x), exact = CASES[name]
    ours = getattr(special, name)

    def fn(at: Any) -> Any:
        return ours(*fixed, at)

    at = np.float64(x)
    value, pullback = vjp(fn, at)
    first, second = pullback(np.float64(1.0))[0], hessian(fn)(at)
    with mpmath.workdps(40):
        want = [float(mpmath.diff(lambda t: exact(*fixed, t), mpmath.mpf(x), n)) for n in range(3)]
    np.testing.assert_allclose([value, first, second], want, rtol=2e-10, atol=1e-12)


@pytest.mark.parametrize("x", [9.0, 10.5, 1e3, 1e10, -1e5])
@pytest.mark.parametrize("name", ["dawsn", "erfcx"])
def test_slopes_far_out_are_no_difference_of_near_numbers(name: str, x: float) -> None:
    fn, at = getattr(special, name), np.float64(abs(x) if name == "erfcx" else x)
    with mpmath.workdps(60):
        r = mpmath.mpf(float(at))
        y = (mpmath.exp(r * r) * mpmath.erfc(r) if name == "erfcx" else
             mpmath.sqrt(mpmath.pi) / 2 * mpmath.exp(-r * r) * mpmath.erfi(r))  # fmt: skip
        first = 2 * r * y - 2 / mpmath.sqrt(mpmath.pi) if name == "erfcx" else 1 - 2 * r * y
        second = 2 * (y + r * first) * (1 if name == "erfcx" else -1)
    found = vjp(fn, at)[1](np.float64(1.0))[0], hessian(fn)(at)
    np.testing.assert_allclose(found, [float(first), float(second)], rtol=1e-11)


def test_both_operands_have_a_gradient() -> None:
    for name in ("beta", "betaln", "binom", "poch", "boxcox", "agm", "ellipkinc", "owens_t"):
        grads = vjp(getattr(special, name), np.float64(1.2), np.float64(0.7))[1](np.float64(1.0))
        assert all(np.isfinite(g) and g != 0 for g in grads), name


REFUSING = [
    (op.name, operand) for op in all_ops() for operand, rule in op.vjp.items()
    if isinstance(rule, Refused)
]  # fmt: skip


def test_an_unknown_derivative_is_an_error_and_not_zero() -> None:
    assert len(REFUSING) > 40
    message = "the gradient of jv in its operand v"
    with pytest.raises(errors.UnsupportedOpError, match=message) as e:
        vjp(lambda v, x: special.jv(v, x), np.float64(1.5), np.float64(0.7))[1](np.float64(1.0))
    assert "test_special_functions.py" in str(e.value)
    # an order that is a whole number, a constant or not asked about is none
    orders = np.array([0, 1, 2])
    grads = vjp(lambda v, x: special.jv(v, x), orders, np.float64(0.7))[1](np.ones(3))
    assert grads[0] is None and np.isfinite(grads[1])


def test_the_limit_of_a_quotient_is_taken() -> None:
    zero = np.zeros(1)
    for fn, first in (
        (special.exprel, 0.5), (special.ellipk, np.pi / 8), (special.ellipe, -np.pi / 8),
        (lambda x: special.spence(x + 1.0), -1.0), (lambda x: special.sici(x)[0], 1.0),
        (special.beip, 0.5), (special.j1, 0.5),
    ):  # fmt: skip
        np.testing.assert_allclose(vjp(fn, zero)[1](np.ones(1))[0], [first], rtol=1e-14)
