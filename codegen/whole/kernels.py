"""Kernels of large arrays within a function: a FusionGroup is one call of its native kernel.

    %y : f32[512,512] = FusionGroup(%h, %b)      begin(job), the job with the addresses of h, b, y

What shapes and strides decide of a kernel is known here, so its job (`runtime_ir`) is kept beside
the code, and copied for each call, which counts in it. The kernel's threads are torch's.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from gradof import tuning
from gradof.codegen.llvm.kernel import Layout, NativeKernel, collapses, is_native
from gradof.codegen.loops.ir import LoopNest
from gradof.codegen.loops.lower import schedule
from gradof.codegen.lowering.numpy import Library
from gradof.codegen.machine import runtime_ir as place
from gradof.codegen.machine.openmp import gomp_parallel, has_threads, torch_symbol
from gradof.codegen.machine.threads import n_threads
from gradof.codegen.whole.elementwise import DTYPES
from gradof.codegen.whole.loops import Loops
from gradof.codegen.whole.values import as_array
from gradof.ir.core import Node, Value
from gradof.ir.extent import Extent
from gradof.ir.types import I64, TensorType


def reason_against_nest(nest: LoopNest, library: Library) -> str | None:
    """Why a kernel is not called from within a function, in a few words; None if it is."""
    if library != "torch":
        return "its threads are our own"
    return None if is_native(nest) and collapses(nest) else "it is tiles of numpy's"


def takes(node: Node) -> bool:
    """Whether a FusionGroup is of arrays that a function has, and no larger than pays."""
    return all(map(_fits, (*node.inputs, *node.outputs)))


def _fits(value: Value) -> bool:
    type_ = value.type
    if not isinstance(type_, TensorType) or type_.shape is None or type_.device != "cpu":
        return False
    if type_.dtype not in DTYPES or any(isinstance(n, Extent) for n in type_.shape):
        return False
    return 0 < type_.size <= tuning.STRETCH_KERNEL


class Kernels(Loops):
    """Writes calls of kernels."""

    def kernel(self, node: Node) -> None:
        """The FusionGroup."""
        nest = schedule(node)
        kernel = NativeKernel(nest, openmp=True)
        given = [self.memory(node.inputs[k]) for k in nest.reads]
        made = [self.room(v) for v in node.outputs]
        there = dict(enumerate(map(as_array, made)))  # written where they are read from soon
        layout = kernel.layout(list(map(as_array, given)), there)
        if layout is None:
            given = [m if m.is_contiguous else self.in_rows(m) for m in given]
            layout = kernel.layout(list(map(as_array, given)), there)
        assert layout is not None  # of contiguous arrays columns are one
        self.kept += [kernel, layout]
        self.begin(layout, [self.pointer(m) for m in (*given, *made)])
        for value, mem in zip(node.outputs, made, strict=True):
            self.define_mem(value, mem)

    def begin(self, layout: Layout, pointers: Sequence[str]) -> None:
        """Run a kernel's chunks."""
        text = self.text
        most = min(layout.threads, layout.chunks, os.cpu_count() or 1)
        folded = layout.chunks * layout.partials.width
        scratch = self.new((-(-(folded + most * layout.scratch) // 8),), I64, temporary=True)
        template = _template(layout, most)
        size = len(template)
        job = self.new((size // 8,), I64, temporary=True)
        first = text.emit(
            f"getelementptr i8, ptr %constants, i64 {self.constant_at(template)}"
        )
        copy = "llvm.memcpy.p0.p0.i64"
        text.declare(copy, f"declare void @{copy}(ptr, ptr, i64, i1)")
        text.line(f"call void @{copy}(ptr {job.base}, ptr {first}, i64 {size}, i1 false)")
        part = text.emit(f"ptrtoint ptr {scratch.base} to i64")
        held = text.emit(f"add i64 {part}, {folded}")
        addresses = [text.emit(f"ptrtoint ptr {p} to i64") for p in pointers]
        fields = {place.PARTIAL: part, place.SCRATCH: held,
                  **{place.FIELDS + k: a for k, a in enumerate(addresses)}}  # fmt: skip
        for at, number in fields.items():
            text.store(number, text.at(job.base, at, I64), I64)
        self.call_at(place.begin_address(), [job.base])


def _template(layout: Layout, most: int) -> bytes:
    """The job but for the addresses of memory, for at most so many threads."""
    job = layout.job[:]
    job[place.THREADS] = most
    if has_threads():
        job[place.PARALLEL], job[place.PROCESS] = gomp_parallel(), os.getpid()
        if "GRADOF_NUM_THREADS" in os.environ:
            job[place.THREADS] = min(most, n_threads())
        else:
            job[place.ASK] = torch_symbol("omp_get_max_threads")
    return job.tobytes()
