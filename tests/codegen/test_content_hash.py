"""The native hash of elements: what it has to tell apart, and that it reads no byte beyond."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gradof.codegen.machine.content_hash import content_hash


def _one_changed() -> Iterator[Any]:
    for size in range(0, 200, 7):
        yield np.zeros(size)
    a = np.zeros(300)
    for i, v in itertools.product(range(300), (1.0, -1.0, -0.0, 1e-300, np.inf)):
        a[i] = v
        yield a
        a[i] = 0


def _two_changed() -> Iterator[Any]:
    x = np.random.default_rng(0).standard_normal(700)
    for i, step in itertools.product(range(0, 600, 3), (1, 8, 32, 64)):
        y = x.copy()
        y[[i, i + step]] *= -1
        yield y
        y[[i, i + step]] = x[[i + step, i]]
        yield y


def _permuted() -> Iterator[Any]:
    yield from map(np.array, itertools.permutations(range(6)))
    yield from (np.array(p, np.int8) for p in itertools.permutations(range(6)))
    yield from (np.array(p, float) for p in itertools.permutations(range(6)))


def _flags() -> Iterator[Any]:
    for i, j in itertools.combinations(range(150), 2):
        a = np.zeros(150, bool)
        a[[i, j]] = True
        yield a


@pytest.mark.parametrize("arrays", [_one_changed, _two_changed, _permuted, _flags])
def test_other_elements_have_another_hash(arrays: Any) -> None:
    of = content_hash()
    assert of is not None
    found = [of(a) for a in arrays()]
    assert len(set(found)) == len(found)


def test_it_reads_the_bytes_and_no_others() -> None:
    of = content_hash()
    assert of is not None
    for size in (0, 1, 7, 8, 255, 256, 257, 1000):
        room = np.random.default_rng(size).integers(0, 256, size + 600).astype(np.uint8)
        found = of(room[3 : 3 + size])
        room[:3], room[3 + size :] = 0, 0
        assert of(room[3 : 3 + size]) == found == of(room[3 : 3 + size].tobytes())
    with pytest.raises(TypeError, match="bytes-like"):
        of(3)
    with pytest.raises(ValueError, match="contiguous"):
        of(np.zeros(8)[::2])
