"""Layer norm's kernels launched through triton's JIT and past it, by a driver that notes launches.

`python -m tests.codegen.triton_launch` prints {case: "ok" or what was wrong}.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from triton import knobs
from triton.runtime._async_compile import FutureKernel
from triton.runtime.jit import JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

from gradof.codegen.triton.attention import kernel as flash
from gradof.codegen.triton.attention.emit import FlashShape
from gradof.codegen.triton.blocks import Blocks
from gradof.codegen.triton.compiling import compile_at_once
from gradof.codegen.triton.kernel import TritonKernel
from gradof.codegen.triton.planned import Planned
from tests.codegen import triton_stub
from tests.codegen.triton_cases import nests
from tests.codegen.triton_process import print_told

STUB = triton_stub.install()
RUNS = [0]  # of triton's JIT
_run = JITFunction.run


def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
    """What a launch through the JIT runs."""
    RUNS[0] += 1
    return _run(self, *args, **kwargs)


JITFunction.run = counted


def launches(call: Callable[[], Any]) -> tuple[list[Any], int]:
    """The launches of a call, addresses left out, and how many went through the JIT."""
    before = RUNS[0]
    STUB.launches.clear()
    call()
    return [
        (name, grid, [None if _is_address(a) else a for a in args])
        for name, grid, args in STUB.launches
    ], RUNS[0] - before


def _is_address(a: Any) -> bool:
    return isinstance(a, torch.Tensor | TensorDescriptor) or (isinstance(a, int) and a > 1 << 32)


def operands() -> tuple[TritonKernel, list[torch.Tensor]]:
    """A kernel that folds two shapes, and what it takes."""
    (nest,) = nests("folds")
    return TritonKernel(nest), [torch.randn(b.shape) for b in nest.inputs]


def later_calls_launch_the_same_without_the_jit() -> None:
    """The first call compiles, and each later one hands the same to the driver."""
    kernel, given = operands()
    want, through = launches(lambda: kernel(*given))
    assert len(want) == through == 3  # the kernel, and a fold for each shape
    for _ in range(2):
        have, through = launches(lambda: kernel(*given))
        assert through == 0 and have == want, (have, want)


def outputs_are_fresh_and_of_the_same_layout() -> None:
    """Shapes, strides and dtypes are those of the first call; memory is another's each time."""
    kernel, given = operands()
    first, second, third = (kernel(*given) for _ in range(3))
    for a, b, c in zip(first, second, third, strict=True):
        assert (a.shape, a.stride(), a.dtype) == (b.shape, b.stride(), b.dtype)
        assert b.data_ptr() != c.data_ptr()


def partial_results_do_not_overlap() -> None:
    """Each is written to, and read from, the same part of one piece of memory."""
    kernel, given = operands()
    kernel(*given)
    STUB.launches.clear()
    kernel(*given)
    (planned,) = kernel.planned.values()
    assert isinstance(planned, Planned)
    sizes = {k: n for f in planned.folds for k, n in f.nbytes().items()}
    first = len(planned.places) - len(sizes)
    starts = [STUB.launches[0][2][place] for place in planned.places[first:]]
    ends = [start + sizes[k] for k, start in enumerate(starts)]
    for end, start in zip(sorted(ends)[:-1], sorted(starts)[1:], strict=True):
        assert end <= start
    for (_, _, args), fold in zip(STUB.launches[1:], planned.folds, strict=True):
        assert [starts[k] for k in fold.numbers] == list(args[: len(fold.numbers)])


def another_address_goes_through_the_jit() -> None:
    """A kernel that was compiled for addresses divisible by 16 does not take others."""
    kernel, given = operands()
    kernel(*given)
    kernel(*given)
    moved = torch.empty(given[0].numel() + 1)[1:].view(given[0].shape)
    assert moved.data_ptr() % 16
    _, through = launches(lambda: kernel(moved, *given[1:]))
    assert through == 3
    _, through = launches(lambda: kernel(*given))
    assert through == 0


def a_first_call_of_another_address_keeps_nothing() -> None:
    """Nor is what it compiled taken for the addresses of others."""
    kernel, given = operands()
    moved = torch.empty(given[0].numel() + 1)[1:].view(given[0].shape)
    kernel(moved, *given[1:])
    _, through = launches(lambda: kernel(*given))
    assert through == 3


def hooks_and_other_devices_go_through_the_jit() -> None:
    """Profilers add hooks to triton's chains; a launch is on the current device."""
    kernel, given = operands()
    kernel(*given)
    seen: list[Any] = []
    chain = knobs.runtime.launch_enter_hook
    chain.add(seen.append)
    try:
        _, through = launches(lambda: kernel(*given))
    finally:
        chain.remove(seen.append)
    assert through == 3
    STUB.device = 1
    try:
        _, through = launches(lambda: kernel(*given))
    finally:
        STUB.device = 0
    assert through == 3
    _, through = launches(lambda: kernel(*given))
    assert through == 0


def another_number_of_rows_compiles_nothing() -> None:
    """Tiles of a program are an argument: sizes that triton sees alike share machine code."""
    kernel, given = operands()
    compiled, tiles = [], []
    for rows in (9 << 12, 17 << 12, 33 << 12):
        kernel(torch.randn(rows, *given[0].shape[1:]), *given[1:])
        planned = list(kernel.planned.values())[-1]
        assert isinstance(planned, Planned)
        tiles.append(planned.arguments[-1])
        caches = [c[0] for c in planned.kernel.device_caches.values()]
        compiled.append(sum(map(len, caches)))
    assert len(set(tiles)) == 3 and min(tiles) > 1 and compiled == [1, 1, 1], (tiles, compiled)


def tiles_are_compiled_at_once_and_then_launched() -> None:
    """What is compiled beforehand, by dtypes, is what a launch with tensors looks for.

    What a thread could not compile (triton's own compiler has failed so on a busy machine) is
    compiled by its launch: as many as errors were ignored, and no others.
    """
    kernel, given = operands()
    kernel(*given)
    (planned,) = kernel.planned.values()
    assert isinstance(planned, Planned)
    functions = [planned.kernel, *(f.function for f in planned.folds)]
    warps = planned.constants["num_warps"]
    plans = []

    def compiled(blocks: Blocks) -> list[Any]:
        made = copy.copy(planned)
        made.constants = {**planned.constants, "num_warps": blocks.warps}
        made.direct = None
        plans.append(made)
        return made.compile([t.dtype for t in given])

    tiles = [Blocks(1, 1, 1, warps * 2), Blocks(1, 1, 1, warps // 2)]
    with ignored_errors() as errors:
        compile_at_once([partial(compiled, blocks) for blocks in tiles])
    entries = [sum(len(c[0]) for c in f.device_caches.values()) for f in functions]
    whole = [3, *(1 for _ in planned.folds)]
    assert len(errors) < 2 and sum(entries) + len(errors) == sum(whole), (entries, errors)
    for made in plans:
        made(given)
    after = [sum(len(c[0]) for c in f.device_caches.values()) for f in functions]
    assert after == whole, "compiled again"


@contextmanager
def ignored_errors() -> Iterator[list[Exception]]:
    """The errors of compiles in threads, which triton is told to ignore."""
    errors: list[Exception] = []
    result = FutureKernel.result

    def noted(self: Any, ignore_errors: bool = False) -> Any:
        try:
            return result(self)
        except Exception as error:
            errors.append(error)
            return None

    FutureKernel.result = noted
    try:
        yield errors
    finally:
        FutureKernel.result = result


def attention_is_launched_the_same_without_the_jit() -> None:
    """With pointers and with descriptors; other addresses go through the JIT."""
    attention_launched(described=False)
    attention_launched(described=True)


def attention_launched(*, described: bool) -> None:
    """The same of one attention and its backward."""
    vars(flash)["describes"] = lambda part, tensors: described
    shape = FlashShape("attention", (("mul", ("s", 0.25)),), (), True, "", 0, "")
    run = flash.Flash(shape, "cuda:0", ("forward",), (1,))
    back = flash.Flash(shape, "cuda:0", ("queries", "keys"), (1,))
    q, k, v, g = (torch.ones(2, 64, 64, dtype=torch.bfloat16) for _ in "qkvg")
    sums = torch.zeros(2, 64)

    def call(q: torch.Tensor) -> None:
        run.forward(q, k.mT, v)
        back.backward(q, k.mT, v, sums, g, sums)

    want, through = launches(lambda: call(q))
    assert len(want) == through == 3
    have, through = launches(lambda: call(q))
    assert through == 0 and have == want, (have, want)
    moved = torch.ones(2 * 64 * 64 + 1, dtype=torch.bfloat16)[1:].view(q.shape)
    _, through = launches(lambda: call(moved))
    assert through == 3


CASES = (
    attention_is_launched_the_same_without_the_jit,
    later_calls_launch_the_same_without_the_jit, outputs_are_fresh_and_of_the_same_layout,
    partial_results_do_not_overlap, another_address_goes_through_the_jit,
    a_first_call_of_another_address_keeps_nothing, hooks_and_other_devices_go_through_the_jit,
    another_number_of_rows_compiles_nothing, tiles_are_compiled_at_once_and_then_launched,
)  # fmt: skip


def main() -> None:
    """Run all cases."""
    print_told(CASES)


if __name__ == "__main__":
    main()
