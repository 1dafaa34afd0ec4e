"""The schedule of a fusion group: one loop nest, the same for every emitter.

    rms(x, w):                                     x : f32[4096,1024], w : f32[1024]
    nest over rows (4096,), columns (1024,)
      x0  = load[0]            f32  cell    0      # x, strides of the nest's axes: (1024, 1)
      q   = square x0          f32  cell    0
      s   = reduce[sum] q      f32  row     1      # over the columns: known from stage 1 on
      m   = div s 1024.0       f32  row     1
      r   = rsqrt m            f32  row     1
      x1  = mul x0 r           f32  cell    1
      w0  = load[1]            f32  cell    1      # w: dims (None, 0), the same for every row
      y   = mul x1 w0          f32  cell    1
      store[0] y                    cell    1
      fold[sum, 1] y                cell    1      # output 1 = sum of y over the rows

Note [Loop nests]
A nest runs over `sizes`, the slowest axis first; the first `rows` axes are the rows, the others
the columns. Rows are independent of one another and may run in any order and in parallel; a row
runs through its stages in order, and each stage is one loop over the columns. An instruction's
`level` says how often its value differs: `once` in a kernel, per `row`, or per `cell`. Its stage is
the number of loops over the columns that have to be done before it.

A `reduce` reads a cell of stage s and gives a row value of stage s + 1. A `fold` reduces over all
rows: of cells, the result has the column axes; of row values, it has none. A `reduce` followed by
a `fold` reduces the whole space. Emitters fold in fixed chunks of rows (`CHUNK`), and combine the
chunks' partial results in order, so that a result does not depend on the number of threads.

A cell that stage s computes and stage t > s reads is either computed again in t, or held in a row
of scratch memory where its name is in `held`. Loads are always done again: the row is in cache. An
emitter that has the whole row at hand need not care.

Sizes and strides are arguments of a kernel: nothing emitted may depend on them but `sizes` being 1,
strides being 0 or 1 (`Buffer.dims` None; contiguity), and which axes there are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gradof.ir.attrs import Attr
from gradof.ir.core import Loc
from gradof.ir.types import DType

Level = Literal["once", "row", "cell"]
Operand = str | bool | int | float  # the name of an instruction, or a weak constant
LEVELS: tuple[Level, ...] = ("once", "row", "cell")


@dataclass(frozen=True)
class Buffer:
    """An array the kernel reads or writes.

    `dims[k]` is the array's own axis along axis k of the nest; None where it does not vary
    (stride 0). An axis of the array that is not named has size 1. Of an axis of the nest that is
    among the `windows`, it has the positions from the first up to the last, that one left out;
    only nests for a device have such. Along an axis among the `times` an output is so many times as
    long as the nest.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    dims: tuple[int | None, ...]
    windows: tuple[tuple[int, int, int], ...] = ()  # axis, first, last
    times: tuple[tuple[int, int], ...] = ()  # axis, times as long


@dataclass(frozen=True)
class Instr:
    """One scalar operation; see Note [Loop nests].

    `op` is one of the table in `gradof.codegen.loops.instructions`, which says of each what its
    operands, attributes, dtype and level are and which targets take it, or the kind of an
    elementwise op of the registry with that op's attributes. `verify` checks it.
    """

    name: str
    op: str
    args: tuple[Operand, ...]
    dtype: DType
    level: Level
    stage: int
    attrs: Mapping[str, Attr] = field(default_factory=dict)
    loc: Loc | None = None
    body: tuple[Instr, ...] = ()  # of a `pick`: cells, in names of their own

    @property
    def buffer(self) -> int:
        """The number of the input or output that a load, a store or a fold is of."""
        k = self.attrs["buffer"]
        assert isinstance(k, int)
        return k


@dataclass(frozen=True)
class LoopNest:
    """A fusion group as loops; see Note [Loop nests]."""

    name: str
    sizes: tuple[int, ...]
    rows: int
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    body: tuple[Instr, ...]
    held: frozenset[str] = frozenset()
    reads: tuple[int, ...] = ()  # per input, the operand of the group it is; one may be several

    @property
    def stages(self) -> int:
        """Loops over the columns that a row runs through."""
        return 1 + max((i.stage for i in self.body if i.level == "cell"), default=0)

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return math.prod(self.sizes[: self.rows])

    @property
    def n_columns(self) -> int:
        """Cells in a row."""
        return math.prod(self.sizes[self.rows :])

    def instr(self, name: str) -> Instr:
        """The instruction of a name; KeyError if there is none."""
        return self._by_name()[name]

    def _by_name(self) -> dict[str, Instr]:
        return {i.name: i for i in self.body if i.name}

    def loop(self, stage: int) -> list[Instr]:
        """What the loop over the columns of a stage runs, in order.

        Its own cells, reductions, stores and folds, and again the cells of earlier stages which
        these need and which are not held. Held cells of earlier stages are to be read from scratch.
        """
        by_name = self._by_name()
        needed: set[str] = set()
        todo = [i for i in self.body if i.level == "cell" and i.stage == stage]
        todo += [i for i in self.body if i.op == "reduce" and i.stage == stage + 1]
        own = {id(i) for i in todo}
        while todo:
            for arg in todo.pop().args:
                if isinstance(arg, str) and arg not in needed:
                    source = by_name[arg]
                    if source.level == "cell" and source.stage < stage and arg not in self.held:
                        needed.add(arg)
                        todo.append(source)
        return [i for i in self.body if id(i) in own or i.name in needed]

    def between(self, stage: int) -> list[Instr]:
        """Row instructions known once the loops before `stage` are done, reductions left out."""
        return [i for i in self.body if i.level == "row" and i.stage == stage and i.op != "reduce"]

    def once(self) -> list[Instr]:
        """What does not vary at all."""
        return [i for i in self.body if i.level == "once"]
