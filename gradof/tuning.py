"""Every threshold of the compiler, with the reason or the measurement it comes from.

They decide what is fast, never what is right: tests set them to extremes. Measured on x86-64 with
AVX-512 and two cores (`benchmarks/cpu.py`, `benchmarks/ops.py`), and on an H100
(docs/gpu.md). Bounds of what is kept are in `gradof.limits` and beside their caches.
"""

from __future__ import annotations

# --- What is worth a kernel ----------------------------------------------------------------------
KERNEL_CELLS = 1 << 15  # cells of the largest array. Below, whole arrays stay in the cache, and
# a statement each costs less than the chunks of a kernel. Captures, slices and emitters share it.
SMALL_KERNEL_CELLS = 1 << 12  # cells, in functions of many small ops: below, numpy is as quick.
SMALL_KERNEL_LEAST = 6  # ops of such a function: fewer do not repay what compiling costs.
SMALL_KERNEL_MOST = 256  # ops of such a function: of more, compiling takes seconds.
FUSED_NODES = 64  # nodes: larger groups are not tried again as a whole, which is quadratic.
REMATERIALIZE_ROUNDS = 3  # on a device: what is computed again may be computed again elsewhere.
SIBLINGS_TRIED = 4  # groups that read one operand too: the latest are the likely ones.
REMATERIALIZE_CALLS = 3  # expensive ops that one value may take: as many as a gradient of one has.
REMATERIALIZE_NODES = 64  # instructions in all: beyond, arithmetic costs more than the read.
REMATERIALIZE_RATIO = 8  # a reduction is read, not redone, if it has so many times fewer bytes.
CONCAT_PART = 1 << 14  # elements of a part: below, the copy that is spared costs less than it.

# --- Loops ---------------------------------------------------------------------------------------
LOOP_STEPS = 8  # times that a stretch repeats: fewer steps are compiled as quickly one by one, and
# fuse and are simplified across them.
LOOP_LOOKED_AT = 16  # steps of a loop that may be traced by its first ones: of fewer, looking takes
# as long as running them.
LOOP_STACKED = 64  # elements of a value that is stacked for a loop to read: weights of layers
# that are alike are not, which would copy them all at each call.
LOOP_NODES = 64  # nodes that a loop stands for: the calls of a shorter one take as long unrolled.
WHILE_WAYS = 8  # ways through a loop that a value ends, beyond which its branches are paths.
WHILE_ROOM = 64  # steps that such a loop has room for at first: a call that needs more is traced
WHILE_MOST_ROOM = 1 << 20  # again, with four times the room, up to this.
WHILE_NODES = 4096  # of a torch trace, beyond which branches in loops are not looked at any more.

# --- State ---------------------------------------------------------------------------------------
CHECKED_BYTES = 1 << 18  # of numpy arrays that a torch function leads to, if it makes tensors of
# one: each call checks them all, these in 0.1 ms, 8 MB in 3 ms.

# --- Primitives of HIPS autograd ------------------------------------------------------------------
OPENED_SECONDS = 3e-3  # of this thread: of a call that takes longer, Python's part is small.
OPENED_NODES = 200  # of a function and its rule that are recorded as a graph.

# --- What is saved for the backward --------------------------------------------------------------
CAPTURE_CALLS = 3  # expensive ops that may run twice so that one value is not saved.
CAPTURE_ROW = 16  # how much larger than its row values an array is, to be computed again from them.
RECOMPUTE_LEAF = 2  # nodes of a stretch that is not halved any further.

# --- Products of matrices ------------------------------------------------------------------------
TORCH_MATMUL_CELLS = 64 * 64  # elements: below, handing arrays to torch takes longer.
BLAS_ONE_THREAD = 1 << 18  # multiplications up to which OpenBLAS takes one thread,
BLAS_ONE_THREAD_VECTOR = 9216  # and where an operand has one row or column (OpenBLAS's own limits).
# The next five choose who multiplies. In brackets: by how much the mean time of the float32 grid of
# `benchmarks/products.py`, as a multiple of the quickest way's (1.20), grows without it.
MATMUL_NARROW = 8  # how much longer than wide, for MKL to sum up on several cores (3 %).
MATMUL_NEAR = 1 << 18  # elements that ours reads faster than oneDNN copies a transposed one (6 %).
MATMUL_UNCOPIED = 1 << 24  # multiplications up to which it beats oneDNN without a copy (4 %).
MATMUL_FAR = 1 << 21  # elements of an operand at most, half of them where it is transposed: larger
# ones leave the cache, which only MKL blocks for (float64; the grid ends there).
MATMUL_LEAST = 4  # rows and columns: of fewer, packing takes longer than multiplying.
MATMUL_COLUMNS = 32  # columns of a numpy caller's stacks at least,
MATMUL_STACK = 1 << 22  # with more multiplications than that: numpy takes a matrix after the other.
MATMUL_ITEMS = 16  # pieces of work of a product, so that many threads have some,
MATMUL_ROWS = 64  # if each has as many rows: of less, packing takes as long as multiplying.
MATMUL_CHUNK = 1 << 17  # multiplications of a chunk at least, about a microsecond.
MATMUL_THREAD = 1 << 19  # multiplications that make another thread worth waking.
PANEL_VECTORS = 2  # registers that a panel is wide, beside the 8 or 6 rows of a tile.
MATMUL_TERMS = 256  # terms added in registers before they go to the result: long sums stay exact.

ATTENTION_SCORES = 1 << 18  # of fewer, what the call costs beside is more. torch's kernel takes 0.8
# of their time for 2^17 scores, 0.4 for 2^21.
CTC_STEPS = 512  # of a CTC loss: the trace of more takes seconds, and torch's own is as fast.

# --- Arrays between statements -------------------------------------------------------------------
FREED_BYTES = 1 << 16  # smaller arrays are let go when the function returns.
ZEROED_CELLS = 1 << 14  # elements that are set to zero faster than the borders are found.
SUM_ROWS = 512  # rows that numpy would add one after the other, losing digits: torch adds in pairs.
ADDED_ROW = 128  # numbers of a row for which np.add, of 1 ns, beats np.add.at, of 10 ns a number.
ADDED_SORTED = 1 << 12  # numbers of a result for which np.bincount beats np.add.at.
DRAWN_NATIVELY = 1 << 9  # draws that take longer than to get and set the state of a generator.
DEFERRED_CELLS = 1 << 16  # elements of an operand: below, computing is as quick as not to.
DEFERRED_READS = 3  # of what waits: a function that reads more is computed as it goes.
TEMPLATES = 1 << 12  # calls of which the nodes are kept: some 2 kB each.

UNASKED_NODES = 64  # of a graph that is compiled once more to run without what df reads.

# --- Ours or eager's (gradof.runtime.trial) -------------------------------------------------------
TRIAL_WARM = 12  # calls of ours before eager's first: convolutions are chosen, backwards compiled.
TRIAL_LEAST = 2e-5  # seconds of a call: of less, what eager would save is not seen.
TRIAL_SHORT = 2e-4  # seconds of a call that is timed as often as can be: noise is as large as it.
TRIAL_STEP = 5e-6  # seconds that are ours in a call that eager runs: to be gained before it is.
TRIAL_TIMES = 6  # calls of each side that are timed, of which the quickest counts.
TRIAL_CLEAR = 1.5  # times as fast: so much is no noise, and decided after two calls of each.
TRIAL_MARGIN = 1.01  # times as slow: within it the two are as fast, and ours stays.
TRIAL_AGAIN = 64  # eager calls after which Python's state is looked at: 20 us are little then.
COMPARED = 1 << 20  # pairs of elements of two arrays that are compared one by one.
READ_NUMBERS = 256  # of an array of whole numbers that decide a shape: each is a guard.
DECIDING_ELEMENTS = 64  # of tensors that are compared then: flags and counts, no weights.

# --- Signatures that keep changing (gradof.runtime.shapes) ----------------------------------------
SHAPE_PAYS = 3  # times a trace's cost that eager spends first: traces add a third at most.

# --- Convolutions (codegen.lowering.convolutions) -------------------------------------------------
WAY_TRIES = 3  # calls in which each way is timed: the first makes the library's code, too.
WAY_WORTH = 0.95  # of the usual way's time, that another way must not exceed.
WAY_HOPELESS = 1.5  # times the best: such a way is not tried again.
WAY_SPOILS = 4  # results full of nan that are freed before a way's first: one is its memory.

# --- Tiles: numpy over rows that fit the cache ---------------------------------------------------
TILE_CELLS = 1 << 17  # of 4 bytes: a tile has no fewer, where there are as many; Note [Tiles].
TILE_SCRATCH = 7 << 20  # bytes of a tile: so much fits into a cache that is near.
TILE_SUMMED = 1 << 19  # cells of a tile whose rows torch sums, at most: Note [Sums of tiles].
TILE_SHARES = 8  # tiles of a large array, for threads to share.
TILE_LONG_ROW = 256  # columns of a row that is worth an inner loop: Note [numpy's buffers].
TILE_KEPT = 16 << 20  # bytes kept for the next call; an untiled kernel may need any amount.
SUM_COLUMNS = 256  # columns of a block that BLAS sums: its error grows with the length.
SUM_CELLS = 1 << 16  # cells of a block of rows that are folded.
SUM_NARROW = 32  # columns: it pays to lay fewer out as rows first.
SUM_WIDE = 1024  # cells that are folded at once: narrower rows are taken several together.
SUM_FEW = 8  # columns, too few for a call of BLAS.
ROWS_FEW = 64  # columns: of shorter rows numpy's passes are faster than a call of torch.
TORCH_ROW_FEW = 8  # columns for which torch's own loops are short, too.

# --- Native code ---------------------------------------------------------------------------------
NATIVE_CHUNK = 1 << 14  # cells of a chunk at least: handing it to a thread is little beside it.
NATIVE_THREAD = 1 << 20  # instructions of all cells that make another thread worth waking.
NATIVE_QUICK = 1 << 13  # cells: of fewer, optimised code would not be seen beside the call.
SEGMENT_COLUMNS = 32  # columns: of fewer, the loops of a segment are mostly beginnings and ends.
LAST_CACHE = 32 << 20  # bytes, where the system does not tell.
SUM_STREAMS = 4  # accumulators, so that additions need not wait for one another.
UNROLL_SHORT = 16  # instructions for each reduction of a loop that is copied for each accumulator,
UNROLL_LONG = 96  # or all of one with functions that are straight code, of about
UNROLL_INLINE = 20  # instructions each, if there are as many as
UNROLL_WORK = 10  # for each vector in memory: others wait for that; copies take time to compile.

# --- A whole graph as one native function --------------------------------------------------------
WHOLE_CELLS = 1 << 15  # cells of the largest array: up to there all of a graph is near a core.
WHOLE_ARGUMENT = 1 << 22  # cells of an argument of which rows are picked, or that is multiplied.
WHOLE_LOOP_CELLS = 1 << 20  # the same of a graph with loops, whose stacked results are long.
WHOLE_LEAST = 4  # ops: fewer do not repay what compiling costs, and loading the compiler.
STRETCH_LEAST = 6  # ops of a part of a graph that is a function of its own, and cells of its
STRETCH_CALLS = {"mm": 3, "bmm": 3, "FusionGroup": 3}  # ops that a call is as long as, from Python.
STRETCH_CELLS = 1 << 17  # largest array: no loop is worth waking a thread.
STRETCH_KERNEL = 1 << 22  # cells of a kernel's array: of more, a call from Python is little beside.
WHOLE_MOST = 6000  # ops, written out: of more, compiling takes seconds.
WHOLE_REGISTERS = 8  # numbers of an array that are each in a register.
WHOLE_GROUP = 512  # elementwise ops of one loop: of more, most are kept in memory anyway.
WHOLE_PRODUCT = 1 << 21  # multiplications of a product: larger ones are for several threads.
WHOLE_CALLED = 1 << 15  # multiplications of one that is a call of the kernel for all sizes.
WHOLE_HELD = 1 << 15  # cells in all: of more, others may run Python meanwhile.
ALIKE_CALLS = 64  # calls in a row that are a function: of 200 layers, 0.6 s instead of 2.8.
ALIKE_LINES = 8  # lines of code: fewer that are repeated are compiled as soon as a call of them.
EARLY_LINES = 128  # lines of code: of fewer, LLVM takes some 8 ms, optimised.
EARLY_CELLS = 1 << 12  # cells for each line, which take half the time that is spared with it.
EARLY_CALLS = 2  # calls after which it is optimised: f and df of a training loop have no third.
WHOLE_QUICK = 20_000  # lines of code: of more, it is compiled without optimisation.

# --- Triton --------------------------------------------------------------------------------------
BLOCK_CELLS = 2048  # of a tile, where rows are shorter.
FOLD_BLOCK_CELLS = 8192  # of a tile of partial results.
MULTIPROCESSORS = 132  # of a device that nobody can ask: an H100's.
ROW_BLOCK = 1 << 14  # columns that one program holds in registers; longer rows are loops.
TUNED_POSITIONS = 1 << 20  # positions: below, a launch costs more than any tile saves.
TUNED_CELLS = 1 << 14  # cells of the largest tile that is tried.
WINDOW_PARTS = 8  # parts that one loop puts together: it computes each everywhere.
WINDOW_OPS = 32  # ops that parts are computed by,
WINDOW_CALLS = 4  # and of them those that are expensive.
PICKED_OPS = 32  # ops between what is gathered and what is in memory.
REFINED_NODES = 400  # nodes of loops that are looked at as one: the search is quadratic.
SUMMED_TERMS = 8  # sums that one over long rows is taken apart into: each is another accumulator.
SPLIT_ROWS = 4096  # rows: of more, there are programs enough.
SPLIT_CELLS = 64  # cells summed first: of fewer, the second step would have much to read.
NATIVE_GUARDS = 100  # places of Python's state: of fewer, the native check saves less than 2 us.
MOST_RULES = 3  # of one Function within its own backward, whose rule calls it again and again: each
# gives one more derivative, and may call it several times.
