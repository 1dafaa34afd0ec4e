"""Gathers and what scatters their gradients: torch's functions for torch callers, zeros written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import gradof
from gradof.codegen import compile_graph
from gradof.codegen.host.evaluate import interpret
from gradof.ir.parser import parse_graph
from gradof.ops import gather
from tests.runtime.compare import check

ROWS = torch.tensor([3, 0, 3, 3, 7, -1, 2])
CELLS = torch.randint(0, 9, (8, 5), generator=torch.Generator().manual_seed(0))

FUNCTIONS = {
    "rows": lambda x, y: x[ROWS] * y[:7],
    "embedding": lambda x, y: F.embedding(ROWS.abs(), x, padding_idx=3) * y[:7],
    "gather": lambda x, y: x.gather(0, CELLS % 8) * y.gather(1, CELLS % 5),
    "index_add": lambda x, y: x.index_add(1, torch.tensor([0, 0, 4]), y[:, :3] * x[:, 1:4]),
    "scatter_add": lambda x, y: x.scatter_add(0, CELLS % 8, y * x).sin(),
    "scatter": lambda x, y: x.scatter(1, torch.tensor([[1], [4]] * 4), (y * x)[:, :1]).sin(),
    "twice": lambda x, y: x[ROWS].sum(0) * y[ROWS].prod(0) + x.gather(0, CELLS % 8).sum(0),
    "unfold": lambda x, y: x.unfold(0, 2, 2).sin().sum(-1) * y.unfold(0, 2, 2).prod(-1),
    "windows": lambda x, y: x.unfold(1, 3, 1).sin().sum(-1) * y.unfold(1, 2, 3).sum(-1)[:, :1],
    "cumsum": lambda x, y: x.cumsum(0).sin() * y.cumsum(-1),
    "tril": lambda x, y: x.tril(1).sin() * y.triu(-1),
    "spectrum": lambda x, y: torch.fft.rfft2(x).abs() * torch.fft.fft(y, norm="ortho").real[:, :3],
    "inverse": lambda x, y: torch.fft.irfft(torch.fft.rfft(x * y), n=5, norm="forward"),
}  # fmt: skip


@pytest.mark.parametrize("backend", ["native", "tiles", "numpy"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_eagers_to_second_order(
    name: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADOF_BACKEND", backend)
    rng = torch.Generator().manual_seed(1)
    x, y = (torch.randn(8, 5, generator=rng, dtype=torch.float64).requires_grad_()
            for _ in range(2))  # fmt: skip
    compiled = check(FUNCTIONS[name], x, y, order=2)
    again = torch.autograd.grad(compiled(x, y).sum(), (x, y), allow_unused=True)
    for _ in range(3):  # whatever is written is made anew for each call
        more = torch.autograd.grad(compiled(x, y).sum(), (x, y), allow_unused=True)
        assert all(a is b is None or torch.equal(a, b) for a, b in zip(again, more, strict=True))


def test_only_zeros_of_its_own_are_written() -> None:
    graph = parse_graph("""graph f(%x : f64[4], %i : i64[3], %s : f64[3]):
      %z : f64[4] = full[dtype=f64, shape=(4,), device='cpu', value=0.0]()
      %a : f64[4] = index_add[dim=0](%z, %i, %s)
      %b : f64[4] = index_add[dim=0](%x, %i, %s)
      %o : f64[4] = full[dtype=f64, shape=(4,), device='cpu', value=1.0]()
      %c : f64[4] = index_add[dim=0](%o, %i, %s)
      %d : f64[4] = mul(%o, %c)
      return (%a, %b, %d)""")
    run = compile_graph(graph, backend="numpy", library="torch")
    assert run.source.count("index_add_(") == 1
    x, i, s = np.arange(4.0), np.array([0, 2, 2]), np.array([1.0, 10.0, 100.0])
    for _ in range(2):
        for have, want in zip(run(x, i, s), interpret(graph, [x, i, s]), strict=True):
            np.testing.assert_array_equal(have, want)
        np.testing.assert_array_equal(x, np.arange(4.0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.complex64])
def test_numpys_sums_are_those_of_add_at(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    monkeypatch.setattr(gather, "ADDED_SORTED", 10)
    monkeypatch.setattr(gather, "ADDED_ROW", 3)
    for shape, dim in (((6, 5), 0), ((6, 5), 1), ((3, 4, 5), 1), ((40,), 0)):
        x = rng.normal(size=shape).astype(dtype)
        index = rng.integers(0, shape[dim], 9)
        src = rng.normal(size=(*shape[:dim], 9, *shape[dim + 1 :])).astype(dtype)
        want = x.copy()
        where: Any = (slice(None),) * dim + (index,)
        np.add.at(want, where, src)
        before = x.copy()
        np.testing.assert_allclose(gather._np_index_add(x, index, src, dim=dim), want, rtol=1e-5)
        cells = rng.integers(0, shape[dim], shape)
        src = rng.normal(size=shape).astype(dtype)
        given = [torch.from_numpy(a) for a in (x, cells, src)]
        want = given[0].scatter_add(dim, *given[1:]).numpy()
        have = gather._np_scatter_add(x, cells, src, dim=dim)
        assert have.dtype == dtype
        np.testing.assert_allclose(have, want, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("bad", [8, -9, 1 << 40])
def test_places_that_are_not_there_are_told(bad: int) -> None:
    x = torch.randn(8, 5, requires_grad=True)
    with pytest.raises(IndexError, match=f"index {bad} is out of bounds"):
        gradof.differentiate(lambda x: x[torch.tensor([1, bad])].sum())(x)
    with pytest.raises(RuntimeError, match="out of bounds"):
        gradof.differentiate(lambda x: x.gather(0, torch.tensor([[bad]])).sum())(x)
