"""Chunks of a native kernel on several threads, without Python between them.

    job = new_job({KERNEL: address, COUNT: 4096, CHUNK: 128, ...}, arguments, folds)
    run_job(job, threads=2, openmp=False)     # every chunk is done when it returns

Every thread of a call takes the next chunk from a counter in the job until there is none
(`runtime_ir`). Chunks are as large as the job says, whatever the number of threads, and which
thread runs one changes nothing about it: results are the same, bit for bit, on every number of
threads.

For torch callers torch's OpenMP threads run the chunks (Note [Whose threads] in
`gradof.codegen.machine.openmp`), for numpy callers, and where those are not there, threads of our
own (`pool`).
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

from gradof.codegen.machine.openmp import gomp_parallel, has_threads
from gradof.codegen.machine.pool import pool
from gradof.codegen.machine.runtime_ir import (
    ARGS,
    CHUNKS,
    FIELDS,
    FOLDS,
    FOLDS_AT,
    PARALLEL,
    PER_FOLD,
    THREADS,
    runtime,
)


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


def run_job(job: array[int], threads: int, openmp: bool) -> None:
    """Run every chunk of a job, on at most `threads` threads, this one among them.

    `openmp` asks for torch's, where there are such.
    """
    address = job.buffer_info()[0]
    threads = min(threads, job[CHUNKS])
    job[ARGS], job[THREADS] = address + 8 * FIELDS, threads
    if threads > 1 and openmp and has_threads():
        job[PARALLEL] = gomp_parallel()
    if threads > 1 and not job[PARALLEL] and pool(threads).run(address):
        return
    runtime("launch")(address)  # alone, where another thread has the pool
