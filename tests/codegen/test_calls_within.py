"""Large kernels, and the library's products, called from within the native function of a stretch.

Beside the same graphs op by op, on every number of threads, in a forked process, and while another
thread is in the same function.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
import torch

import gradof
from gradof import tuning
from gradof.codegen import compile_graph
from gradof.codegen.machine import arena
from gradof.codegen.machine.blas import torch_blas
from gradof.codegen.machine.engine import vector_bits
from gradof.codegen.whole.function import StretchKernel
from gradof.ir.parser import parse_graph
from gradof.testing import check

pytestmark = [
    pytest.mark.skipif(not vector_bits(), reason="no native code here"),
    pytest.mark.usefixtures("products_of_mkl"),
]
HAS_BLAS = vector_bits() and torch_blas() is not None


def block(x: Any, w: Any, b: Any, v: Any) -> Any:
    """Two products with what is between them; large arrays, sums of rows and of columns."""
    h = torch.tanh(x @ w.T + b) * torch.sigmoid(x.sum(-1, keepdim=True))
    h = h / (1 + h.square().mean(-1, keepdim=True))
    y = (h @ v).softmax(-1)
    return (y * y).sum(0), (h * b).amax(-1).mean()


def given(n: int = 300, dtype: Any = torch.float32) -> tuple[Any, ...]:
    torch.manual_seed(0)
    shapes = (n, 130), (260, 130), (260,), (260, 140)
    return tuple((torch.randn(*s) / s[-1] ** 0.5).to(dtype).requires_grad_() for s in shapes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_first_and_second_derivatives(dtype: Any, monkeypatch: Any) -> None:
    ran: list[int] = []
    call = StretchKernel.__call__

    def counted(self: StretchKernel, *arrays: Any) -> Any:
        ran.append(len(self.kernels))
        return call(self, *arrays)

    monkeypatch.setattr(StretchKernel, "__call__", counted)
    assert check(block, given(dtype=dtype), order=2).ok
    assert sum(ran), "kernels ran within functions"


def test_the_same_bits_on_one_thread_and_on_two() -> None:
    compiled, args = gradof.differentiate(block), given(3000)
    threads = torch.get_num_threads()
    found = []
    try:
        for n in (1, 2, 3, 1):
            torch.set_num_threads(n)
            outputs = compiled(*args)
            grads = torch.autograd.grad(sum(o.sum() for o in outputs), args)
            found.append([*outputs, *grads])
    finally:
        torch.set_num_threads(threads)
    products = 1e-5  # the library's may sum in another order
    for other in found[1:]:
        for mine, first in zip(other, found[0], strict=True):
            torch.testing.assert_close(mine, first, rtol=products, atol=products)
    for mine, first in zip(found[3], found[0], strict=True):
        assert torch.equal(mine, first)


TEXT = """graph f(%x : f32[400,400], %y : f32[400,400]):
  %a : f32[400,400] = mm(%x, %y)
  %b : f32[400,400] = tanh(%a)
  %c : f32[400,1] = sum[dims=(1,), keepdims=True](%b)
  %d : f32[400,400] = sub(%b, %c)
  %e : f32[400,400] = exp(%d)
  %t : f32[400,400] = permute[dims=(1, 0)](%e)
  %g : f32[400,400] = mm(%t, %b)
  %h : f32[400] = sum[dims=(0,), keepdims=False](%g)
  return (%h, %e)
"""


def executable() -> Any:
    return compile_graph(parse_graph(TEXT), library="torch")


def arrays() -> list[Any]:
    rng = np.random.default_rng(1)
    return [rng.standard_normal((400, 400), np.float32) / 20 for _ in range(2)]


@pytest.mark.skipif(not HAS_BLAS, reason="torch has no MKL here")
def test_everything_is_one_call() -> None:
    run = executable()
    (stretch,) = run.kernels
    assert isinstance(stretch, StretchKernel) and len(stretch.kernels) >= 2
    wide = compile_graph(parse_graph(TEXT.replace("f32", "f64")), library="torch", backend="numpy")
    exact = wide(*(a.astype(np.float64) for a in arrays()))
    for mine, true in zip(run(*arrays()), exact, strict=True):
        assert np.abs(mine - true).max() <= 1e-5 * np.abs(true).max()


@pytest.mark.skipif(not HAS_BLAS, reason="torch has no MKL here")
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize(("shape", "kind"), [
    ((170, 150, 130), "mm"), ((2100, 1100, 1), "mm"), ((1, 1500, 1600), "mm"),
    ((5, 90, 80, 70), "bmm"), ((2, 3, 90, 80, 70), "bmm"),
])  # fmt: skip
@pytest.mark.parametrize("order", ["rows", "columns", "apart", "repeated"])
def test_products(shape: Any, kind: str, dtype: str, order: str, monkeypatch: Any) -> None:
    """Of operands by rows, by columns, with gaps, and with one row for all, beside float64."""
    monkeypatch.setattr(tuning, "STRETCH_LEAST", 0)
    *batch, m, k, n = shape
    rank = len(batch)
    turn = (*range(rank), rank + 1, rank)
    a, b = [*batch, m, k], [*batch, k, n]
    stored = {"columns": [*batch, k, m], "apart": [*batch, m, 2 * k], "rows": a,
              "repeated": [*batch, 1, k]}[order]  # fmt: skip
    view = {
        "columns": f"permute[dims={turn}](%a)", "rows": "alias(%a)",
        "apart": f"slice[dim={rank + 1}, start=0, stop={2 * k}, step=2](%a)",
        "repeated": f"expand[shape={tuple(a)}](%a)",
    }[order]  # fmt: skip
    text: Any = lambda sizes: f"{dtype}[{','.join(map(str, sizes))}]"  # noqa: E731
    graph = parse_graph(f"""graph f(%a : {text(stored)}, %b : {text(b)}):
  %v : {text(a)} = {view}
  %y : {text([*batch, m, n])} = {kind}(%v, %b)
  return (%y)
""")
    rng = np.random.default_rng(1)
    numpy = np.dtype({"f32": "f4", "f64": "f8"}[dtype])
    x, y = (rng.standard_normal(s).astype(numpy) for s in (stored, b))
    run = compile_graph(graph, library="torch")
    assert [type(each) for each in run.kernels] == [StretchKernel], run.source
    (made,) = run(x, y)
    wide = x.astype(np.float64)
    if order == "columns":
        wide = wide.transpose(turn)
    wide = np.broadcast_to(wide[..., ::2] if order == "apart" else wide, a)
    exact = wide @ y.astype(np.float64)
    assert made.dtype == numpy and made.shape == exact.shape
    bound = 8 * np.finfo(numpy).eps * np.sqrt(k) * np.abs(exact).max()
    assert np.abs(made - exact).max() <= bound


def test_two_threads_in_one_function() -> None:
    run, expected = executable(), executable()(*arrays())
    wrong: list[str] = []

    def many() -> None:
        for _ in range(30):
            for mine, other in zip(run(*arrays()), expected, strict=True):
                if not np.array_equal(mine, other):
                    wrong.append("other bits")

    threads = [threading.Thread(target=many) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_forked_process_does_not_wait_for_threads_that_are_gone() -> None:
    program = f"""
import os, sys
import numpy as np, torch
from gradof.codegen import compile_graph
from gradof.ir.parser import parse_graph
from gradof import tuning
tuning.STRETCH_LEAST = 0
torch.set_num_threads(2)
x = np.random.default_rng(0).standard_normal((1500, 1500)).astype(np.float32)
run = compile_graph(parse_graph({TEXT!r}.replace("mm(%x, %y)", "mul(%x, %y)").replace("400", "1500")
                                .replace("mm(%t, %b)", "mul(%t, %b)")), library="torch")
assert any(getattr(kernel, "kernels", ()) for kernel in run.kernels), "called from a function"
before = run(x, x)
child = os.fork()
if not child:
    same = all(np.array_equal(a, b) for a, b in zip(run(x, x), before))
    os._exit(0 if same else 3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                          timeout=100, check=False)  # fmt: skip
    assert done.stdout.strip() == "0", done.stderr


def test_scratch_is_in_common_and_is_let_go() -> None:
    executable()  # an arena as large as it wants
    small, one, two = arena.arena_of(1 << 10), arena.arena_of(1 << 20), arena.arena_of(1 << 19)
    assert one is two and small is not one
    assert not arena.take(one.flag), "nobody is in it"
    assert arena.take(one.flag), "this test is"
    run, expected = executable(), None
    expected = run(*arrays())  # with memory of its own
    first = ctypes.c_int64.from_address(one.start)
    first.value = 7
    arena.let_go()  # not while somebody is in it
    assert first.value == 7
    arena.leave(one.flag)
    gradof.release_memory()
    assert first.value == 0, "pages that are new"
    for mine, other in zip(run(*arrays()), expected, strict=True):
        assert np.array_equal(mine, other)


def test_what_is_large_is_made_by_the_pool() -> None:
    """So that its memory is used again."""
    from gradof.ops import memory

    run = executable()
    before = len(memory._IN_USE)
    text = TEXT.replace("400", "600")
    large = compile_graph(parse_graph(text), library="torch")
    x = np.zeros((600, 600), np.float32)
    results = large(x, x)
    assert len(memory._IN_USE) == before + 1 and results[1].flags.writeable
    del results
    assert len(memory._IN_USE) == before
    assert run(*arrays())[1].shape == (400, 400)
