"""Random orders and samples within numpy functions: drawn at every call, with their gradient."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradof
from gradof.errors import UnsupportedOpError
from gradof.tracer.state.generators import set_state, state_of

RNG, PYTHONS = np.random.default_rng(5), random.Random(5)
GENERATORS = (RNG, PYTHONS, np.random.mtrand._rand, random._inst)
N = 6
RISING = np.arange(float(N))


def _of_places(x: Any) -> Any:
    at, other = np.arange(N), np.arange(N)
    np.random.shuffle(at)
    RNG.shuffle(other)
    return (x[at[:3]] ** 2).sum() + x[other[:2]].prod()


def _of_a_list(x: Any) -> Any:
    at = list(range(len(x)))
    random.shuffle(at)
    return sum(x[i] * (k + 1) for k, i in enumerate(at))


def _of_a_deque(x: Any) -> Any:
    scales = deque([1.0, 2.0, 3.0])
    PYTHONS.shuffle(scales)
    return x[0] * scales[0] + scales[1] * x[1]


def _of_elements(x: Any) -> Any:
    some = [x[0], x[1] * 2, x[2]]
    random.shuffle(some)
    first, second = random.sample(some, 2)
    return some[0] * 3 + some[1] * 2 + first * second**2


def _in_place(x: Any) -> Any:
    y, rows = x * 1.0, np.stack([x, x**2, -x])
    np.random.shuffle(y)
    np.random.shuffle(rows)
    RNG.shuffle(rows, axis=1)
    return (y * RISING).sum() + (rows * RISING * np.arange(3.0)[:, None]).sum()


def _permuted(x: Any) -> Any:
    rows = np.stack([x, x**2])
    lines, made = RNG.permuted(rows, axis=1), RNG.permutation(rows, axis=1)
    kept = np.empty_like(rows)
    RNG.permuted(lines, out=kept)
    return (np.random.permutation(x) * RISING).sum() + ((made + 2 * kept) * rows).sum()


def _samples(x: Any) -> Any:
    a, b = random.sample(range(len(x)), 2)
    i = PYTHONS.sample(range(len(x)), k=len(x) // 2)
    left = np.ones(len(x), bool)
    left[i] = False
    return x[a] * x[b] ** 2 + x[left].sum() * x[i].prod()


def _choices(x: Any) -> Any:
    scales = random.choices([0.1, 0.5, 2.0], weights=[1, 2, 3], k=4)
    weights = np.abs(x) / np.abs(x).sum()
    places = random.choices(range(len(x)), weights=gradof.stop_gradient(weights), k=2)
    some = PYTHONS.choices(x, k=2)
    return (x[:4] * np.array(scales)).sum() + x[places].sum() + some[0] * some[1] ** 2


def _points(x: Any) -> Any:
    points = np.stack([x[:3], x[3:]], axis=1)
    a, b = points[random.sample(range(3), 2)]
    return (a - b) @ (a + 2 * b)


def _epochs(x: Any) -> Any:
    for _ in range(2):
        at = np.random.permutation(len(x))
        for k in range(0, len(x), 2):
            x = x - 0.1 * np.sin(x[at[k : k + 2]]).mean()
    return (x**2).sum()


class _Batches:
    def __init__(self) -> None:
        self.listed, self.array = list(range(N)), np.arange(N)

    def __call__(self, x: Any) -> Any:
        random.shuffle(self.listed)
        np.random.shuffle(self.array)
        return (x[self.listed] * RISING).sum() + (x[self.array] ** 2 * RISING).sum()


def _of_texts(x: Any) -> Any:
    names = ["a", "b", "c"]
    random.shuffle(names)
    return x.sum() * (names.index("a") + 1)


def _of_rows(x: Any) -> Any:
    """Who has a row elsewhere sees what is written to it."""
    rows = [x * 1.0, x * 2.0, x * 3.0]
    first = rows[0]
    random.shuffle(rows)
    rows[0] += 1
    return (first**2).sum() + rows[2].sum()


ONE_TRACE = (
    _of_places, _of_a_list, _of_a_deque, _of_elements, _in_place, _permuted, _samples, _choices,
    _points, _epochs,
)  # fmt: skip


def _seed(k: int) -> None:
    random.seed(k)
    np.random.seed(k)
    set_state(RNG, state_of(np.random.default_rng(k)))
    PYTHONS.seed(k)


def _states() -> str:
    return repr([*map(state_of, GENERATORS)])


@pytest.mark.cases(4)
@pytest.mark.parametrize("fn", [*ONE_TRACE, _of_texts, _of_rows])
def test_an_order_is_drawn_at_each_call_as_numpy_draws_it(fn: Callable[[Any], Any]) -> None:
    compiled = gradof.value_and_grad(fn)
    line, step = np.cos(RISING), 1e-6
    for k in range(4):
        x, ends = np.linspace(0.3, 1.7, N) + k, []
        for s in (0.0, step, -step):
            _seed(k)
            ends.append(fn(x + s * line))
        after = _states()
        _seed(k)
        value, slope = compiled(x)
        np.testing.assert_allclose(value, ends[0], rtol=1e-12)
        np.testing.assert_allclose(slope @ line, (ends[1] - ends[2]) / (2 * step), rtol=1e-6)
        assert _states() == after
    assert compiled.cache_info().misses == 1 or fn not in ONE_TRACE


def test_state_is_left_in_the_order_of_the_call() -> None:
    plain, traced = _Batches(), _Batches()
    compiled = gradof.value_and_grad(traced)
    for k in range(4):
        x = np.linspace(0.3, 1.7, N) + k
        _seed(k)
        want = plain(x)
        _seed(k)
        np.testing.assert_allclose(compiled(x)[0], want, rtol=1e-12)
        assert (plain.listed, list(plain.array)) == (traced.listed, list(traced.array))
        assert {*map(type, traced.listed)} == {int}
    assert compiled.cache_info().misses == 2


WRONG: dict[str, tuple[Callable[[Any], Any], type[Exception]]] = {
    "more than there are": (lambda x: x[random.sample(range(2), 3)].sum(), ValueError),
    "of an array": (lambda x: random.sample(x, 2)[0], TypeError),
    "of another axis": (lambda x: RNG.permutation(x, axis=1).sum(), ValueError),
    "of lists along an axis": (lambda x: RNG.shuffle([x[0], x[1]], axis=1), NotImplementedError),  # type: ignore[call-overload]
    "weights of another length": (
        lambda x: random.choices([1.0, 2.0], [1.0])[0] * x.sum(), ValueError,
    ),
    "rows that Python doubles": (
        lambda x: [random.shuffle(np.stack([x, x]))] and x.sum(), UnsupportedOpError,  # type: ignore[arg-type]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_no_order_is_of(name: str) -> None:
    fn, error = WRONG[name]
    with pytest.raises(error) as found:
        gradof.grad(fn)(np.ones(N))
    if error is not UnsupportedOpError:
        with pytest.raises(error) as want:
            fn(np.ones(N))
        assert str(found.value).splitlines()[0] == str(want.value)
