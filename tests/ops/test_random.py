"""Random ops draw what eager draws under the same seed, and are never merged or dropped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gradof.errors import CodegenError, InferenceError
from gradof.ir.builder import Builder
from gradof.ir.core import Graph
from gradof.ir.types import BOOL, F32, F64, I64, DType
from gradof.ops.expr import F
from gradof.passes.pipeline import CLEAN_UP, run_passes
from tests.ops.reference import build_graph, compare, evaluate, randn, type_of

SHAPE = (3, 5)
DTYPES: dict[DType, torch.dtype] = {
    BOOL: torch.bool, F32: torch.float32, F64: torch.float64, I64: torch.int64,
}  # fmt: skip
Case = tuple[str, dict[str, Any], DType, Callable[[torch.dtype], torch.Tensor]]
TORCH: list[Case] = [
    ("bernoulli", {"p": 0.7}, F32, lambda d: torch.empty(SHAPE, dtype=d).bernoulli_(0.7)),
    ("bernoulli", {"p": 0.7}, BOOL, lambda d: torch.empty(SHAPE, dtype=d).bernoulli_(0.7)),
    ("uniform", {"low": 0.0, "high": 1.0}, F32, lambda d: torch.rand(SHAPE, dtype=d)),
    ("uniform", {"low": -2.0, "high": 3.0}, F64,
     lambda d: torch.empty(SHAPE, dtype=d).uniform_(-2.0, 3.0)),
    ("normal", {"mean": 0.0, "std": 1.0}, F32, lambda d: torch.randn(SHAPE, dtype=d)),
    ("normal", {"mean": 1.0, "std": 2.0}, F64,
     lambda d: torch.empty(SHAPE, dtype=d).normal_(1.0, 2.0)),
    ("normal_in_order", {"mean": 1.0, "std": 2.0, "order": (1, 0)}, F32,
     lambda d: torch.empty(SHAPE[::-1], dtype=d).mT.normal_(1.0, 2.0).mT),
    ("exponential", {"rate": 2.0}, F32, lambda d: torch.empty(SHAPE, dtype=d).exponential_(2.0)),
    ("randint", {"low": -3, "high": 9}, I64, lambda d: torch.randint(-3, 9, SHAPE, dtype=d)),
]  # fmt: skip
NUMPY: list[tuple[str, dict[str, Any], DType, Callable[[], Any]]] = [
    ("uniform", {"low": 0.0, "high": 1.0}, F64, lambda: np.random.rand(*SHAPE)),
    ("uniform", {"low": -2.0, "high": 3.0}, F64, lambda: np.random.uniform(-2.0, 3.0, SHAPE)),
    ("normal", {"mean": 0.0, "std": 1.0}, F64, lambda: np.random.randn(*SHAPE)),
    ("normal", {"mean": 1.0, "std": 2.0}, F64, lambda: np.random.normal(1.0, 2.0, SHAPE)),
    ("normal_in_order", {"mean": 1.0, "std": 2.0, "order": (1, 0)}, F64,
     lambda: np.random.normal(1.0, 2.0, SHAPE[::-1])),
    ("exponential", {"rate": 0.5}, F64, lambda: np.random.exponential(2.0, SHAPE)),
    ("randint", {"low": -3, "high": 9}, I64, lambda: np.random.randint(-3, 9, SHAPE)),
]


def draw(name: str, **attrs: Any) -> Graph:
    graph = Graph("f")
    graph.set_outputs([Builder(graph.block).emit(name, **attrs)])
    return graph


@pytest.mark.parametrize("case", TORCH, ids=lambda c: f"{c[0]}-{c[2]}")
def test_torch_draws_as_eager(case: Case) -> None:
    name, attrs, dt, eager = case
    graph = draw(name, **attrs, shape=SHAPE, dtype=dt, device="cpu")
    torch.manual_seed(7)
    have = [evaluate(graph, library="torch")[0] for _ in range(2)]
    torch.manual_seed(7)
    want = [eager(DTYPES[dt]).numpy() for _ in range(2)]
    np.testing.assert_array_equal(have, want)
    assert not np.array_equal(have[0], have[1])


@pytest.mark.parametrize("case", NUMPY, ids=lambda c: f"{c[0]}-{c[2]}")
def test_numpy_draws_from_its_global_state(case: Any) -> None:
    name, attrs, dt, eager = case
    graph = draw(name, **attrs, shape=SHAPE, dtype=dt, device="cpu")
    np.random.seed(7)
    (have,) = evaluate(graph)
    np.random.seed(7)
    np.testing.assert_array_equal(have, eager())


def test_randperm() -> None:
    graph = draw("randperm", n=9, dtype=I64, device="cpu")
    torch.manual_seed(3)
    (have,) = evaluate(graph, library="torch")
    torch.manual_seed(3)
    assert have.tolist() == torch.randperm(9).tolist()
    np.random.seed(3)
    (have,) = evaluate(graph)
    np.random.seed(3)
    assert have.tolist() == np.random.permutation(9).tolist()


def test_bernoulli_like_is_torch_s_and_has_gradient_zero() -> None:
    p = np.random.default_rng(0).uniform(0, 1, SHAPE)
    graph = build_graph(F.bernoulli_like, type_of(p))
    torch.manual_seed(5)
    (have,) = evaluate(graph, p, library="torch")
    torch.manual_seed(5)
    np.testing.assert_array_equal(have, torch.bernoulli(torch.from_numpy(p)).numpy())
    np.random.seed(5)
    assert set(np.unique(evaluate(graph, p)[0])) == {0.0, 1.0}
    always = np.ones(SHAPE)
    compare(F.bernoulli_like, torch.bernoulli, always, order=1)


def test_multinomial() -> None:
    p = np.abs(randn(2, 4))
    graph = build_graph(lambda p: F.multinomial(p, num_samples=3, replacement=False), type_of(p))
    torch.manual_seed(5)
    (have,) = evaluate(graph, p, library="torch")
    torch.manual_seed(5)
    want = torch.multinomial(torch.from_numpy(p), 3, False)
    np.testing.assert_array_equal(have, want.numpy())
    with pytest.raises(CodegenError, match="no counterpart in numpy"):
        evaluate(graph, p)


def test_two_draws_are_not_one() -> None:
    graph = Graph("f")
    builder = Builder(graph.block)
    draws = [
        builder.emit("uniform", low=0.0, high=1.0, shape=SHAPE, dtype=F64, device="cpu")
        for _ in range(3)
    ]
    graph.set_outputs(draws[:2])
    run_passes(graph, CLEAN_UP)
    assert sum(node.kind == "uniform" for node in graph.nodes()) == 3
    one, two = evaluate(graph)
    assert not np.array_equal(one, two)


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(InferenceError, match="without replacement"):
        build_graph(lambda p: F.multinomial(p, num_samples=5, replacement=False),
                    type_of(randn(4)))  # fmt: skip
    with pytest.raises(InferenceError, match="dtype and a device"):
        draw("bernoulli", p=0.5, shape=SHAPE, dtype=None, device="cpu")
