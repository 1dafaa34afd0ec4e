"""Functions of sequences: of any length the same code, and those that look at their length."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
P = np.array([0.3, 0.2])
TAKEN: dict[int, float] = {20: 2.0}


def values(n: int, *more: int) -> Array:
    """n numbers, or rows of them."""
    return np.sin(1.3 * np.arange(1.0, 1.0 + n * math.prod(more))).reshape((n, *more))


def smooth(p: Array, obs: Any) -> Any:
    s = 0.0
    for t in range(len(obs)):
        s = s * p[0] + obs[t] * p[1]
    return s


# --- of any length the same -----------------------------------------------------------------------


def by_rows(p: Array, obs: Array) -> Any:
    s = np.zeros(2)
    for z in obs:
        s = np.tanh(p * s + z)
    return np.sum(s * s) * z


def constant_lags(p: Array, obs: Array) -> Any:
    s, total = np.var(obs), 0.0
    for t in range(1, len(obs)):
        s = 0.1 + p[0] * obs[t - 1] ** 2 + p[1] * s
        total = total + np.log(s) + obs[t] ** 2 / s
    return total / len(obs)


def read_backwards(p: Array, obs: Array) -> Any:
    n, s = len(obs), 0.0
    for t in range(n):
        s = s * p[0] + obs[n - 1 - t] * p[1]
    for z in obs[::-1]:
        s = s * p[0] + z
    for t in range(n - 1, -1, -1):
        s = s * p[1] + obs[t]
    return s


def written_per_step(p: Array, obs: Array) -> Any:
    n = len(obs)
    x = np.empty((n, 2))
    x[0], x[-1] = p, 3.0 * p
    for t in range(1, n):
        x[t] = p * x[t - 1] + np.sin(obs[t])
    return np.mean(x**2) + x[n - 1, 0] + np.max(x)


def two_lags_and_columns(p: Array, obs: Array) -> Any:
    x = np.zeros((len(obs), 2))
    for t in range(2, len(obs)):
        x[t, 0] = x[t - 1, 1] * p[0] + obs[t]
        x[t, 1] = x[t - 2, 0] * p[1] + obs[t - 1]
    return np.sum(x * x)


def pairs(p: Array, obs: Array) -> Any:
    s = 0.0
    for a, b in zip(obs[:-1], obs[1:], strict=True):  # noqa: RUF007
        s = s * p[0] + a * b * p[1]
    return s


def whole_array_too(p: Array, obs: Array) -> Any:
    centred = obs - np.mean(obs)
    s = smooth(p, centred) + np.std(np.diff(obs)) + np.sum(np.cumsum(obs)) * p[1]
    return s + np.dot(obs, obs) + np.sum(np.outer(p, obs)) + np.min(np.concatenate([obs, p * 2.0]))


def the_number_itself(p: Array, obs: Array) -> Any:
    n = len(obs)
    return smooth(p, obs) / n + p[0] * n + np.sum(obs) / obs.shape[0] + p[1] * obs.size + (n > 4)


def a_matrix_of_rows(p: Array, obs: Array) -> Any:
    x = np.stack([obs, np.ones(len(obs)), obs**2], axis=1)
    off = x @ np.array([1.0, 2.0, 3.0]) - obs.reshape(len(obs))
    return off @ off * p[0] + smooth(p, off) + np.sum(x.T @ x) * p[1]


def without_warnings(p: Array, obs: Array) -> Any:
    with np.errstate(divide="ignore"):
        return smooth(p, obs / np.max(obs))


def steps_within_steps(p: Array, obs: Array) -> Any:
    s = 0.0
    for i in range(12):
        for t in range(len(obs)):
            s = s * p[0] + obs[t] * p[1] + 0.1 * i
    return s


def cut(p: Array, obs: Array) -> Any:
    return smooth(p, obs[:14]) + smooth(p, obs[-15:]) + smooth(p, obs[3:]) + obs[-2] + obs[4]


def turned(p: Array, obs: Array) -> Any:
    above = np.sum(np.where(obs > 0, obs, p[0]))
    return smooth(p, np.roll(obs, 3)) + smooth(p, np.flip(obs)) * above


ANY_LENGTH: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (
        smooth, by_rows, constant_lags, read_backwards, written_per_step, two_lags_and_columns,
        pairs, whole_array_too, the_number_itself, a_matrix_of_rows, steps_within_steps, cut,
        turned, without_warnings,
    )
}  # fmt: skip


# --- what looks at a length -----------------------------------------------------------------------


def branches(p: Array, obs: Array) -> Any:
    return smooth(p, obs) * (2.0 if len(obs) > 50 else 1.0)


def a_branch_at_a_step(p: Array, obs: Array) -> Any:
    s = 0.0
    for t in range(len(obs)):
        s = s * p[0] + obs[t] + (p[1] if t == 40 else 0.0)
    return s


def leaves_early(p: Array, obs: Array) -> Any:
    s = 1.0
    for t in range(len(obs)):
        if t == 40:
            break
        s = s * p[0] + p[1]
    return s


def every_other(p: Array, obs: Array) -> Any:
    s = 0.0
    for t in range(len(obs) // 2):
        s = s * p[0] + obs[2 * t] * obs[2 * t + 1]
    return s


def counts_by_itself(p: Array, obs: Array) -> Any:
    s, count = 0.0, 0
    for z in obs:
        s, count = s * p[0] + z, count + 1
    return s * count


def the_last_number(p: Array, obs: Array) -> Any:
    s = 0.0
    for t in range(len(obs)):  # noqa: B007
        s = s * p[0] + p[1]
    return s * t


def a_list_of_them(p: Array, obs: Array) -> Any:
    return sum(z * p[0] for z in obs) + len([0] * len(obs)) + smooth(p, obs)


def beyond_is_handled(p: Array, obs: Array) -> Any:
    s = smooth(p, obs)
    try:
        return s + obs[50]
    except IndexError:
        return s * 3.0


def beyond_is_suppressed(p: Array, obs: Array) -> Any:
    s = smooth(p, obs)
    with np.errstate(all="ignore"), contextlib.suppress(IndexError):
        s = s * obs[50]
    return s


def bounds_beyond(p: Array, obs: Array) -> Any:
    return smooth(p, obs[:60]) + smooth(p, obs[-70:])


def windows_beyond(p: Array, obs: Array) -> Any:
    s = 0.0
    for t in range(17):
        s = s * p[0] + np.sum(obs[t : t + 50]) * p[1]
    return s


def looked_up(p: Array, obs: Array) -> Any:
    return smooth(p, obs) * TAKEN.get(len(obs), 3.0) * len(f"{len(obs)}")


def a_square_matrix(p: Array, obs: Array) -> Any:
    return smooth(p, obs) + p[0] * np.sum(np.outer(obs, obs) @ obs)


def in_order(p: Array, obs: Array) -> Any:
    return smooth(p, np.sort(obs)) + np.median(obs) + np.percentile(obs, 30) * p[0]


def times(p: Array, obs: Array) -> Any:
    n = len(obs)
    return smooth(p, obs * np.arange(n)) + smooth(p, obs * np.linspace(0.0, 1.0, n)) * n**2


def shortest(p: Array, obs: Array) -> Any:
    s = 0.0
    for t in range(min(len(obs), 64)):
        s = s * p[0] + obs[t] * p[1]
    return s


OTHERS: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (
        branches, a_branch_at_a_step, leaves_early, every_other, counts_by_itself, the_last_number,
        a_list_of_them, beyond_is_handled, beyond_is_suppressed, bounds_beyond, windows_beyond,
        looked_up, a_square_matrix, in_order, times, shortest,
    )
}  # fmt: skip


# --- floats that follow from a length ------------------------------------------------------------


def steps_of_a_span(p: Array, obs: Array) -> Any:
    """The width of a step is that of the whole, by how many there are."""
    h = 5.0 / len(obs)
    x = p[0]
    for z in obs:
        x = x + h * (np.sin(x * p[1]) - z)
    return x


def powers_and_quotients(p: Array, obs: Array) -> Any:
    """As of a grid."""
    n = obs.shape[0]
    dx = 2.0 / (n - 1)
    dt = 0.3 * dx**2 / 1.5
    s = p[0] * dt / dx**2
    for z in obs:
        s = s + np.tanh(z * p[1]) * (dt / dx) + p[0] / dx / n
    return s


def roots_of_it(p: Array, obs: Array) -> Any:
    """By functions of math's and numpy's, too."""
    n, s = len(obs), p[0] * 0
    scale, other = math.sqrt(n), 1 / np.sqrt(n + 2)
    for z in obs:
        s = s + p[1] * z / scale + other * np.log(n) * p[0]
    return s


def shares(p: Array, obs: Array) -> Any:
    """Of one length by another, and floats beside it."""
    n = len(obs)
    half, most, s = n / 2, (n - 1) / n, p[0] * 0
    for z in obs:
        s = s + most * z * p[1] / half + 0.25 * n * p[0] - (n * 0.5 - half) * s
    return s


def the_span_again(p: Array, obs: Array) -> Any:
    """A float of a length beside the length."""
    n = len(obs)
    h, s = 5.0 / n, p[0]
    for z in obs:
        s = s + h * z * p[1]
    return s * (h * n) + (n - h) * p[1] - s / (n / h)


def a_table_by_it(p: Array, obs: Array) -> Any:
    """A plain array, by a float."""
    weights = np.array([1.0, 2.0]) * (1 / len(obs))
    s = p[0] * 0
    for z in obs:
        s = s + (weights * p).sum() * z
    return s


def its_float_decides(p: Array, obs: Array) -> Any:
    """A float is compared: another length may lead elsewhere."""
    h, s = 4.0 / len(obs), p[0]
    for z in obs:
        s = s + h * (z * p[1] if h > 0.08 else s * p[1])
    return s


def its_float_is_text(p: Array, obs: Array) -> Any:
    """And a key, a whole number, and what a function of Python's makes of it."""
    h, s = 4.0 / len(obs), p[0]
    known = {f"{h:.2f}": 1.5, "0.10": 3.0}
    for z in obs:
        s = s * 0.5 + z * p[1] * known.get("0.10", 0.0)
    return s * round(h * 20) + hash(h) % 3 + float.fromhex((h / 2).hex())


def less_than_nothing(p: Array, obs: Array) -> Any:
    """A divisor that is zero at one length, and below it at others."""
    width = 1.0 / (len(obs) - 41)
    other = 3 / (0.5 * len(obs) - 25)
    s = p[0]
    for z in obs:
        s = s + width * z * p[1] + other
    return s


FLOATS: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (
        steps_of_a_span, powers_and_quotients, roots_of_it, shares, the_span_again,
        a_table_by_it,
    )
}  # fmt: skip
OTHER_FLOATS: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (its_float_decides, its_float_is_text, less_than_nothing)
}
