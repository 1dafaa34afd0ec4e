"""What runs the chunks of a native kernel, as LLVM IR: the same few functions for all kernels.

    runtime("launch")(job)          # all chunks, by OpenMP's threads or by this one, then the folds

`drive(job)` is one thread's part: the next chunk, until there is none. `complete(job)` adds up what
the chunks have folded. `begin(job)` is `launch` for machine code that calls it: on as many threads
as OpenMP has now, and at most `THREADS`; on this one in a process that was forked. `work(pool)` is
the life of a thread of a pool, `share(pool, job)` a job on its threads, and `halt(pool)` its end. A
job is an array of 64-bit integers: the fields below, the arguments of the kernel, and `PER_FOLD`
numbers for each fold.

Note [A pool of threads]
A thread waits for `GENERATION` to change: it spins `SPIN` times, then sleeps in a futex. `share`
puts the job in place, counts the generation up, wakes who sleeps, takes chunks like everyone, takes
the job away, and waits for those that are at it, which are counted in `ACTIVE`. A thread counts
itself there before it looks for the job, and `share` takes the job away before it looks at the
count, so that none is at work on a job that is over; who comes late finds no job and is not waited
for. All of that is sequentially consistent.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

from gradof.codegen.machine.engine import address_of

# Places of a job's fields; the two counters, which change, are on a cache line of their own.
WORKERS, KERNEL, ARGS, COUNT, CHUNK, SPLIT, COLUMNS = 1, 8, 9, 10, 11, 12, 13
SCRATCH, SCRATCH_STEP, PARTIAL, PARTIAL_STEP, TEMPLATE = 14, 15, 16, 17, 18
CHUNKS, THREADS, PARALLEL, FOLDS, FOLDS_AT = 19, 20, 21, 22, 23
ASK, PROCESS = 24, 25  # of `begin`: who says how many threads there are, and whose process has them
FIELDS = 26
PER_FOLD = 4  # function, place of the output among the arguments, bytes to the part, elements
# Of a pool's, each on a cache line of its own.
GENERATION, JOB, ACTIVE, SLEEPERS, WAITING, STOP = 0, 8, 16, 24, 32, 40
POOL_FIELDS = 48
SPIN = 500  # pauses, some ten microseconds: about what lies between two kernels of a graph
_FUTEX, _WAIT, _WAKE = 202, 128, 129  # Linux's system call on x86-64, and its private operations
_SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_SIGNATURES = {"share": ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)}


@functools.cache
def runtime(name: str) -> Callable[..., None]:
    """A function of the runtime, which releases the GIL."""
    address = address_of(runtime_text(), name, "quick")
    return _SIGNATURES.get(name, _SIGNATURE)(address)


@functools.cache
def begin_address() -> int:
    """The address of `begin`, for machine code."""
    return address_of(runtime_text(), "begin", "quick")


def _loads(**fields: int) -> str:
    return "\n".join(
        f"  %{name}_at = getelementptr i64, ptr %job, i64 {place}\n"
        f"  %{name} = load i64, ptr %{name}_at"
        for name, place in fields.items()
    )


def runtime_text() -> str:
    """All functions; see the module docstring."""
    return _drive_text() + _complete_text() + _pool_text() + _begin_text() + f"""
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


def _begin_text() -> str:
    return f"""
declare i32 @getpid()

define void @begin(ptr %job) {{
entry:
{_loads(most=THREADS, parallel=PARALLEL, asked=ASK, process=PROCESS)}
  %args = getelementptr i64, ptr %job, i64 {FIELDS}
  %args_int = ptrtoint ptr %args to i64
  %args_at = getelementptr i64, ptr %job, i64 {ARGS}
  store i64 %args_int, ptr %args_at
  %can = icmp ne i64 %parallel, 0
  %worth = icmp sgt i64 %most, 1
  %may = and i1 %can, %worth
  br i1 %may, label %whose, label %alone

whose:
  %pid = call i32 @getpid()
  %here = zext i32 %pid to i64
  %same = icmp eq i64 %here, %process
  br i1 %same, label %count, label %alone

count:
  %somebody = icmp ne i64 %asked, 0
  br i1 %somebody, label %ask, label %counted

ask:
  %ask_code = inttoptr i64 %asked to ptr
  %told = call i32 %ask_code()
  %told_long = sext i32 %told to i64
  br label %counted

counted:
  %available = phi i64 [ %told_long, %ask ], [ %most, %count ]
  %fewer = icmp slt i64 %available, %most
  %threads = select i1 %fewer, i64 %available, i64 %most
  store i64 %threads, ptr %most_at
  %several = icmp sgt i64 %threads, 1
  br i1 %several, label %go, label %alone

alone:
  store i64 1, ptr %most_at
  store i64 0, ptr %parallel_at
  br label %go

go:
  call void @launch(ptr %job)
  ret void
}}
"""


def _complete_text() -> str:
    return f"""
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
"""


def _drive_text() -> str:
    loads = _loads(
        kernel=KERNEL, args=ARGS, count=COUNT, chunk=CHUNK, split=SPLIT, columns=COLUMNS,
        scratch=SCRATCH, scratch_step=SCRATCH_STEP, partial=PARTIAL, partial_step=PARTIAL_STEP,
        template=TEMPLATE, threads=THREADS,
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
  %wanted = icmp slt i64 %me, %threads
  br i1 %wanted, label %begin, label %done

begin:
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


_FUTEX_CALL = f"call i64 (i64, ...) @syscall(i64 {_FUTEX}, ptr"


def _pool_fields() -> str:
    places = {"generation": GENERATION, "job_at": JOB, "active": ACTIVE, "sleepers": SLEEPERS,
              "waiting": WAITING, "stop": STOP}  # fmt: skip
    return "\n".join(
        f"  %{name} = getelementptr i64, ptr %pool, i64 {place}" for name, place in places.items()
    )


def _pool_text() -> str:
    return f"""
declare i64 @syscall(i64, ...)
declare void @llvm.x86.sse2.pause()
{_work_text()}
{_share_text()}
define void @halt(ptr %pool) {{
entry:
{_pool_fields()}
  store atomic i32 1, ptr %stop seq_cst, align 4
  %before = atomicrmw add ptr %generation, i32 1 seq_cst
  %woken = {_FUTEX_CALL} %generation, i64 {_WAKE}, i64 2147483647)
  ret void
}}
"""


def _work_text() -> str:
    """Until the pool is halted: wait for the next generation, and run the job there is, if any."""
    return f"""
define void @work(ptr %pool) {{
entry:
{_pool_fields()}
  br label %next

{_idle_text()}
begin:
  %halt = load atomic i32, ptr %stop seq_cst, align 4
  %over = icmp ne i32 %halt, 0
  br i1 %over, label %end, label %enter

enter:
  %others = atomicrmw add ptr %active, i32 1 seq_cst
  %job = load atomic i64, ptr %job_at seq_cst, align 8
  %some = icmp ne i64 %job, 0
  br i1 %some, label %run, label %leave

run:
  %job_ptr = inttoptr i64 %job to ptr
  call void @drive(ptr %job_ptr)
  br label %leave

leave:
  %were = atomicrmw sub ptr %active, i32 1 seq_cst
  %last = icmp eq i32 %were, 1
  br i1 %last, label %left, label %next

left:
  %waits = load atomic i32, ptr %waiting seq_cst, align 4
  %awaited = icmp ne i32 %waits, 0
  br i1 %awaited, label %wake, label %next

wake:
  %woken = {_FUTEX_CALL} %active, i64 {_WAKE}, i64 1)
  br label %next

end:
  ret void
}}
"""


_PATIENCE = f"""wait:
  %more = add i64 %n, 1
  %patient = icmp slt i64 %n, {SPIN}
  br i1 %patient, label %spin, label %sleep

spin:
  call void @llvm.x86.sse2.pause()
  br label %look
"""  # looks again a number of times before it sleeps


def _idle_text() -> str:
    """Spin, then sleep, until the generation is another than the one last seen."""
    return f"""next:
  %seen = phi i32 [ 0, %entry ], [ %seen, %sleep ], [ %now, %leave ], [ %now, %left ],
               [ %now, %wake ]
  br label %look

look:
  %n = phi i64 [ 0, %next ], [ %more, %spin ]
  %now = load atomic i32, ptr %generation seq_cst, align 4
  %new = icmp ne i32 %now, %seen
  br i1 %new, label %begin, label %wait

{_PATIENCE}
sleep:
  %before = atomicrmw add ptr %sleepers, i32 1 seq_cst
  %expected = zext i32 %seen to i64
  %slept = {_FUTEX_CALL} %generation, i64 {_WAIT}, i64 %expected, i64 0)
  %after = atomicrmw sub ptr %sleepers, i32 1 seq_cst
  br label %next
"""


def _share_text() -> str:
    return f"""
define void @share(ptr %pool, ptr %job) {{
entry:
{_pool_fields()}
  %job_int = ptrtoint ptr %job to i64
  store atomic i64 %job_int, ptr %job_at seq_cst, align 8
  %before = atomicrmw add ptr %generation, i32 1 seq_cst
  %asleep = load atomic i32, ptr %sleepers seq_cst, align 4
  %some = icmp ne i32 %asleep, 0
  br i1 %some, label %wake, label %run

wake:
{_loads(threads=THREADS)}
  %others = sub i64 %threads, 1
  %woken = {_FUTEX_CALL} %generation, i64 {_WAKE}, i64 %others)
  br label %run

run:
  call void @drive(ptr %job)
  store atomic i64 0, ptr %job_at seq_cst, align 8
  br label %look

look:
  %n = phi i64 [ 0, %run ], [ %more, %spin ], [ 0, %slept_once ]
  %busy = load atomic i32, ptr %active seq_cst, align 4
  %idle = icmp eq i32 %busy, 0
  br i1 %idle, label %done, label %wait

{_PATIENCE}
sleep:
  store atomic i32 1, ptr %waiting seq_cst, align 4
  %still = load atomic i32, ptr %active seq_cst, align 4
  %gone = icmp eq i32 %still, 0
  br i1 %gone, label %slept_once, label %futex

futex:
  %expected = zext i32 %still to i64
  %slept = {_FUTEX_CALL} %active, i64 {_WAIT}, i64 %expected, i64 0)
  br label %slept_once

slept_once:
  store atomic i32 0, ptr %waiting seq_cst, align 4
  br label %look

done:
  call void @complete(ptr %job)
  ret void
}}
"""
