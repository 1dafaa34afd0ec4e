"""Loops whose number of steps follows from values, as people write them, for `test_whiles`.

Each takes one array of numbers and gives a number; `STARTS` are arguments that take other numbers
of steps: none, one, many. `ROLLED` become loops that count themselves; `OTHERS` must be right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def newton_root(p: Array) -> Any:
    a = p[0]
    x = a * 1.0
    while np.abs(x * x - a) > 1e-12 * a:
        x = 0.5 * (x + a / x)
    return x


def secant(p: Array) -> Any:
    a = p[0]
    x0, x1 = a, a + 1.0
    f0, f1 = x0**3 - a, x1**3 - a
    while abs(f1) > 1e-10:
        x0, x1 = x1, x1 - f1 * (x1 - x0) / (f1 - f0)
        f0, f1 = f1, x1**3 - a
    return x1


def bisection(p: Array) -> Any:
    a = p[0]
    lo, hi = 0.0, a + 1.0
    while hi - lo > 1e-9:
        mid = 0.5 * (lo + hi)
        if mid * mid * mid > a:
            hi = mid
        else:
            lo = mid
    root = 0.5 * (lo + hi)
    for _ in range(2):  # steps that have the slopes
        root = root - (root**3 - a) / (3 * root**2)
    return root


def line_search(p: Array) -> Any:
    x, t = p, 1.0
    g = 4 * x**3 + x
    f = np.sum(x**4 + 0.5 * x**2)
    while np.sum((x - t * g) ** 4 + 0.5 * (x - t * g) ** 2) > f - 0.3 * t * np.sum(g * g):
        t = t * 0.5
    return np.sum((x - t * g) ** 2)


def fixed_point_with_break(p: Array) -> Any:
    x = np.ones(3)
    for _ in range(200):
        new = np.cos(0.1 * p * x)
        if np.max(np.abs(new - x)) < 1e-9:
            break
        x = new
    return np.sum(x)


def power_iteration(p: Array) -> Any:
    m = np.outer(p, p) + np.diag(np.array([1.0, 2.0, 4.0]))
    v = np.ones(3) / np.sqrt(3.0)
    last, value = 0.0, v @ m @ v
    while np.abs(value - last) > 1e-10:
        w = m @ v
        v = w / np.sqrt(w @ w)
        last, value = value, v @ m @ v
    return value


def adaptive_steps(p: Array) -> Any:
    """Heun's method; a step that is too far off is tried again with half of it."""
    rate, t, h, y = p[0], 0.0, 0.5, np.array([1.0, 0.5])
    while t < 1.0:
        h = np.minimum(h, 1.0 - t)
        k1 = -rate * y
        k2 = -rate * (y + h * k1)
        err = np.max(np.abs(0.5 * h * (k2 - k1)))
        if err < 1e-3:
            y = y + 0.5 * h * (k1 + k2)
            t = t + h
            h = h * 1.5
        else:
            h = h * 0.5
    return np.sum(y)


def em_mixture(p: Array) -> Any:
    """Two means of equal weights; the data are what is differentiated."""
    data = np.concatenate([p, p * 2 + 3.0, p - 1.0])
    a, b = np.min(data), np.max(data)
    moved = np.inf
    while moved > 1e-8:
        wa, wb = np.exp(-0.5 * (data - a) ** 2), np.exp(-0.5 * (data - b) ** 2)
        r = wa / (wa + wb)
        new_a = np.sum(r * data) / np.sum(r)
        new_b = np.sum((1 - r) * data) / np.sum(1 - r)
        moved = np.abs(new_a - a) + np.abs(new_b - b)
        a, b = new_a, new_b
    return a * b


def descent_until_small(p: Array) -> Any:
    x = np.zeros(3)
    g = 2 * (x - p) + 0.01 * x**3
    while np.linalg.norm(g) > 1e-7:
        x = x - 0.2 * g
        g = 2 * (x - p) + 0.01 * x**3
    return np.sum(x**2)


def a_counter_in_the_result(p: Array) -> Any:
    x, n = np.sum(np.abs(p)), 0
    while x > 1.0:
        x = x / 2
        n += 1
    return x * n


def collatz(p: Array) -> Any:
    """Whole numbers decide, and the number of steps is a factor."""
    n, steps = np.floor(np.abs(p[0])).astype(np.int64) + 1, 0
    while n != 1:
        if n % 2 == 0:
            n = n // 2
        else:
            n = 3 * n + 1
        steps += 1
    return np.sum(p**2) * steps


def two_conditions(p: Array) -> Any:
    x, k = p, 0
    while np.sum(x * x) > 0.5 and k < 12:
        x = 0.8 * x
        k += 1
    return np.sum(x**3)


def one_of_two_conditions(p: Array) -> Any:
    x, y = np.sum(np.abs(p)), np.sum(p * p)
    while x > 1.0 or y > 1.0:
        x, y = 0.7 * x, 0.6 * y + 0.01 * x
    return x * y


def forever_until(p: Array) -> Any:
    x = p
    while True:
        x = np.sin(x) * 0.9
        if np.sum(x * x) < 0.05:
            break
    return np.sum(x)


def for_else(p: Array) -> Any:
    x = np.sum(np.abs(p))
    for _ in range(20):
        if x < 1.0:
            result = 2 * x
            break
        x = 0.75 * x
    else:
        result = -x
    return result


def returned_from_inside(p: Array) -> Any:
    x = p
    for _ in range(40):
        x = 0.9 * np.tanh(x)
        if np.max(np.abs(x)) < 0.3:
            return np.sum(x)
    return np.sum(x) * 10


def the_step_in_the_result(p: Array) -> Any:
    x = np.sum(np.abs(p))
    for k in range(50):  # noqa: B007
        if x < 0.5:
            break
        x = x * 0.8
    return x * (k + 1)


def decaying_rate(p: Array) -> Any:
    x, total = p, 0.0
    for k in range(1, 100):
        step = x / (1.0 + k)
        if np.sum(step * step) < 1e-3:
            break
        x = x - 0.1 * step
        total = total + np.sum(np.sin(step))
    return total + np.sum(x)


def nested_in_a_for(p: Array) -> Any:
    total = 0.0
    for scale in (1.0, 2.0, 3.0):
        x = np.sum(np.abs(p)) * scale
        while x > 1.0:
            x = x * 0.6
        total = total + x * scale
    return total


def nested_whiles(p: Array) -> Any:
    x, total = np.sum(np.abs(p)), 0.0
    while x > 0.5:
        y = x * 3.0
        while y > 1.0:
            y = y * 0.7
        total = total + y * x
        x = x * 0.8
    return total + x


def changed_in_place(p: Array) -> Any:
    x = p.copy()
    while np.sum(x * x) > 0.1:
        x *= 0.9
        x[0] += 0.01 * x[1]
    return np.sum(np.sin(x))


def a_helper_decides(p: Array) -> Any:
    def step(x: Array) -> Array:
        return np.cos(0.1 * p * x)

    x, new = np.ones(3), step(np.ones(3))
    while not np.allclose(x, new, rtol=0, atol=1e-8):
        x, new = new, step(new)
    return np.sum(new)


def shifted(p: Array) -> Any:
    a, b, c = np.sum(p), np.sum(p * p), 0.1 * np.sum(p)
    while np.abs(a) + np.abs(b) > 0.3:
        a, b, c = 0.5 * c + 0.1 * b, a, b * 0.9
    return a + 2 * b + 3 * c


def golden_section(p: Array) -> Any:
    def f(x: Any) -> Any:
        return (x - p[0]) ** 2 + 0.1 * x**4

    lo, hi = -3.0 + 0 * p[0], 3.0 + 0 * p[0]
    ratio = (np.sqrt(5.0) - 1) / 2
    while hi - lo > 1e-6:
        c, d = hi - ratio * (hi - lo), lo + ratio * (hi - lo)
        if f(c) < f(d):
            hi = d
        else:
            lo = c
    x = 0.5 * (lo + hi)
    for _ in range(2):
        x = x - (2 * (x - p[0]) + 0.4 * x**3) / (2 + 1.2 * x**2)
    return x


def sum_until_small(p: Array) -> Any:
    """A series, by its terms."""
    x, term, total, k = np.sum(p) * 0.3, 1.0, 1.0, 1
    while np.abs(term * x) > 1e-12:
        term = term * x / k
        total = total + term
        k += 1
    return total


def conjugate_gradients(p: Array) -> Any:
    a = np.outer(p, p) + np.diag(np.array([1.0, 3.0, 5.0]))
    b = np.array([1.0, -1.0, 0.5])
    x, r = np.zeros(3), b - a @ np.zeros(3)
    d, rs = r, r @ r
    while rs > 1e-12:
        ad = a @ d
        alpha = rs / (d @ ad)
        x, r = x + alpha * d, r - alpha * ad
        new = r @ r
        d, rs = r + new / rs * d, new
    return np.sum(x * x)


def rows_until(p: Array) -> Any:
    inputs, x = np.outer(np.linspace(0.5, 1.5, 12), p), p * 1.0
    for k in range(12):
        x = 0.8 * x + 0.01 * inputs[k]
        if np.max(np.abs(x)) < 0.3:
            break
    return np.sum(x * x)


ROLLED: dict[str, Callable[[Array], Any]] = {
    f.__name__: f for f in (
        newton_root, secant, bisection, line_search, fixed_point_with_break, power_iteration,
        adaptive_steps, em_mixture, descent_until_small, a_counter_in_the_result, collatz,
        two_conditions, one_of_two_conditions, forever_until, for_else, returned_from_inside,
        the_step_in_the_result, decaying_rate, nested_in_a_for, nested_whiles, changed_in_place,
        a_helper_decides, shifted, golden_section, sum_until_small, conjugate_gradients,
        rows_until,
    )
}  # fmt: skip


def appended_and_summed(p: Array) -> Any:
    x, found = np.sum(np.abs(p)), []
    while x > 0.5:
        found.append(x)
        x = x * 0.7
    return sum(found) + x


def a_limit_by_the_count(p: Array) -> Any:
    """Pythons's own number ends it, too."""
    x, limits = np.sum(np.abs(p)), [5, 4, 3]
    k = 0
    while x > 0.2:
        k += 1
        if k in limits:
            x = x * 0.9
        x = x * 0.8
    return x * x


def an_iterator_of_rates(p: Array) -> Any:
    x, rates = p, iter([0.9, 0.8, 0.7] * 30)
    while np.sum(x * x) > 0.3:
        x = next(rates) * x
    return np.sum(x)


def a_list_around(p: Array) -> Any:
    x, total = np.sum(np.abs(p)), 0.0
    for flag in [True, False, True]:
        y = x
        while y > 0.3:
            y = y * 0.5
            if flag:
                break
        total = total + y
    return total


def every_third(p: Array) -> Any:
    x, k = np.sum(np.abs(p)), 0
    while x > 0.1:
        x = x * (0.5 if k % 3 == 0 else 0.9)
        k += 1
    return x


def all_of_many_calls(p: Array) -> Any:
    x, y = p[0] + 3, p[1] + 5
    nx, ny = 0.5 * x, 0.6 * y
    while not all(map(np.allclose, [x, y], [nx, ny])):
        x, y = nx, ny
        nx, ny = 0.5 * x, 0.9 * y + 0.05
    return x + 2 * y + nx


OTHERS: dict[str, Callable[[Array], Any]] = {
    f.__name__: f for f in (
        appended_and_summed, a_limit_by_the_count, an_iterator_of_rates, a_list_around, every_third,
        all_of_many_calls,
    )
}  # fmt: skip

STARTS = [
    np.array([0.9, 0.4, -0.6]), np.array([0.05, 0.02, 0.01]), np.array([2.7, -1.3, 0.85]),
    np.array([7.3, 1.1, 3.2]), np.array([0.3, 0.9, 1.4]), np.array([0.31, 0.92, 1.43]),
    np.array([0.97, 0.02, 0.03]), np.array([11.2, 2.0, 5.0]),
]  # fmt: skip
