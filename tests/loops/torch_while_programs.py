"""Loops over tensors whose number of steps follows from values, for `test_whiles_torch`.

Each takes one vector of three numbers and gives a number. `ROLLED` become loops that count
themselves, of which a few traces do for any number of steps; `OTHERS` must be right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def newton_root(p: Any) -> Any:
    x = p[0] * 1.0
    while (x * x - p[0]).abs().item() > 1e-12:
        x = 0.5 * (x + p[0] / x)
    return x


def line_search(p: Any) -> Any:
    t, g = 1.0, 4 * p**3 + p
    f = (p**4 + 0.5 * p**2).sum()
    while ((p - t * g) ** 4 + 0.5 * (p - t * g) ** 2).sum() > f - 0.3 * t * (g * g).sum():
        t = t * 0.5
    return ((p - t * g) ** 2).sum()


def fixed_point_with_break(p: Any) -> Any:
    x = torch.ones(3, dtype=p.dtype)
    for _ in range(200):
        new = torch.cos(0.1 * p * x)
        if (new - x).abs().max() < 1e-9:
            break
        x = new
    return x.sum()


def descent_until_small(p: Any) -> Any:
    x = torch.zeros(3, dtype=p.dtype)
    g = 2 * (x - p)
    while torch.linalg.norm(g) > 1e-3:
        x = x - 0.3 * g
        g = 2 * (x - p)
    return (x**2).sum()


def a_counter_in_the_result(p: Any) -> Any:
    x, n = p.abs().sum(), 0
    while x > 1.0:
        x = x / 2
        n += 1
    return x * n


def two_conditions(p: Any) -> Any:
    x, k = p, 0
    while (x * x).sum() > 0.5 and k < 12:
        x = 0.8 * x
        k += 1
    return (x**3).sum()


def forever_until_any(p: Any) -> Any:
    x = p
    while True:
        x = torch.sin(x) * 0.9
        if (x.abs() < 0.2).any():
            break
    return x.sum()


def for_else(p: Any) -> Any:
    x = p.abs().sum()
    for _ in range(20):
        if x < 1.0:
            result = 2 * x
            break
        x = 0.75 * x
    else:
        result = -x
    return result


def returned_from_inside(p: Any) -> Any:
    x = p
    for _ in range(40):
        x = 0.9 * torch.tanh(x)
        if x.abs().max().item() < 0.3:
            return x.sum()
    return x.sum() * 10


def nested_whiles(p: Any) -> Any:
    x, total = p.abs().sum(), 0.0
    while x > 0.5:
        y = x * 3.0
        while y > 1.0:
            y = y * 0.7
        total = total + y * x
        x = x * 0.8
    return total + x


def appended_and_summed(p: Any) -> Any:
    x, found = p.abs().sum(), []
    while x > 0.5:
        found.append(x)
        x = x * 0.7
    return sum(found) + x


def accepted_or_not(p: Any) -> Any:
    x, h = p.abs().sum(), 0.5
    while x > 0.4:
        new = x - h * x * x
        if new > 0.3 * x:
            x, h = new, h * 1.2
        else:
            h = h * 0.5
    return x


def series(p: Any) -> Any:
    x, term, total, k = p.sum() * 0.3, 1.0, 1.0, 1
    while abs(term * x) > 1e-8:
        term = term * x / k
        total = total + term
        k += 1
    return total

def changed_in_place(p: Any) -> Any:
    x = p.clone()
    while (x * x).sum() > 0.1:
        x *= 0.9
        x[0] += 0.01 * x[1]
    return x.sin().sum()


def a_view_is_changed(p: Any) -> Any:
    x = p.clone()
    v = x[1:]
    while (x * x).sum() > 0.1:
        v *= 0.8
        x[0] = x[0] * 0.7
    return x.sin().sum() + v.sum()


def a_helper_decides(p: Any) -> Any:
    def step(x: Any) -> Any:
        return x - 0.3 * (x - p)

    x = torch.zeros(3, dtype=p.dtype)
    for _ in range(200):
        new = step(x)
        if torch.allclose(new, x, atol=1e-6):
            break
        x = new
    return x.sum()


def detached_in_a_step(p: Any) -> Any:
    x = p.abs().sum()
    while x > 0.4:
        x = x * 0.5 + 0.1 * x.detach()
    return x * p.sum()


def an_error_as_a_number(p: Any) -> Any:
    x, err = p.abs().sum(), 1.0
    while err > 1e-6:
        new = 0.5 * (x + 2.0 / x)
        err = abs((new - x).item())
        x = new
    return x * p.sum()


def a_list_is_carried(p: Any) -> Any:
    s = [p.abs().sum(), p.pow(2).sum()]
    while s[0] > 0.3:
        s[0] = s[0] * 0.7
        s[1] = s[1] + s[0]
    return s[1]


def gradient_steps(p: Any) -> Any:
    x = p.abs().sum() + 1
    for _ in range(30):
        y = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad((y - 2.0) ** 4, y)
        x = x - 0.05 * slope
        if slope.abs() < 1e-3:
            break
    return x


def nothing_yet(p: Any) -> Any:
    x, last = p.abs().sum(), None
    while last is None or (last - x).abs() > 1e-3:
        last, x = x, 0.5 * (x + 1 / x)
    return x * p.sum()


def breaks_in_a_for(p: Any) -> Any:
    total = p.new_zeros(())
    for scale in range(1, 4):
        x = p.abs().sum() * scale
        for k in range(50):  # noqa: B007
            x = x * 0.7
            if x < 0.5:
                break
        total = total + x * (k + 1)
    return total


def a_chain_of_branches(p: Any) -> Any:
    x = p.sum()
    for _ in range(40):
        if x > 2:
            x = x * 0.5
        elif x > 1:
            x = x - 0.3
        elif x < -1:
            x = x + 0.7
        else:
            break
    return x * p[0]


def continued(p: Any) -> Any:
    x = p.abs().sum()
    total = 0 * x
    for _ in range(60):
        x = x * 0.9
        if x > 1.5:
            continue
        total = total + x
        if x < 0.2:
            break
    return total


def whole_numbers(p: Any) -> Any:
    n, steps = p.abs().sum().to(torch.int64) + 3, 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return p.sum() * steps


def a_mask_of_the_living(p: Any) -> Any:
    x = p * 1.0
    alive = x.abs() > 0.2
    while alive.any():
        x = torch.where(alive, x * 0.7, x)
        alive = x.abs() > 0.2
    return x.sum()


def solved_in_a_step(p: Any) -> Any:
    a = torch.outer(p, p) / (p @ p) + 3 * torch.eye(3, dtype=p.dtype)
    x, r = torch.zeros(3, dtype=p.dtype), p * 1.0
    while torch.linalg.norm(r) > 1e-8:
        x = x + torch.linalg.solve(torch.diag(torch.diagonal(a)), r)
        r = p - a @ x
    return (x * x).sum()


def asks_for_a_gradient(p: Any) -> Any:
    x, s = torch.ones((), dtype=p.dtype), p.abs().sum()
    while x.detach() < 3 * s.detach():
        x = x + 0.5 * s
    return x * p.sum() if x.requires_grad else x * p.prod()


def within_try(p: Any) -> Any:
    x = p.abs().sum()
    try:
        while x > 0.3:
            x = x * 0.7
    except ValueError:
        x = x + 1
    return x


def in_single_precision(p: Any) -> Any:
    x, t, total = p.float(), 1.0, 0.0
    while x.abs().sum() > 0.3:
        x = x * 0.7 * t
        total, t = total + x.sum(), t * 0.99
    return (total + x.sum()).double()


def in_two_precisions(p: Any) -> Any:
    x, y, t = p.float().sum().abs(), p.pow(2).sum(), 0.1
    while y > 0.3:
        y, x, t = y * 0.7 + t * 0.01, x * 0.9 + t, t * 0.5
    return y + x.double()


ROLLED: dict[str, Callable[[Any], Any]] = {
    f.__name__: f for f in (
        newton_root, line_search, fixed_point_with_break, descent_until_small,
        a_counter_in_the_result, two_conditions, forever_until_any, for_else,
        returned_from_inside, nested_whiles, accepted_or_not, series, changed_in_place,
        a_view_is_changed, a_helper_decides, detached_in_a_step, an_error_as_a_number,
        a_list_is_carried, gradient_steps, nothing_yet, breaks_in_a_for, a_chain_of_branches,
        continued, whole_numbers, a_mask_of_the_living, solved_in_a_step, asks_for_a_gradient,
        within_try, in_single_precision, in_two_precisions,
    )
}  # fmt: skip


def a_view_of_what_a_step_made(p: Any) -> Any:
    x, y = p * 1.0, p.repeat(2)
    while x.abs().sum() > 0.3:
        y = torch.cat([x, x]) * 0.8
        x = y[:3]
    x[0] = x[0] * 2  # y, too
    return x.sum() + y.sum()


def two_names(p: Any) -> Any:
    x = y = p * 1.0
    while x.abs().sum() > 0.3:
        x = y = x * 0.8
    y += 1.0
    return (x * y).sum()


def counted_without_gradients(p: Any) -> Any:
    x, n = p, 0
    with torch.no_grad():
        z = p.clone()
        while z.norm() > 0.5:
            z = z * 0.7
            n += 1
    for _ in range(n):
        x = torch.tanh(x)
    return x.sum()


def read_as_a_float(p: Any) -> Any:
    x, err = p.abs().sum(), 1.0
    while err > 1e-3:
        new = 0.5 * (x + 2.0 / x)
        err = float((new - x).detach().abs())
        x = new
    return x * p.sum()


def a_gradient_through_the_loop(p: Any) -> Any:
    x = p.abs().sum()
    while x > 0.3:
        x = x * 0.7 * torch.cos(0.1 * x)
    (slope,) = torch.autograd.grad(x, p, create_graph=True)
    return (slope * slope).sum() + x


def written_at_the_count(p: Any) -> Any:
    buffer = torch.zeros(50, dtype=p.dtype)
    x, k = p.abs().sum(), 0
    while x > 0.2 and k < 50:
        buffer[k] = x
        x, k = x * 0.7, k + 1
    return (buffer**2).sum() + x


def all_of_many_calls(p: Any) -> Any:
    x, y = p[0] + 3, p[1] + 5
    nx, ny = 0.5 * x, 0.6 * y
    while not all(map(torch.allclose, [x, y], [nx, ny])):
        x, y = nx, ny
        nx, ny = 0.5 * x, 0.9 * y + 0.05
    return x + 2 * y + nx


def grown(p: Any) -> Any:
    x, found = p.abs().sum(), torch.zeros(0, dtype=p.dtype)
    while x > 0.3:
        x = x * 0.7
        found = torch.cat([found, x[None]])
    return x + found.sum()


OTHERS: dict[str, Callable[[Any], Any]] = {
    f.__name__: f for f in (
        appended_and_summed, a_view_of_what_a_step_made, two_names, counted_without_gradients,
        read_as_a_float, a_gradient_through_the_loop, written_at_the_count, all_of_many_calls,
        grown,
    )
}  # fmt: skip
