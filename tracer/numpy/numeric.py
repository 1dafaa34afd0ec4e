"""numpy functions of samples and polynomials: differences, integrals, convolutions, fits."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradof.ops.expr import F
from gradof.tracer.numpy.functions import as_array, axis_of, composed, traced_all, whole

# --- differences and integrals --------------------------------------------------------------------


def _along(dim: int, *index: Any) -> tuple[Any, ...]:
    return (*(slice(None),) * dim, *index)


@composed(np.gradient)
def _gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    f = as_array(f)
    f = f if f.dtype.kind in "fc" else f.astype(float)
    given = range(f.ndim) if axis is None else axis if isinstance(axis, (tuple, list)) else (axis,)
    dims = [axis_of(d, f.ndim) for d in given]
    spacing = list(varargs) * (len(dims) if len(varargs) == 1 else 1) or [1.0] * len(dims)
    parts = [
        _derivative(f, as_array(h), d, edge_order) for d, h in zip(dims, spacing, strict=True)
    ]
    return parts[0] if len(parts) == 1 else tuple(parts)


def _derivative(f: Any, h: Any, dim: int, edge_order: int) -> Any:
    """Second-order differences inside, `edge_order` at the ends; h is a step or coordinates."""

    def part(start: int, stop: int | None) -> Any:
        return f[_along(dim, slice(start, stop))]

    n = f.shape[dim]
    if np.ndim(h) == 0:
        inside = (part(2, None) - part(0, n - 2)) / (2.0 * h)
        first = last = h
    else:
        steps = np.reshape(h[1:] - h[:-1], (-1, *(1,) * (f.ndim - dim - 1)))
        left, right = steps[:-1], steps[1:]
        inside = (
            -right / (left * (left + right)) * part(0, n - 2)
            + (right - left) / (left * right) * part(1, n - 1)
            + left / (right * (left + right)) * part(2, None)
        )
        first, last = steps[:1], steps[-1:]
    if edge_order == 1:
        begin = (part(1, 2) - part(0, 1)) / first
        end = (part(n - 1, None) - part(n - 2, n - 1)) / last
    elif np.ndim(h) == 0:
        begin = -1.5 / h * part(0, 1) + 2.0 / h * part(1, 2) + -0.5 / h * part(2, 3)
        end = 0.5 / h * part(n - 3, n - 2) + -2.0 / h * part(n - 2, n - 1)
        end = end + 1.5 / h * part(n - 1, n)
    else:
        begin = _edge(first, steps[1:2], part(0, 1), part(1, 2), part(2, 3))
        end = -_edge(last, steps[-2:-1], part(n - 1, n), part(n - 2, n - 1), part(n - 3, n - 2))
    return np.concatenate([begin, inside, end], axis=dim)


def _edge(near: Any, far: Any, f0: Any, f1: Any, f2: Any) -> Any:
    both = near + far
    return (
        -(2.0 * near + far) / (near * both) * f0
        + both / (near * far) * f1
        - near / (far * both) * f2
    )


@composed(np.trapezoid)
def _trapezoid(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Any:
    y = as_array(y)
    dim = axis_of(axis, y.ndim)
    if x is None:
        width: Any = dx
    elif np.ndim(x) == 1:
        x = as_array(x)
        width = np.reshape(x[1:] - x[:-1], [-1 if d == dim else 1 for d in range(y.ndim)])
    else:
        width = np.diff(as_array(x), axis=axis)
    after, before = y[_along(dim, slice(1, None))], y[_along(dim, slice(None, -1))]
    return np.sum(width * (after + before) / 2.0, axis=dim)


@composed(np.unwrap)
def _unwrap(p: Any, discont: Any = None, axis: int = -1, *, period: float = 2 * np.pi) -> Any:
    p = as_array(p)
    dim = axis_of(axis, p.ndim)
    steps = np.diff(p, axis=dim)
    half = period / 2
    wrapped = np.mod(steps + half, period) - half
    wrapped = np.where((wrapped == -half) & (steps > 0), half, wrapped)
    small = np.abs(steps) < (half if discont is None else discont)
    shifts = np.cumsum(np.where(small, 0.0, wrapped - steps), axis=dim)
    return np.concatenate([p[_along(dim, slice(0, 1))],
                           p[_along(dim, slice(1, None))] + shifts], axis=dim)  # fmt: skip


@composed(np.interp)
def _interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None,
            period: Any = None) -> Any:  # fmt: skip
    x, xp, fp = traced_all(x, xp, fp)
    if period is not None:
        period = abs(period)
        x, xp = np.mod(x, period), np.mod(xp, period)
        order = np.argsort(xp)
        xp, fp = np.take(xp, order), np.take(fp, order)
        xp = np.concatenate([xp[-1:] - period, xp, xp[:1] + period])
        fp = np.concatenate([fp[-1:], fp, fp[:1]])
    high = np.clip(np.searchsorted(xp, x, side="right"), 1, len(xp) - 1)
    x0, x1 = np.take(xp, high - 1), np.take(xp, high)
    y0, y1 = np.take(fp, high - 1), np.take(fp, high)
    inside = y0 + (y1 - y0) / (x1 - x0) * (x - x0)
    below = np.where(x < xp[0], fp[0] if left is None else left, inside)
    return np.where(x > xp[-1], fp[-1] if right is None else right, below)


# --- convolutions and polynomials -----------------------------------------------------------------


def _full_convolution(a: Any, v: Any) -> Any:
    """Sums of the antidiagonals of the outer product, which a sheared reshape makes columns."""
    if np.shape(a)[0] > np.shape(v)[0]:  # as many rows as the shorter has numbers
        a, v = v, a
    m, n = np.shape(a)[0], np.shape(v)[0]
    products = np.outer(a, v)
    padded = np.concatenate([products, np.zeros((m, m), products.dtype)], axis=1)
    sheared = np.reshape(np.ravel(padded)[: m * (m + n - 1)], (m, m + n - 1))
    return np.sum(sheared, axis=0)


def _middle(full: Any, m: int, n: int, mode: Any) -> Any:
    long, short = max(m, n), min(m, n)
    if mode in ("full", 2):
        return full
    if mode in ("same", 1):
        start = (short - 1) // 2
        return full[start : start + long]
    return full[short - 1 : long]


@composed(np.convolve)
def _convolve(a: Any, v: Any, mode: Any = "full") -> Any:
    a, v = np.atleast_1d(as_array(a)), np.atleast_1d(as_array(v))
    return _middle(_full_convolution(a, v), len(a), len(v), mode)


@composed(np.correlate)
def _correlate(a: Any, v: Any, mode: Any = "valid") -> Any:
    a, v = as_array(a), as_array(v)
    full = _full_convolution(a, v[::-1])
    if mode in ("same", 1) and len(a) < len(v):  # numpy swaps the operands, and mirrors the result
        return _middle(full[::-1], len(a), len(v), mode)[::-1]
    return _middle(full, len(a), len(v), mode)


@composed(np.polyval)
def _polyval(p: Any, x: Any) -> Any:
    p = as_array(p)
    result = x * 0
    for i in range(len(p)):
        result = result * x + p[i]
    return result


def _aligned(a: Any, b: Any) -> tuple[Any, Any]:
    """Coefficients, highest power first, with zeros in front of the shorter."""
    a, b = np.atleast_1d(as_array(a)), np.atleast_1d(as_array(b))
    n = max(len(a), len(b))
    return tuple(  # type: ignore[return-value]
        np.concatenate([np.zeros(n - len(p), p.dtype), p]) if len(p) < n else p for p in (a, b)
    )


@composed(np.polyadd)
def _polyadd(a1: Any, a2: Any) -> Any:
    a, b = _aligned(a1, a2)
    return a + b


@composed(np.polysub)
def _polysub(a1: Any, a2: Any) -> Any:
    a, b = _aligned(a1, a2)
    return a - b


@composed(np.polymul)
def _polymul(a1: Any, a2: Any) -> Any:
    return np.convolve(a1, a2)


@composed(np.polydiv)
def _polydiv(u: Any, v: Any) -> Any:
    """As numpy computes it, whose remainder loses the leading coefficients that come out zero."""
    u, v = np.atleast_1d(as_array(u)) + 0.0, np.atleast_1d(as_array(v)) + 0.0
    n = len(v)
    quotient = [u[0] * 0.0] if len(u) < n else []
    rest = u + v[0] * 0.0
    for k in range(len(u) - n + 1):
        quotient.append(1.0 / v[0] * rest[k])
        lead = [rest[:k], rest[k : k + n] - quotient[-1] * v, rest[k + n :]]
        rest = np.concatenate(lead)
    while len(rest) > 1 and np.allclose(rest[0], 0, rtol=1e-14):
        rest = rest[1:]
    return np.stack(quotient), rest


@composed(np.polyder)
def _polyder(p: Any, m: int = 1) -> Any:
    p = as_array(p)
    for _ in range(m):
        n = len(p) - 1
        p = p[:-1] * np.arange(n, 0, -1)
    return p


@composed(np.polyint)
def _polyint(p: Any, m: int = 1, k: Any = None) -> Any:
    p = as_array(p)
    constants = np.zeros(m) if k is None else np.atleast_1d(as_array(k))
    constants = np.broadcast_to(constants, (m,)) if len(constants) == 1 else constants
    for i in range(m):
        scaled = p / np.arange(len(p), 0, -1)
        p = np.concatenate([scaled, constants[i : i + 1]])
    return p


@composed(np.polyfit)
def _polyfit(x: Any, y: Any, deg: int, rcond: Any = None, full: bool = False, w: Any = None,
             cov: Any = False) -> Any:  # fmt: skip
    x, y = as_array(x) + 0.0, as_array(y) + 0.0
    left, right = np.vander(x, int(deg) + 1), y
    if w is not None:
        weight = as_array(w)
        left = left * weight[:, None]
        right = right * (weight[:, None] if np.ndim(right) == 2 else weight)
    scale = np.sqrt(np.sum(np.square(left), axis=0))
    several = np.ndim(right) == 2
    least = len(x) * np.finfo(x.dtype).eps if rcond is None else rcond
    found, left_over, *others = np.linalg.lstsq(left / scale, right, least)
    solution = found / (scale[:, None] if several else scale)
    if full:
        return solution, left_over, *others, least
    if not cov:
        return solution
    spread = np.linalg.inv((left / scale).T @ (left / scale)) / np.outer(scale, scale)
    if not isinstance(cov, str) or cov != "unscaled":
        if len(x) <= int(deg) + 1:
            raise ValueError(
                "the number of data points must exceed order to scale the covariance matrix"
            )
        factor = left_over / (len(x) - int(deg) - 1)
        spread = spread[:, :, None] * factor if several else spread * factor
    return solution, spread[:, :, None] if several and spread.ndim == 2 else spread


@composed(np.vander)
def _vander(x: Any, N: Any = None, increasing: bool = False) -> Any:
    x = as_array(x)
    n = len(x) if N is None else int(N)
    powers = [x * 0 + 1]
    for _ in range(n - 1):
        powers.append(powers[-1] * x)
    columns = powers[:n] if increasing else powers[:n][::-1]
    return np.stack(columns, axis=1) if n else np.reshape(x[:0], (len(x), 0))


@composed(np.poly)
def _poly(seq_of_zeros: Any) -> Any:
    zeros = as_array(seq_of_zeros)
    if np.ndim(zeros) == 2:
        return _characteristic(zeros)
    result: Any = np.ones(1, zeros.dtype)
    for i in range(len(zeros)):
        pair = np.stack([zeros[i] * 0 + 1, -zeros[i]])
        result = pair if i == 0 else np.convolve(result, pair)
    return np.real(result) if _are_pairs(zeros) else result


def _are_pairs(zeros: Any) -> bool:
    """Whether complex zeros are those of a real polynomial, bit by bit, as numpy asks."""
    return zeros.dtype.kind == "c" and bool(np.all(np.sort(zeros) == np.sort(np.conj(zeros))))


_STEPS = 12  # of larger matrices, rounding grows in the recurrence; their eigenvalues are apart


def _characteristic(a: Any) -> Any:
    """det(s - a), highest power first, by Faddeev and LeVerrier: also of eigenvalues that meet."""
    n = a.shape[-1]
    a = a if a.dtype.kind in "fc" else a.astype(np.float64)
    if n > _STEPS:
        product = np.poly(np.linalg.eigvals(a))
        return product if a.dtype.kind == "c" else np.real(product)
    is_real = a.dtype.kind == "c" and _are_pairs(np.linalg.eigvals(a))
    eye = np.eye(n, dtype=a.dtype)
    matrix: Any = eye
    found: list[Any] = [np.trace(a) * 0 + 1]
    for k in range(1, n + 1):
        moved = a @ matrix
        found.append(np.trace(moved) * (-1.0 / k))
        matrix = moved + found[-1] * eye
    return np.real(np.stack(found)) if is_real else np.stack(found)


# --- elementary -----------------------------------------------------------------------------------


@composed(np.i0)
def _i0(x: Any) -> Any:
    array = traced_all(x)[0]
    recorder = array.recorder
    dtype = np.dtype(np.float64) if array.dtype.kind != "f" else array.dtype
    expr = F.i0(array.expr.cast(recorder.ir_dtype(dtype)))
    return recorder.wrap(np.asarray(np.i0(array.concrete), dtype)[()], expr)



@composed(np.logspace)
def _logspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10.0,
              dtype: Any = None, axis: int = 0) -> Any:  # fmt: skip
    exponents = np.linspace(start, stop, num, endpoint, axis=axis)
    result = np.power(base, exponents)
    return result if dtype is None else result.astype(dtype)


@composed(np.geomspace)
def _geomspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None,
               axis: int = 0) -> Any:  # fmt: skip
    if dtype is not None and np.dtype(dtype).kind == "c":
        raise TypeError("argument dtype that is complex")
    sign = np.sign(start)
    first, last = np.broadcast_arrays(np.divide(start, sign), np.divide(stop, sign))
    result = np.power(10.0, np.linspace(np.log10(first), np.log10(last), num, endpoint))
    inner = result[1 : num - 1] if endpoint else result[1:]
    ends = [first[None], last[None]] if endpoint and num > 1 else [first[None]]
    result = sign * np.concatenate([*ends[:1], inner, *ends[1:]])[:num]  # its ends are exact
    result = result if axis == 0 else np.moveaxis(result, 0, axis)
    return result if dtype is None else result.astype(dtype)


@composed(np.roots)
def _roots(p: Any) -> Any:
    p = np.ravel(as_array(p))
    used = np.nonzero(whole(p != 0))[0]  # zeros at the ends are roots, or nothing
    if not len(used):
        return np.zeros(0)
    zeros = len(p) - 1 - int(used[-1])
    p = p[int(used[0]) : int(used[-1]) + 1]
    p = p if p.dtype.kind in "fc" else p.astype(np.float64)
    if len(p) == 1:
        return np.zeros(zeros, p.dtype)
    shifted = np.eye(len(p) - 2, len(p) - 1).astype(p.dtype)
    companion = np.concatenate([np.reshape(-p[1:] / p[0], (1, -1)), shifted])
    found = np.linalg.eigvals(companion)
    return np.concatenate([found, np.zeros(zeros, found.dtype)]) if zeros else found
