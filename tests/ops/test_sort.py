"""Sorting and running ops against torch: ties, nan, zeros, second order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from gradof.codegen.lowering.numpy import Library
from gradof.errors import InferenceError
from gradof.ops.expr import F
from tests.ops.reference import compare, forward, randn

LIBRARIES: list[Library] = ["numpy", "torch"]
TIES = np.random.default_rng(3).integers(0, 3, (4, 9)).astype(np.float64)
SPOILT = np.array([[1.0, np.nan, 3.0, -np.inf], [2.0, 2.0, np.inf, 0.0]])


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("descending", [False, True])
def test_sort(descending: bool, library: Library) -> None:
    def eager(x: torch.Tensor) -> Any:
        return torch.sort(x, dim=1, descending=descending, stable=True)

    def build(x: Any) -> Any:
        return F.sort.multiple(x, dim=1, descending=descending, stable=True)

    compare(build, eager, randn(3, 5, 2), library=library)
    for x in (TIES, SPOILT):
        compare(build, eager, x, library=library)
    (values, order) = forward(build, np.array([[3, 1, 2]]))
    assert values.dtype == order.dtype == np.int64


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("largest", [False, True])
def test_topk(largest: bool, library: Library) -> None:
    compare(lambda x: F.topk.multiple(x, k=3, dim=0, largest=largest, sorted=True),
            lambda x: torch.topk(x, 3, 0, largest), randn(5, 4), library=library)  # fmt: skip


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("keep", [False, True])
def test_kthvalue_and_median(keep: bool, library: Library) -> None:
    x = randn(4, 6)
    compare(lambda x: F.kthvalue.multiple(x, k=2, dim=1, keepdims=keep),
            lambda x: torch.kthvalue(x, 2, 1, keep), x, library=library)  # fmt: skip
    compare(lambda x: F.median_dim.multiple(x, dim=1, keepdims=keep),
            lambda x: torch.median(x, 1, keep), x, library=library)  # fmt: skip
    compare(lambda x: F.median_dim.multiple(x, dim=1, keepdims=keep),
            lambda x: torch.median(x, 1, keep), SPOILT[:, 1:], library=library)  # fmt: skip


@pytest.mark.parametrize("library", LIBRARIES)
def test_median_of_all_shares_ties(library: Library) -> None:
    for x in (randn(3, 4), TIES):
        compare(F.median, torch.median, x, order=1, library=library)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_running_extremes(name: str, library: Library) -> None:
    for x in (randn(3, 5), TIES, SPOILT):
        compare(lambda x: F.__getattr__(name).multiple(x, dim=1),
                lambda x: getattr(torch, name)(x, 1), x, library=library)  # fmt: skip


def test_cumprod_with_zeros() -> None:
    for x in (randn(3, 7), np.array([[2.0, 0.0, 3.0, 0.0, 5.0], [0.0, 1.0, 2.0, 3.0, 4.0]])):
        compare(lambda x: F.cumprod(x, dim=1), lambda x: torch.cumprod(x, 1), x, order=1)
    compare(lambda x: F.cumprod(x, dim=0), lambda x: torch.cumprod(x, 0), randn(7, 2))


@pytest.mark.parametrize("library", LIBRARIES)
def test_logcumsumexp(library: Library) -> None:
    compare(lambda x: F.logcumsumexp(x, dim=1), lambda x: torch.logcumsumexp(x, 1), randn(3, 5),
            library=library)  # fmt: skip
    compare(lambda x: F.logcumsumexp(x, dim=0), lambda x: torch.logcumsumexp(x, 0),
            np.array([-900.0, 0.0, 900.0]), order=1, library=library)  # fmt: skip


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(InferenceError, match="7 largest of 5"):
        forward(lambda x: F.topk.multiple(x, k=7, dim=0, largest=True, sorted=True), randn(5))
    with pytest.raises(InferenceError, match="element 0 in order"):
        forward(lambda x: F.kthvalue.multiple(x, k=0, dim=0, keepdims=False), randn(5))
    with pytest.raises(InferenceError, match="dims"):
        forward(lambda x: F.cummax.multiple(x, dim=1), randn(5))
