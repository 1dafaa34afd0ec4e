"""The least cut without networkx, where it is given, is networkx's."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import Any

import pytest

from gradof.autodiff.cut import Network, by_networkx, minimum_cut, without_search


def network(seed: int) -> Network:
    """Values 0..n, each made from earlier ones or a root; some are read by the reverse."""
    rng = random.Random(seed)
    n = rng.randint(2, 12)
    choices = [1, 2, 3, 10, 10, 20, 100] if seed % 2 else [5, 5, 5, 10]  # with many ties
    costs = {v: rng.choice(choices) for v in range(n)}
    feeds: dict[Any, list[Any]] = {}
    roots = [0]
    for v in range(1, n):
        if rng.random() < 0.3:
            roots.append(v)
            continue
        for operand in rng.sample(range(v), min(v, rng.randint(1, 3))):
            feeds.setdefault(operand, []).append(v)
    reads = [v for v in range(n) if v not in feeds or rng.random() < 0.3]
    free = {v for v in range(n) if v not in roots and rng.random() < 0.1}
    return Network(roots, costs, feeds, reads, free)


def test_what_is_given_is_the_minimum_cut() -> None:
    given = 0
    for seed in range(4000):
        found = without_search(network(seed))
        if found is not None:
            given += 1
            assert found == by_networkx(network(seed)), seed
    assert 2000 < given < 4000, given


@pytest.mark.parametrize(
    "costs, feeds, reads, expected",
    [
        ({"x": 1, "y": 9}, {"x": ["y"]}, ["y"], {"x"}),
        ({"x": 9, "y": 1}, {"x": ["y"]}, ["y"], {"y"}),  # y costs less
        ({"x": 5, "y": 5}, {"x": ["y"]}, ["y"], {"y"}),  # as much: nothing is computed again
        ({"x": 5, "y": 1}, {"x": ["y"]}, ["x", "y"], {"x"}),  # x is read itself
        ({"x": 3, "b": 3, "y": 5}, {"x": ["y"], "b": ["y"]}, ["y"], {"y"}),  # one y for two
        # x must take back what it sent to y, for b has no other way: networkx
        ({"x": 1, "b": 1, "y": 1, "z": 1}, {"x": ["z", "y"], "b": ["y"]}, ["y", "z"], None),
    ],
)
def test_small_networks(costs: Any, feeds: Any, reads: list[Any], expected: Any) -> None:
    given = Network([v for v in costs if v in ("x", "b")], costs, feeds, reads, set())
    assert without_search(given) == expected
    assert minimum_cut(given) == by_networkx(given)


def test_a_usual_gradient_does_not_load_networkx() -> None:
    code = (
        "import sys, numpy as np, gradof\n"
        "f = gradof.grad(lambda x, b: np.tanh((x + b) * np.exp(-x)).sum(), argnums=(0, 1))\n"
        "f(np.ones((300, 300)), np.ones(300))\n"
        "assert 'networkx' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
