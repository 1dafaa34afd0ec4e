"""Loops whose steps are alike, and loops whose steps only look so, for `test_steps`."""

from __future__ import annotations

import math
import random
from collections import namedtuple
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
N = 40
X = np.linspace(0.2, 0.9, 3)
SEEN = np.cos(np.arange(N) * 0.7)
ROWS = np.sin(np.arange(3.0 * N)).reshape(N, 3)
State = namedtuple("State", ["x", "v"])


# --- loops that are left out ----------------------------------------------------------------------


def by_rows(x: Array) -> Any:
    level = x
    for z in ROWS_ARGUMENT(x):
        level = 0.9 * level + np.sin(z * x)
    return np.sum(level)


def ROWS_ARGUMENT(x: Array) -> Any:
    return np.outer(SEEN, np.ones(3)) * x + ROWS


def last_item_is_read(x: Array) -> Any:
    total = 0.0
    for z in ROWS_ARGUMENT(x):
        total = total + np.sum(z**2)
    return total * np.sum(z)


def temporaries_are_read(x: Array) -> Any:
    for t in range(N):  # noqa: B007
        y = x * 0.5
        x = np.tanh(x) + y
    return np.sum(x * y) * t


def numbers_of_steps(x: Array) -> Any:
    path = np.zeros((N, 3)) + x
    for t in range(2, N):
        path[t] = 0.5 * path[t - 1] + 0.25 * path[t - 2] + np.sin(path[t])
    return np.sum(path[-1]) + np.sum(path[::5])


def from_the_end(x: Array) -> Any:
    path = np.zeros((N, 3)) + x
    for t in range(N - 2, -1, -1):
        path[t] = np.tanh(path[t + 1]) + x
    return np.sum(path**2)


def in_steps_of_two(x: Array) -> Any:
    rows = ROWS_ARGUMENT(x).repeat(2, axis=0)
    total = np.zeros(3)
    for t in range(0, 2 * N - 2, 2):
        total = total * 0.9 + rows[t] * rows[t + 1] + rows[N - 1 - t // 2 if False else 0]
    return np.sum(total)


def windows(x: Array) -> Any:
    rows = ROWS_ARGUMENT(x)
    total = np.zeros(3)
    for t in range(4, N):
        total = np.tanh(total) + rows[t - 4 : t].sum(axis=0)
    return np.sum(total)


def side_by_side(x: Array) -> Any:
    rows, total = ROWS_ARGUMENT(x), x
    for before, now, t in zip(rows[:-1], rows[1:], range(N - 1), strict=True):
        total = 0.9 * total + np.sin(before * now) + rows[t]
    return np.sum(total) * t + np.sum(now)


def counted(x: Array) -> Any:
    rows, total = ROWS_ARGUMENT(x), x
    for t, z in enumerate(rows, 1):
        total = 0.9 * total + np.sin(z * rows[t - 1])
    return np.sum(total) * t + np.sum(z)


def two_swapped(x: Array) -> Any:
    y = x * 2
    for _ in range(N + 1):
        x, y = np.sin(y) + 0.1 * x, x
    return np.sum(x * 2 + y)


def a_delay_of_three(x: Array) -> Any:
    a, b, c = x, x, x
    for _ in range(N):
        a, b, c = 0.5 * c + 0.1 * a, a, b
    return np.sum(a + 10 * b + 100 * c)


def a_named_tuple(x: Array) -> Any:
    state = State(x, x * 0)
    for _ in range(N):
        v = state.v - 0.1 * state.x
        state = State(state.x + 0.1 * v, v)
    return np.sum(state.x + state.v)


def a_dict_and_a_helper(x: Array) -> Any:
    def step(s: dict[str, Any]) -> dict[str, Any]:
        return {"x": np.sin(s["x"] + s["w"]), "w": s["w"]}

    s = {"x": x, "w": x * 0.1}
    for _ in range(N):
        s = step(s)
    return np.sum(s["x"])


def in_place(x: Array) -> Any:
    y, first = x.copy(), x.copy()
    seen = first[1:]
    for _ in range(N):
        y *= 0.9
        y += np.cos(y)
        first[1] = y[0] * first[1]
    return np.sum(y) + np.sum(seen) * 3


def nested(x: Array) -> Any:
    table = np.ones((18, 18)) * x[0]
    for i in range(1, 18):
        for j in range(1, 18):
            table[i, j] = 0.3 * table[i - 1, j] + 0.3 * table[i, j - 1] + x[1] * table[i, j]
    return table[-1, -1]


def after_one_another(x: Array) -> Any:
    for _ in range(N):
        x = np.sin(x) + 0.1
    y = x * 2
    for z in ROWS_ARGUMENT(x):
        y = y + np.cos(z)
    return np.sum(y) if float(x.size) == 3 else 0.0


def a_guard_afterwards(x: Array) -> Any:
    for _ in range(N):
        x = np.sin(x) * 1.1
    if np.sum(x) > 0.1:
        return np.sum(x)
    return np.sum(x * x)


SHORTENED: dict[str, Callable[[Array], Any]] = {
    f.__name__: f for f in (
        by_rows, last_item_is_read, temporaries_are_read, numbers_of_steps, from_the_end, windows,
        side_by_side, counted, two_swapped, a_delay_of_three, a_named_tuple, a_dict_and_a_helper,
        in_place, nested, after_one_another, a_guard_afterwards,
    )
}  # fmt: skip


# --- loops that are not ---------------------------------------------------------------------------


def a_branch_on_the_number(x: Array) -> Any:
    for t in range(N):
        x = np.sin(x) if t < 20 else np.cos(x)
    return np.sum(x)


def a_counter(x: Array) -> Any:
    k = 0
    for _ in range(N):
        k += 1
        x = np.sin(x) if k < 20 else np.cos(x)
    return np.sum(x)


def a_counter_in_an_attribute(x: Array) -> Any:
    space = SimpleNamespace(k=0)
    for _ in range(N):
        space.k += 1
        x = np.sin(x) if space.k < 20 else np.cos(x)
    return np.sum(x)


def a_counter_in_a_cell(x: Array) -> Any:
    k = 0

    def count() -> int:
        nonlocal k
        k += 1
        return k

    for _ in range(N):
        x = np.sin(x) if count() < 20 else np.cos(x)
    return np.sum(x)


class Counter:
    """With a slot, and one in the class."""

    __slots__ = ("k",)
    everyone = 0

    def __init__(self) -> None:
        self.k = 0

    def __call__(self) -> int:
        self.k += 1
        return self.k


def a_counter_in_a_slot(x: Array) -> Any:
    count = Counter()
    for _ in range(N):
        x = np.sin(x) if count() < 20 else np.cos(x)
    return np.sum(x)


def a_list_that_grows(x: Array) -> Any:
    found = []
    for _ in range(N):
        found.append(x)
        x = np.sin(x) if len(found) < 20 else np.cos(x)
    return np.sum(np.stack(found)) + np.sum(x)


def a_plain_array_that_counts(x: Array) -> Any:
    counts = np.zeros(3, np.int64)
    for _ in range(N):
        counts += 1
        x = np.sin(x) if counts[0] < 20 else np.cos(x)
    return np.sum(x)


def an_iterator_of_pythons(x: Array) -> Any:
    more = iter([True] * 20 + [False] * N)
    for _ in range(N):
        x = np.sin(x) if next(more) else np.cos(x)
    return np.sum(x)


def a_generator(x: Array) -> Any:
    def kinds() -> Iterator[bool]:
        yield from [True] * 20 + [False] * N

    more = kinds()
    for _ in range(N):
        x = np.sin(x) if next(more) else np.cos(x)
    return np.sum(x)


def random_numbers_of_pythons(x: Array) -> Any:
    rng = random.Random(3)
    for _ in range(N):
        x = np.sin(x) if rng.random() < 0.9 else np.cos(x)
    return np.sum(x)


def a_comprehension(x: Array) -> Any:
    return np.sum(np.stack([np.sin(z * x) for z in ROWS_ARGUMENT(x)]))


def the_number_as_a_number(x: Array) -> Any:
    for t in range(N):
        x = np.sin(x) * (1 + 0.01 * t)
    return np.sum(x)


def a_place_that_wraps(x: Array) -> Any:
    rows = ROWS_ARGUMENT(x)
    total = np.zeros(3)
    for t in range(N):
        total = total * 0.9 + rows[t - 8]
    return np.sum(total)


def a_place_in_a_list(x: Array) -> Any:
    powers = [1.0] * 20 + [2.0] * N
    for t in range(N):
        x = np.sin(x) * powers[t]
    return np.sum(x)


def the_number_as_a_key(x: Array) -> Any:
    late = dict.fromkeys(range(20, N), 1)
    for t in range(N):
        x = np.cos(x) if t in late else np.sin(x)
    return np.sum(x)


def the_number_in_maths(x: Array) -> Any:
    for t in range(N):
        x = np.sin(x) + math.sqrt(t) + np.sqrt(t) + divmod(t, 7)[1] + abs(-t) + int(f"{t}")
    return np.sum(x)


def a_kept_view(x: Array) -> Any:
    rows, total = ROWS_ARGUMENT(x), np.zeros(3)
    before = rows[0]
    for z in rows:
        total, before = total * 0.9 + z * before, z
    return np.sum(total * before)


def three_that_were_one(x: Array) -> Any:
    a = b = c = d = e = f = g = x
    for _ in range(N):
        a, b, c, d, e, f, g = np.sin(g) + x, a, b, c, d, e, f
    return np.sum(a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g)


def a_counted_branch(x: Array) -> Any:
    for t, z in enumerate(ROWS_ARGUMENT(x)):
        x = x + (np.sin(z) if t < 20 else np.cos(z))
    return np.sum(x)


def other_things_side_by_side(x: Array) -> Any:
    signs = [1.0] * 20 + [-1.0] * N
    for sign, z in zip(signs, ROWS_ARGUMENT(x)):  # noqa: B905
        x = x + sign * np.sin(z)
    return np.sum(x)


def rows_through_a_filter(x: Array) -> Any:
    kept = [True] * 20 + [False] * N
    for z in filter(lambda _: kept.pop(), ROWS_ARGUMENT(x)):
        x = x + np.sin(z)
    return np.sum(x)


def an_iterator_with_a_name(x: Array) -> Any:
    rows = iter(ROWS_ARGUMENT(x))
    for z in rows:
        x = x + np.sin(z)
        if np.ndim(next(rows)) != 1:
            break
    return np.sum(x)


def the_number_is_kept(x: Array) -> Any:
    found: dict[Any, Any] = {}
    for t in range(N):
        x = np.sin(x) + 0.1
        if t == 20:
            found[t] = x
    return np.sum(x) + np.sum(found[20])


def an_early_end(x: Array) -> Any:
    k = 0
    for z in ROWS_ARGUMENT(x):
        k = k + 1
        x = x + np.sin(z)
        if k == 20:
            break
    return np.sum(x)


def two_numbers_divided(x: Array) -> Any:
    shares = np.zeros((N, N))
    for i in range(N):
        for j in range(i, N):
            shares[i, j] = np.sin((i + 1) / (j + 1)) - np.sin(i / (j + 1))
    return np.sum(shares @ np.ones(N) * np.sum(x))


NOT_SHORTENED: dict[str, Callable[[Array], Any]] = {
    f.__name__: f for f in (
        a_branch_on_the_number, a_counter, a_counter_in_an_attribute, a_counter_in_a_cell,
        a_counter_in_a_slot, a_list_that_grows, a_plain_array_that_counts, an_iterator_of_pythons,
        a_generator, a_comprehension, the_number_as_a_number, a_place_that_wraps,
        a_place_in_a_list, the_number_as_a_key, the_number_in_maths, a_kept_view,
        three_that_were_one, a_counted_branch, two_numbers_divided,
        other_things_side_by_side, rows_through_a_filter, an_iterator_with_a_name,
        the_number_is_kept, an_early_end,
    )
}  # fmt: skip
