"""Straight-line torch with kernels: statements, memory, constants, devices, and what is refused.

Kernels are stood in for by the reference of loop nests, so that nothing here needs triton.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from gradof.codegen import compile_graph
from gradof.codegen.host.torch_emit import TorchExecutable, emit_torch
from gradof.codegen.loops.interpret import run_nest
from gradof.codegen.loops.ir import LoopNest
from gradof.codegen.targets.choose import devices_of
from gradof.errors import CodegenError, CustomRuleError, DataDependentShapeError
from gradof.ir.parser import parse_graph
from gradof.ops.guard import GuardFailed

MLP = """
graph f(%x : f32[4,3], %w : f32[3,2], %b : f32[2]):
  %h : f32[4,2] = mm(%x, %w)  # mlp.py:7
  %s : f32[4,2] = add(%h, %b)  # mlp.py:8
  %y : f32[4,2] = tanh(%s)  # mlp.py:8
  %l : f32[2] = sum[dims=(0,), keepdims=False](%y)  # mlp.py:9
  return (%l, %y)"""


class Reference:
    """A kernel that is the loop nest's reference."""

    source = ""

    def __init__(self, nest: LoopNest, device: str) -> None:
        self.nest, self.device, self.runs = nest, device, 0

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.runs += 1
        arrays = [t.numpy(force=True) for t in tensors]
        return tuple(torch.from_numpy(np.array(a)) for a in run_nest(self.nest, arrays))


def emitted(text: str, **options: Any) -> TorchExecutable:
    graph = parse_graph(text)
    return emit_torch(graph, **{"make_kernel": Reference, **options})


def test_a_statement_per_op_and_a_kernel_per_group() -> None:
    run = emitted(MLP)
    assert run.source == '''def f(x, w, b):
    """f(x : f32[4,3], w : f32[3,2], b : f32[2]) -> (f32[2], f32[4,2])"""
    h = torch.mm(x, w)  # mlp.py:7
    (y, l) = f_kernel(h, b)  # mlp.py:8
    del h
    return (l, y)
'''
    x, w, b = torch.randn(4, 3), torch.randn(3, 2), torch.randn(2)
    total, y = run(x, w, b)
    want = torch.tanh(x @ w + b)
    torch.testing.assert_close((total, y), (want.sum(0), want))
    assert [kernel.runs for kernel in run.kernels] == [1] and run.takes_tensors


def test_without_fusion_every_op_is_torchs() -> None:
    run = emitted(MLP, fused=False)
    assert not run.kernels and "torch.tanh" in run.source


def test_one_op_alone_and_what_reads_no_tensor_are_torchs() -> None:
    alone = "graph f(%x : f32[4]):\n %y : f32[4] = tanh(%x)\n return (%y)"
    assert not emitted(alone).kernels
    nothing = """graph f(%x : f32[4]):
      %0 : f32[4] = full[dtype=f32, shape=(4,), device='cpu', value=0.5]()
      %1 : f32[4] = tanh(%0)
      %2 : f32[4] = exp(%1)
      return (%2)"""
    run = emitted(nothing)
    assert not run.kernels
    torch.testing.assert_close(run(torch.ones(4))[0], torch.full((4,), 0.5).tanh().exp())


VIEWS = """
graph f(%x : f32[2,3]):
  %t : f32[3,2] = permute[dims=(1, 0)](%x)
  %e : f32[2,3] = exp(%x)
  %r : f32[6] = reshape[shape=(6,)](%e)
  %s : f32[] = sum[dims=(0, 1), keepdims=False](%e)
  %w : f32[4] = expand[shape=(4,)](%s)
  %c : f32[2] = Constant[value=dense<f32[2]>[1.0, 2.0]]()
  return (%x, %t, %e, %e, %r, %w, %c, %s)"""


def test_results_are_the_callers_own() -> None:
    run = emitted(VIEWS, fused=False)
    x = torch.randn(2, 3)
    before, results = x.clone(), run(x)
    storages = [t.untyped_storage().data_ptr() for t in (x, *results)]
    assert len(set(storages)) == len(storages)
    wants = [t.clone() for t in results]
    for k, result in enumerate(results):
        result.add_(1.0)  # no element twice, no memory of another
        for other, want in list(zip(results, wants, strict=True))[k + 1 :]:
            assert torch.equal(other, want)
    assert torch.equal(x, before)
    for again, want in zip(run(x), wants, strict=True):
        assert torch.equal(again, want), "a constant was changed through a result"


def test_constants_are_made_once() -> None:
    run = emitted("""graph f(%x : bf16[2]):
      %c : f32[2] = Constant[value=dense<f32[2]>[1.0, 2.5]]()
      %h : bf16[2] = cast[dtype=bf16](%c)
      %y : bf16[2] = add(%x, %h)
      return (%y)""", fused=False)  # fmt: skip
    body = run.source.partition("def f(")[2]
    assert "to(" not in body and "from_numpy" not in body
    first = run(torch.ones(2, dtype=torch.bfloat16))[0]
    made = run.function.__globals__["c0"], run.function.__globals__["c2"]
    run(torch.ones(2, dtype=torch.bfloat16))
    assert (run.function.__globals__["c0"], run.function.__globals__["c2"]) == made
    assert first.tolist() == [2.0, 3.5] and first.dtype == torch.bfloat16


def test_numbers_come_and_go_as_tensors_without_dims() -> None:
    run = emitted("""graph f(%x : f32[2], %n : float):
      %c : float = Constant[value=2.5]()
      %y : f32[2] = mul(%x, %n)
      %z : f32[2] = exp(%y)
      return (%z, %c)""")  # fmt: skip
    y, c = run(torch.ones(2), torch.tensor(3.0, dtype=torch.float64))
    torch.testing.assert_close(y, torch.full((2,), 3.0).exp())
    assert c.dtype == torch.float64 and c.item() == 2.5


def test_a_graph_of_two_devices_moves_what_it_says() -> None:
    graph = parse_graph("""graph f(%x : f32[2]@cuda:0, %n : f32[1]):
      %c : f32[2] = Constant[value=dense<f32[2]>[1.0, 2.0]]()
      %d : f32[2]@cuda:0 = to_device[device='cuda:0'](%c)
      %m : f32[1]@cuda:0 = to_device[device='cuda:0'](%n)  # step.py:3
      %y : f32[2]@cuda:0 = mul(%x, %m)
      %z : f32[2]@cuda:0 = add(%y, %d)
      %a : f32[1] = exp(%n)
      %b : f32[1] = tanh(%a)
      %f : f32[2]@cuda:0 = full[dtype=f32, shape=(2,), device='cuda:0', value=1.0]()
      return (%z, %b, %f)""")  # fmt: skip
    assert devices_of(graph) == {"cpu", "cuda:0"}
    run = emit_torch(graph, make_kernel=Reference)
    assert "    c2 = c0.to(cuda_0, non_blocking=True)\n" in run.source
    assert "m = n.to(cuda_0, non_blocking=True)  # step.py:3" in run.source
    assert "device=cuda_0" in run.source
    assert run.devices == {"cpu", "cuda:0"}
    assert [kernel.device for kernel in run.kernels] == ["cuda:0"], run.source
    assert "a = torch.exp(n)" in run.source  # what is on the CPU is torch's
    assert compile_graph(graph, library="torch", backend="numpy").takes_tensors
    with pytest.raises(CodegenError, match="not on cuda:0"):
        compile_graph(graph, library="numpy", backend="numpy")


def test_a_kernel_is_given_the_device_of_its_tensors() -> None:
    graph = parse_graph(
        "graph f(%x : f32[4]@cuda:1):\n %y : f32[4]@cuda:1 = tanh(%x)\n"
        " %z : f32[4]@cuda:1 = exp(%y)\n return (%z)"
    )
    (kernel,) = emit_torch(graph, make_kernel=Reference).kernels
    assert kernel.device == "cuda:1"


def test_out_of_memory_is_torchs_error_with_the_users_line() -> None:
    class Full(Reference):
        def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    run, given = emitted(MLP, make_kernel=Full), (torch.ones(4, 3), torch.ones(3, 2), torch.ones(2))
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(torch.OutOfMemoryError):
        run(*given)
    with pytest.raises(torch.OutOfMemoryError) as caught:
        run(*given)
    (note,) = caught.value.__notes__
    assert "out of memory in f, at: (y, l) = f_kernel(h, b)  # mlp.py:8" in note
    assert "memory_budget" in note


def test_autocast_is_not_applied_again() -> None:
    run = emitted(MLP, fused=False)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _, y = run(torch.ones(4, 3), torch.ones(3, 2), torch.ones(2))
    assert y.dtype == torch.float32


def test_a_guard_fails_with_what_it_saw() -> None:
    run = emitted("""graph f(%x : f32[2]):
      %s : f32[] = sum[dims=(0,), keepdims=False](%x)
      Guard[value=3.0, number=0](%s)
      return (%s)""")  # fmt: skip
    assert run(torch.tensor([1.0, 2.0]))[0] == 3.0
    with pytest.raises(GuardFailed) as caught:
        run(torch.tensor([1.0, 5.0]))
    assert (caught.value.number, caught.value.value) == (0, 6.0)


def test_an_opaque_op_runs_under_torchs_autograd() -> None:
    head = "graph f(%x : f32[3], %g : f32[3]):\n %d : f32[3] = Opaque["
    call = "name='aten::cumprod', call=(('t', 0), 0, ('dict',)), types=((f32, (3,)),), "
    run = emitted(f"{head}{call}vjps=((True,),)](%x, %g)\n return (%d)")
    x = torch.tensor([2.0, 3.0, 4.0], requires_grad=True)
    (want,) = torch.autograd.grad(torch.cumprod(x, 0), x, torch.ones(3))
    with torch.no_grad():
        torch.testing.assert_close(run(x, torch.ones(3))[0], want)
    wrong = emitted(f"{head}{call.replace('(3,)', '(2,)')}vjps=()](%x)\n return (%d)".replace(
        "%d : f32[3]", "%d : f32[2]"))  # fmt: skip
    with pytest.raises(DataDependentShapeError, match="aten::cumprod gave results of shapes"):
        wrong(x, torch.ones(3))


def test_draws_are_those_of_torch() -> None:
    run = emitted("""graph f(%x : f32[64]):
      %m : f32[64] = bernoulli[p=0.25, shape=(64,), dtype=f32, device='cpu']()
      %k : bool[64] = dropout_mask[p=0.25, shape=(64,), dtype=f32, device='cpu']()
      %u : f32[64] = uniform[low=0.0, high=1.0, shape=(64,), dtype=f32, device='cpu']()
      return (%m, %k, %u)""")  # fmt: skip
    torch.manual_seed(5)
    mine = run(torch.ones(64))
    torch.manual_seed(5)
    theirs = (
        torch.empty(64).bernoulli_(0.25), torch.native_dropout(torch.ones(64), 0.25, True)[1],
        torch.rand(64),
    )  # fmt: skip
    for a, b in zip(mine, theirs, strict=True):
        assert torch.equal(a, b)


INDEX = """graph f(%x : f32[4], %i : i64[2]):
  %j : i64[2] = in_range[size=4, wraps=True, error='index'](%i)
  %y : f32[2] = index_select[dim=0](%x, %j)
  return (%y)"""


def test_an_index_out_of_range_is_an_index_error_on_the_cpu() -> None:
    run = emitted(INDEX)
    assert run(torch.arange(4.0), torch.tensor([-1, 2]))[0].tolist() == [3.0, 2.0]
    with pytest.raises(IndexError, match="out of bounds for a dimension of size 4"):
        run(torch.arange(4.0), torch.tensor([0, 4]))


def test_a_second_derivative_that_is_not_there_is_refused() -> None:
    run = emitted("""graph f(%g : f32[2]):
      %d : f32[3] = second_derivative[dtype=f32, shape=(3,), deepest=''](%g)
      return (%d)""")  # fmt: skip
    with pytest.raises(CustomRuleError, match="once_differentiable"):
        run(torch.ones(2))


def test_an_op_without_a_torch_form_is_named() -> None:
    with pytest.raises(CodegenError, match="struve has no torch form"):
        emitted("graph f(%v : f64[2], %x : f64[2]):\n %y : f64[2] = struve(%v, %x)\n return (%y)")


SAME = {
    "fft_c2c": ("c128[4,3]", "c128[4,3]", "dims=(0, 1), scale='root_n', forward=True"),
    "fft_r2c": ("f64[4,3]", "c128[4,2]", "dims=(0, 1), scale='n', onesided=True"),
    "fft_c2r": ("c128[4,2]", "f64[4,3]", "dims=(0, 1), scale='none', last=3"),
    "lu_unpivoted": ("f64[2,3,3]", "f64[2,3,3]", ""),
}


@pytest.mark.parametrize("name", SAME)
def test_functions_are_those_of_numpys_lowering(name: str) -> None:
    given, made, attrs = SAME[name]
    text = f"graph f(%x : {given}):\n %y : {made} = {name}{f'[{attrs}]' if attrs else ''}(%x)\n"
    graph = parse_graph(text + " return (%y)")
    shape = tuple(map(int, given[given.index("[") + 1 : -1].split(",")))
    rng = np.random.default_rng(0)
    x = rng.uniform(1, 2, shape) + (1j * rng.uniform(1, 2, shape) if given[0] == "c" else 0)
    (want,) = compile_graph(graph, backend="numpy")(x)
    (have,) = emit_torch(graph)(torch.from_numpy(x))
    np.testing.assert_allclose(have.numpy(), want, rtol=1e-12)


def test_pivots_are_read_as_numpy_reads_them() -> None:
    graph = parse_graph(
        "graph f(%p : i32[2,3]):\n %o : i64[2,4] = pivot_order[n=4](%p)\n return (%o)"
    )
    pivots = np.array([[3, 2, 4], [1, 4, 3]], np.int32)
    (want,) = compile_graph(graph, backend="numpy")(pivots)
    (have,) = emit_torch(graph)(torch.from_numpy(pivots))
    assert have.tolist() == want.tolist()


def test_svd_rest_completes_the_vectors() -> None:
    graph = parse_graph(
        "graph f(%x : f64[4,2]):\n %u : f64[4,2], %v : f64[0,2] = svd_rest(%x)\n return (%u, %v)"
    )
    x = torch.randn(4, 2, dtype=torch.float64)
    u, v = emit_torch(graph)(x)
    torch.testing.assert_close(u.mT @ u, torch.eye(2, dtype=torch.float64))
    torch.testing.assert_close(u.mT @ x, torch.zeros(2, 2, dtype=torch.float64))
    assert v.shape == (0, 2)


@pytest.mark.parametrize("make", [lambda: torch.ones(3), lambda: torch.ones(3, requires_grad=True)])
def test_the_number_of_tensors_is_checked(make: Callable[[], torch.Tensor]) -> None:
    with pytest.raises(CodegenError, match="f takes 3 tensors, got 1"):
        emitted(MLP)(make())


def test_what_is_saved_for_the_backward_may_be_views_of_one_tensor() -> None:
    text = """graph f(%x : f32[4,3], %w : f32[3,6]):
      %h : f32[4,6] = mm(%x, %w)
      %a : f32[4,2] = slice[dim=1, start=0, stop=2, step=1](%h)
      %b : f32[4,2] = slice[dim=1, start=2, stop=4, step=1](%h)
      %c : f32[4,2] = slice[dim=1, start=4, stop=6, step=1](%h)
      return (%a, %b, %c)"""
    assert emitted(text).source.count(".clone()") == 2
    one, all_saved = emitted(text, shown=1), emitted(text, shown=0)
    assert one.source.count(".clone()") == 2, "the caller may change the one that it is shown"
    assert ".clone()" not in all_saved.source
    x, w = torch.randn(4, 3), torch.randn(3, 6)
    for run in (one, all_saved):
        for found, part in zip(run(x, w), torch.chunk(x @ w, 3, 1), strict=True):
            torch.testing.assert_close(found, part)
