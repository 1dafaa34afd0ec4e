"""A mask that decides the path is the one that the path selects with; Note [One mask for both]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gradof import differentiate, grad, hvp, value_and_grad
from gradof.ir.parser import parse_graph
from gradof.passes.guards import split
from gradof.testing import check

TEXT = """
graph f(%x : f32[4], %u : f32[4]):
  %0 : float = Constant[value=0.5]()
  %v : f32[4] = tanh(%x)
  %m : bool[4] = lt(%v, %0)
  %k : bool[4] = lt(%u, %0)
  %i : i64[4] = cast[dtype=i64](%m)
  %j : i64[4] = cast[dtype=i64](%k)
  %n : i64[] = sum[dims=(0,), keepdims=False](%i)
  Guard[value=2, number=0](%n)
  %l : i64[] = sum[dims=(0,), keepdims=False](%j)
  Guard[value=1, number=1](%l)
  %z : bool[4] = gt(%v, %0)
  %a : f32[4] = where(%m, %v, %x)
  %b : f32[4] = where(%k, %a, %u)
  %c : f32[4] = where(%z, %b, %u)
  return (%c)
"""


def test_what_is_rounded_and_decides_is_an_input_of_the_path() -> None:
    path, deciding = split(parse_graph(TEXT))
    assert [str(v.type) for v in path.inputs] == ["f32[4]", "f32[4]", "bool[4]"]
    (mask,) = deciding.outputs
    assert mask.node is not None and mask.node.kind == "lt"
    kinds = [node.kind for node in path.nodes()]
    # %k compares an input, and %z decides nothing: the path computes them
    assert kinds.count("lt") == 1 and kinds.count("gt") == 1 and "Guard" not in kinds


def _numbers() -> tuple[Any, list[np.float32]]:
    """Numbers, and thresholds between two roundings of their tanh, where there are such."""
    x = np.random.default_rng(0).uniform(-2, 2, 40_000).astype(np.float32)
    x[0] = 3.0
    plain, ours = np.tanh(x), differentiate(np.tanh)(x)
    torn = np.flatnonzero(plain != ours)[:5]
    return x, [max(plain[i], ours[i]) for i in torn] or [np.float32(0.3)]


def test_what_a_mask_leaves_out_stays() -> None:
    x, thresholds = _numbers()
    for threshold in thresholds:

        def fn(x: Any, t: Any = threshold) -> Any:
            v = np.tanh(x)
            v[v < t] *= 2
            return v

        found, v = differentiate(fn)(x), np.tanh(x)
        sure = abs(v - threshold) > 1e-6
        want = np.where(v < threshold, 2 * v, v)
        np.testing.assert_allclose(found[sure], want[sure], rtol=1e-5)
        slope = grad(lambda x, fn=fn: np.sum(fn(x)))(x)
        want = np.where(v < threshold, 2.0, 1.0) * (1 - v * v)
        np.testing.assert_allclose(slope[sure], want[sure], rtol=1e-3, atol=1e-6)


def test_what_a_mask_leaves_out_is_not_summed() -> None:
    x, thresholds = _numbers()
    for threshold in thresholds:

        def fn(x: torch.Tensor, t: float = float(threshold)) -> torch.Tensor:
            v = torch.tanh(x)
            return (v[v < t] - 100.0).sum()

        compiled = differentiate(fn)
        for _ in range(2):
            given = torch.from_numpy(x).requires_grad_()
            (slope,) = torch.autograd.grad(compiled(given), given)
            assert slope[0] == 0.0  # what a mask of one fewer would take instead
        assert compiled.cache_info().backward_runs == 2


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "read": lambda v: (v[v > 0.1] ** 2).sum(),
    "largest": lambda v: v[v == v.max()].sum() * v.sum(),
    "order": lambda v: v[v.argsort()[: int((v > 0).sum())]].prod(),
    "two": lambda v: v[v > 0].sum() * (v[v < 0.5] ** 3).sum(),
    "number": lambda v: v * float(v[0]) if v[0] > 0 else v,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_to_second_order(name: str) -> None:
    def fn(x: Any) -> Any:
        wave = torch.sin if isinstance(x, torch.Tensor) else np.sin
        return PROGRAMS[name](wave(x * 1.7)).sum()

    x = np.linspace(-1.0, 1.3, 7)
    check(fn, (torch.from_numpy(x).requires_grad_(),), order=2)
    check(fn, (x,), order=2)


def test_transforms_take_the_mask_too() -> None:
    def fn(x: Any) -> Any:
        v = np.sin(x)
        return np.sum(v[v > 0.2] ** 3)

    x = np.linspace(-1.0, 2.0, 9)
    v, c = np.sin(x), np.cos(x)
    on = v > 0.2
    value, slope = value_and_grad(fn)(x)
    np.testing.assert_allclose(value, np.sum(v[on] ** 3))
    np.testing.assert_allclose(slope, on * 3 * v**2 * c)
    second = hvp(fn, (x,), (np.ones(9),))[0]
    np.testing.assert_allclose(second, on * (6 * v * c * c - 3 * v**3), atol=1e-12)
    compiled = differentiate(fn)
    assert compiled.find_nan(x) is None
    assert compiled.cache_info().misses == 1
