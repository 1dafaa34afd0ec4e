"""What the compiler makes of the kernels of f and df, for a device that need not be there.

    python benchmarks/gpu_compiled.py [--only NAME,NAME] [--dtypes bf16,f32] [--sizes 1]

Each kernel is compiled as a launch with contiguous, aligned tensors of these sizes compiles it, for
sm_90. Told are warps, registers and spilled bytes of a thread, and how many bytes its widest and
narrowest loads and stores of memory take at once: 16 where all is well, fewer for numbers of rows.
Attention's kernels are chosen by what the device says, and are left out.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton
from gpu_bytes import Calls, fake_cuda, plans, traffic_of
from gpu_workloads import DTYPES, label, selected
from tables import markdown
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from gradof.codegen.loops.interpret import nest_sizes
from gradof.codegen.loops.ir import LoopNest
from gradof.codegen.triton.kernel import TritonKernel, _empty
from gradof.codegen.triton.planned import FoldGroup, Planned, PlannedParts

CAPABILITY = 90
_POINTERS = {
    torch.float32: "*fp32", torch.float64: "*fp64", torch.float16: "*fp16",
    torch.bfloat16: "*bf16", torch.int64: "*i64", torch.int32: "*i32", torch.bool: "*i1",
    torch.uint8: "*u8", torch.int8: "*i8", torch.int16: "*i16",
}  # fmt: skip


@dataclass(frozen=True)
class Compiled:
    """One kernel; widths are bytes of the accesses to global memory."""

    name: str
    warps: int
    registers: int
    spills: int
    loads: tuple[int, ...]
    stores: tuple[int, ...]


def compiled(kernel: TritonKernel, tensors: Sequence[torch.Tensor]) -> Iterator[Compiled]:
    """The kernel and its folds, for meta tensors."""
    yield from _planned(kernel._plan(tensors), tensors)


def _planned(plan: Planned | PlannedParts, tensors: Sequence[torch.Tensor]) -> Iterator[Compiled]:
    if isinstance(plan, PlannedParts):
        first: Any = plan.first
        yield from compiled(first, tensors)
        if plan.second is not None:
            second: Any = plan.second
            pool = [*tensors, *_outputs(first.nest, tensors)]
            yield from compiled(second, [pool[k] for k in plan.given])
        return
    made = [torch.empty(o[0], dtype=o[1], device="meta") for o in plan.outputs if o is not None]
    partials = {k: t for f in plan.folds for k, t in f.partials(torch.device("meta")).items()}
    given = [*tensors, *made, *(partials[k] for k in range(len(partials)))]
    arguments = list(plan.arguments)
    for place, tensor in zip(plan.places, given, strict=True):
        arguments[place] = tensor
    yield _compile(plan.kernel, arguments, plan.constants)
    for fold in plan.folds:
        yield _fold(fold, partials)


def _fold(fold: FoldGroup, partials: dict[int, torch.Tensor]) -> Compiled:
    made = [torch.empty(s, dtype=d, device="meta") for s, _, d in fold.made]
    given = [*(partials[k] for k in fold.numbers), *made, fold.parts, fold.columns]
    return _compile(fold.function, given, fold.constants)


def _outputs(nest: LoopNest, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    sizes = nest_sizes(nest, tensors)
    return [_empty(b, sizes, "meta") for b in nest.outputs]


def _compile(kernel: Any, arguments: Sequence[Any], constants: dict[str, Any]) -> Compiled:
    """As the JIT specialises: 1 is a constant; what 16 divides, and memory, is known to be so."""
    signature: dict[str, str] = {}
    fixed: dict[str, Any] = {k: v for k, v in constants.items() if k in kernel.arg_names}
    attrs = {}
    for k, (parameter, value) in enumerate(zip(kernel.params, arguments, strict=False)):
        name, free = parameter.name, parameter.do_not_specialize
        if isinstance(value, torch.Tensor):
            signature[name] = _POINTERS[value.dtype]
        elif value == 1 and not free:
            fixed[name] = 1
        else:
            signature[name] = "i64" if value >= 1 << 31 else "i32"
        if name in signature and not free:
            if isinstance(value, torch.Tensor) or value % 16 == 0:
                attrs[(k,)] = [["tt.divisibility", 16]]
    types = {n: signature.get(n, "constexpr") for n in kernel.arg_names}
    source = ASTSource(fn=kernel, signature=types, constexprs=fixed, attrs=attrs)
    options = {k: v for k, v in constants.items() if k not in kernel.arg_names}
    done = triton.compile(source, target=GPUTarget("cuda", CAPABILITY, 32), options=options)
    ptx = done.asm["ptx"]
    registers, spills = _resources(ptx)
    return Compiled(
        kernel.__name__, constants["num_warps"], registers, spills, _widths(ptx, "ld"),
        _widths(ptx, "st"),
    )  # fmt: skip


def _resources(ptx: str) -> tuple[int, int]:
    """Registers and spilled bytes, by the assembler that triton brings."""
    from triton.backends.nvidia.compiler import get_ptxas

    target = re.search(r"\.target (\w+)", ptx)
    assert target is not None
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(ptx)
        file.flush()
        command = [get_ptxas(CAPABILITY).path, "-v", f"-arch={target[1]}", file.name]
        done = subprocess.run(
            [*command, "-o", "/dev/null"], capture_output=True, text=True, check=False
        )
        told = done.stdout + done.stderr
        if done.returncode:
            raise SystemExit(told)
    spills = re.findall(r"(\d+) bytes spill", told)
    registers = re.search(r"Used (\d+) registers", told)
    assert registers is not None, told
    return int(registers[1]), max(map(int, spills), default=0)


def _widths(ptx: str, which: str) -> tuple[int, ...]:
    """Bytes of each kind of access, the widest first."""
    found = re.findall(rf"\b{which}\.global[\w.:]*?(?:\.v([248]))?\.b(\d+)\b", ptx)
    return tuple(sorted({int(n or 1) * int(bits) // 8 for n, bits in found}, reverse=True))


class Compiling(Calls):
    """Compiles each kernel beside counting its bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Compiled] = []

    def kernel(self, nest: LoopNest, device: str) -> Any:
        """The stand-in of a nest's kernel."""
        counted = super().kernel(nest, device)

        def run(*tensors: torch.Tensor) -> Any:
            with self.uncounted():
                self.found += compiled(TritonKernel(nest), tensors)
            return counted(*tensors)

        run.source = ""  # type: ignore[attr-defined]
        return run


def rows(only: str, dtypes: str, sizes: int | None) -> Iterator[list[str]]:
    """The table's, one for each kernel."""
    for w in selected(only):
        for dtype in (d for d in dtypes.split(",") if d in w.dtypes):
            for size in w.sizes[:sizes]:
                with fake_cuda():
                    f, df, _ = plans(w, size, DTYPES[dtype])
                    for which, plan in (("f", f), ("df", df)):
                        calls = Compiling()
                        traffic_of(plan, calls)
                        for c in calls.found:
                            figures = [c.warps, c.registers, c.spills]
                            widths = [",".join(map(str, x)) or "-" for x in (c.loads, c.stores)]
                            yield [w.name, dtype, label(size), which, c.name,
                                   *map(str, figures), *widths]  # fmt: skip


HEAD = ["workload", "dtype", "size", "of", "kernel", "warps", "registers", "spilled", "loads",
        "stores"]  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--dtypes", default="bf16,f32")
    parser.add_argument("--sizes", type=int, help="how many sizes of each workload; all by default")
    given = parser.parse_args()
    for line in markdown(HEAD, [*rows(given.only, given.dtypes, given.sizes)]):
        print(line)


if __name__ == "__main__":
    main()
