"""The workloads of Triton kernels on a device: precisions, strides, long rows, second order."""

from __future__ import annotations

import pytest
import torch

from tests.gpu.judge import executables, judge, kernels
from tests.runtime.triton_workloads import WORKLOADS

pytestmark = pytest.mark.gpu
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("strided", [False, True], ids=["contiguous", "strided"])
def test_workload(name: str, dtype: torch.dtype, strided: bool, device: str) -> None:
    x = torch.randn((9, 6) if strided else (6, 9), device=device).to(dtype)
    w = torch.randn(9, device=device).to(dtype).requires_grad_()
    half = dtype in (torch.bfloat16, torch.float16)
    compiled = judge(
        WORKLOADS[name], (x.T if strided else x).requires_grad_(), w, order=1 if half else 2
    )
    assert kernels(compiled) >= 2  # f and df at least
    assert all(run.takes_tensors for run in executables(compiled))


@pytest.mark.parametrize("name", ["rms norm", "layer norm", "softmax", "cross-entropy"])
@pytest.mark.parametrize("columns", [1, 1000, 16384, 20000])
def test_rows_of_any_length(name: str, columns: int, device: str) -> None:
    x = torch.randn(3, columns, device=device, requires_grad=True)
    w = torch.randn(columns, device=device, requires_grad=True)
    judge(WORKLOADS[name], x, w, order=1)


@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (1, 1), (5, 0), (1, 4097)], ids=str)
def test_shapes_at_the_edges(shape: tuple[int, ...], device: str) -> None:
    x = torch.randn(shape, device=device, requires_grad=True)
    judge(lambda x: torch.tanh(x) * x + x.sum(), x)


def test_new_shapes_and_strides_of_one_function(device: str) -> None:
    fn = WORKLOADS["layer norm"]
    for rows, columns in ((4, 8), (8, 4), (3, 129), (129, 3)):
        x = torch.randn(columns, rows, device=device).T.requires_grad_()
        judge(fn, x, torch.randn(columns, device=device, requires_grad=True), order=1)
