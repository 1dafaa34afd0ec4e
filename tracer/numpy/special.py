"""Functions of scipy.special that are written in others: ufuncs, and what is no ufunc.

Those that are one op are found by their name in the registry. scipy is in use where any of these
is called, so they may import it.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gradof.ops.expr import Expr, F
from gradof.tracer.numpy.array import TracedArray
from gradof.tracer.numpy.functions import as_array, traced_all

Function = Callable[..., Any]
_DEGREE = math.pi / 180


def _scipy(name: str) -> Function:
    function: Function = getattr(importlib.import_module("scipy.special"), name)
    return function


def logsumexp(a: Any, axis: Any, keepdims: bool) -> Any:
    """log(sum(exp(a))) over an axis, without overflow."""
    top = np.max(a, axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    result = np.log(np.sum(np.exp(a - top), axis=axis, keepdims=True)) + top
    return result if keepdims else np.squeeze(result, axis=axis)


# --- ufuncs ---------------------------------------------------------------------------------------


def _rel_entr(a: Any, b: Any) -> Any:
    inside = a * np.log(np.where(a > 0, a, 1.0) / np.where(b > 0, b, 1.0))
    return np.where((a > 0) & (b > 0), inside, np.where((a == 0) & (b >= 0), 0.0, np.inf))


def _huber(delta: Any, r: Any) -> Any:
    size = np.abs(r)
    value = np.where(size <= delta, r * r * 0.5, delta * (size - delta * 0.5))
    return np.where(np.less(delta, 0), np.inf, value)


def _pseudo_huber(delta: Any, r: Any) -> Any:
    flat = np.equal(delta, 0)
    width = np.where(flat, 1.0, delta)
    ratio = r / width
    # sqrt(1 + z) - 1 without the loss of small z
    square = ratio * ratio
    value = width * width * (square / (np.sqrt(1.0 + square) + 1.0))
    return np.where(np.less(delta, 0), np.inf, np.where(flat, 0.0, value))


def _powm1(x: Any, y: Any) -> Any:
    rising = np.greater(x, 0)
    direct = np.expm1(y * np.log(np.where(rising, x, 1.0)))
    return np.where(rising, direct, np.power(x, y) - 1.0)


def _sh_jacobi(n: Any, p: Any, q: Any, x: Any) -> Any:
    scale = _scipy("binom")(2 * n + p - 1, n)
    return _scipy("eval_jacobi")(n, p - q, q - 1, 2 * x - 1) / scale


def _loggamma(x: Any) -> Any:
    if np.iscomplexobj(x):
        raise TypeError("argument of loggamma that is complex")
    return np.where(x < 0, np.nan, _scipy("gammaln")(x))


def _hankel(sign: float, turned: bool) -> Function:
    """Hankel's functions of real numbers above 0: J + iY, or J - iY of the second kind."""

    def function(v: Any, x: Any) -> Any:
        if np.iscomplexobj(x) or np.any(np.less(x, 0)):
            raise TypeError("an argument that is complex or below 0")
        y = _scipy("jv")(v, x) + sign * 1j * _scipy("yv")(v, x)
        return y * np.exp(-sign * 1j * x) if turned else y

    return function


def _within(degrees: Any, half: int) -> Any:
    """The angle without whole turns (of twice `half`), which is exact, as radians are not."""
    return degrees - 2 * half * np.rint(degrees / (2 * half))


def _sine(d: Any) -> Any:
    return np.sin(np.where(np.abs(d) > 90, np.copysign(180, d) - d, d) * _DEGREE)


def _cosine(d: Any) -> Any:
    """Near a right angle a sine of what is left to it."""
    size = np.abs(d)
    return np.where(size < 45, np.cos(d * _DEGREE), np.sin((90 - size) * _DEGREE))


def _tangent(d: Any) -> Any:
    steep = np.abs(d) > 45
    t = np.tan(np.where(steep, np.copysign(90, d) - d, d) * _DEGREE)
    return np.where(steep, 1.0 / np.where(steep, t, 1.0), t)


def _cotangent(d: Any) -> Any:
    flat = np.abs(d) > 45
    t = np.tan(np.where(flat, np.copysign(90, d) - d, d) * _DEGREE)
    return np.where(flat, t, 1.0 / np.where(flat, 1.0, t))


UFUNCS: dict[str, Function] = {
    "log_expit": lambda x: -np.logaddexp(0.0, -x),
    "exp10": lambda x: np.power(10.0, x),
    "exp2": np.exp2, "expm1": np.expm1, "log1p": np.log1p, "cbrt": np.cbrt, "round": np.rint,
    "cosm1": lambda x: -2.0 * np.square(np.sin(x * 0.5)),
    "sindg": lambda x: _sine(_within(x, 180)), "cosdg": lambda x: _cosine(_within(x, 180)),
    "tandg": lambda x: _tangent(_within(x, 90)), "cotdg": lambda x: _cotangent(_within(x, 90)),
    "radian": lambda d, m, s: (d + m / 60 + s / 3600) * _DEGREE,
    "loggamma": _loggamma,
    # with an axis for each order of derivatives
    "legendre_p": lambda n, z: _scipy("eval_legendre")(np.trunc(n), z)[..., None],
    "sph_legendre_p": lambda n, m, theta: _record("sph_legendre_p", n, m, theta)[..., None],
    "sph_harm_y": lambda n, m, theta, phi: (
        _record("sph_legendre_p", n, m, theta) * np.exp(1j * m * phi))[..., None, None],
    "hankel1": _hankel(1.0, turned=False), "hankel1e": _hankel(1.0, turned=True),
    "hankel2": _hankel(-1.0, turned=False), "hankel2e": _hankel(-1.0, turned=True),
    "rel_entr": _rel_entr, "kl_div": lambda a, b: _rel_entr(a, b) - a + b,
    "huber": _huber, "pseudo_huber": _pseudo_huber, "powm1": _powm1,
    # scipy cuts their orders off to whole numbers
    "yn": lambda n, x: _scipy("yv")(np.trunc(n), x),
    "kn": lambda n, x: _scipy("kv")(np.trunc(n), x),
    "eval_chebyc": lambda n, x: 2 * _scipy("eval_chebyt")(n, x / 2),
    "eval_chebys": lambda n, x: _scipy("eval_chebyu")(n, x / 2),
    "eval_sh_legendre": lambda n, x: _scipy("eval_legendre")(n, 2 * x - 1),
    "eval_sh_chebyt": lambda n, x: _scipy("eval_chebyt")(n, 2 * x - 1),
    "eval_sh_chebyu": lambda n, x: _scipy("eval_chebyu")(n, 2 * x - 1),
    "eval_sh_jacobi": _sh_jacobi,
}  # fmt: skip

# --- functions that are no ufuncs -----------------------------------------------------------------


def _logsumexp(
    a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: bool = False
) -> Any:
    a = as_array(a)
    if b is None and not return_sign:
        return logsumexp(a, axis, keepdims)
    weight = 1.0 if b is None else b
    used = np.where(np.equal(weight, 0), -np.inf, a)
    top = np.max(used, axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    total = np.sum(weight * np.exp(used - top), axis=axis, keepdims=True)
    sign = np.sign(total)
    result = np.log(np.abs(total) if return_sign else total) + top
    if not keepdims:
        result, sign = np.squeeze(result, axis=axis), np.squeeze(sign, axis=axis)
    return (result, sign) if return_sign else result


def _log_softmax(x: Any, axis: Any = None) -> Any:
    return x - logsumexp(x, axis, keepdims=True)


def _softmax(x: Any, axis: Any = None) -> Any:
    (x,) = traced_all(x)
    top = np.max(x, axis=axis, keepdims=True)
    top = x.recorder.wrap(top.concrete, F.detach(top.expr))  # its share of the gradient is none
    weights = np.exp(x - top)
    return weights / np.sum(weights, axis=axis, keepdims=True)


def _record(kind: str, *operands: Any) -> Any:
    """One op of the graph, of operands that are first cast to one floating dtype."""
    arrays = traced_all(*operands)
    dtype = np.result_type(*(a.dtype for a in arrays if a.dtype.kind == "f"), np.float16)
    dtype = np.dtype(np.float64) if dtype == np.float16 else dtype
    recorder = arrays[0].recorder
    parts: list[Expr] = [a.expr.cast(recorder.ir_dtype(dtype)) for a in arrays]
    concrete = _scipy(kind.removeprefix("hurwitz_"))(*(a.concrete for a in arrays))
    # functions with derivatives on request have a first axis of 1 for none
    concrete = np.reshape(concrete, np.broadcast_shapes(*(a.shape for a in arrays)))
    return recorder.wrap(np.asarray(concrete, dtype)[()], getattr(F, kind)(*parts))


def _polygamma(n: Any, x: Any) -> Any:
    order = np.asarray(n)
    if order.ndim or isinstance(n, TracedArray):
        raise TypeError("polygamma of an array of orders")
    array = traced_all(x)[0]
    recorder = array.recorder
    dtype = np.dtype(np.float64) if array.dtype.kind != "f" else array.dtype
    operand = array.expr.cast(recorder.ir_dtype(dtype))
    y = F.digamma(operand) if int(order) == 0 else F.polygamma(operand, n=int(order))
    concrete = np.asarray(_scipy("polygamma")(int(order), array.concrete), dtype)
    return recorder.wrap(concrete[()], y)


def _zeta(x: Any, q: Any = None) -> Any:
    if q is None and np.any(np.less(x, 1)):
        raise TypeError("an argument below 1, where it is not Hurwitz's function")
    return _record("hurwitz_zeta", x, 1.0 if q is None else q)


def _multigammaln(a: Any, d: int) -> Any:
    parts = [_scipy("gammaln")(a - (j - 1.0) / 2) for j in range(1, int(d) + 1)]
    return sum(parts) + d * (d - 1) * 0.25 * math.log(math.pi)


def _comb(N: Any, k: Any, *, exact: bool = False, repetition: bool = False) -> Any:
    if exact:
        raise TypeError("comb with exact=True of a traced array")
    if repetition:
        return np.where(np.equal(k, 0) & np.greater_equal(N, 0), 1.0, _scipy("binom")(N + k - 1, k))
    valid = np.less_equal(k, N) & np.greater_equal(N, 0) & np.greater_equal(k, 0)
    return np.where(valid, _scipy("binom")(N, k), 0.0)


def _perm(N: Any, k: Any, exact: bool = False) -> Any:
    if exact:
        raise TypeError("perm with exact=True of a traced array")
    valid = np.less_equal(k, N) & np.greater_equal(N, 0) & np.greater_equal(k, 0)
    return np.where(valid, _scipy("poch")(N - k + 1, k), 0.0)


def _factorial(n: Any, exact: bool = False, extend: str = "zero") -> Any:
    if exact or extend != "zero":
        raise TypeError("factorial with these arguments of a traced array")
    return np.where(n < 0, 0.0, _scipy("gamma")(n + 1.0))


def _diric(x: Any, n: int) -> Any:
    half = np.sin(x * 0.5)
    near = np.abs(half) < 1e-7
    turns = np.round(x / (2 * math.pi))
    limit = 1.0 if n % 2 else np.cos(turns * math.pi)
    return np.where(near, limit, np.sin(x * (0.5 * n)) / (n * np.where(near, 1.0, half)))


def _spherical(kind: str, below: float, above: float) -> Function:
    """Beside its derivative (see the op); scipy cuts orders off to whole numbers."""

    def function(n: Any, z: Any, derivative: bool = False) -> Any:
        if not derivative:
            return _record(kind, n, z)
        n = np.trunc(n)
        lower = np.where(np.equal(n, 0), 0.0, n * _record(kind, np.maximum(n - 1, 0), z))
        return (below * lower + above * (n + 1) * _record(kind, n + 1, z)) / (2 * n + 1)

    return function


FUNCTIONS: dict[str, Function] = {
    "logsumexp": _logsumexp, "softmax": _softmax, "log_softmax": _log_softmax,
    "polygamma": _polygamma, "zeta": _zeta, "multigammaln": _multigammaln, "comb": _comb,
    "perm": _perm, "factorial": _factorial, "diric": _diric,
    "softplus": lambda x: np.logaddexp(0.0, x),
    "spherical_jn": _spherical("spherical_jn", 1.0, -1.0),
    "spherical_yn": _spherical("spherical_yn", 1.0, -1.0),
    "spherical_in": _spherical("spherical_in", 1.0, 1.0),
    "spherical_kn": _spherical("spherical_kn", -1.0, -1.0),
}  # fmt: skip
