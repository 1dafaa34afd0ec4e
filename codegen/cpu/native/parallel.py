"""Chunks of a native kernel on several threads, without Python between them.

    job = new_job({KERNEL: address, COUNT: 4096, CHUNK: 128, ...}, arguments, folds)
    run_job(job, threads=2)             # every chunk is done when it returns

`drive` takes the next chunk from a counter in the job until there is none; every thread of a call
runs it. Chunks are as large as the job says, whatever the number of threads, and which thread runs
one changes nothing about it: results are the same, bit for bit, on every number of threads.

Note [Whose threads]
Where torch is loaded its OpenMP threads run the chunks, for they spin for a while after every one
of torch's own loops and products: threads of ours would wait for the cores on which they do. Else,
and in a process that may have been forked, where OpenMP's threads are gone and would be waited for
for ever, it is Python threads, which call `drive` with the GIL released.
"""

from __future__ import annotations

import ctypes
import functools
import multiprocessing
import os
import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from gradof.codegen.cpu.native.engine import address_of
from gradof.codegen.cpu.threads import run_together

# Places of a job's fields; the two counters, which change, are on a cache line of their own.
WORKERS, KERNEL, ARGS, COUNT, CHUNK, SPLIT, COLUMNS = 1, 8, 9, 10, 11, 12, 13
SCRATCH, SCRATCH_STEP, PARTIAL, PARTIAL_STEP, TEMPLATE = 14, 15, 16, 17, 18
CHUNKS, THREADS, PARALLEL, FOLDS, FOLDS_AT = 19, 20, 21, 22, 23
FIELDS = 24
PER_FOLD = 4  # function, place of the output among the arguments, bytes to the part, elements

_SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_FIRST_PROCESS = os.getpid() if multiprocessing.parent_process() is None else None


def new_job(
    fields: Mapping[int, int], arguments: Sequence[int], folds: Sequence[int]
) -> array[int]:
    """A job, with the arguments of its kernel behind it, and `PER_FOLD` numbers for each fold.

    The counters are at 0.
    """
    all_fields = {**fields, FOLDS: len(folds) // PER_FOLD, FOLDS_AT: FIELDS + len(arguments)}
    job = array("q", [all_fields.get(place, 0) for place in range(FIELDS)])
    job.extend([*arguments, *folds])
    return job


def run_job(job: array[int], threads: int) -> None:
    """Run every chunk of a job, on at most `threads` threads, this one among them."""
    address = job.buffer_info()[0]
    job[ARGS] = address + 8 * FIELDS
    threads = min(threads, job[CHUNKS])
    shared = openmp() if threads > 1 and "torch" in sys.modules else 0
    if threads <= 1 or (shared and os.getpid() == _FIRST_PROCESS):
        job[THREADS], job[PARALLEL] = threads, shared
        _function("launch")(address)
    else:
        drive = _function("drive")
        run_together(lambda: drive(address), threads)
        _function("complete")(address)


@functools.cache
def openmp() -> int:
    """The address of `GOMP_parallel` in the OpenMP library that torch is linked with; 0 if none.

    LLVM's and Intel's libraries have a function of that name, too.
    """
    import torch

    library = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
    if not library.exists():
        return 0
    loaded = ctypes.CDLL(str(library), mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    if not hasattr(loaded, "GOMP_parallel"):
        return 0
    return ctypes.cast(loaded.GOMP_parallel, ctypes.c_void_p).value or 0


@functools.cache
def _function(name: str) -> Callable[[int], None]:
    return _SIGNATURE(address_of(_text(), name, quick=True))


def _loads(**fields: int) -> str:
    return "\n".join(
        f"  %{name}_at = getelementptr i64, ptr %job, i64 {place}\n"
        f"  %{name} = load i64, ptr %{name}_at"
        for name, place in fields.items()
    )


def _text() -> str:
    """`drive`, every thread's part; `complete`, what follows; and `launch`, all of it, of a job."""
    return _drive_text() + f"""
define void @complete(ptr %job) {{
entry:
{_loads(args=ARGS, partial=PARTIAL, width=PARTIAL_STEP, chunks=CHUNKS, folds=FOLDS, at=FOLDS_AT)}
  %args_ptr = inttoptr i64 %args to ptr
  %partial_ptr = inttoptr i64 %partial to ptr
  %table = getelementptr i64, ptr %job, i64 %at
  br label %next

next:
  %k = phi i64 [ 0, %entry ], [ %following, %fold ]
  %left = icmp slt i64 %k, %folds
  br i1 %left, label %fold, label %done

fold:
  %skip = mul i64 %k, {PER_FOLD}
  %entry_at = getelementptr i64, ptr %table, i64 %skip
  %code = load i64, ptr %entry_at
  %code_ptr = inttoptr i64 %code to ptr
  %out_at = getelementptr i64, ptr %entry_at, i64 1
  %out = load i64, ptr %out_at
  %argument_at = getelementptr i64, ptr %args_ptr, i64 %out
  %argument = load i64, ptr %argument_at
  %output = inttoptr i64 %argument to ptr
  %offset_at = getelementptr i64, ptr %entry_at, i64 2
  %offset = load i64, ptr %offset_at
  %parts = getelementptr i8, ptr %partial_ptr, i64 %offset
  %count_at = getelementptr i64, ptr %entry_at, i64 3
  %count = load i64, ptr %count_at
  call void %code_ptr(ptr %output, ptr %parts, i64 %chunks, i64 %width, i64 %count)
  %following = add i64 %k, 1
  br label %next

done:
  ret void
}}

define void @launch(ptr %job) {{
entry:
{_loads(threads=THREADS, parallel=PARALLEL)}
  %some = icmp ne i64 %parallel, 0
  br i1 %some, label %several, label %one

several:
  %parallel_code = inttoptr i64 %parallel to ptr
  %count = trunc i64 %threads to i32
  call void %parallel_code(ptr @drive, ptr %job, i32 %count, i32 0)
  br label %done

one:
  call void @drive(ptr %job)
  br label %done

done:
  call void @complete(ptr %job)
  ret void
}}
"""


def _drive_text() -> str:
    loads = _loads(
        kernel=KERNEL, args=ARGS, count=COUNT, chunk=CHUNK, split=SPLIT, columns=COLUMNS,
        scratch=SCRATCH, scratch_step=SCRATCH_STEP, partial=PARTIAL, partial_step=PARTIAL_STEP,
        template=TEMPLATE,
    )  # fmt: skip
    return f"""declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define void @drive(ptr %job) {{
entry:
{loads}
  %kernel_code = inttoptr i64 %kernel to ptr
  %args_ptr = inttoptr i64 %args to ptr
  %template_ptr = inttoptr i64 %template to ptr
  %by_columns = icmp ne i64 %split, 0
  %workers = getelementptr i64, ptr %job, i64 {WORKERS}
  %me = atomicrmw add ptr %workers, i64 1 seq_cst
  %mine = mul i64 %me, %scratch_step
  %held = add i64 %scratch, %mine
  %held_ptr = inttoptr i64 %held to ptr
  br label %next

next:
  %k = atomicrmw add ptr %job, i64 1 seq_cst
  %start = mul i64 %k, %chunk
  %left = icmp slt i64 %start, %count
  br i1 %left, label %work, label %done

work:
  %far = add i64 %start, %chunk
  %short = icmp slt i64 %far, %count
  %stop = select i1 %short, i64 %far, i64 %count
  %offset = mul i64 %k, %partial_step
  %place = add i64 %partial, %offset
  %place_ptr = inttoptr i64 %place to ptr
  call void @llvm.memcpy.p0.p0.i64(ptr %place_ptr, ptr %template_ptr, i64 %partial_step,
                                   i1 false)
  br i1 %by_columns, label %columns_of_one, label %rows

columns_of_one:
  call void %kernel_code(ptr %args_ptr, i64 0, i64 1, i64 %start, i64 %stop, ptr %held_ptr,
                         ptr %place_ptr)
  br label %next

rows:
  call void %kernel_code(ptr %args_ptr, i64 %start, i64 %stop, i64 0, i64 %columns, ptr %held_ptr,
                         ptr %place_ptr)
  br label %next

done:
  ret void
}}
"""
