"""Named tuples with attributes beside their fields, as arguments and as results."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import pytest
import torch

from gradof import differentiate


class Pair(namedtuple("Pair", "a b")):
    """Two fields, and what is set later."""

    extra: Any
    name: str


def pair(library: Any, v: float, with_more: bool = True) -> Pair:
    array = torch.tensor if library is torch else np.array
    made = Pair(array([1.0, 2.0, 3.0]) * v, array([0.5, 1.5, 2.5]))
    if with_more:
        made.extra, made.name = array([2.0, -1.0, 0.5]) * v, "more"
    return made


@pytest.mark.parametrize("library", [torch, np])
def test_attributes_are_part_of_arguments(library: Any) -> None:
    def fn(p: Any) -> Any:
        return p.a * p.extra if hasattr(p, "extra") else p.a + p.b

    compiled = differentiate(fn)
    for v, more in ((1, True), (2, True), (1, False), (3, True), (2, False), (1, True)):
        p = pair(library, float(v), more)
        np.testing.assert_array_equal(np.asarray(compiled(p)), np.asarray(fn(p)))
    assert compiled.cache_info().misses == 2


@pytest.mark.parametrize("library", [torch, np])
def test_attributes_are_part_of_results(library: Any) -> None:
    def fn(p: Any) -> Any:
        made = Pair(p.a * 2, p.b)
        made.extra, made.name = p.extra + 1, p.name
        return [made, {"same": made.extra}]

    compiled = differentiate(fn)
    for v in (1.0, 2.0, 3.0):
        p = pair(library, v)
        (got, named), (want, _) = compiled(p), fn(p)
        assert type(got) is Pair and vars(got).keys() == vars(want).keys()
        for mine, theirs in ((got.a, want.a), (got.b, want.b), (got.extra, want.extra)):
            np.testing.assert_array_equal(np.asarray(mine), np.asarray(theirs))
        assert got.name == "more" and named["same"] is got.extra


def test_gradients_flow_to_attributes() -> None:
    compiled = differentiate(lambda p: (p.a * p.extra).sum())
    for v in (1.0, 2.0):
        p = pair(torch, v)
        p.extra.requires_grad_()
        (slope,) = torch.autograd.grad(compiled(p), p.extra)
        assert torch.equal(slope, p.a)
