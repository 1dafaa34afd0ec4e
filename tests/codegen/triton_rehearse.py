"""Kernels compiled side by side before the first run, by a driver that notes launches.

`python -m tests.codegen.triton_rehearse` prints {case: "ok" or what was wrong}.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from triton.runtime.jit import JITFunction

from gradof.codegen.host import torch_emit
from gradof.codegen.host.rehearse import Rehearsal
from gradof.codegen.triton import launch
from gradof.codegen.triton.kernel import TritonKernel
from gradof.runtime.plan import GraphPlan, RunCounts
from gradof.tracer.torch.tracer import trace_torch
from tests.codegen import triton_stub
from tests.codegen.triton_cases import nests
from tests.codegen.triton_process import print_told

STUB = triton_stub.install()
Tensor = torch.Tensor


def layers(x: Tensor, w: Tensor, v: Tensor, scale: Tensor) -> Tensor:
    """Two that differ in names, then a permuted operand, a draw and a cut."""
    first = F.gelu(F.layer_norm(x @ w, (16,), scale))
    other = F.gelu(F.layer_norm(first @ v, (16,), scale))
    second = F.gelu(F.layer_norm(other @ w, (16,), scale))
    moved = (second.permute(0, 2, 1) * 2).tanh() @ x
    drawn = torch.rand_like(moved) * moved.exp()
    return (drawn.mT @ w.mT)[:, ::2].sin() * 2 + 1


def arguments() -> list[Tensor]:
    """Of `layers`."""
    torch.manual_seed(0)
    return [torch.randn(4, 16, 16), torch.randn(16, 16), torch.randn(16, 16), torch.randn(16)]


def emitted() -> torch_emit.TorchExecutable:
    """The forward's code as for a device, with a driver that has none."""
    graph = trace_torch(layers, tuple(arguments()), {}).graph
    return torch_emit.emit_torch(GraphPlan(graph, "torch", RunCounts()).prepared)


@contextmanager
def compiles() -> Iterator[list[str]]:
    """The names of what triton is told to compile."""
    plain, found = JITFunction._do_compile, list[str]()

    def compiling(self: Any, *args: Any, **kwargs: Any) -> Any:
        found.append(self.__name__)
        return plain(self, *args, **kwargs)

    with mock.patch.object(JITFunction, "_do_compile", compiling):
        yield found


def all_are_compiled_before_the_first_run() -> None:
    """For strides as they will be, without a launch and without a draw."""
    run = emitted()
    rehearsal, run.rehearsal = run.rehearsal, None
    assert rehearsal is not None
    STUB.launches.clear()
    before = torch.get_rng_state()
    with compiles() as early:
        rehearsal.compile_for(arguments())
    assert not STUB.launches and torch.equal(torch.get_rng_state(), before)
    with compiles() as late:
        run(*arguments())
    assert late == [] and len(early) >= 4, (early, late)
    assert len(STUB.launches) > len(set(early)), "layers share what is compiled"


def a_first_run_rehearses_once() -> None:
    """And later ones do not."""
    run = emitted()
    with mock.patch.object(Rehearsal, "compile_for") as rehearsed:
        for _ in range(2):
            run(*arguments())
    assert rehearsed.call_count == 1


def what_meta_tensors_cannot_do_is_left_to_the_run() -> None:
    """Nothing known of a result: the kernels that read it are compiled when they are launched."""
    run = emitted()
    rehearsal, run.rehearsal = run.rehearsal, None
    assert rehearsal is not None
    with mock.patch.object(Rehearsal, "_evaluated", side_effect=NotImplementedError):
        rehearsal.compile_for(arguments())
    run(*arguments())


def names_and_lines_do_not_matter() -> None:
    """But all else does."""
    one, other = (TritonKernel(n) for n in nests("folds") * 2)
    other = TritonKernel(replace(other.nest, name="else_kernel", body=tuple(
        replace(i, name=i.name + "_else" if i.name else "", loc=None,
                args=tuple(a + "_else" if isinstance(a, str) else a for a in i.args))
        for i in other.nest.body
    )))  # fmt: skip
    given = [torch.randn(b.shape) for b in one.nest.inputs]
    one(*given)
    with compiles() as found:
        other(*given)
    assert found == []
    sources = [next(iter(k._made.values())) for k in (one, other)]
    assert sources[0] is sources[1] and sources[0].text.count(one.nest.name)
    body = tuple(replace(i, op="add") if i.op == "sub" else i for i in one.nest.body)
    assert body != one.nest.body
    changed = TritonKernel(replace(one.nest, body=body))
    changed(*given)
    assert next(iter(changed._made.values())) is not sources[0]


CASES = (
    all_are_compiled_before_the_first_run, a_first_run_rehearses_once,
    what_meta_tensors_cannot_do_is_left_to_the_run, names_and_lines_do_not_matter,
)  # fmt: skip


def main() -> None:
    """Run all cases, on CPU tensors that are taken for a device's."""
    with (
        mock.patch.object(launch, "require_interpreter", lambda: None),
        mock.patch.object(torch_emit, "home_of", lambda graph: "cuda:0"),
    ):
        print_told(CASES)


if __name__ == "__main__":
    main()
