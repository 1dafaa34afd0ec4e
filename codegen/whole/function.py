"""The native function of a graph as an `Executable`.

    run = WholeExecutable(graph, "loss", statements)
    run(x, w)                  # one call of machine code
    run.kernels[0].source      # LLVM IR

`statements` makes the code that computes the graph op by op. That runs where an index is out of
range or a matrix has no inverse, and raises the error there is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradof import tuning
from gradof.codegen.machine.c_entry import CEntry, Form, c_function
from gradof.codegen.machine.engine import Code, Effort, vector_bits
from gradof.codegen.machine.executable import Executable
from gradof.codegen.machine.python_entry import Entry, aligned_copy, python_function
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
        self._code = Code(whole.text, effort(whole))
        self.address = self._code.address_of("whole")
        self.outputs = [(shape_of(v), to_numpy_dtype(tensor(v).dtype)) for v in graph.outputs]
        self.function = python_function(name, Entry(
            self._code, self.address, self._arity, self.outputs, whole.arena, self.constants,
            _is_long(graph),
        ), self._other_way)  # fmt: skip

    @cached_property
    def statements(self) -> Executable:
        """The graph op by op."""
        return self._statements()

    def c_function(self, form: Form) -> int:
        """The address of a C function that does the same."""
        self._code.keep()
        return c_function(form, CEntry(
            self.address, self._arity, len(self.outputs), self.whole.arena,
            self.constants.__array_interface__["data"][0],
        ))  # fmt: skip

    @property
    def listing(self) -> str:
        """The graph op by op, for people; the LLVM IR is the source of the kernel."""
        return f"# {self.name} is one native function. Op by op it is\n\n{self.statements.listing}"

    def _other_way(self, *arrays: Any) -> tuple[Any, ...]:
        """A call that the native function cannot take as it is: with other arrays, or op by op."""
        plain = [np.require(np.asarray(a), requirements=["C", "A"]) for a in arrays]
        others = any(a is not b for a, b in zip(plain, arrays, strict=True))
        if len(arrays) == self._arity and others:
            result: tuple[Any, ...] = self.function(*plain)
            return result
        return self.statements(*arrays)


def _is_long(graph: Graph) -> bool:
    """Whether a call may take so long that other threads shall run Python meanwhile."""
    return cells(graph.block, {}) > tuning.WHOLE_HELD


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
    """How it is compiled."""
    return "quick" if whole.text.count("\n") > tuning.WHOLE_QUICK else "plain"
