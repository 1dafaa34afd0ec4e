"""The native function of a graph as an `Executable`.

    run = WholeExecutable(graph, "loss", statements)
    run(x, w)                  # one call of machine code
    run.kernels[0].source      # LLVM IR

`statements` makes the code that computes the graph op by op. That runs where an index is out of
range or a matrix has no inverse, and raises the error there is.

Note [Compiled twice]
LLVM takes a third of the time to the first gradient of a small network, four fifths of which are
spent on registers and the order of instructions. Most functions are called a few times or very
often. So a long one that computes little is compiled without optimisation, in a fifth of the time,
and as it ought to be once it is called for the third time: f and df of a training loop never are,
which from the third step on are one graph (Note [Together] in `gradof.runtime.joint`). The results
are the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradof import tuning
from gradof.codegen.machine.c_entry import CEntry, Form, c_function
from gradof.codegen.machine.engine import Code, Effort, is_on_disk, vector_bits
from gradof.codegen.machine.executable import Executable
from gradof.codegen.machine.python_entry import Entry, Watched, aligned_copy
from gradof.codegen.whole.emit import Whole, emit_whole
from gradof.codegen.whole.values import shape_of, tensor
from gradof.ir.attrs import to_numpy_dtype
from gradof.ir.core import Block, Graph
from gradof.ir.forks import cached_property
from gradof.ir.loop import Loop, is_loop
from gradof.ir.types import TensorType
from gradof.passes.generalize import plain


@dataclass(frozen=True)
class _Nest:
    """What `explain` says of a kernel."""

    name: str
    sizes: tuple[int, ...]


class WholeKernel:
    """The one kernel of the graph."""

    emitter = "native, the whole graph"

    def __init__(self, name: str, whole: Whole) -> None:
        self.source = whole.text
        self.nest = _Nest(name, (whole.steps,))


class StretchKernel:
    """The native function of a part of a graph: called with arrays, it returns a tuple of them.

    `statements` as for a whole graph. The text is kept for people; the function holds its code.
    """

    emitter = "native, a stretch of the graph"

    def __init__(self, graph: Graph, name: str, statements: Callable[[], Executable]) -> None:
        made = WholeExecutable(graph, name, statements)
        self.source = made.source
        self.nest = _Nest(name, (made.whole.steps,))
        self.call = made.function
        self.kernels = made.whole.kernels

    def __call__(self, *arrays: Any) -> tuple[Any, ...]:
        """The results, fresh arrays."""
        result: tuple[Any, ...] = self.call(*arrays)
        return result


class WholeExecutable(Executable):
    """See the module docstring."""

    is_silent = True

    def __init__(
        self, graph: Graph, name: str, statements: Callable[[], Executable]
    ) -> None:
        whole = emit_whole(graph, vector_bits())
        self.whole = whole
        self.name, self.source, self.filename = name, whole.text, f"<gradof {name} whole>"
        self.kernels = (WholeKernel(name, whole),)
        self._arity = len(graph.inputs)
        self._statements = statements
        self.constants = aligned_copy(whole.constants)
        total = cells(graph.block, {})
        first = _first_effort(whole, total)
        self._code = Code(whole.text, first)
        self.outputs = [(shape_of(v), to_numpy_dtype(tensor(v).dtype)) for v in graph.outputs]
        self._watched = Watched(name, Entry(
            self._code, self._code.address_of("whole"), self._arity, self.outputs, whole.arena,
            self.constants, is_long(total), whole.kept,
        ), self._other_way)  # fmt: skip
        self.function = self._watched.function
        self._early = 0  # calls that are left until it is compiled again
        if first != effort(whole):
            self._early, self._watched.asks = tuning.EARLY_CALLS, True

    @cached_property
    def statements(self) -> Executable:
        """The graph op by op."""
        return self._statements()

    def c_function(self, form: Form) -> int:
        """The address of a C function that does the same."""
        code = self._compiled_again() if self._watched.asks else self._code
        code.keep()
        return c_function(form, CEntry(
            code.address_of("whole"), self._arity, len(self.outputs), self.whole.arena,
            self.constants.__array_interface__["data"][0],
        ))  # fmt: skip

    @property
    def listing(self) -> str:
        """The graph op by op, for people; the LLVM IR is the source of the kernel."""
        return f"# {self.name} is one native function. Op by op it is\n\n{self.statements.listing}"

    def _early_call(self, *arrays: Any) -> tuple[Any, ...]:
        """One of the first calls, or that which has it compiled again."""
        if self._early <= 0:
            self._compiled_again()
        self._early -= 1
        self._watched.asks = False
        try:
            result: tuple[Any, ...] = self.function(*arrays)
            return result
        finally:
            self._watched.asks = self._early >= 0

    def _compiled_again(self) -> Code:
        code = Code(self.whole.text, effort(self.whole))
        self._watched.replace(code, code.address_of("whole"))
        self._code, self._early, self._watched.asks = code, -1, False
        return code

    def _other_way(self, *arrays: Any) -> tuple[Any, ...]:
        """A call that the native function cannot take as it is: with other arrays, or op by op."""
        if self._watched.asks:
            return self._early_call(*arrays)
        plain = [_plain(a) for a in arrays]
        others = any(a is not b for a, b in zip(plain, arrays, strict=True))
        if len(arrays) == self._arity and others:
            result: tuple[Any, ...] = self.function(*plain)
            return result
        return self.statements(*arrays)


def _plain(array: Any) -> Any:
    """The array itself if it is aligned and in C order, as native code wants it, or a copy."""
    if type(array) is np.ndarray and array.flags.c_contiguous and array.flags.aligned:
        return array
    return np.require(np.asarray(array), requirements=["C", "A"])


def is_long(total: int) -> bool:
    """Whether a call computes so many cells that other threads shall run Python meanwhile."""
    return total > tuning.WHOLE_HELD


def cells(block: Block, lengths: Mapping[str, int]) -> int:
    """Cells that are computed for these lengths, those of a loop once for each step."""
    total = 0
    for node in block.nodes():
        tensors = (v for v in node.outputs if isinstance(v.type, TensorType))
        total += sum(math.prod(plain(shape_of(v), lengths)) for v in tensors)
        if is_loop(node):
            steps: int = plain(Loop(node).steps, lengths)
            total += steps * cells(node.blocks[0], lengths)
    return total


def effort(whole: Whole) -> Effort:
    """How it is compiled, in the end."""
    return "quick" if whole.text.count("\n") > tuning.WHOLE_QUICK else "plain"


def _first_effort(whole: Whole, total: int) -> Effort:
    """How it is compiled at first; see Note [Compiled twice]."""
    wanted, lines = effort(whole), whole.text.count("\n")
    if lines < tuning.EARLY_LINES or total > lines * tuning.EARLY_CELLS:
        return wanted
    return wanted if is_on_disk(whole.text, wanted) else "quick"
